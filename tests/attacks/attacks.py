"""One function per attack: each turns a good model folder into a hostile one (see the README)."""

import hashlib
import json
import os
import pickle
import struct

import numpy as np
from safetensors.numpy import load, save

ENCODER, BANK, MODEL = "encoder.safetensors", "bank.safetensors", "model.json"


# -- tools of the attacker -----------------------------------------------------------------------------------


def put(folder, name, data):
    """Write a tensor file and make model.json believe in it."""
    (folder / name).write_bytes(data)

    def adapt(model):
        model["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    change_json(folder, adapt)


def change_json(folder, change):
    model = json.loads((folder / MODEL).read_text())
    change(model)
    (folder / MODEL).write_text(json.dumps(model))


def change_header(folder, name, change, text=None):
    """Edit the header of a tensor file and leave its data."""
    data = (folder / name).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    change(header)
    new = (text or json.dumps)(header).encode()
    put(folder, name, struct.pack("<Q", len(new)) + new + data[8 + length :])


def change_tensor(folder, name, tensor, change):
    tensors = {key: value.copy() for key, value in load((folder / name).read_bytes()).items()}
    tensors[tensor] = change(tensors[tensor])
    put(folder, name, save(tensors))


class Bomb:
    def __reduce__(self):
        return (os.system, ("touch PWNED",))


# -- the attacks ---------------------------------------------------------------------------------------------


def renamed_pickle(folder):
    (folder / ENCODER).write_bytes(pickle.dumps(Bomb()))


def renamed_pickle_with_hash(folder):
    size = (folder / ENCODER).stat().st_size
    put(folder, ENCODER, pickle.dumps(Bomb()).ljust(size, b"\0"))


def giant_header(folder):
    data = (folder / ENCODER).read_bytes()
    put(folder, ENCODER, struct.pack("<Q", 2**60) + data[8:])


def long_header(folder):
    change_header(folder, ENCODER, lambda header: None, lambda header: json.dumps(header) + " " * 100_000_000)


def deep_header(folder):
    change_header(folder, ENCODER, lambda header: None, lambda header: "[" * 20_000)


def overlapping_tensors(folder):
    def overlap(header):
        header["norms.0.bias"]["data_offsets"] = header["norms.0.weight"]["data_offsets"]

    change_header(folder, ENCODER, overlap)


def out_of_bounds(folder):
    def move(header):
        header["norms.0.bias"]["data_offsets"] = [o + 10**9 for o in header["norms.0.bias"]["data_offsets"]]

    change_header(folder, ENCODER, move)


def negative_offset(folder):
    def move(header):
        first, last = header["norms.0.bias"]["data_offsets"]
        header["norms.0.bias"]["data_offsets"] = [first - last, 0]

    change_header(folder, ENCODER, move)


def wrong_shape(folder):
    def turn(header):
        header["convs.1.weight"]["shape"] = header["convs.1.weight"]["shape"][::-1]

    change_header(folder, ENCODER, turn)


def wrong_type(folder):
    change_tensor(folder, ENCODER, "norms.0.bias", lambda v: v.astype(np.float64))


def missing_tensor(folder):
    change_header(folder, ENCODER, lambda header: header.pop("norms.0.bias"))


def extra_tensor(folder):
    change_header(folder, ENCODER, lambda header: header.update(more={"dtype": "F32", "shape": [0]}))


def duplicate_name(folder):
    def twice(header):
        text = json.dumps(header)
        return text[:-1] + ', "norms.0.bias": ' + json.dumps(header["norms.0.weight"]) + "}"

    change_header(folder, ENCODER, lambda header: None, twice)


def nan_weights(folder):
    change_tensor(folder, ENCODER, "convs.0.weight", lambda v: np.full_like(v, np.nan))


def infinite_bank(folder):
    change_tensor(folder, BANK, "vectors", lambda v: np.full_like(v, np.inf))


def negative_variance(folder):
    change_tensor(folder, ENCODER, "norms.0.running_var", lambda v: -v - 1)


def long_vectors(folder):
    change_tensor(folder, BANK, "vectors", lambda v: v * 7)


def wrong_hash(folder):
    data = bytearray((folder / ENCODER).read_bytes())
    data[-3] ^= 1
    (folder / ENCODER).write_bytes(data)


def truncated(folder):
    data = (folder / BANK).read_bytes()
    (folder / BANK).write_bytes(data[: len(data) // 2])


def newer_format(folder):
    change_json(folder, lambda model: model.update(format=2))


def no_format(folder):
    change_json(folder, lambda model: model.pop("format"))


def huge_settings(folder):
    change_json(folder, lambda model: model.update(bank_size=1_000_000))


def negative_size(folder):
    change_json(folder, lambda model: model.update(bank_size=-1))


def unknown_setting(folder):
    change_json(folder, lambda model: model["config"].update(backdoor=True))


def changed_settings(folder):
    change_json(folder, lambda model: model["config"].update(neighbours=1))


def nan_json(folder):
    change_json(folder, lambda model: model.update(normal_limit=float("nan")))


def huge_json(folder):
    change_json(folder, lambda model: model.update(facts={"pad": "x" * 17_000_000}))


def missing_file(folder):
    (folder / BANK).unlink()


def fifo(folder):
    (folder / BANK).unlink()
    os.mkfifo(folder / BANK)


def folder_instead(folder):
    (folder / MODEL).unlink()
    (folder / MODEL).mkdir()


def broken_calibration(folder):
    change_json(folder, lambda model: model.update(calibration=[1, 2, 3]))


def broken_limit(folder):
    change_json(folder, lambda model: model.update(normal_limit="high"))


def broken_facts(folder):
    change_json(folder, lambda model: model.update(facts=5, losses="none"))


def broken_losses(folder):
    change_json(folder, lambda model: model.update(losses=[{"loss": "x" * 1000}]))


def hostile_interval(folder):
    change_json(folder, lambda model: model.update(facts={"interval_seconds": 10**400}))


def hostile_channels(folder):
    change_json(folder, lambda model: model.update(facts={"channel_names": ["x"] * 500_000}))


ALL = [f for f in list(globals().values()) if callable(f) and getattr(f, "__code__", None)]
ALL = [f for f in ALL if f.__code__.co_varnames[:1] == ("folder",) and f.__code__.co_argcount == 1]

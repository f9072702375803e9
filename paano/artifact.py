"""A model as three files: `encoder.safetensors`, `bank.safetensors`, `model.json`. Nothing is ever unpickled.

Reading checks everything: what the two tensor files must contain follows from the settings in `model.json`,
and a file is refused by its size, hash, header, shapes and numbers before anything is made of it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as tensor_bytes

from paano.config import PaAnoConfig
from paano.errors import ArtifactError, ConfigError
from paano.facts import ModelFacts
from paano.network.shapes import NORM, embedding_size, layer_shapes
from paano.scoring.kept import kept_shapes, most_rows, plain_shapes
from paano.scoring.level import level_shapes
from paano.scoring.next_value import next_value_shapes
from paano.scoring.still import still_shapes

FORMAT = 1
ENCODER, BANK, MODEL = "encoder.safetensors", "bank.safetensors", "model.json"
LARGEST_JSON = 16 * 2**20
LARGEST_HEADER = 2**16
DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I16": np.dtype("<i2"),
    "I64": np.dtype("<i8"),
}

Tensors = dict[str, np.ndarray]
Shapes = dict[str, tuple[str, tuple[int, ...]]]  # tensor name → (dtype, shape)


def encoder_shapes(config: PaAnoConfig, channels: int) -> Shapes:
    """What `encoder.safetensors` must contain."""
    shapes: Shapes = {"unit": ("F64", (channels,))}
    for i, (inputs, outputs, kernel) in enumerate(layer_shapes(config, channels)):
        shapes[f"convs.{i}.weight"] = ("F32", (outputs, inputs, 1, kernel))
        for name in NORM:
            shapes[f"norms.{i}.{name}"] = ("F32", (outputs,))
    return shapes


def bank_shapes(config: PaAnoConfig, size: int, channels: int, kept_rows: int) -> Shapes:
    """What `bank.safetensors` must contain: embeddings and all parts that are set."""
    bank: Shapes = {"vectors": ("F32", (size, embedding_size(config))), "position": ("I64", (size,))}
    if config.level != "none":
        bank |= level_shapes(config.patch, channels)
    if config.next_value != "none":
        bank |= next_value_shapes(config.patch, channels)
    if config.still != "measured":
        bank |= still_shapes(channels)
    if config.keep:
        bank |= kept_shapes(kept_rows, channels)
    if config.plain != "none":
        bank |= plain_shapes(channels)
    return bank


def write(
    folder: str | os.PathLike[str],
    encoder: Mapping[str, np.ndarray],
    bank: Mapping[str, np.ndarray],
    model: Mapping[str, Any],
) -> None:
    """Write the three files; `model.json` comes last, so a folder that has one is whole."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = {ENCODER: tensor_bytes(dict(encoder)), BANK: tensor_bytes(dict(bank))}
    sums = {name: {"bytes": len(data), "sha256": _sha256(data)} for name, data in files.items()}
    try:
        text = json.dumps(
            {"format": FORMAT, **model, "files": sums}, indent=1, sort_keys=True, allow_nan=False
        )
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"{folder}: facts must be plain JSON: {error}") from error
    files[MODEL] = text.encode() + b"\n"
    if len(files[MODEL]) > LARGEST_JSON:
        raise ArtifactError(f"{folder}: facts make {MODEL} larger than {LARGEST_JSON} bytes")
    for name, data in files.items():
        part = folder / f".{name}.part"
        part.write_bytes(data)
        os.replace(part, folder / name)


def read(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], Tensors, Tensors]:
    """The model's JSON (`config` as PaAnoConfig) and the tensors of encoder and bank, all checked."""
    folder = Path(folder)
    path = folder / MODEL
    model = _parse_json(_read_bytes(path, largest=LARGEST_JSON), path)
    if not isinstance(model, dict) or type(model.get("format")) is not int:
        raise ArtifactError(f"{path}: not a model of this project")
    if model["format"] != FORMAT:
        raise ArtifactError(
            f"{path}: format {model['format']}, this version reads {FORMAT}; "
            + ("update the program" if model["format"] > FORMAT else "train the model again")
        )
    try:
        model["config"] = PaAnoConfig.from_dict(_typed(model, "config", dict, path))
    except ConfigError as error:
        raise ArtifactError(f"{path}: {error}") from error
    if model.get("config_digest") != model["config"].digest:
        raise ArtifactError(f"{path}: config_digest does not belong to config")
    channels = _count(model, "channels", path)
    size = _count(model, "bank_size", path)
    sums = _typed(model, "files", dict, path)
    encoder = _read_tensors(folder / ENCODER, encoder_shapes(model["config"], channels), sums)
    kept_rows = _kept_rows(model, channels, path)
    bank = _read_tensors(folder / BANK, bank_shapes(model["config"], size, channels, kept_rows), sums)
    for name, values in encoder.items():
        if (name.endswith("running_var") and (values < 0).any()) or (name == "unit" and (values <= 0).any()):
            raise ArtifactError(f"{folder / ENCODER}: {name} has impossible values")
    length = np.linalg.norm(bank["vectors"].astype(np.float64), axis=1)
    if not ((np.abs(length - 1) < 1e-3) | (length == 0)).all():
        raise ArtifactError(f"{folder / BANK}: vectors are not of unit length")
    return model, encoder, bank


def _kept_rows(model: dict[str, Any], channels: int, path: Path) -> int:
    keep = model["config"].keep
    rows = _count(model, "kept_rows", path) if keep else 0
    if keep and rows > most_rows(keep, channels):
        raise ArtifactError(f"{path}: kept_rows = {rows} is more than {most_rows(keep, channels)}")
    return rows


def facts_of(model: Mapping[str, Any]) -> ModelFacts:
    """The facts of a model's JSON, checked; they name as many channels as the model has."""
    entries = model.get("facts")
    if not isinstance(entries, dict):
        raise ArtifactError("facts is missing or not an object")
    facts = ModelFacts(entries)
    if "channel_names" in facts and len(facts.channel_names) != model["channels"]:
        raise ArtifactError(
            f"facts.channel_names has {len(facts.channel_names)} names for {model['channels']} channels"
        )
    return facts


def _read_tensors(path: Path, shapes: Shapes, sums: dict[str, Any]) -> dict[str, np.ndarray]:
    """The tensors of one safetensors file, if it has exactly `shapes`, back to back, all finite."""
    expected = sum(DTYPES[dtype].itemsize * math.prod(shape) for dtype, shape in shapes.values())
    data = _read_bytes(path, smallest=8 + 2 + expected, largest=8 + LARGEST_HEADER + expected)
    known = sums.get(path.name)
    if not isinstance(known, dict) or known.get("sha256") != _sha256(data):
        raise ArtifactError(f"{path}: sha256 differs from the one in {MODEL}")

    length = int.from_bytes(data[:8], "little")
    if length != len(data) - 8 - expected:
        raise ArtifactError(f"{path}: header of {length} bytes, expected {len(data) - 8 - expected}")
    header = _parse_json(data[8 : 8 + length], path)
    if not isinstance(header, dict):
        raise ArtifactError(f"{path}: header is not an object")
    header.pop("__metadata__", None)
    if header.keys() != shapes.keys():
        raise ArtifactError(f"{path}: tensors {sorted(header)}, expected {sorted(shapes)}")

    spans, tensors = [], {}
    for name, (dtype, shape) in shapes.items():
        entry = header[name]
        if not isinstance(entry, dict) or entry.get("dtype") != dtype or entry.get("shape") != list(shape):
            raise ArtifactError(f"{path}: {name} is {entry!r:.200}, expected {dtype} {list(shape)}")
        span = entry.get("data_offsets")
        size = DTYPES[dtype].itemsize * math.prod(shape)
        if not (isinstance(span, list) and len(span) == 2 and all(type(s) is int for s in span)):
            raise ArtifactError(f"{path}: {name} has no data_offsets")
        if not (span[0] >= 0 and span[1] <= expected and span[1] - span[0] == size):
            raise ArtifactError(f"{path}: {name} lies outside the file or has another size")
        spans.append(span)
        values = np.frombuffer(data, DTYPES[dtype], count=math.prod(shape), offset=8 + length + span[0])
        tensors[name] = np.require(values, requirements="A").reshape(shape)  # a view, as files are written
    spans.sort()
    if any(a[1] > b[0] for a, b in itertools.pairwise(spans)):
        raise ArtifactError(f"{path}: tensors overlap")
    for name, values in tensors.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ArtifactError(f"{path}: {name} has values that are not finite")
    return tensors


def _read_bytes(path: Path, *, smallest: int = 2, largest: int) -> bytearray:
    """The bytes of an ordinary file of a size between the two, looked at before it is read."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise ArtifactError(f"{path}: not an ordinary file")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if not smallest <= size <= largest:
                raise ArtifactError(f"{path}: {size} bytes, expected {smallest} to {largest}")
            data = bytearray(size)  # tensors are views of it
            if file.readinto(data) != size:
                raise ArtifactError(f"{path}: it became shorter while it was read")
            return data
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: missing; the model folder is not whole") from error
    except OSError as error:  # a link that leads to itself, a folder that may not be read
        raise ArtifactError(f"{path}: it cannot be read ({error.strerror})") from error


def _parse_json(data: bytes | bytearray, path: Path) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = dict(pairs)
        if len(names) != len(pairs):
            raise ValueError("a name appears twice")
        return names

    try:
        return json.loads(data.decode(), parse_constant=refuse, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: not valid JSON: {error}") from error


def _typed(model: dict[str, Any], name: str, kind: type, path: Path) -> Any:
    value = model.get(name)
    if type(value) is not kind:
        raise ArtifactError(f"{path}: {name} is missing or not a {kind.__name__}")
    return value


def _count(model: dict[str, Any], name: str, path: Path) -> int:
    value: int = _typed(model, name, int, path)
    if not 1 <= value <= 1_000_000:
        raise ArtifactError(f"{path}: {name} = {value} is outside 1 to 1000000")
    return value


def _sha256(data: bytes | bytearray) -> str:
    return hashlib.sha256(data).hexdigest()

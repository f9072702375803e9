"""The folder of a version: the three files of a saved model under `model/`, and what makes it a pyfunc.

    MLmodel  scoring.py  requirements.txt  python_env.yaml  conda.yaml  model/…  review/…

The extra files follow from the model alone, so that the same model is the same bytes. `model.json` holds the
sha256 of the two others, so its own sha256 stands for the whole: that is the digest of a version. What MLflow
runs has a digest of its own (`pyfunc_digest`), as it changes with our releases and the model does not.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

from paano.artifact import (
    BANK,
    DTYPES,
    ENCODER,
    LARGEST_HEADER,
    LARGEST_JSON,
    MODEL,
    bank_shapes,
    encoder_shapes,
)
from paano.config import PaAnoConfig
from paano.errors import ArtifactError, ConfigError
from paano.scoring.kept import most_rows
from storage.objects.store import Store

FILES = (ENCODER, BANK, MODEL)
CODE = "scoring.py"
# What MLflow runs, and what it installs for it: read by MLflow alone, never by our flows.
PYFUNC_FILES = ("MLmodel", "conda.yaml", "python_env.yaml", "requirements.txt", CODE)
LARGEST_FILE = 2**30  # bytes of encoder or bank that are ever read
EXAMPLE = "input_example.json"
_NEEDED = ("paano-fleet", "mlflow", "torch", "numpy", "scipy", "scikit-learn", "safetensors", "pandas")


def digest_of(folder: str | Path) -> str:
    """The digest of a saved model: sha256 of its `model.json`."""
    return hashlib.sha256(_read(Path(folder) / MODEL)).hexdigest()


def pyfunc_digest(files: Mapping[str, bytes]) -> str:
    """The digest of what MLflow runs, as `sha256sum MLmodel … scoring.py | sha256sum` prints it."""
    lines = [f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in PYFUNC_FILES]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def stored_pyfunc_digest(store: Store, place: str) -> str:
    """`pyfunc_digest` of the version whose files are at `place`.

    Raises:
        ArtifactError: a file is missing or larger than one of ours.
    """
    return pyfunc_digest({name: _get(store, f"{place}/{name}", LARGEST_JSON) for name in PYFUNC_FILES})


def is_whole(folder: str | Path, digest: str) -> bool:
    """Whether `folder` holds the model of `digest`, as far as hash of one and sizes of the others show.

    Loading checks the hashes of the others, so that a warm cache need not read everything twice.
    """
    folder = Path(folder)
    try:
        if digest_of(folder) != digest:
            return False
        return all((folder / name).stat().st_size == size for name, (size, _) in _sums(folder).items())
    except (ArtifactError, OSError):
        return False


def verify(folder: str | Path, digest: str) -> None:
    """ArtifactError unless `folder` holds exactly the model of `digest`, byte for byte."""
    folder = Path(folder)
    if digest_of(folder) != digest:
        raise ArtifactError(f"{folder / MODEL}: sha256 differs from the registered {digest[:12]}…")
    for name, (_, known) in _sums(folder).items():
        if hashlib.sha256(_read(folder / name)).hexdigest() != known:
            raise ArtifactError(f"{folder / name}: sha256 differs from the one in {MODEL}")


def _sums(folder: Path) -> dict[str, tuple[int, str]]:
    """{file: (bytes, sha256)} as `model.json` says, if the sizes are possible for such a model."""
    return _described(_read(folder / MODEL), str(folder / MODEL))


def _described(data: bytes, where: str) -> dict[str, tuple[int, str]]:
    note = _parse(data, where)
    sums: dict[str, tuple[int, str]] = {}
    for name, largest in _largest(note, where).items():
        try:
            entry = note["files"][name]
            size, known = entry["bytes"], entry["sha256"]
        except (KeyError, TypeError) as error:
            raise ArtifactError(f"{where}: it does not say the sha256 of the other files") from error
        if type(size) is not int or not isinstance(known, str):
            raise ArtifactError(f"{where}: size or sha256 of {name} is not one")
        if not 0 < size <= largest:
            raise ArtifactError(f"{where}: {name} of {size} bytes; such a model has at most {largest}")
        sums[name] = (size, known)
    return sums


def _parse(data: bytes, where: str) -> dict[str, Any]:
    """`model.json`, strictly: no constants that JSON does not know, no giant."""
    if len(data) > LARGEST_JSON:
        raise ArtifactError(f"{where}: {len(data)} bytes, at most {LARGEST_JSON} are read")

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        note = json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{where}: not valid JSON: {str(error)[:200]}") from error
    if not isinstance(note, dict):
        raise ArtifactError(f"{where}: not a model of this project")
    return note


def _largest(note: dict[str, Any], where: str) -> dict[str, int]:
    """The largest sizes that encoder and bank of a model with these settings can have."""
    try:
        config = PaAnoConfig.from_dict(note["config"])
        channels, size = note["channels"], note["bank_size"]
        if type(channels) is not int or type(size) is not int or not (0 < channels < 10**6 > size > 0):
            raise ArtifactError(f"{where}: impossible numbers of channels or of patches in the bank")
        bank = bank_shapes(config, size, channels, most_rows(config.keep, channels))
        shapes = {ENCODER: encoder_shapes(config, channels), BANK: bank}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, ConfigError) as error:
        raise ArtifactError(f"{where}: it does not say the settings of the model ({error})") from error
    sizes: dict[str, Any] = dict(DTYPES)
    largest = {
        name: LARGEST_HEADER
        + 8
        + sum(sizes[kind].itemsize * math.prod(shape) for kind, shape in some.values())
        for name, some in shapes.items()
    }
    return {name: min(number, LARGEST_FILE) for name, number in largest.items()}


def copy_model(folder: str | Path, to: Path) -> None:
    """The three files of the model in `folder`, also in `to`."""
    for name in FILES:
        (to / name).write_bytes(_read(Path(folder) / name))


def download(store: Store, prefix: str, digest: str, to: Path) -> None:
    """The three files of a model from `store`, each looked at before it is read.

    Raises:
        ArtifactError: a file is missing, or its size is not the one that the model of `digest` says.
    """
    data = _get(store, f"{prefix}/{MODEL}", LARGEST_JSON)
    if hashlib.sha256(data).hexdigest() != digest:
        where = store.url_of(f"{prefix}/{MODEL}")
        raise ArtifactError(f"{where}: sha256 differs from the registered {digest[:12]}…")
    (to / MODEL).write_bytes(data)
    for name, (size, _) in _described(data, store.url_of(f"{prefix}/{MODEL}")).items():
        (to / name).write_bytes(_get(store, f"{prefix}/{name}", size, exactly=True))


def _get(store: Store, key: str, largest: int, exactly: bool = False) -> bytes:
    info = store.head(key)
    if info is None:
        raise ArtifactError(f"{store.url_of(key)}: missing; the files of this version are not whole")
    if info.size > largest or (exactly and info.size != largest):
        raise ArtifactError(
            f"{store.url_of(key)}: {info.size} bytes, {'' if exactly else 'at most '}{largest} are expected; "
            "it is not read"
        )
    return store.get(key)


def check_sensor(folder: str | Path, sensor: str) -> None:
    """ArtifactError if the model in `folder` says that it is of another sensor."""
    path = Path(folder) / MODEL
    facts = _parse(_read(path), str(path)).get("facts")
    if not isinstance(facts, dict):
        raise ArtifactError(f"{path}: facts are missing")
    made_for = facts.get("sensor", sensor)
    if made_for != sensor:
        raise ArtifactError(
            f"{sensor}: its version holds the model of another sensor, {str(made_for)[:100]!r}; set the "
            f"alias back to another version, or `paano retrain {sensor}`"
        )


def pack(folder: str | Path) -> tuple[str, dict[str, bytes]]:
    """Digest and files ({path in the version's folder: bytes}) of the model saved in `folder`."""
    folder = Path(folder)
    digest = digest_of(folder)
    verify(folder, digest)
    files = {f"model/{name}": _read(folder / name) for name in FILES}
    note = _parse(files[f"model/{MODEL}"], str(folder / MODEL))
    # MLmodel comes last: a folder that has one is whole.
    return digest, files | _surroundings() | {
        EXAMPLE: _example(note),
        "MLmodel": _mlmodel(digest, _names(note)),
    }


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: missing; the model folder is not whole") from error


@cache
def _surroundings() -> dict[str, bytes]:
    """The files that are the same for every model of this release."""
    # `mlflow models serve` installs these; where no index has paano-fleet, give pip a wheel of it
    # (PIP_FIND_LINKS), or serve with `--env-manager local`.
    needed = [f"{name}=={package_version(name)}" for name in _NEEDED]
    requirements = "\n".join([*needed, ""])
    python = ".".join(map(str, sys.version_info[:3]))
    environment = f"python: {python}\nbuild_dependencies:\n- pip\ndependencies:\n- -r requirements.txt\n"
    pip = "".join(f"  - {line}\n" for line in needed)
    conda = (
        f"channels:\n- conda-forge\ndependencies:\n- python={python}\n- pip\n- pip:\n{pip}name: mlflow-env\n"
    )
    return {
        CODE: Path(__file__).with_name("pyfunc.py").read_bytes(),
        "requirements.txt": requirements.encode(),
        "python_env.yaml": environment.encode(),
        "conda.yaml": conda.encode(),
    }


def _names(note: dict[str, Any]) -> tuple[str, ...]:
    """The channels as the model's facts name them; empty if they do not."""
    names = (note.get("facts") or {}).get("channel_names") or ()
    return tuple(str(name) for name in names)


def _example(note: dict[str, Any]) -> bytes:
    """A table that the model can score: a few rows with a time each."""
    facts = note.get("facts") or {}
    seconds = facts.get("interval_seconds", 60)
    step = timedelta(seconds=seconds if isinstance(seconds, int | float) and 0 < seconds < 10**8 else 60)
    names = _names(note) or ("value",)
    start = datetime(2026, 1, 1)
    rows = [[(start + n * step).isoformat(), *([round(math.sin(n / 4), 3)] * len(names))] for n in range(8)]
    return json.dumps({"columns": ["ts", *names], "data": rows}).encode()


@cache
def _mlmodel_text(names: tuple[str, ...]) -> str:
    import mlflow.pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, DataType, ParamSchema, ParamSpec, Schema

    model = Model(model_uuid="{digest}", utc_time_created="1970-01-01 00:00:00.000000")
    mlflow.pyfunc.add_to_model(
        model,
        loader_module="mlflow.pyfunc.loaders.code_model",
        conda_env="conda.yaml",
        python_env="python_env.yaml",
        model_code_path=CODE,
        artifacts={"model": {"path": "model", "uri": "model"}},
        streamable=False,
    )
    if names:
        # Any type: a count is a whole number, a time may be text or have a zone; the code checks them.
        anything: Any = AnyType
        inputs: list[Any] = [ColSpec(anything(), "ts", required=False)]
        inputs += [ColSpec(anything(), name) for name in names]
        answer = {"score": "float", "threshold": "float", "anomaly": "boolean", "status": "string"}
        outputs: list[Any] = [ColSpec(DataType[kind], name) for name, kind in answer.items()]
        outputs.append(ColSpec(DataType.integer, "coverage"))
        params = [ParamSpec("budget", DataType.double, 1.0), ParamSpec("threshold", DataType.double, None)]
        model.signature = ModelSignature(Schema(inputs), Schema(outputs), ParamSchema(params))
    model.saved_input_example_info = {
        "artifact_path": EXAMPLE,
        "type": "dataframe",
        "pandas_orient": "split",
    }
    return str(model.to_yaml())


def _mlmodel(digest: str, names: tuple[str, ...]) -> bytes:
    """MLflow's own description of the folder. MLflow takes seconds to save one; this takes none."""
    return _mlmodel_text(names).replace("{digest}", digest[:32]).encode()

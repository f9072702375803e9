"""The folder of a version: the three files of a saved model under `model/`, and what makes it a pyfunc.

    MLmodel  scoring.py  requirements.txt  python_env.yaml  conda.yaml  model/…  review/…

The extra files follow from the model alone, so that the same model is the same bytes. `model.json` holds the
sha256 of the two others, so its own sha256 stands for the whole: that is the digest of a version.
"""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache
from importlib.metadata import version as package_version
from pathlib import Path

from paano.artifact import BANK, ENCODER, LARGEST_JSON, MODEL
from paano.errors import ArtifactError

FILES = (ENCODER, BANK, MODEL)
CODE = "scoring.py"
_NEEDED = ("mlflow", "torch", "numpy", "scipy", "scikit-learn", "safetensors", "pandas")


def digest_of(folder: str | Path) -> str:
    """The digest of a saved model: sha256 of its `model.json`."""
    return hashlib.sha256(_read(Path(folder) / MODEL)).hexdigest()


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
    """{file: (bytes, sha256)} as `model.json` says."""
    data = _read(folder / MODEL)
    if len(data) > LARGEST_JSON:
        raise ArtifactError(f"{folder / MODEL}: {len(data)} bytes, at most {LARGEST_JSON} are read")
    try:
        files = json.loads(data)["files"]
        return {name: (int(files[name]["bytes"]), str(files[name]["sha256"])) for name in (ENCODER, BANK)}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{folder / MODEL}: it does not say the sha256 of the other files") from error


def pack(folder: str | Path) -> tuple[str, dict[str, bytes]]:
    """Digest and files ({path in the version's folder: bytes}) of the model saved in `folder`."""
    folder = Path(folder)
    digest = digest_of(folder)
    verify(folder, digest)
    files = {f"model/{name}": _read(folder / name) for name in FILES}
    # MLmodel comes last: a folder that has one is whole.
    return digest, files | _surroundings() | {"MLmodel": _mlmodel(digest)}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: missing; the model folder is not whole") from error


@cache
def _surroundings() -> dict[str, bytes]:
    """The files that are the same for every model of this release."""
    # paano-fleet is not on a package index of its own: name where to install it from when serving elsewhere.
    needed = [f"{name}=={package_version(name)}" for name in _NEEDED]
    requirements = "\n".join(
        [*needed, f"# and paano-fleet=={package_version('paano-fleet')}, this project", ""]
    )
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


@cache
def _mlmodel_text() -> str:
    import mlflow.pyfunc
    from mlflow.models import Model

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
    return model.to_yaml()


def _mlmodel(digest: str) -> bytes:
    """MLflow's own description of the folder. MLflow takes seconds to save one; this takes none."""
    return _mlmodel_text().replace("{digest}", digest[:32]).encode()

"""The folder of a version: the three files of a saved model plus what makes it a plain MLflow pyfunc."""

from __future__ import annotations

from pathlib import Path


def digest_of(folder: str | Path) -> str:
    """Hexadecimal digest of a saved model: of the bytes of its three files."""
    raise NotImplementedError

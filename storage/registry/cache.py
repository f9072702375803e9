"""Models on the local disk, by version, so that scoring needs neither registry nor store for those it has.

A model is placed whole by a rename. When the cache grows over its limit, what was not used for longest goes.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from storage.objects.errors import named
from storage.registry import package

_IN_USE = 600.0  # seconds after its last use that a model is never removed: somebody may be loading it


class ModelCache:
    """A folder of models. Any number of processes may use it at once."""

    def __init__(self, folder: str | Path, limit: int) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.models = self.folder / "models"
        self.limit = limit
        self._size: int | None = None

    def get(self, name: str, digest: str, download: Callable[[Path], None]) -> Path:
        """The folder of a model; `download` fills a new one, which is verified before it is placed."""
        place = self.models / name / digest[:32]
        with named(str(place)):
            if package.is_whole(place, digest):
                os.utime(place)
                return place
            half = self.models / f".half-{os.getpid()}-{secrets.token_hex(6)}"
            half.mkdir(parents=True)
            try:
                download(half)
                package.verify(half, digest)
                self._place(half, place, digest)
            finally:
                shutil.rmtree(half, ignore_errors=True)
        self._shrink(place)
        return place

    def seems_to_have(self, name: str, digest: str) -> bool:
        """Whether there is a folder for the model; `get` looks into it, and downloads it if it is damaged."""
        return (self.models / name / digest[:32]).is_dir()

    def _place(self, half: Path, place: Path, digest: str) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(3):
            try:
                half.rename(place)
                return
            except OSError:
                # Somebody was quicker, or what lies there is damaged.
                if package.is_whole(place, digest):
                    return
                self.drop(place)
        half.rename(place)

    def drop(self, place: Path) -> None:
        """Remove a model; others see it whole or not at all."""
        grave = self.models / f".gone-{os.getpid()}-{secrets.token_hex(6)}"
        try:
            place.rename(grave)
        except FileNotFoundError:
            return
        shutil.rmtree(grave, ignore_errors=True)

    def _shrink(self, new: Path) -> None:
        if self._size is None:
            self._size = sum(size for _, size, _ in self._entries())
        else:
            self._size += _bytes(new)
        if self._size <= self.limit:
            return
        with FileLock(str(self.folder / "lock")):
            entries = sorted(self._entries())
            self._size = sum(size for _, size, _ in entries)
            for used, size, place in entries:
                if self._size <= 0.9 * self.limit or used > time.time() - _IN_USE:
                    break
                self.drop(place)
                self._size -= size

    def _entries(self) -> list[tuple[float, int, Path]]:
        """(last use, bytes, folder) of every model."""
        found = []
        for place in self.models.glob("[!.]*/*"):
            try:
                found.append((place.stat().st_mtime, _bytes(place), place))
            except FileNotFoundError:
                continue  # removed while we looked
        return found


def _bytes(place: Path) -> int:
    return sum(file.stat().st_size for file in place.iterdir())

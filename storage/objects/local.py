"""A store in a folder on a disk."""

from __future__ import annotations

import builtins
import errno
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout

from paano.errors import ConfigError, Conflict, StorageError, StorageUnavailable
from storage.objects.errors import named
from storage.objects.store import ObjectInfo, Skip, StorageOptions, Store, check_key, content_etag, under

INSIDE = ".paano"
HALF = "half-"  # begins the name of a file that is being written
_LOCKS = 64  # a few lock files serve all keys
_LOCK_SECONDS = 60


class LocalStore(Store):
    """A folder. A put is a temporary file, fsync and rename, one writer at a time by a lock file."""

    def __init__(self, url: str, options: StorageOptions | None = None) -> None:
        if url.startswith("file://"):
            address = urlsplit(url)
            if address.netloc not in ("", "localhost"):
                raise ConfigError(
                    f"{url!r} names the machine {address.netloc!r}; a folder of this one is file:///path"
                )
            url = unquote(address.path)
        self.root = Path(url).expanduser().absolute()
        super().__init__(str(self.root), options)
        self._aside: Path | None = None

    @property
    def aside(self) -> Path:
        """The folder of locks and half-written files: beside the root, as some readers take all in it.

        Inside the root only if there is no other way: the root is a mount point or its parent not ours.
        """
        if self._aside is None:
            beside = self.root.parent / f".{self.root.name}.paano"
            inside = self.root / INSIDE
            with named(self.url):
                self.root.mkdir(parents=True, exist_ok=True)
                if inside.exists() or os.path.ismount(self.root):
                    beside = inside
                try:
                    beside.mkdir(exist_ok=True)
                except PermissionError:
                    beside = inside
                    beside.mkdir(exist_ok=True)
                _remove_old_halves(beside, HALF)
            self._aside = beside
        return self._aside

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        with named(self.url_of(key)), _open_regular(self._path(key)) as file:
            data = file.read()
        return data, content_etag(data)

    def put(self, key: str, data: bytes, *, if_match: str | None = None, if_absent: bool = False) -> str:
        path, where = self._path(key), self.url_of(key)
        with named(where), self._lock(key):
            if if_absent and path.exists():
                raise Conflict(f"{where}: it is already there")
            if if_match is not None and (not path.exists() or self.get_with_etag(key)[1] != if_match):
                raise Conflict(f"{where}: somebody else wrote it first")
            # Half-written files lie apart, so that a killed writer leaves nothing among the data.
            name = f"{HALF}{os.getpid()}-{secrets.token_hex(6)}"
            try:
                _write_and_place(self.aside / name, path, data)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                # The folder of the object is another file system (a bind mount): a rename works only within.
                _remove_old_halves(path.parent, f".{HALF}")
                _write_and_place(path.parent / f".{name}", path, data)
            _sync_folder(path.parent)
        return content_etag(data)

    @contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        """One writer of `key` at a time, over all processes; StorageUnavailable after a minute."""
        stripe = int(hashlib.sha256(key.encode()).hexdigest(), 16) % _LOCKS
        lock = FileLock(str(self.aside / f"lock-{stripe:02d}"), timeout=_LOCK_SECONDS)
        try:
            lock.acquire()
        except Timeout as error:
            raise StorageUnavailable(
                f"{lock.lock_file}: another writer has held this lock for {_LOCK_SECONDS} s"
            ) from error
        try:
            yield
        finally:
            lock.release()

    def head(self, key: str) -> ObjectInfo | None:
        with named(self.url_of(key)):
            try:
                return _local_info(self._path(key), key)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def list(self, prefix: str = "", skip: Skip | None = None) -> Iterator[ObjectInfo]:
        folder = self.root / under(prefix)
        found: builtins.list[ObjectInfo] = []
        with named(str(folder)):
            for parent, folders, files in os.walk(folder, onerror=_raise_unless_missing):
                folders[:] = [name for name in folders if name != INSIDE]
                for name in files:
                    if name.startswith(f".{HALF}"):
                        continue
                    path = Path(parent, name)
                    try:
                        found.append(_local_info(path, path.relative_to(self.root).as_posix()))
                    except FileNotFoundError:
                        continue  # removed while we looked
        yield from sorted(found, key=lambda info: info.key)

    def folders(self, prefix: str = "") -> builtins.list[str]:
        folder = self.root / under(prefix)
        with named(str(folder)):
            try:
                return sorted(e.name for e in os.scandir(folder) if e.is_dir() and e.name != INSIDE)
            except FileNotFoundError:
                return []

    def delete(self, keys: str | builtins.list[str]) -> None:
        for key in [keys] if isinstance(keys, str) else keys:
            path = self._path(key)
            with named(self.url_of(key)), self._lock(key):
                path.unlink(missing_ok=True)
                # A folder is only a part of a key: an empty one would not exist on S3 either.
                for parent in path.parents:
                    if parent == self.root or next(parent.iterdir(), None) is not None:
                        break
                    try:
                        parent.rmdir()
                    except OSError:
                        break  # somebody wrote into it just now

    def open(self, key: str) -> BinaryIO:
        with named(self.url_of(key)):
            return _open_regular(self._path(key))


def _open_regular(path: Path) -> BinaryIO:
    """The file at `path`; StorageError for a FIFO, a device or a folder, which could block or never end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would wait for a writer
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise StorageError(f"{path}: it is not a regular file; remove it or point to another folder")
    return os.fdopen(handle, "rb")


def _local_info(path: Path, key: str) -> ObjectInfo:
    found = path.stat()
    tag = f"{found.st_ino}-{found.st_mtime_ns}-{found.st_ctime_ns}"
    return ObjectInfo(key, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC), tag)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _write_and_place(half: Path, path: Path, data: bytes) -> None:
    try:
        half.parent.mkdir(parents=True, exist_ok=True)
        with half.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _place(half, path)
    finally:
        half.unlink(missing_ok=True)


def _remove_old_halves(folder: Path, prefix: str) -> None:
    """Remove what writers that were killed left behind."""
    yesterday = time.time() - 86_400
    for half in folder.glob(f"{prefix}*"):
        with suppress(FileNotFoundError):
            if half.stat().st_mtime < yesterday:
                half.unlink()


def _place(half: Path, path: Path) -> None:
    """Rename, making the folder; a concurrent delete may take the empty folder away in between."""
    for _ in range(10):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            half.replace(path)
            return
        except FileNotFoundError:
            continue
    half.replace(path)


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""The three kinds of store: a folder on a disk, S3, and whatever else fsspec speaks."""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

import fsspec
import fsspec.asyn
from filelock import FileLock, Timeout

from paano.errors import ConfigError, Conflict, ObjectMissing, StorageUnavailable
from storage.faults import name_error, named
from storage.objects import ObjectInfo, StorageOptions, Store, check_key, under

INSIDE = ".paano"
_LOCKS = 64  # a few lock files serve all keys
_LOCK_SECONDS = 60
SLOWEST = 100_000  # bytes per second: an upload slower than this is given up
_MAKING = threading.Lock()
_MADE: dict[tuple[int, StorageOptions], Any] = {}


def content_etag(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class LocalStore(Store):
    """A folder. A put is a temporary file, fsync and rename, one writer at a time by a lock file."""

    def __init__(self, url: str, options: StorageOptions | None = None) -> None:
        if url.startswith("file://"):
            url = unquote(urlsplit(url).path)
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
                _remove_old_halves(beside)
            self._aside = beside
        return self._aside

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        with named(self.url_of(key)):
            data = self._path(key).read_bytes()
        return data, content_etag(data)

    def put(self, key: str, data: bytes, *, if_match: str | None = None, if_absent: bool = False) -> str:
        path, where = self._path(key), self.url_of(key)
        with named(where), self._lock(key):
            if if_absent and path.exists():
                raise Conflict(f"{where}: it is already there")
            if if_match is not None and (not path.exists() or content_etag(path.read_bytes()) != if_match):
                raise Conflict(f"{where}: somebody else wrote it first")
            # Half-written files lie apart, so that a killed writer leaves nothing among the data.
            half = self.aside / f"half-{os.getpid()}-{secrets.token_hex(6)}"
            try:
                with half.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                _place(half, path)
            finally:
                half.unlink(missing_ok=True)
            _sync_folder(path.parent)
        return content_etag(data)

    def _lock(self, key: str) -> FileLock:
        stripe = int(hashlib.sha256(key.encode()).hexdigest(), 16) % _LOCKS
        return _NamedLock(str(self.aside / f"lock-{stripe:02d}"), timeout=_LOCK_SECONDS)

    def head(self, key: str) -> ObjectInfo | None:
        with named(self.url_of(key)):
            try:
                return _local_info(self._path(key), key)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        folder = self.root / under(prefix)
        found: builtins.list[ObjectInfo] = []
        with named(str(folder)):
            for parent, folders, files in os.walk(folder, onerror=_raise_unless_missing):
                folders[:] = [name for name in folders if name != INSIDE]
                for name in files:
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
            return self._path(key).open("rb")


class _NamedLock(FileLock):
    """A lock whose timeout is an error a flow may retry."""

    def __enter__(self) -> FileLock:
        try:
            return super().__enter__()
        except Timeout as error:
            raise StorageUnavailable(
                f"{self.lock_file}: another writer has held this lock for {_LOCK_SECONDS} s"
            ) from error


def _local_info(path: Path, key: str) -> ObjectInfo:
    stat = path.stat()
    return ObjectInfo(key, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC))


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _remove_old_halves(folder: Path) -> None:
    """Remove what writers that were killed left behind."""
    yesterday = time.time() - 86_400
    for half in folder.glob("half-*"):
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


class S3Store(Store):
    """A bucket and prefix, through s3fs. Conditions are S3's own If-Match and If-None-Match."""

    def __init__(self, url: str, options: StorageOptions | None = None) -> None:
        super().__init__(url, options)
        self.bucket, _, prefix = self.url.partition("://")[2].partition("/")
        if not self.bucket:
            raise ConfigError(f"{url!r} names no bucket; write s3://bucket/prefix")
        self.prefix = under(prefix)

    @property
    def fs(self) -> Any:
        """The s3fs file system, one for all stores of this process with the same options."""
        # One made before a fork would hang, and a new one takes botocore a second.
        name = (os.getpid(), self.options)
        with _MAKING:
            if name not in _MADE:
                _MADE[name] = _s3_file_system(self.options)
            return _MADE[name]

    def _run(self, key: str, work: Any) -> Any:
        fs = self.fs
        with named(self.url_of(key)):
            return fsspec.asyn.sync(fs.loop, work, fs)

    def _call(self, key: str, method: str, **arguments: Any) -> dict[str, Any]:
        # botocore's timeouts do not count while a PUT waits for the server's "100 Continue": it would hang.
        seconds = self.options.connect_timeout + self.options.read_timeout
        seconds += len(arguments.get("Body", b"")) / SLOWEST

        async def work(fs: Any) -> dict[str, Any]:
            return await asyncio.wait_for(fs._call_s3(method, Bucket=self.bucket, **arguments), seconds)

        return self._run(key, work)

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        full = self.prefix + check_key(key)

        async def work(fs: Any) -> tuple[bytes, str]:
            answer = await fs._call_s3("get_object", Bucket=self.bucket, Key=full)
            try:
                return await answer["Body"].read(), answer["ETag"]
            finally:
                answer["Body"].close()

        return self._patiently(lambda: self._run(key, work))

    def put(self, key: str, data: bytes, *, if_match: str | None = None, if_absent: bool = False) -> str:
        arguments: dict[str, Any] = {"Key": self.prefix + check_key(key), "Body": data}
        if if_absent:
            arguments["IfNoneMatch"] = "*"
        if if_match is not None:
            arguments["IfMatch"] = if_match

        def call() -> str:
            return self._call(key, "put_object", **arguments)["ETag"]

        # A repeated conditional put could meet its own first try and call it a conflict: the caller, who can
        # look, repeats those.
        return call() if if_absent or if_match is not None else self._patiently(call)

    def head(self, key: str) -> ObjectInfo | None:
        full = self.prefix + check_key(key)
        try:
            answer = self._patiently(lambda: self._call(key, "head_object", Key=full))
        except ObjectMissing:
            return None
        return ObjectInfo(key, answer["ContentLength"], answer["LastModified"].astimezone(UTC))

    def _pages(self, prefix: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        arguments["Prefix"] = self.prefix + under(prefix)
        while True:
            page = self._patiently(lambda: self._call(prefix, "list_objects_v2", **arguments))
            yield page
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for page in self._pages(prefix):
            for item in page.get("Contents", ()):
                key = item["Key"].removeprefix(self.prefix)
                if key and not key.endswith("/"):
                    yield ObjectInfo(key, item["Size"], item["LastModified"].astimezone(UTC))

    def folders(self, prefix: str = "") -> builtins.list[str]:
        names = set()
        for page in self._pages(prefix, Delimiter="/"):
            for item in page.get("CommonPrefixes", ()):
                names.add(item["Prefix"].rstrip("/").rpartition("/")[2])
        return sorted(names - {""})

    def delete(self, keys: str | builtins.list[str]) -> None:
        keys = [keys] if isinstance(keys, str) else keys
        for first in range(0, len(keys), 1000):  # as many as S3 takes at once
            some = [{"Key": self.prefix + check_key(key)} for key in keys[first : first + 1000]]
            answer = self._patiently(
                lambda some=some: self._call("", "delete_objects", Delete={"Objects": some, "Quiet": True})
            )
            for error in answer.get("Errors", ()):
                where = self.url_of(error.get("Key", "").removeprefix(self.prefix))
                raise name_error(_Refused({"Error": error}), where)

    def open(self, key: str) -> BinaryIO:
        with named(self.url_of(key)):
            return self.fs.open(f"{self.bucket}/{self.prefix}{check_key(key)}", "rb", cache_type="readahead")


class _Refused(OSError):
    """One object of a bulk delete was refused."""

    def __init__(self, response: dict[str, Any]) -> None:
        super().__init__("refused")
        self.response = response


def _s3_file_system(options: StorageOptions) -> Any:
    import s3fs

    client = {"region_name": options.region} if options.region else {}
    fs = s3fs.S3FileSystem(
        key=options.key,
        secret=options.secret,
        token=options.token,
        endpoint_url=options.endpoint
        or os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL"),
        client_kwargs=client,
        config_kwargs={
            "connect_timeout": options.connect_timeout,
            "read_timeout": options.read_timeout,
            "max_pool_connections": 32,
            "retries": {
                "max_attempts": 1,
                "mode": "standard",
            },  # `Store._patiently` is the only one that repeats
        },
        use_listings_cache=False,
        skip_instance_cache=True,
    )
    fs.retries = 1
    return fs


class FsspecStore(Store):
    """Any other fsspec URL. Conditions hold between threads of one process only."""

    _lock = threading.RLock()

    def __init__(self, url: str, options: StorageOptions | None = None) -> None:
        super().__init__(url, options)
        with named(url):
            try:
                self.fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
            except (ValueError, ImportError) as error:
                raise ConfigError(f"{url!r} cannot be opened: {error}") from error
        self.root = root.rstrip("/")

    def _full(self, key: str) -> str:
        return f"{self.root}/{check_key(key)}"

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        with named(self.url_of(key)):
            data = self.fs.cat_file(self._full(key))
        return data, content_etag(data)

    def put(self, key: str, data: bytes, *, if_match: str | None = None, if_absent: bool = False) -> str:
        where = self.url_of(key)
        with self._lock, named(where):
            if if_absent and self.fs.exists(self._full(key)):
                raise Conflict(f"{where}: it is already there")
            if if_match is not None:
                try:
                    held = self.get_with_etag(key)[1]
                except ObjectMissing:
                    held = None
                if held != if_match:
                    raise Conflict(f"{where}: somebody else wrote it first")
            self.fs.makedirs(self._full(key).rpartition("/")[0], exist_ok=True)
            self.fs.pipe_file(self._full(key), data)
        return content_etag(data)

    def head(self, key: str) -> ObjectInfo | None:
        with named(self.url_of(key)):
            try:
                return self._info(self.fs.info(self._full(key)))
            except FileNotFoundError:
                return None

    def _info(self, info: dict[str, Any]) -> ObjectInfo:
        name = "/" + info["name"].lstrip("/")
        key = name.removeprefix("/" + self.root.lstrip("/")).lstrip("/")
        modified = next(
            (info[n] for n in ("modified", "LastModified", "mtime", "created") if n in info), None
        )
        if isinstance(modified, (int, float)):
            modified = datetime.fromtimestamp(modified, UTC)
        if not isinstance(modified, datetime):
            modified = datetime.now(UTC)  # unknown: young, so that nothing is swept by mistake
        if modified.tzinfo is None:
            modified = modified.replace(tzinfo=UTC)
        return ObjectInfo(key, info["size"], modified.astimezone(UTC))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with named(self.url_of(prefix)):
            found = self.fs.find(f"{self.root}/{under(prefix)}", detail=True)
        infos = [self._info(info) for info in found.values()]
        yield from sorted(infos, key=lambda info: info.key)

    def folders(self, prefix: str = "") -> builtins.list[str]:
        with named(self.url_of(prefix)):
            try:
                entries = self.fs.ls(f"{self.root}/{under(prefix)}".rstrip("/"), detail=True)
            except FileNotFoundError:
                return []
        names = {e["name"].rstrip("/").rpartition("/")[2] for e in entries if e["type"] == "directory"}
        return sorted(names)

    def delete(self, keys: str | builtins.list[str]) -> None:
        for key in [keys] if isinstance(keys, str) else keys:
            with named(self.url_of(key)):
                try:
                    self.fs.rm_file(self._full(key))
                except FileNotFoundError:
                    continue

    def open(self, key: str) -> BinaryIO:
        with named(self.url_of(key)):
            return self.fs.open(self._full(key), "rb")

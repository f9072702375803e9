"""A store at any other address that fsspec speaks."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO

import fsspec

from paano.errors import ConfigError, Conflict, ObjectMissing
from storage.objects.errors import named
from storage.objects.store import ObjectInfo, Skip, StorageOptions, Store, check_key, content_etag, under


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
        tag = next((str(info[n]) for n in ("ETag", "etag", "content_md5", "md5Hash") if info.get(n)), "")
        return ObjectInfo(key, info["size"], modified.astimezone(UTC), tag)

    def list(self, prefix: str = "", skip: Skip | None = None) -> Iterator[ObjectInfo]:
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
            file: BinaryIO = self.fs.open(self._full(key), "rb")
        return file

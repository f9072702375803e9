"""Objects under a URL: get, put, head, list, delete, and a put that succeeds only if nobody else was first.

    store = open_store("s3://bucket/prefix", StorageOptions(endpoint="http://127.0.0.1:9000"))
    etag = store.put("a/b.json", b"{}", if_absent=True)      # Conflict if it exists
    store.put("a/b.json", b"[]", if_match=etag)               # Conflict if somebody wrote since

Every failure is one of the named errors of `paano.errors`; its message names the object and a remedy, and
never a secret. Readers see the old or the new object, never a half.
"""

from __future__ import annotations

import builtins
import hashlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO, TypeVar

from paano.errors import ConfigError, StorageError, Transient
from storage.retry import patiently

T = TypeVar("T")
Skip = Callable[[str], str]  # of a key: a folder up to which, itself too, nothing is of interest; or nothing


@dataclass(frozen=True)
class StorageOptions:
    """How to reach an object store. Left out, the usual AWS variables and files are used."""

    endpoint: str | None = None
    region: str | None = None
    key: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    connect_timeout: float = 5.0  # seconds
    read_timeout: float = 15.0  # seconds without a byte
    attempts: int = 3  # of one call, before it is Transient
    # Another text makes another connection: the keys in the usual AWS files have changed.
    renewed: str = field(default="", repr=False)


@dataclass(frozen=True)
class ObjectInfo:
    """What a listing says of an object. `key` is relative to the store."""

    key: str
    size: int
    modified: datetime  # UTC
    tag: str = ""  # another one whenever the object was written, as far as the store tells


class Store:
    """Objects under one URL. Keys are relative, with `/`, and never leave the root."""

    def __init__(self, url: str, options: StorageOptions | None = None) -> None:
        self.url = url.rstrip("/") or "/"
        self.options = options or StorageOptions()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Connections do not travel to another process; the address does.
        return open_store, (self.url, self.options)

    def url_of(self, key: str) -> str:
        return f"{self.url}/{key}" if key else self.url

    def get(self, key: str) -> bytes:
        """The bytes of an object; ObjectMissing if there is none."""
        return self.get_with_etag(key)[0]

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        """The bytes of an object and the etag that `put(if_match=)` takes."""
        raise NotImplementedError

    def put(self, key: str, data: bytes, *, if_match: str | None = None, if_absent: bool = False) -> str:
        """Write an object whole; its etag. Conflict if `if_match` or `if_absent` does not hold."""
        raise NotImplementedError

    def head(self, key: str) -> ObjectInfo | None:
        """Size and age of an object, or None if there is none."""
        raise NotImplementedError

    def list(self, prefix: str = "", skip: Skip | None = None) -> Iterator[ObjectInfo]:
        """Every object below the folder `prefix`, sorted by key. Nothing there is an empty list.

        With `skip` some may be left out: those after a key to the end of the folder that `skip` says of it.
        """
        raise NotImplementedError

    def folders(self, prefix: str = "") -> builtins.list[str]:
        """Names of the folders directly in the folder `prefix`, sorted."""
        raise NotImplementedError

    def delete(self, keys: str | builtins.list[str]) -> None:
        """Remove objects; one that is not there is no error."""
        raise NotImplementedError

    def open(self, key: str) -> BinaryIO:
        """A seekable file, for objects too large to be read whole."""
        return io.BytesIO(self.get(key))

    def _patiently(self, call: Callable[[], T]) -> T:
        """`call()`, again after a short wait while it is Transient. Only for calls that may be repeated."""
        return patiently(call, Transient, attempts=self.options.attempts)


def check_key(key: str) -> str:
    """`key`, if it stays below the root of a store."""
    parts = key.split("/")
    if not key or "\\" in key or "\0" in key or any(part in ("", ".", "..") for part in parts):
        raise StorageError(f"{key!r} is not a key of an object: it would leave its folder")
    return key


def content_etag(data: bytes) -> str:
    """The etag of stores that have none of their own."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def under(prefix: str) -> str:
    """A checked folder prefix that ends in `/`, or nothing for the root."""
    prefix = prefix.strip("/")
    return f"{check_key(prefix)}/" if prefix else ""


def open_store(url: str, options: StorageOptions | None = None) -> Store:
    """The store at `url`: a folder, `s3://bucket/prefix`, `memory://…` or any other fsspec URL."""
    from storage.objects.fsspec_store import FsspecStore
    from storage.objects.local import LocalStore
    from storage.objects.s3 import S3Store

    url = str(url)
    if not url:
        raise ConfigError("an address of a store must not be empty: give a folder or s3://bucket/prefix")
    scheme, mark, rest = url.partition("://")
    if not mark or scheme == "file":
        return LocalStore(url, options)
    if "@" in rest.split("/")[0] and scheme in ("s3", "s3a"):
        raise ConfigError("an S3 address must not hold credentials; use AWS_ACCESS_KEY_ID and the like")
    if scheme in ("s3", "s3a"):
        return S3Store(url, options)
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise ConfigError(f"{scheme!r} is not the scheme of an address")
    return FsspecStore(url, options)

"""Objects under a URL: get, put, head, list, delete, and a put that succeeds only if nobody else was first.

    store = open_store("s3://bucket/prefix", StorageOptions(endpoint="http://127.0.0.1:9000"))
    etag = store.put("a/b.json", b"{}", if_absent=True)      # Conflict if it exists
    store.put("a/b.json", b"[]", if_match=etag)               # Conflict if somebody wrote since

Every failure is one of the named errors of `paano.errors`; its message names the object and a remedy, and
never a secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True)
class StorageOptions:
    """How to reach an object store. Left out, the usual AWS variables and files are used."""

    endpoint: str | None = None
    region: str | None = None
    key: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    connect_timeout: float = 5.0  # seconds
    read_timeout: float = 20.0  # seconds without a byte
    attempts: int = 3  # of one call, before it is Transient


@dataclass(frozen=True)
class ObjectInfo:
    """What a listing says of an object. `key` is relative to the store."""

    key: str
    size: int
    modified: datetime  # UTC
    etag: str


class Store(Protocol):
    """Objects under one URL. Keys are relative, with `/`, and never leave the root."""

    url: str

    def get(self, key: str) -> bytes: ...
    def get_with_etag(self, key: str) -> tuple[bytes, str]: ...
    def put(self, key: str, data: bytes, *, if_match: str | None = None, if_absent: bool = False) -> str: ...
    def head(self, key: str) -> ObjectInfo | None: ...
    def list(self, prefix: str = "") -> Iterator[ObjectInfo]: ...
    def folders(self, prefix: str = "") -> list[str]: ...
    def delete(self, keys: str | list[str]) -> None: ...
    def url_of(self, key: str) -> str: ...


def open_store(url: str, options: StorageOptions | None = None) -> Store:
    """The store at `url`: a folder, `s3://bucket/prefix`, `memory://…` or any other fsspec URL."""
    raise NotImplementedError

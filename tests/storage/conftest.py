"""Places to store in: the same suite runs on a local folder and on a real S3 server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from storage.objects.store import StorageOptions, Store, open_store
from tests.servers import S3, seaweed

_NUMBER = itertools.count()


@dataclass(frozen=True)
class Place:
    """An address nobody else uses, and how to reach it."""

    url: str
    options: StorageOptions | None = None

    def store(self, below: str = "") -> Store:
        return open_store(self.at(below), self.options)

    def at(self, below: str) -> str:
        return f"{self.url}/{below}" if below else self.url


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with seaweed(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "store"))


@pytest.fixture
def bucket(s3: S3) -> Place:
    return Place(s3.url(f"place-{next(_NUMBER)}"), s3.options)


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest) -> Place:
    return request.getfixturevalue(request.param)

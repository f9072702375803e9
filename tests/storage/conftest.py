"""Places to store in and registries: the same suite runs on local files and on real servers."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from paano import PaAno, PaAnoConfig
from storage.objects.store import StorageOptions, Store, open_store
from storage.registry.client import RegistryClient
from storage.registry.registry import Registry
from tests.servers import S3, mlflow_server, seaweed

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


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Saved models that differ in a fact alone."""
    home = tmp_path_factory.mktemp("models")
    series = np.sin(np.arange(1200) / 9) + 0.1 * np.random.default_rng(0).normal(size=1200)
    model = PaAno(PaAnoConfig.preset("untrained", patch=16, width=0.125), device="cpu").fit(series)
    for n in range(16):
        model.save(home / str(n), facts={"n": n, "channel_names": ["value"]})
    return [home / str(n) for n in range(16)]


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables, made once: it takes ten seconds."""
    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    RegistryClient(f"sqlite:///{path}").client  # noqa: B018
    return path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, s3: S3, empty_database: Path) -> Iterator[str]:
    """The address of an MLflow server with its files on S3."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(empty_database, folder / "mlflow.db")
    with mlflow_server(folder, s3, backend=f"sqlite:///{folder}/mlflow.db") as uri:
        yield uri


@pytest.fixture
def local(tmp_path: Path, empty_database: Path) -> Registry:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return Registry(f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "artifacts", "plant", tmp_path / "cache")


@pytest.fixture
def remote(server: str, bucket: Place, tmp_path: Path) -> Registry:
    fleet = bucket.url.rpartition("/")[2]  # fleets of one server do not meet
    return Registry(server, bucket.url, fleet, tmp_path / "cache", bucket.options)


@pytest.fixture(params=["local", "remote"])
def registry(request: pytest.FixtureRequest) -> Registry:
    return request.getfixturevalue(request.param)

"""The registry is away and scoring goes on; a registry that is being made is never left unusable."""

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

from paano import PaAno, PaAnoConfig
from paano.errors import RegistryError, RegistryUnavailable
from storage.registry.client import RegistryClient
from storage.registry.registry import Registry
from tests.servers import mlflow_server, postgres, postgres_bin

needs_postgres = pytest.mark.skipif(postgres_bin() is None, reason="PostgreSQL is not installed")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    home = tmp_path_factory.mktemp("models")
    series = np.sin(np.arange(1200) / 9) + 0.1 * np.random.default_rng(0).normal(size=1200)
    model = PaAno(PaAnoConfig.preset("untrained", patch=16, width=0.125), device="cpu").fit(series)
    for n in range(2):
        model.save(home / str(n), facts={"n": n, "sensor": "a", "channel_names": ["value"]})
    return [home / str(n) for n in range(2)]


def check_next_night(make, models, go_away, artifacts):
    """A first version is registered, later another promoted; then registry and artifact store are gone."""
    make().register("a", models[0], alias="champion")  # and nobody looked at the champions since
    make().register("a", models[1])
    make().set_champion("a", 2)
    go_away()
    shutil.rmtree(artifacts)
    tonight = make()
    for wanted in (None, ["a"]):
        champions = tonight.champions(wanted)
        assert champions.stale and champions.seen is not None and champions["a"].version == 2
    assert PaAno.load(tonight.fetch(champions["a"])).facts["n"] == 1


def test_the_first_night_after_a_training_with_a_sqlite_file_that_is_gone(tmp_path, models, empty_database):
    database = tmp_path / "mlflow.db"
    shutil.copy(empty_database, database)

    def make():
        return Registry(f"sqlite:///{database}", tmp_path / "artifacts", "plant", tmp_path / "cache")

    check_next_night(make, models, lambda: database.rename(tmp_path / "elsewhere"), tmp_path / "artifacts")
    assert not database.exists(), "no empty registry was made in its place"
    with pytest.raises(RegistryUnavailable, match="mount or restore it"):
        make().register("a", models[0])


def test_the_first_night_after_a_training_with_a_server_that_is_gone(
    tmp_path, models, empty_database, monkeypatch, s3, bucket
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    (tmp_path / "server").mkdir()
    shutil.copy(empty_database, tmp_path / "server" / "mlflow.db")
    backend = f"sqlite:///{tmp_path}/server/mlflow.db"
    (tmp_path / "artifacts").mkdir()
    with mlflow_server(tmp_path / "server", s3, backend=backend) as uri:

        def make():
            return Registry(uri, bucket.url, "plant", tmp_path / "cache", bucket.options)

        make().register("a", models[0], alias="champion")
    champions = make().champions()
    assert champions.stale and champions["a"].version == 1
    assert PaAno.load(make().fetch(champions["a"])).facts["n"] == 0


@needs_postgres
@pytest.mark.slow
def test_the_first_night_after_a_training_with_a_postgresql_that_is_gone(tmp_path, models, bucket):
    with postgres(tmp_path) as uri:

        def make():
            return Registry(uri, bucket.url, "plant", tmp_path / "cache", bucket.options)

        make().register("a", models[0], alias="champion")
        assert not make().champions().stale
    champions = make().champions()
    assert champions.stale and champions["a"].version == 1
    assert PaAno.load(make().fetch(champions["a"]))


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg2"])
def test_a_database_that_is_away_is_said_at_once_and_without_its_password(tmp_path, monkeypatch, scheme):
    pytest.importorskip("psycopg2")

    def never(_seconds):
        raise AssertionError("it was tried again and again")

    monkeypatch.setattr("mlflow.store.db.utils.time.sleep", never)
    registry = Registry(f"{scheme}://ada:hunter22@127.0.0.1:9/x", tmp_path / "a", "plant", tmp_path / "c")
    with pytest.raises(RegistryUnavailable, match=r"registry\.tracking_uri") as caught:
        registry.champions()
    assert "hunter22" not in str(caught.value)


def test_an_address_that_no_driver_knows_is_an_error_with_a_remedy(tmp_path):
    registry = Registry("nosuch://ada:hunter22@host/x", tmp_path / "a", "plant", tmp_path / "c")
    with pytest.raises(RegistryError, match=r"registry\.tracking_uri") as caught:
        registry.champions()
    assert "hunter22" not in str(caught.value)


def test_what_is_kept_is_for_the_owner_only_and_holds_no_address(tmp_path, models, empty_database):
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    registry = Registry(f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "a", "plant", tmp_path / "cache")
    registry.register("a", models[0], alias="champion")
    registry.champions()
    registry.register("a", models[1], alias="champion")
    notes = list((tmp_path / "cache").rglob("plant.*/*.json")) + list((tmp_path / "cache").glob("*.json"))
    assert len(notes) == 2
    for path in notes:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and "sqlite:" not in path.read_text()
    assert registry.champions()["a"].version == 2
    assert list((tmp_path / "cache").glob("plant.champion.since/*")) == []  # the whole list has it now


def test_a_list_kept_by_the_release_before_is_replaced_and_its_password_with_it(
    tmp_path, models, empty_database
):
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    registry = Registry(f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "a", "plant", tmp_path / "cache")
    registry.register("a", models[0], alias="champion")
    old = tmp_path / "cache" / "plant.champion.json"
    old.write_text('{"tracking_uri": "http://ada:hunter22@mlflow", "seen": "2026-01-01", "versions": []}')
    old.chmod(0o644)
    assert registry.champions()["a"].version == 1
    assert "hunter22" not in old.read_text() and stat.S_IMODE(old.stat().st_mode) == 0o600


# -- a new SQLite registry

MAKE = "import sys; from storage.registry.client import RegistryClient; RegistryClient(sys.argv[1]).client"


def works(path):
    client = RegistryClient(f"sqlite:///{path}")
    client.call("a", "create_registered_model", "a", write=True)
    return [model.name for model in client.pages("all", "search_registered_models")] == ["a"]


def kill_while_it_is_made(path, seconds):
    child = subprocess.Popen([sys.executable, "-c", MAKE, f"sqlite:///{path}"], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while (
        not list(path.parent.glob(f".{path.name}.new-*"))
        and child.poll() is None
        and time.monotonic() < until
    ):
        time.sleep(0.02)
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    child.wait()


def test_a_kill_while_a_registry_is_made_leaves_it_usable(tmp_path):
    path = tmp_path / "mlflow.db"
    kill_while_it_is_made(path, 0.3)
    assert not path.exists()
    assert works(path)
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".lock") == ["mlflow.db"]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0])
def test_a_kill_at_any_moment_leaves_it_usable(tmp_path, seconds):
    kill_while_it_is_made(tmp_path / "mlflow.db", seconds)
    assert works(tmp_path / "mlflow.db")


def test_a_full_disk_while_a_registry_is_made_is_said_and_leaves_it_usable(tmp_path):
    path = tmp_path / "mlflow.db"
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)); "
    done = subprocess.run(
        [sys.executable, "-c", limit + MAKE, f"sqlite:///{path}"], capture_output=True, text=True
    )
    assert done.returncode != 0 and "no space is left for the registry" in done.stderr, done.stderr[-500:]
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".lock"] == []
    assert works(path)


@pytest.mark.parametrize("left", ["nothing", "no tables", "half the tables", "an old revision"])
def test_what_a_killed_release_before_left_is_made_anew(tmp_path, empty_database, left):
    path = tmp_path / "mlflow.db"
    if left == "nothing":
        path.write_bytes(b"")
    else:
        if left != "no tables":
            shutil.copy(empty_database, path)
        with sqlite3.connect(path) as database:
            if left == "half the tables":
                database.execute("DROP TABLE registered_models")
                database.execute("DELETE FROM alembic_version")
            elif left == "an old revision":
                database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
        database.close()
    assert works(path)


def test_a_file_that_is_no_database_is_left_alone_with_a_remedy(tmp_path):
    path = tmp_path / "mlflow.db"
    path.write_bytes(b"something precious" * 100)
    with pytest.raises(RegistryError, match=r"registry\.tracking_uri"):
        RegistryClient(f"sqlite:///{path}").client  # noqa: B018
    assert path.read_bytes().startswith(b"something precious")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE invoices (n INTEGER)")
    database.close()
    with pytest.raises(RegistryError, match="another program"):
        RegistryClient(f"sqlite:///{other}").client  # noqa: B018
    assert os.path.getsize(other) > 0

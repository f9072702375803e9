"""The registry on a SQLite file with a local folder, and on an MLflow server with artifacts on S3."""

import errno
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from paano import PaAno
from paano.errors import AccessDenied, ArtifactError, PaanoError, RegistryError, RegistryUnavailable
from storage.registry.client import RegistryClient
from storage.registry.lookup import DIGEST_TAG
from storage.registry.places import locate
from storage.registry.registry import Registry
from tests.storage.conftest import Place
from tests.storage.workers import together

HOSTILE = ["pump-17", "../../x", "site/1.2:3@4", "ünï", "x" * 300, "é" * 300, "a'b\"c%", "Pump-17"]


def test_a_version_carries_its_sensor_tags_and_description(registry, models):
    version = registry.register("pump-17", models[0], {"paano.vus_pr": 0.5}, "**fine**", alias="champion")
    assert (version.version, version.aliases, version.name) == (1, ("champion",), f"{registry.fleet}.pump-17")
    held = registry.versions("pump-17")[0]
    assert held == version or held.tags == version.tags
    assert held.tags["paano.vus_pr"] == "0.5" and held.tags["paano.sensor"] == "pump-17"
    assert held.description.startswith("**fine**\n\n[Figures") and held.aliases == ("champion",)
    assert abs(held.created - datetime.now(UTC)) < timedelta(minutes=10)


def test_the_same_artifact_registered_twice_is_one_version(registry, models):
    first = registry.register("a", models[0], alias="champion")
    again = registry.register("a", models[0], alias="challenger")
    other = registry.register("a", models[1])
    assert (first.version, again.version, other.version) == (1, 1, 2)
    assert [v.version for v in registry.versions("a")] == [2, 1]
    assert registry.challengers()["a"].version == 1


def test_hostile_ids_are_models_of_their_own(registry, models):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda sensor: registry.register(sensor, models[0], alias="champion"), HOSTILE))
    champions = registry.champions()
    assert sorted(champions) == sorted(HOSTILE)
    assert all(len(v.name) <= 256 and v.sensor == s for s, v in champions.items())
    assert set(registry.champions(HOSTILE[:3])) == set(HOSTILE[:3])
    fetched = registry.fetch_many(champions.values())
    assert all(PaAno.load(folder).facts["n"] == 0 for folder in fetched.values())


def test_aliases_move_and_the_next_look_follows(registry, models):
    for model in models[:3]:
        registry.register("a", model)
    assert registry.champions() == {}
    registry.set_champion("a", 1)
    registry.set_challenger("a", 3)
    assert registry.champions()["a"].version == 1 and registry.champions(["a"])["a"].version == 1
    assert PaAno.load(registry.fetch(registry.champions()["a"])).facts["n"] == 0
    registry.set_champion("a", 2)  # not the newest: not what a search of models tells by itself
    champion = registry.champions()["a"]
    assert champion.version == 2 and champion.digest == registry.version("a", 2).digest
    assert PaAno.load(registry.fetch(champion)).facts["n"] == 1
    registry.clear_challenger("a")
    registry.clear_challenger("a")
    assert registry.challengers() == {}


def test_many_old_champions_are_resolved_in_bulk(local, models, monkeypatch):
    monkeypatch.setattr("storage.registry.lookup.FEW", 1)
    sensors = [f"s{n}" for n in range(7)]
    for sensor in sensors:
        local.register(sensor, models[0], alias="champion")
        local.register(sensor, models[1])
    calls = []

    def counted(name):
        method = getattr(RegistryClient, name)

        def asked(self, *given):
            calls.append(name)
            return method(self, *given)

        return asked

    for name in ("models", "model", "version", "versions", "every_version"):
        monkeypatch.setattr(RegistryClient, name, counted(name))
    other = Registry(local.tracking_uri, local.artifacts.url, "plant", local.cache.folder / "new")
    assert {v.version for v in other.champions().values()} == {1}
    assert calls == ["models", "every_version"]
    calls.clear()
    assert len(other.champions(sensors)) == 7
    assert calls == ["models"]  # what a version is was kept from the first time


def test_another_fleet_with_a_similar_name_is_not_seen(tmp_path, local, models):
    other = Registry(local.tracking_uri, tmp_path / "artifacts", "plXnt", tmp_path / "c2")
    under = Registry(local.tracking_uri, tmp_path / "artifacts", "pl_nt", tmp_path / "c3")
    other.register("a", models[0], alias="champion")
    assert under.champions() == {} and local.champions() == {} and len(other.champions()) == 1


def test_mlflow_itself_loads_a_version_and_gives_our_scores(registry, models, monkeypatch, s3):
    import mlflow

    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    name = registry.register("../../x", models[2], alias="champion").name
    series = np.sin(np.arange(300) / 9)
    series[100:110], series[200] = 0, np.nan
    mlflow.set_tracking_uri(registry.tracking_uri)
    served = mlflow.pyfunc.load_model(f"models:/{name}@champion")
    answer = served.predict(pd.DataFrame({"value": series}))
    ours = PaAno.load(registry.fetch(registry.champions()["../../x"]), device="cpu").detect(series)
    np.testing.assert_array_equal(answer["score"], ours.score)
    assert list(answer["status"]) == list(ours.status)
    with pytest.raises(ValueError, match="'value' is missing"):
        served.unwrap_python_model().predict(None, pd.DataFrame({"other": series}))


def test_nothing_in_a_version_is_a_pickle(local, models):
    folder = local.artifacts.root / locate(local.artifacts, "plant", local.register("a", models[0]))
    names = sorted(path.name for path in folder.rglob("*") if path.is_file())
    expected = ["MLmodel", "bank.safetensors", "conda.yaml", "encoder.safetensors", "input_example.json"]
    owner = f"{local.identity}.json"
    assert sorted(names) == sorted(
        [*expected, "model.json", "python_env.yaml", "requirements.txt", "scoring.py", owner]
    )
    assert "pickle" not in (folder / "MLmodel").read_text()


@pytest.mark.parametrize("name", ["scoring.py", "requirements.txt", "MLmodel"])
def test_a_change_of_what_mlflow_runs_is_seen_and_registering_again_mends_it(local, models, name):
    version = local.register("a", models[0], alias="champion")
    folder = local.artifacts.root / locate(local.artifacts, "plant", version)
    names = ["MLmodel", "conda.yaml", "python_env.yaml", "requirements.txt", "scoring.py"]
    pipe = f"cd '{folder}' && sha256sum {' '.join(names)} | sha256sum"  # as SECURITY.md says
    said = subprocess.run(["sh", "-c", pipe], capture_output=True, text=True, check=True).stdout.split()[0]
    assert version.tags["paano.pyfunc_digest"] == said
    assert local.pyfunc_is_as_registered(version)
    (folder / name).write_text((folder / name).read_text() + "# changed\n")
    champion = local.champions()["a"]
    assert not local.pyfunc_is_as_registered(champion)
    assert local.fetch(champion), "our own flows do not run it"
    local.register("a", models[0])
    assert local.pyfunc_is_as_registered(local.champions()["a"])
    (folder / name).unlink()
    assert not local.pyfunc_is_as_registered(champion)


def test_with_the_registry_down_the_last_champions_are_used_and_it_says_so(
    tmp_path, models, empty_database, monkeypatch
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    database = tmp_path / "mlflow.db"
    shutil.copy(empty_database, database)
    here = Registry(f"sqlite:///{database}", tmp_path / "artifacts", "plant", tmp_path / "cache")
    here.register("a", models[0], alias="champion")
    here.register("b", models[1], alias="champion")
    fresh = here.champions()
    here.fetch_many(fresh.values())
    assert not fresh.stale
    away = Registry("http://127.0.0.1:9", tmp_path / "artifacts", "plant", tmp_path / "cache")
    with pytest.raises(RegistryUnavailable, match=r"registry\.tracking_uri"):
        away.champions()  # a list of another registry is not taken for this one's
    path = tmp_path / "cache" / "plant.champion.json"
    path.write_text(path.read_text().replace(here._seen.registry, away._seen.registry))
    shutil.rmtree(tmp_path / "artifacts")  # and the store is down too
    stale = away.champions(["a", "b", "c"])
    assert stale.stale and "did not answer" in stale.reason and stale.seen is not None
    assert {s: v.version for s, v in stale.items()} == {"a": 1, "b": 1}
    assert all(PaAno.load(folder) for folder in away.fetch_many(stale.values()).values())


def test_a_damaged_artifact_is_refused_and_never_cached(registry, models):
    version = registry.register("a", models[0], alias="champion")
    place = f"{locate(registry.artifacts, registry.fleet, version)}/model"
    good = registry.artifacts.get(f"{place}/bank.safetensors")
    registry.artifacts.put(f"{place}/bank.safetensors", good[:-4] + b"evil")
    shutil.rmtree(registry.cache.models)
    for _ in range(2):
        with pytest.raises(ArtifactError, match="sha256 differs"):
            registry.fetch(version)
    registry.artifacts.put(f"{place}/bank.safetensors", good)
    assert PaAno.load(registry.fetch(version))


def test_a_damaged_cache_is_filled_again(local, models):
    version = local.register("a", models[0])
    folder = local.fetch(version)
    for name in ("model.json", "bank.safetensors"):
        (folder / name).write_bytes(b"{}")
        assert PaAno.load(local.fetch(version))


def test_a_version_of_somebody_else_is_refused_with_a_remedy(local, models):
    version = local.register("a", models[0])
    local.client.call("a", "delete_model_version_tag", version.name, "1", DIGEST_TAG, write=True)
    with pytest.raises(RegistryError, match="set the alias back"):
        local.fetch(local.version("a", 1))


def test_the_cache_keeps_to_its_size_and_drops_what_was_not_used_for_longest(local, models):
    versions = [local.register(s, models[n]) for n, s in enumerate("abc")]
    shutil.rmtree(local.cache.models)
    folders = [local.fetch(version) for version in versions[:2]]
    size = sum(f.stat().st_size for f in folders[0].iterdir())
    for n, folder in enumerate(folders):
        os.utime(folder, (n, n))  # used long ago, a before b
    local.fetch(versions[0])
    os.utime(folders[0], (5, 5))  # a after b
    local.cache.limit, local.cache._size = int(2.5 * size), None
    local.cache._size = 2 * size
    local.fetch(versions[2])
    assert folders[0].exists() and not folders[1].exists()
    assert local.fetch(versions[1])  # comes again


def test_a_cache_that_became_read_only_is_a_named_error(local, models, monkeypatch):
    version = local.register("a", models[0])

    def refuse(*_given):
        raise OSError(errno.EROFS, "read-only file system")

    monkeypatch.setattr("storage.registry.cache.os.utime", refuse)
    with pytest.raises(AccessDenied, match="check the owner"):
        local.fetch(version)


@pytest.mark.parametrize("step", ["upload", "create_model_version", "set_registered_model_alias"])
def test_a_crash_at_any_step_leaves_no_alias_without_files(local, models, monkeypatch, step):
    class Crash(BaseException):
        pass

    original = RegistryClient.call

    def call(self, what, method, *args, **named):
        if method == step:
            raise Crash
        return original(self, what, method, *args, **named)

    def put(key, data, **named):
        if step == "upload" and key.endswith("MLmodel"):
            raise Crash
        return put.original(key, data, **named)

    put.original = local.artifacts.put
    with monkeypatch.context() as patch:
        patch.setattr(RegistryClient, "call", call)
        patch.setattr(local.artifacts, "put", put)
        with pytest.raises(Crash):
            local.register("a", models[0], alias="champion")
    assert local.champions() == {}
    orphans = local.sweep(older=timedelta(0), now=datetime.now(UTC) + timedelta(hours=1))
    assert len(orphans.folders) == (0 if step == "set_registered_model_alias" else 1)
    again = local.register("a", models[0], alias="champion")
    assert again.version == 1 and PaAno.load(local.fetch(local.champions()["a"]))


def _jobs(registry, models, tmp_path, workers, sensors):
    place = Place(registry.artifacts.url, registry.options)
    jobs = []
    for n in range(workers):
        folder = tmp_path / f"worker-{n}"
        shutil.copytree(models[0], folder)
        note = json.loads((folder / "model.json").read_text())
        note["facts"]["n"] = n  # every worker has a model of its own
        (folder / "model.json").write_text(json.dumps(note))
        jobs.append(("register", place, registry.tracking_uri, folder, *sensors))
    return jobs


def test_processes_that_register_at_once_lose_nothing_and_make_nothing_twice(tmp_path, local, models):
    """Also the first version of a sensor, which creates its model, is raced for."""
    jobs = _jobs(local, models, tmp_path, workers=3, sensors=["own"])
    same = tmp_path / "same"
    shutil.copytree(models[1], same)
    printed = together([(*job, "--", same, "common") for job in jobs])
    held = local.versions("own")
    assert [v.version for v in held] == [3, 2, 1]
    assert sorted(PaAno.load(local.fetch(v)).facts["n"] for v in held) == [0, 1, 2]
    # one artifact of all three: one version, and everybody was told the same number
    assert len(local.versions("common")) == 1 and len({out.split()[-1] for out in printed}) == 1
    assert set(local.champions()) == {"own", "common"}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["local", "remote"])
def test_sixteen_processes_register_at_once_and_lose_nothing(request, tmp_path, models, where):
    registry = request.getfixturevalue(where)
    if where == "remote":
        registry.fleet = "plant"
    together(_jobs(registry, models, tmp_path, workers=16, sensors=["a", "b"]))
    for sensor in "ab":
        held = [PaAno.load(registry.fetch(v)).facts["n"] for v in registry.versions(sensor)]
        assert sorted(held) == list(range(16))


def test_a_registry_that_is_away_is_transient_within_seconds(tmp_path, models, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    registry = Registry("http://127.0.0.1:9", tmp_path / "a", "plant", tmp_path / "c")
    for attempt in (
        lambda: registry.register("a", models[0]),
        lambda: registry.versions("a"),
        lambda: registry.champions(),
    ):
        with pytest.raises(RegistryUnavailable):
            attempt()


def test_a_version_that_is_not_there_is_an_error_of_ours(local):
    assert local.versions("nobody") == [] and local.champions(["nobody"]) == {}
    with pytest.raises(RegistryError):
        local.version("nobody", 3)
    with pytest.raises(RegistryError):
        local.set_champion("nobody", 1)


def test_a_folder_that_is_no_model_is_not_registered(local, tmp_path):
    (tmp_path / "model.json").write_text('{"files": 3}')
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ArtifactError):
            local.register("a", folder, alias="champion")
    assert local.versions("a") == [] and list(local.artifacts.list()) == []


def test_pictures_lie_beside_the_model(registry, models):
    version = registry.register("a", models[0], attachments={"scores.html": b"<p>"})
    url = registry.attach(version, "later.png", b"png")
    assert url.endswith("review/later.png")
    place = f"{locate(registry.artifacts, registry.fleet, version)}/review"
    assert registry.artifacts.get(f"{place}/scores.html") == b"<p>"
    assert registry.artifacts.get(f"{place}/later.png") == b"png"
    with pytest.raises(PaanoError):
        registry.attach(version, "../../MLmodel", b"")

"""Versions are MLflow logged models: MLflow's own table of a fleet's models sorts, filters and shows them."""

import json
import shutil
import urllib.request
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import pytest

from paano import PaAno
from storage.registry.client import RegistryClient
from storage.registry.figures import LARGEST_BATCH, VersionFigures
from storage.registry.places import locate, logged_model_of
from storage.registry.registry import Registry
from tests.servers import mlflow_server

LATER = datetime.now(UTC) + timedelta(days=2)
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(100)


def figures(vus_pr=0.5, **more):
    params = {"preset": "light", "model.patch": "16", "window_start": "2026-01-01T00:00:00+00:00"}
    given = {"faults": {"spike": 0.9, "drift": 0.25}, "alarms": 1.5, "threshold": 2.5, "fit_seconds": 0.75}
    losses = [1.0, 0.5, 0.25]
    return VersionFigures(vus_pr=vus_pr, params=params, losses=losses, data_digest="d" * 32, **(given | more))


def logged_of(registry, version):
    return logged_model_of(locate(registry.artifacts, registry.fleet, version))


def test_mlflow_sorts_and_filters_all_models_of_a_fleet_by_vus_pr(registry, models):
    by_sensor = {"a": 0.7, "b/1": 0.2, "ü": 0.9}
    for sensor, value in by_sensor.items():
        registry.register(sensor, models[0], {"paano.kind": "trained"}, figures=figures(value))
    client = registry.client.client
    found = client.search_logged_models(
        [registry.experiment], order_by=[{"field_name": "metrics.vus_pr", "ascending": False}]
    )
    assert [model.tags["paano.sensor"] for model in found] == ["ü", "a", "b/1"]
    found = client.search_logged_models(
        [registry.experiment], filter_string="metrics.vus_pr > 0.5 AND params.preset = 'light'"
    )
    assert sorted(model.tags["paano.sensor"] for model in found) == ["a", "ü"]


def test_a_logged_model_has_figures_settings_data_tags_and_its_version(registry, models):
    version = registry.register("a", models[0], {"paano.kind": "trained"}, "text", figures=figures())
    client = registry.client.client
    model = client.get_logged_model(logged_of(registry, version))
    assert str(model.status) == "READY" and model.tags["paano.kind"] == "trained"
    assert {metric.key: metric.value for metric in model.metrics} == {
        "vus_pr": 0.5, "vus_pr.spike": 0.9, "vus_pr.drift": 0.25, "alarms": 1.5, "threshold": 2.5,
        "loss": 0.25, "fit_seconds": 0.75,
    }  # fmt: skip
    assert model.params["model.patch"] == "16" and model.params["data_digest"] == "d" * 32
    (named,) = json.loads(model.tags["mlflow.modelVersions"])
    assert (named["name"], int(named["version"])) == (version.name, 1)
    held = client.get_model_version(version.name, "1")
    run = client.get_run(held.run_id)
    assert run.info.status == "FINISHED" and model.source_run_id == held.run_id
    steps = client.get_metric_history(held.run_id, "training_loss")
    assert [(step.step, step.value) for step in steps] == [(0, 1.0), (1, 0.5), (2, 0.25)]
    (used,) = run.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("a", "d" * 32)


def test_mlflow_serves_the_pictures_of_a_version(remote, models, monkeypatch, s3, capfd):
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)  # MLflow's own client lists the bucket itself
    version = remote.register(
        "a", models[0], description="text", attachments={"scores.png": PICTURE}, figures=figures()
    )
    client, model = remote.client.client, logged_of(remote, version)
    names = [info.path for info in client.list_logged_model_artifacts(model, "review")]
    assert names == ["review/scores.png"]
    address = f"ajax-api/2.0/mlflow/logged-models/{model}/artifacts/files"
    address += f"?artifact_file_path={quote('review/scores.png', safe='')}"
    assert f"![scores]({address})" in remote.version("a", 1).description
    with urllib.request.urlopen(f"{remote.tracking_uri}/{address}") as answer:
        assert answer.read() == PICTURE
    remote.attach(version, "later.png", PICTURE)
    assert len(client.list_logged_model_artifacts(model, "review")) == 2
    assert remote.tracking_uri not in capfd.readouterr().out  # it may hold a password


def test_a_server_with_files_on_its_own_disk_is_served_too(tmp_path, models, empty_database):
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    with mlflow_server(tmp_path, backend=f"sqlite:///{tmp_path}/mlflow.db") as uri:
        registry = Registry(uri, tmp_path / "artifacts", "plant", tmp_path / "cache")
        version = registry.register("a", models[0], alias="champion")
        shutil.rmtree(registry.cache.models)
        assert PaAno.load(registry.fetch(version))


def test_registered_again_it_is_the_same_logged_model(registry, models):
    first = registry.register("a", models[0], figures=figures())
    again = registry.register("a", models[0], figures=figures(), attachments={"new.png": PICTURE})
    assert again.source == first.source and again.version == 1
    assert len(registry.client.client.search_logged_models([registry.experiment])) == 1
    assert registry.artifacts.get(f"{locate(registry.artifacts, registry.fleet, first)}/review/new.png")


def test_a_model_without_figures_is_a_row_of_the_table_as_well(local, models):
    version = local.register("a", models[0])
    model = local.client.client.get_logged_model(logged_of(local, version))
    assert model.tags["paano.sensor"] == "a" and not model.metrics


def test_figures_that_are_no_numbers_are_left_out():
    odd = figures(vus_pr=float("nan"), alarms=None, threshold=float("inf"), faults={"spike": float("-inf")})
    assert odd.metrics() == {"loss": 0.25, "fit_seconds": 0.75}
    long = VersionFigures(losses=[float(n) for n in range(5000)])
    assert len(long.loss_curve()) <= LARGEST_BATCH and long.loss_curve()[1][0] == 6


def test_sweep_removes_the_logged_model_and_the_run_with_the_files(registry, models):
    old = registry.register("a", models[0], figures=figures())
    registry.register("a", models[1], alias="champion", figures=figures())
    registry.register("b", models[1], alias="champion", figures=figures())
    registry.delete_version(old.name, old.version)
    run = registry.client.client.get_logged_model(logged_of(registry, old)).source_run_id
    assert len(registry.sweep(dry_run=False, now=LATER).folders) == 1
    client = registry.client.client
    rest = client.search_logged_models([registry.experiment])
    assert len(rest) == 2 and logged_of(registry, old) not in {model.model_id for model in rest}
    assert client.get_run(run).info.lifecycle_stage == "deleted"


@pytest.mark.parametrize("step", ["create_logged_model", "log_batch", "finalize_logged_model"])
def test_what_a_killed_training_began_goes_with_the_next_sweep(local, models, monkeypatch, step):
    class Crash(BaseException):
        pass

    original = RegistryClient.call

    def call(self, what, method, *arguments, **named):
        if method == step:
            raise Crash
        return original(self, what, method, *arguments, **named)

    local.register("a", models[0], alias="champion", figures=figures())
    with monkeypatch.context() as patch:
        patch.setattr(RegistryClient, "call", call)
        with pytest.raises(Crash):
            local.register("b", models[1], alias="champion", figures=figures())
    assert "b" not in local.champions()
    local.sweep(dry_run=False, now=LATER)
    client = local.client.client
    named = {model.tags["paano.sensor"] for model in client.search_logged_models([local.experiment])}
    running = client.search_runs([local.experiment], "attributes.status = 'RUNNING'")
    # A version was made before its logged model could be finished: it stays, and so does that.
    assert named == ({"a", "b"} if step == "finalize_logged_model" else {"a"}) and not running
    again = local.register("b", models[1], alias="champion", figures=figures())
    assert again.version == 1 and PaAno.load(local.fetch(local.champions()["b"]))

"""compose.yaml, held against the compose specification and against the rest of deploy/."""

from __future__ import annotations

import json
import re
from importlib import resources

import jsonschema
import pytest

from flows.settings.fleet_file import Settings
from tests.deploy.composition import DEPLOY, ROOT, Missing, compose, example_variables

FILLED = {name: "x" for name in example_variables()}
LONG_LIVED = {
    "postgres",
    "s3",
    "mlflow",
    "prefect",
    "cpu-worker",
    "gpu-worker",
    "retrain-worker",
    "dask-scheduler",
}


@pytest.fixture(scope="module")
def services():
    return compose(FILLED)["services"]


def test_compose_keeps_to_the_compose_specification():
    vendored = resources.files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json"
    jsonschema.validate(compose(FILLED), json.loads(vendored.read_text()))


def test_the_promised_services_are_there(services):
    assert {"postgres", "s3", "mlflow", "prefect", "setup", "cpu-worker", "gpu-worker"} <= set(services)


@pytest.mark.parametrize("missing", sorted(FILLED))
def test_nothing_starts_without_every_password_and_name(missing):
    with pytest.raises(Missing, match=missing):
        compose({name: value for name, value in FILLED.items() if name != missing})


def test_the_example_holds_no_value():
    assert set(example_variables().values()) == {""}


def test_no_password_is_written_down(services):
    secret = re.compile(r"PASSWORD|SECRET|AUTH_STRING")
    written = compose()["services"]
    for name, service in written.items():
        for key, value in service.get("environment", {}).items():
            if secret.search(key):
                assert value.startswith("${") and ":?" in value, f"{name}: {key} = {value}"


def test_the_file_with_passwords_is_not_kept_by_git():
    assert "deploy/.env" in (ROOT / ".gitignore").read_text().split()


def test_every_long_lived_service_says_whether_it_is_healthy(services):
    assert {name for name, service in services.items() if "healthcheck" in service} == LONG_LIVED


def test_services_wait_for_services_that_exist_and_can_be_healthy(services):
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in services, f"{name} waits for {other}"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} waits for the health of {other}"


def test_what_must_last_is_in_a_named_volume(services):
    named = set(compose()["volumes"])
    mounts = {name: service.get("volumes", []) for name, service in services.items()}
    sources = {mount.split(":")[0] for volumes in mounts.values() for mount in volumes}
    assert named <= sources
    for source in sources - named:
        assert (DEPLOY / source).exists(), f"{source} is mounted and not there"


def test_ports_are_open_on_this_machine_only(services):
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)


def test_every_built_target_is_in_the_dockerfile(services):
    stages = re.findall(r"^FROM \S+ AS (\S+)", (DEPLOY / "Dockerfile").read_text(), re.M)
    for name, service in services.items():
        if "build" in service:
            build = service["build"]
            assert build["target"] in stages, name
            assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")


def test_the_gpu_worker_asks_for_a_gpu_and_the_cuda_image(services):
    worker = services["gpu-worker"]
    assert worker["image"].endswith(":cuda") and worker["build"]["target"] == "cuda"
    assert worker["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]


def test_images_of_others_are_pinned_to_a_version(services):
    for name, service in services.items():
        tag = service["image"].rpartition(":")[2]
        assert tag != "latest" and "/" not in tag, name


def test_the_fleet_file_is_right_and_fits_the_services(services, monkeypatch):
    settings = Settings.load(DEPLOY / "fleet.toml")
    host, port = settings.registry.tracking_uri.removeprefix("http://").split(":")
    assert port in services[host]["command"]
    assert f"-bucket={settings.scores.url.split('/')[2]}" in services["s3"]["command"]
    assert any(mount.endswith(f":{settings.registry.cache}") for mount in services["cpu-worker"]["volumes"])

"""prefect.yaml and quiet.yaml, read by Prefect's own loader: every flow imported, every parameter tried."""

from __future__ import annotations

import io
import os
import re

import pytest
import yaml
from prefect.cli.deploy._config import _load_deploy_configs_and_actions
from prefect.cli.deploy._models import (
    ConcurrencyLimitSpec,
    DeploymentConfig,
    PrefectYamlModel,
    WorkPoolConfig,
)
from prefect.cli.deploy._schedules import _construct_schedules
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.templating import apply_values
from rich.console import Console

from flows.settings.fleet_file import Settings
from tests.deploy.composition import DEPLOY, compose

FILES = {name: yaml.safe_load((DEPLOY / name).read_text()) for name in ("prefect.yaml", "quiet.yaml")}
FLEET = "{{ $PAANO_FLEET__NAME }}"
NAMES = {
    file: [item["name"].removeprefix(f"{FLEET}-") for item in written["deployments"]]
    for file, written in FILES.items()
}
DEPLOYMENTS = {
    name: item
    for file, names in NAMES.items()
    for name, item in zip(names, FILES[file]["deployments"], strict=True)
}
EVERY = sorted(DEPLOYMENTS)


def test_the_promised_deployments_are_there():
    assert sorted(NAMES["prefect.yaml"]) == ["housekeeping", "nightly-score", "refresh", "weekly-retrain"]
    assert NAMES["quiet.yaml"] == ["notify"]


@pytest.mark.parametrize("file", FILES)
def test_prefects_own_loader_takes_the_file_without_a_word(file):
    said = io.StringIO()
    configs, actions = _load_deploy_configs_and_actions(DEPLOY / file, console=Console(file=said))
    assert said.getvalue() == ""
    assert [config["name"] for config in configs] == [f"{FLEET}-{name}" for name in NAMES[file]]
    # Nothing is built, pushed or fetched: the code is installed. Runs begin where no code lies.
    [step] = actions.pop("pull")
    assert step == {"prefect.deployments.steps.set_working_directory": {"directory": "/"}}
    assert not any(actions.values())


def test_fleets_on_one_server_have_deployments_and_tags_of_their_own(monkeypatch):
    monkeypatch.setenv("PAANO_FLEET__NAME", "plant")
    for name, deployment in DEPLOYMENTS.items():
        applied = apply_values(deployment, os.environ, remove_notset=False)  # as `prefect deploy` does
        assert applied["name"] == f"plant-{name}"
        assert {"paano", "plant"} < set(applied["tags"])


def test_no_key_is_misspelt():
    # Prefect ignores a key it does not know, so a typing error would pass in silence.
    for written in FILES.values():
        assert set(written) - {"definitions"} <= set(PrefectYamlModel.model_fields)
    for name, deployment in DEPLOYMENTS.items():
        assert set(deployment) <= set(DeploymentConfig.model_fields), name
        assert set(deployment["work_pool"]) <= set(WorkPoolConfig.model_fields), name
        assert set(deployment["concurrency_limit"]) <= set(ConcurrencyLimitSpec.model_fields), name


@pytest.mark.parametrize("name", EVERY)
def test_every_entrypoint_imports_and_takes_its_parameters(name, monkeypatch):
    monkeypatch.setenv("PAANO_FLEET_FILE", "/etc/paano/fleet.toml")
    deployment = DEPLOYMENTS[name]
    flow = load_flow_from_entrypoint(deployment["entrypoint"])
    parameters = apply_values(deployment["parameters"], {})
    assert parameters == {"fleet_file": "/etc/paano/fleet.toml"}
    taken = flow.validate_parameters(parameters)  # with the defaults of all others
    assert parameters.items() <= taken.items()


@pytest.mark.parametrize("name", EVERY)
def test_every_schedule_is_one_that_prefect_takes(name, monkeypatch):
    monkeypatch.setenv("PAANO_QUIET_END", "0 6 * * *")
    monkeypatch.setenv("PAANO_QUIET_ZONE", "Europe/Rome")
    applied = apply_values(DEPLOYMENTS[name], os.environ, remove_notset=False)
    assert _construct_schedules(applied, {}, console=Console(), is_interactive=lambda: False)


@pytest.mark.parametrize(
    ("name", "key"),
    [("nightly-score", "score"), ("weekly-retrain", "retrain"), ("housekeeping", "housekeeping")],
)
def test_schedules_are_those_of_paano_serve(name, key):
    assert DEPLOYMENTS[name]["schedules"][0]["cron"] == getattr(Settings().schedule, key)


def test_one_run_of_a_deployment_at_a_time():
    limits = [deployment["concurrency_limit"] for deployment in DEPLOYMENTS.values()]
    assert limits == [{"limit": 1, "collision_strategy": "ENQUEUE"}] * len(EVERY)


def test_retraining_goes_to_the_gpu_pool_and_the_rest_to_the_cpu_pool():
    pools = {name: deployment["work_pool"]["name"] for name, deployment in DEPLOYMENTS.items()}
    assert pools == {"weekly-retrain": "gpu"} | {name: "cpu" for name in EVERY if name != "weekly-retrain"}


def test_every_pool_is_made_by_the_setup_and_has_a_worker():
    made = set(re.search(r"^for pool in (.+); do", (DEPLOY / "setup.sh").read_text(), re.M)[1].split())
    commands = [service.get("command", []) for service in compose()["services"].values()]
    served = {command[command.index("--pool") + 1] for command in commands if "--pool" in command}
    assert made == served == {deployment["work_pool"]["name"] for deployment in DEPLOYMENTS.values()}

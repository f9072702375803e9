"""Every variable that deploy/ names is one that `paano doctor` knows."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
import yaml
from prefect.settings import Settings as PrefectSettings

from flows.processes.servers import VACUUM
from flows.run.engine import GPU_LIMIT
from flows.settings.fleet_file import keys
from flows.settings.variables import KNOWN_VARIABLES
from tests.deploy.composition import DEPLOY, PLACE, compose, example_variables
from tests.deploy.test_deploy_dockerfile import instructions
from tests.deploy.test_deploy_kubernetes import FOLDER, written_pods

SHELL_NAME = re.compile(r"\$\{?([A-Z][A-Z0-9_]+)")


def in_compose() -> set[str]:
    set_there = {
        name for service in compose()["services"].values() for name in service.get("environment", {})
    }
    return set_there | {m["name"] for m in PLACE.finditer((DEPLOY / "compose.yaml").read_text()) if m["name"]}


def in_kubernetes() -> set[str]:
    found = {
        variable["name"]
        for pod in written_pods().values()
        for c in pod["containers"]
        for variable in c.get("env", [])
    }
    for item in yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["configMapGenerator"]:
        found |= {line.split("=")[0] for line in item.get("literals", [])}
    return found


def in_dockerfile() -> set[str]:
    lines = [rest for _, word, rest in instructions() if word == "ENV"]
    return {name for rest in lines for name in re.findall(r"(\w+)=", rest)}


def in_readme() -> set[str]:
    text = (DEPLOY / "README.md").read_text()
    return set(re.findall(r"\b((?:PAANO|PREFECT|MLFLOW|AWS|POSTGRES|DASK|RAY|OMP|NVIDIA)_[A-Z0-9_]+)", text))


@pytest.mark.parametrize(
    "where",
    [
        in_compose,
        in_kubernetes,
        in_dockerfile,
        in_readme,
        lambda: set(example_variables()),
        lambda: set(SHELL_NAME.findall((DEPLOY / "setup.sh").read_text())),
        lambda: set(SHELL_NAME.findall((DEPLOY / "prefect.yaml").read_text())),
        lambda: set(SHELL_NAME.findall((DEPLOY / "quiet.yaml").read_text())),
    ],
    ids=["compose", "kubernetes", "dockerfile", "readme", "env.example", "setup", "prefect", "quiet"],
)
def test_every_variable_is_known(where):
    names = where()
    assert names
    assert names <= set(KNOWN_VARIABLES)


def of_kubernetes() -> dict[str, str]:
    [server] = [c for pod in written_pods().values() for c in pod["containers"] if c["name"] == "prefect"]
    return {variable["name"]: variable.get("value", "") for variable in server["env"]}


@pytest.mark.parametrize(
    "variables",
    [lambda: compose()["services"]["prefect"]["environment"], of_kubernetes, lambda: VACUUM],
    ids=["compose", "kubernetes", "serve and demo"],
)
def test_every_prefect_server_removes_old_runs_by_itself(variables, monkeypatch):
    for name, value in variables().items():
        if "DB_VACUUM" in name:
            monkeypatch.setenv(name, value)
    vacuum = PrefectSettings().server.services.db_vacuum
    assert {"events", "flow_runs"} <= vacuum.enabled_vacuum_types
    assert vacuum.retention_period == timedelta(days=90)


def test_the_setup_makes_the_limit_that_the_engine_asks_for():
    assert f"gcl create {GPU_LIMIT} " in (DEPLOY / "setup.sh").read_text()


def test_every_setting_that_the_readme_names_is_in_the_fleet_file():
    known = {f"{section}.{key}" for section, key, _ in keys()}
    sections = "|".join({name.split(".")[0] for name in known})
    named = set(re.findall(rf"`?\b((?:{sections})\.[a-z_]+)\b(?!\.)", (DEPLOY / "README.md").read_text()))
    assert named - {"fleet.toml"} and named - {"fleet.toml"} <= known

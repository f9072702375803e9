"""Deployments and workers beside a project that has a folder `flows` of its own: ours are run, not theirs."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from flows.processes.servers import prefect_server, running
from tests.deploy.composition import DEPLOY
from tests.servers import BIN

pytestmark = pytest.mark.slow

ENDED = ("COMPLETED", "FAILED", "CRASHED")

THEIRS = """
from pathlib import Path
Path({mark!r}).write_text("taken")
from prefect import flow

@flow(name="{name}")
def {name}(fleet_file: str = ""):
    Path({mark!r}).write_text("run")
"""


def environment_of(folder: Path, address: str, fleet_file: Path) -> dict[str, str]:
    """What a machine has set that sets up the fleet on the Prefect server at `address`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {
        **kept,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PREFECT_API_URL": address,
        "PREFECT_HOME": str(folder / "home"),
        "PAANO_FLEET_FILE": str(fleet_file),
    }


def test_a_worker_in_a_project_with_flows_of_its_own_runs_ours(tmp_path):
    project, fleet, mark = tmp_path / "project", tmp_path / "fleet", tmp_path / "taken"
    (project / "flows").mkdir(parents=True)
    (project / "flows" / "__init__.py").write_text("")
    for name in ("score", "retrain", "refresh", "housekeeping", "notify"):
        (project / "flows" / f"{name}.py").write_text(THEIRS.format(mark=str(mark), name=name))
    fleet.mkdir()
    (fleet / "fleet.toml").write_text('[fleet]\nname = "plant"\n')
    with prefect_server(tmp_path / "prefect") as address:
        environment = environment_of(tmp_path, address, fleet / "fleet.toml")
        done = subprocess.run(
            ["sh", str(DEPLOY / "setup.sh")], cwd=project, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert not mark.exists(), "the setup imported the project's flows"
        worker = [
            "env", "-C", str(project), str(BIN / "prefect"), "worker", "start", "--pool", "cpu",
            "--type", "process",
        ]  # fmt: skip
        log = tmp_path / "worker.log"
        with running("worker", worker, log, environment) as ended:
            found = ask(address, "deployments/name/housekeeping/plant-housekeeping")["id"]
            for where in ({"working_dir": str(project)}, {}):
                given = {"job_variables": where, "parameters": {"dry_run": True}}
                run = ask(address, f"deployments/{found}/create_flow_run", given)["id"]
                deadline = time.monotonic() + 240
                while (state := ask(address, f"flow_runs/{run}")["state"])["type"] not in ENDED:
                    assert not ended() and time.monotonic() < deadline, log.read_text()[-3000:]
                    time.sleep(1)
                assert not mark.exists(), f"theirs were {mark.read_text()}: {log.read_text()[-3000:]}"
                assert state["type"] == "COMPLETED", f"{state}\n{log.read_text()[-3000:]}"
    assert (fleet / "mlflow" / "mlflow.db").exists()


def test_the_setup_schedules_the_end_of_quiet_hours_and_removes_it_with_them(tmp_path):
    file = tmp_path / "fleet.toml"
    with prefect_server(tmp_path / "prefect") as address:
        environment = environment_of(tmp_path, address, file)

        def schedules(text: str) -> dict[str, list[tuple[str, str]]]:
            file.write_text(f'[fleet]\nname = "plant"\ntimezone = "Europe/Rome"\n{text}')
            done = subprocess.run(
                ["sh", str(DEPLOY / "setup.sh")], env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return {
                job["name"]: [(s["schedule"]["cron"], s["schedule"]["timezone"]) for s in job["schedules"]]
                for job in ask(address, "deployments/filter", {})
            }

        target = '[notify.targets.hook]\nkind = "webhook"\naddress = "http://127.0.0.1:1/"\n'
        quiet = schedules(f'[notify]\nquiet = "22:00-06:00"\n{target}')
        assert quiet["plant-notify"] == [("0 6 * * *", "Europe/Rome")]
        assert set(quiet) - set(schedules(target)) == {"plant-notify"}


def ask(address: str, what: str, body: dict[str, object] | None = None) -> dict[str, object]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}/{what}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)

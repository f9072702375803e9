"""`paano serve` with a schedule a minute ahead, on a Prefect server that it starts itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fleets
import pytest

from flows.processes.servers import free_port, running
from flows.run.fleet import open_fleet
from storage.window import Window


@pytest.mark.slow
def test_a_schedule_really_runs_the_nightly_flow(tmp_path):
    """The history ends now, as the flow's own clock decides which night is scored."""
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date()
    start = Window.day(yesterday).start - timedelta(days=4)
    folder, port = tmp_path / "fleet", free_port()
    settings = fleets.settings_of(
        folder,
        schedule={"score": "* * * * *", "retrain": "", "housekeeping": "", "port": port},
        model={"iterations": 0},
        history={"lookback": "4d"},
    )
    fleets.new_registry(settings)
    for number in range(2):
        fleets.write_sensor(settings, f"s{number:02d}", fleets.signal(number, 6 * 48), start)
    file = fleets.write_fleet_file(settings)
    environment = {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_LOGGING_LEVEL": "INFO"}
    # Beside a project that has a folder `flows` of its own.
    foreign = tmp_path / "project" / "flows"
    foreign.mkdir(parents=True)
    for name in ("__init__.py", "score.py"):
        (foreign / name).write_text("raise SystemExit('the wrong flows')\n")
    paano = str(Path(sys.executable).parent / "paano")
    command = ["env", "-C", str(foreign.parent), paano, "serve", "-f", file]
    os.environ.pop("PREFECT_API_URL", None)
    fleet = open_fleet(settings)
    log = tmp_path / "serve.log"
    with running("paano serve", command, log, environment) as ended:
        deadline = time.monotonic() + 420
        while time.monotonic() < deadline:
            assert not ended(), ended()
            rows = fleet.scores.read_many(["s00", "s01"], Window.day(yesterday))
            if rows.height == 2 * 48:
                break
            time.sleep(1)
        else:
            pytest.fail(log.read_text()[-3000:])
        second = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
        assert second.returncode == 2, second.stdout + second.stderr
        assert "fleet tiny is served already" in second.stderr
        wait_until(lambda: " ends, Completed after " in log.read_text(), log)
        address = f"http://127.0.0.1:{port}/api"
        said = log.read_text()
        # Many more runs are planned than began: only the latter are announced.
        assert 1 <= said.count(" begins\n") <= len(flow_runs(address, *BEGUN))
        assert len(flow_runs(address, "SCHEDULED")) > 2
        assert "score/tiny-score" in said and "* * * * *" in said and "next 20" in said
        assert f"pages: http://127.0.0.1:{port}" in said
        [line] = [line for line in said.splitlines() if line.startswith("a run now: ")]
        variable, *now = line.removeprefix("a run now: ").split()
        variable = dict([variable.split("=", 1)])
        assert variable == {"PREFECT_API_URL": address}
        subprocess.run(now, env={**os.environ, **environment, **variable}, check=True, capture_output=True)
        [asked] = [run["id"] for run in flow_runs(address) if not run["auto_scheduled"]]
        wait_until(lambda: asked in {run["id"] for run in flow_runs(address, "COMPLETED")}, log)
        completed = len(flow_runs(address, "COMPLETED"))
        wait_until(lambda: log.read_text().count(" ends, Completed after ") >= completed, log)
        assert logs(address, asked), "runs keep their logs"
        # A command's own run, on the same server.
        swept = [paano, "sweep", "--dry-run", "--json", "-f", file]
        done = subprocess.run(
            swept, env={**os.environ, **environment, **variable}, capture_output=True, text=True
        )
        assert done.returncode == 0 and "model_versions" in json.loads(done.stdout), done.stderr
        assert not done.stderr, "logs go to the server, not to the terminal"
        runs = flow_runs(address)
        assert all({"paano", "tiny"} <= set(run["tags"]) for run in runs)
        [own] = [run for run in runs if run["deployment_id"] is None]
        assert any(tag.startswith("process:") for tag in own["tags"])
        assert logs(address, own["id"]), "runs of commands keep their logs"
    assert set(rows["status"]) <= {"ok", "provisional"}


def wait_until(true, log, seconds=120):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(1)


def ask(address, what, **body):
    request = urllib.request.Request(
        f"{address}/{what}/filter", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


BEGUN = ("RUNNING", "COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def flow_runs(address, *states):
    asked = {"state": {"type": {"any_": list(states)}}} if states else None
    return ask(address, "flow_runs", limit=200, flow_runs=asked)


def logs(address, run):
    return ask(address, "logs", limit=5, logs={"flow_run_id": {"any_": [run]}})


@pytest.mark.usefixtures("prefect")
def test_a_run_whose_process_was_killed_is_marked_as_crashed_by_the_next():
    from prefect.client.orchestration import get_client
    from prefect.states import Running

    from flows.processes.prefect_runs import mark_crashed, process_tag
    from flows.score import score

    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gone = process_tag().rpartition(":")[0] + f":{dead.pid}"
    with get_client(sync_client=True) as client:
        kinds = {"mine": process_tag(), "gone": gone, "elsewhere": "process:another-host:1", "none": "x"}
        runs = {
            kind: client.create_flow_run(score, tags=["paano", "plant", tag], state=Running())
            for kind, tag in kinds.items()
        }
        assert mark_crashed("another fleet") == 0
        assert mark_crashed("plant") == 1
        found = {kind: client.read_flow_run(run.id).state.type.value for kind, run in runs.items()}
    assert found == {"mine": "RUNNING", "gone": "CRASHED", "elsewhere": "RUNNING", "none": "RUNNING"}


def test_a_prefect_server_that_is_not_there_is_one_paragraph(tmp_path):
    file = fleets.write_fleet_file(fleets.settings_of(tmp_path))
    address = f"http://user:hush@127.0.0.1:{free_port()}/api"
    done = subprocess.run(
        [str(Path(sys.executable).parent / "paano"), "score", "-f", file],
        env={**os.environ, "PREFECT_API_URL": address},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "does not answer" in done.stderr and "PREFECT_API_URL" in done.stderr
    assert "Traceback" not in done.stderr and "hush" not in done.stderr
    assert len(done.stderr.splitlines()) < 5


def test_deployments_at_the_end_are_paused_only_by_their_owner(prefect):
    from prefect.client.orchestration import get_client

    from flows.score import score
    from flows.serve import _pause_own, _read

    score.to_deployment("plant-score", tags=["served-by:second"], cron="0 0 * * *").apply()
    names = ["score/plant-score"]
    _pause_own(names, "served-by:first")
    assert [found.paused for found in _read(names)] == [False]
    _pause_own(names, "served-by:second")
    assert [found.paused for found in _read(names)] == [True]
    with get_client(sync_client=True) as client:
        client.delete_deployment(_read(names)[0].id)


def test_a_fleet_with_quiet_hours_has_a_deployment_for_their_end_in_its_zone(tmp_path):
    from flows.serve import deployments

    target = {"kind": "webhook", "address": "http://127.0.0.1:1/"}

    def served(**notify):
        settings = fleets.settings_of(
            tmp_path, fleet={"name": "plant", "timezone": "Europe/Rome"}, notify=notify
        )
        return {job.name: job for job in deployments(settings, "fleet.toml", "me")}

    without = served(targets={"hook": target})
    assert sorted(without) == ["plant-housekeeping", "plant-retrain", "plant-score"]
    found = served(targets={"hook": target}, quiet="22:00-06:05")
    assert set(found) - set(without) == {"plant-notify"}
    [schedule] = [entry.schedule for entry in found["plant-notify"].schedules]
    assert (schedule.cron, schedule.timezone) == ("5 6 * * *", "Europe/Rome")
    assert found["plant-notify"].parameters == {"fleet_file": "fleet.toml"}


def test_the_next_time_of_a_schedule_is_told_in_its_zone():
    from flows.serve import next_time

    moment = next_time("30 1 * * *", "Europe/Rome")
    assert (moment.hour, moment.minute, str(moment.tzinfo)) == (1, 30, "Europe/Rome")


def test_doctor_says_when_a_folder_would_be_imported_instead_of_ours(tmp_path):
    from flows.cli.doctor import packages

    assert [finding.state for finding in packages(tmp_path)] == ["ok"]
    (tmp_path / "flows").mkdir()
    [finding] = packages(tmp_path)
    assert finding.state == "warn" and "flows" in finding.says

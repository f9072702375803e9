"""Processes of this machine that work on batches: what they see, what they give back, and how they end."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import time

import pytest

from flows.run.workers import has_processes, in_worker, run_of_worker, use_processes, worker_processes
from flows.settings.fleet_file import Settings
from paano.errors import HistoryError, Transient


def settings(folder, **run) -> Settings:
    return Settings.from_dict({"run": {"device": "cpu", "workers": 2, **run}, "folder": folder})


@pytest.fixture
def workers(tmp_path):
    """Two processes of a run called `a-run`."""
    with worker_processes(settings(tmp_path), 500, "a-run"):
        yield


def variable(name: str) -> str | None:
    return os.environ.get(name)


def warn(text: str) -> int:
    logging.getLogger("paano.flows").warning("%s, said by a worker", text)
    return os.getpid()


def refuse(sensor: str) -> None:
    raise HistoryError(f"{sensor}: no rows")


def find_nothing(sensor: str) -> HistoryError:
    return HistoryError(f"{sensor}: no rows")


def test_work_is_done_in_another_process_for_the_same_run(workers):
    assert has_processes()
    assert in_worker(os.getpid) != os.getpid()
    assert in_worker(run_of_worker) == "a-run" and run_of_worker() == ""


def test_what_was_there_when_a_run_began_is_no_garbage_until_it_ends(tmp_path):
    before = gc.get_freeze_count()
    with worker_processes(settings(tmp_path), 500, "a-run"):
        assert gc.get_freeze_count() > before
        assert in_worker(gc.get_freeze_count) > 0
    assert gc.get_freeze_count() == before


def test_outside_of_the_block_work_is_done_here():
    assert not has_processes()
    assert in_worker(os.getpid) == os.getpid()


def test_a_worker_sees_the_variables_of_the_flow_also_if_they_are_newer_than_the_server(
    tmp_path, monkeypatch
):
    for value in ("one", "two"):
        monkeypatch.setenv("PAANO_TEST_VALUE", value)
        with worker_processes(settings(tmp_path), 500, value):
            assert in_worker(variable, "PAANO_TEST_VALUE") == value


def test_what_a_worker_logs_is_logged_here(workers, caplog):
    pid = in_worker(warn, "pump-17")
    (record,) = [one for one in caplog.records if "pump-17" in one.getMessage()]
    assert record.process == pid and record.levelname == "WARNING" and record.name == "paano.flows"


def test_an_error_of_a_worker_is_raised_here_with_its_type_and_message(workers):
    with pytest.raises(HistoryError, match=r"^pump-17: no rows$"):
        in_worker(refuse, "pump-17")


def test_an_error_that_is_the_value_of_a_call_is_given_back_and_not_raised(workers):
    found = in_worker(find_nothing, "pump-17")
    assert isinstance(found, HistoryError) and str(found) == "pump-17: no rows"


def test_a_worker_that_is_killed_fails_its_batch_for_now_and_the_next_one_works(workers):
    with pytest.raises(Transient, match=r"lower run\.workers"):
        in_worker(os.kill, in_worker(os.getpid), signal.SIGKILL)
    assert in_worker(os.getpid) != os.getpid()


@pytest.mark.parametrize(
    ("run", "sensors", "used"),
    [
        ({}, 200, True),
        ({}, 199, False),
        ({"processes_from": 0}, 100_000, False),
        ({"engine": "dask"}, 500, False),
        ({"device": "cuda"}, 500, False),
        ({"workers": 1}, 500, False),
    ],
)
def test_only_a_large_run_on_several_cores_of_this_machine_uses_processes(tmp_path, run, sensors, used):
    assert use_processes(settings(tmp_path, **run), sensors) is used


SCRIPT = """
import os, sys, time
from flows.run.workers import in_worker, worker_processes
from flows.settings.fleet_file import Settings

print("begun", flush=True)
settings = Settings.from_dict({"run": {"device": "cpu", "workers": 2}, "folder": sys.argv[1]})
with worker_processes(settings, 500, "run"):
    print(in_worker(os.getpid), flush=True)
    if len(sys.argv) > 2:
        time.sleep(60)
"""


def test_a_script_without_a_guard_is_not_run_again_by_its_workers(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.count("begun") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc whether a process is there")
def test_workers_end_with_a_flow_that_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), "wait"], stdout=subprocess.PIPE, text=True
    ) as flow:
        assert flow.stdout.readline() == "begun\n"
        worker = int(flow.stdout.readline())
        assert os.path.exists(f"/proc/{worker}")
        flow.kill()
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{worker}") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{worker}")

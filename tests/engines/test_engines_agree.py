"""The same fleet on every engine, with any number of workers, even if one is killed: the same bytes."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.sorting import FlowRunSort

from flows.retrain import retrain
from flows.run.fleet import open_fleet
from flows.run.workers import Workers
from flows.score import score
from flows.settings.fleet_file import Settings
from tests.engines.tiny import days, objects, run_fleet, write_fleet

pytestmark = pytest.mark.usefixtures("prefect")  # worker processes report to it as well
pytest.importorskip("prefect_dask", reason="Dask is not here: pip install 'paano-fleet[dask]'")


@pytest.fixture(scope="module")
def alone(tmp_path_factory, prefect) -> dict[str, str]:
    """What the fleet leaves behind, trained and scored by one thread."""
    file = write_fleet(tmp_path_factory.mktemp("alone"), "local", workers=1)
    run_fleet(file)
    return objects(file.parent)


def test_two_dask_workers_write_the_same_bytes_as_one_thread(tmp_path):
    _, nights = days()
    found = []
    for engine, workers in (("local", 1), ("dask", 2)):
        file = write_fleet(tmp_path / engine, engine, workers, sensors=2)
        score(str(file), day=nights[0])  # the first models are made on the way
        found.append(objects(file.parent))
    assert len(found[0]) > 2 and found[0] == found[1]


def test_two_processes_of_this_machine_write_the_same_bytes_as_one_thread(alone, tmp_path, monkeypatch):
    monkeypatch.setenv("PAANO_RUN__PROCESSES_FROM", "1")
    file = write_fleet(tmp_path, "local", workers=2)
    seen = []
    monkeypatch.setattr(Workers, "call", watched(Workers.call, seen))
    run_fleet(file)
    assert objects(tmp_path) == alone
    assert {"train_sensors", "compute_rows", "commit_rows"} <= set(seen)


def watched(call, seen):
    def watching(self, work, *arguments, **named):
        seen.append(work.__name__)
        return call(self, work, *arguments, **named)

    return watching


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "workers"), [("local", 3), ("dask", 2), ("dask", 3), ("ray", 2)])
def test_every_engine_leaves_the_same_objects(engine, workers, alone, tmp_path):
    if engine == "ray":
        pytest.importorskip("prefect_ray", reason="Ray is not here: pip install 'paano-fleet[ray]'")
    file = write_fleet(tmp_path, engine, workers)
    run_fleet(file)
    assert objects(tmp_path) == alone


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_training_changes_nothing(alone, tmp_path):
    from distributed import LocalCluster

    as_of, nights = days()
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        file = write_fleet(tmp_path, "dask", address=cluster.scheduler_address)
        with Killer(cluster.scheduler_address, "train") as killer:
            report = retrain(str(file), as_of=as_of)
        assert killer.killed, "no worker was caught at work"
        for night in nights:
            score(str(file), day=night)
    assert report.counts["failed"] == 0
    assert objects(tmp_path) == alone
    registry = open_fleet(Settings.load(file)).registry
    for outcome in report.outcomes:
        if outcome.state == "ok":  # a sensor that is too young has none
            assert [version.version for version in registry.versions(outcome.sensor)] == [1]
    assert task_states(1 + len(nights)) == {"COMPLETED"}


class Killer(threading.Thread):
    """Kills the first Dask worker that is seen at a task of the given name."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__(daemon=True)
        self.address, self.task, self.killed, self.over = address, name, [], threading.Event()

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.join(60)

    def run(self) -> None:
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            pids = client.run(os.getpid)
            while not self.over.is_set():
                for worker, keys in client.processing().items():
                    if any(self.task in str(key) for key in keys):
                        time.sleep(0.5)  # well into it
                        os.kill(pids[worker], signal.SIGKILL)
                        self.killed.append(pids[worker])
                        return
                time.sleep(0.05)


def task_states(flow_runs: int) -> set[str]:
    """The states of all task runs in the last flow runs, as the server knows them."""
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=flow_runs)
        ours = FlowRunFilter(id=FlowRunFilterId(any_=[run.id for run in runs]))
        return {run.state_type.value for run in client.read_task_runs(flow_run_filter=ours, limit=200)}

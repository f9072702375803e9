"""The engine alone: what it refuses, how it shares GPUs, what becomes of a lost batch."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import joblib
import pytest
import torch
from prefect import task
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.run import engine as engines
from flows.run.engine import Engine, gpu_slot, open_engine
from flows.run.workers import cores
from flows.settings.fleet_file import Settings
from paano.errors import ConfigError


@task
def double(batch):
    if batch < 0:
        raise ValueError("a batch must not be negative")
    return 2 * batch


class Recorder:
    """A task runner that notes what was asked for."""

    def __init__(self):
        self.asked = []

    def submit(self, task, parameters):
        import dask
        from prefect_ray.context import RemoteOptionsContext

        remote = RemoteOptionsContext.get().current_remote_options
        self.asked.append({"dask": dask.get_annotations(), "ray": remote, "parameters": parameters})


def test_an_unknown_engine_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"run.engine = 'spark'.*local, dask, ray"), open_engine("spark"):
        pass


def test_an_address_without_a_cluster_engine_is_refused():
    with pytest.raises(ConfigError, match=r"run\.address"), open_engine("local", address="tcp://far:8786"):
        pass


@pytest.mark.parametrize(("kind", "module"), [("dask", "prefect_dask"), ("ray", "prefect_ray")])
def test_an_engine_that_is_not_installed_says_how_to_install_it(kind, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, f"{module}.task_runners", None)
    monkeypatch.setattr(engines, "reachable_server", lambda address: nullcontext())
    with pytest.raises(ConfigError, match=rf"pip install 'paano-fleet\[{kind}\]'"), open_engine(kind):
        pass


@pytest.mark.parametrize("address", ["tcp://scheduler.example:8786", "ray://head.example:10001"])
def test_a_cluster_elsewhere_needs_a_prefect_server_that_it_can_reach(address):
    with (
        temporary_settings({PREFECT_API_URL: None}),
        pytest.raises(ConfigError, match="PREFECT_API_URL"),
        engines.reachable_server(address),
    ):
        pass


def test_a_cluster_that_does_not_answer_is_named(monkeypatch):
    pytest.importorskip("prefect_dask", reason="Dask is not here: pip install 'paano-fleet[dask]'")
    import dask

    monkeypatch.setattr(engines, "reachable_server", lambda address: nullcontext())
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(engines.Transient, match=r"tcp://127.0.0.1:9 does not answer"),
        open_engine("dask", address="tcp://127.0.0.1:9"),
    ):
        pass


@pytest.mark.parametrize(
    ("kind", "dask_share", "ray_share"),
    [("local", {}, {}), ("dask", {"resources": {"GPU": 0.25}}, {}), ("ray", {}, {"num_gpus": 0.25})],
)
def test_each_scheduler_is_asked_for_a_share_of_a_gpu_in_its_own_words(kind, dask_share, ray_share):
    pytest.importorskip("prefect_ray", reason="Ray is not here: pip install 'paano-fleet[ray]'")
    runner = Recorder()
    Engine(kind, 1, runner, gpus=0.25).submit(double, batch=1)
    assert runner.asked == [{"dask": dask_share, "ray": ray_share, "parameters": {"batch": 1}}]


def test_without_gpus_nothing_special_is_asked_for():
    pytest.importorskip("prefect_ray", reason="Ray is not here: pip install 'paano-fleet[ray]'")
    for kind in engines.ENGINES:
        runner = Recorder()
        Engine(kind, 1, runner).submit(double, batch=1)
        assert runner.asked == [{"dask": {}, "ray": {}, "parameters": {"batch": 1}}]


@pytest.mark.parametrize(
    ("device", "kind", "waits"),
    [("cuda", "local", True), ("cuda:1", "local", True), ("cpu", "local", False), ("cuda", "ray", False)],
)
def test_only_threads_that_share_a_gpu_wait_for_the_limit(device, kind, waits, monkeypatch):
    asked = []
    monkeypatch.setattr(
        engines, "concurrency", lambda *names, **how: asked.append((names, how)) or nullcontext()
    )
    with gpu_slot(device, kind):
        pass
    assert asked == ([(("paano-gpu",), {"occupy": 1, "strict": False})] if waits else [])


def test_workers_times_threads_fill_the_machine_and_no_more(monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    assert [cores(1), cores(3), cores(8), cores(64)] == [8, 2, 1, 1]


@pytest.mark.parametrize(("kind", "share"), [("dask", 0.5), ("ray", 0.5), ("local", 0.0)])
def test_auto_is_resolved_once_and_then_trains_stacked_and_asks_for_a_share_of_the_gpu(
    kind, share, monkeypatch
):
    from flows.retrain import gpu_share

    settings = Settings.from_dict({"run": {"engine": kind, "gpus": 0.5}})
    assert settings.run.device == "auto"
    monkeypatch.setattr(engines, "pick_device", lambda name: torch.device("cuda"))
    found = engines.resolve_device(settings)
    assert found.run.device == "cuda"
    assert gpu_share(found) == share
    assert Settings.from_dict(found.to_dict()) == found, "the workers get the same answer"


def test_a_device_that_was_set_stays_as_it_was_set(monkeypatch):
    monkeypatch.setattr(engines, "pick_device", lambda name: torch.device("cuda"))
    settings = Settings.from_dict({"run": {"device": "cpu"}})
    assert engines.resolve_device(settings) == settings

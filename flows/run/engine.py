"""Where batches run: threads of this machine, a Dask cluster or a Ray cluster.

A flow opens one engine and submits its batches; Prefect's own task runners do the rest.

    with open_engine("dask", address="tcp://scheduler:8786") as engine:
        futures = [engine.submit(score_batch, batch=batch) for batch in batches]
        for future in engine.as_completed(futures):
            value = engine.result(future)

Results do not depend on the engine: a batch carries ids, a window and settings, and its work is the same
plain function everywhere, with a fixed number of torch threads. A batch whose worker dies is run again by
Dask or Ray on another one, which is safe because a batch writes the same bytes to the same keys.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from prefect import Task
from prefect.concurrency.sync import concurrency
from prefect.futures import PrefectFuture, as_completed
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from flows.run.workers import cores, use_processes
from flows.settings.fleet_file import Settings
from paano.device import pick_device
from paano.errors import ConfigError, Transient

Batches: TypeAlias = Task[..., Any]  # a task that works on one batch
Future: TypeAlias = PrefectFuture[Any]
Runner: TypeAlias = TaskRunner[Any]

ENGINES = ("local", "dask", "ray")

# The global concurrency limit that keeps threads of several machines from crowding one GPU:
# `prefect gcl create paano-gpu --limit 4`. Where nobody made it, it limits nothing.
GPU_LIMIT = "paano-gpu"


@dataclass(frozen=True)
class Engine:
    """A started task runner; `submit` hands it one batch."""

    kind: str
    workers: int
    runner: Runner
    gpus: float = 0.0

    def submit(self, task: Batches, **parameters: Any) -> Future:
        """Hand one batch to a worker; with `gpus`, to one that has so much of a GPU free."""
        with self._resources():
            future: Future = self.runner.submit(task, parameters=parameters)
            return future

    def as_completed(self, futures: Iterable[Future]) -> Iterator[Future]:
        """The futures in the order in which they end."""
        return as_completed(list(futures))

    def result(self, future: Future) -> Any:
        """The value of a batch, or the exception that ended it: one lost batch must not end the run."""
        try:
            return future.result()
        except Exception as error:
            return error

    def _resources(self) -> AbstractContextManager[Any]:
        if not self.gpus or self.kind == "local":
            return nullcontext()
        if self.kind == "ray":
            from prefect_ray.context import remote_options

            share: AbstractContextManager[Any] = remote_options(num_gpus=self.gpus)
            return share
        from dask.base import annotate

        return annotate(resources={"GPU": self.gpus})


def night_workers(settings: Settings, sensors: int) -> int:
    """Batches at once of a night of so many sensors.

    On threads it is two for each core: half of a batch's time it waits, for a store or for the lock that
    Python's threads share (benchmarks/FLEET.md).
    """
    run = settings.run
    on_threads = run.engine == "local" and not use_processes(settings, sensors)
    return run.workers or cores(run.threads) * (2 if on_threads else 1)


def resolve_device(settings: Settings) -> Settings:
    """`settings` with `run.device = "auto"` replaced by the device that this machine has.

    A flow does this once, before it plans: whether models are trained stacked, whether a share of a GPU is
    asked for and what the workers compute on all follow from the same answer. Where the workers have a GPU
    and the machine of the flow has none, `run.device = "cuda"` says so.
    """
    if settings.run.device != "auto":
        return settings
    run = settings.run.model_copy(update={"device": pick_device("auto").type})
    return settings.model_copy(update={"run": run})


@contextmanager
def open_engine(
    kind: str = "local",
    *,
    address: str | None = None,
    workers: int = 0,
    threads: int = 1,
    gpus: float = 0.0,
) -> Iterator[Engine]:
    """Start an engine for one flow run and close it afterwards.

    `address` is that of a running Dask or Ray cluster; without it a cluster of `workers` processes is
    made on this machine, by default as many as fill it with `threads` torch threads each. `gpus` is the
    share of a GPU that one batch takes.
    """
    if kind not in ENGINES:
        raise ConfigError(f"run.engine = {kind!r} is not known; choose one of {', '.join(ENGINES)}")
    if address and kind == "local":
        raise ConfigError(f"run.address = {address!r} is of no use to run.engine = 'local'")
    count = workers or cores(threads)
    with ExitStack() as stack:
        runner: Runner
        if kind == "local":
            runner = ThreadPoolTaskRunner(max_workers=count)
        elif kind == "dask":
            stack.enter_context(reachable_server(address))
            runner = _dask_runner(address, count, gpus)
        else:
            stack.enter_context(reachable_server(address))
            runner = _ray_runner(address, count)
        stack.enter_context(_started(runner, kind, address))
        if gpus and kind == "dask":
            _check_dask_gpus(runner, address, gpus)
        yield Engine(kind, count, runner, gpus)


@contextmanager
def reachable_server(address: str | None) -> Iterator[None]:
    """Let worker processes report to the Prefect server that this process uses.

    The embedded server belongs to one process and every other process would try to start its own, so
    its URL is lent to the workers for as long as the engine is open. It listens on this machine only.
    """
    if PREFECT_API_URL.value():
        yield
        return
    if address and (urlsplit(address).hostname or address) not in ("127.0.0.1", "localhost", "::1", "local"):
        raise ConfigError(
            f"the workers of the cluster at {address} need a Prefect server they can reach: run "
            "`prefect server start --host 0.0.0.0` and set PREFECT_API_URL=http://<this host>:4200/api"
        )
    from prefect.server.api.server import SubprocessASGIServer

    server = SubprocessASGIServer()  # the same object the embedded client uses: one per process
    server.start(timeout=180)  # the default 20 s are too few on a busy machine
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        yield


@contextmanager
def gpu_slot(device: str, engine: str = "local") -> Iterator[None]:
    """Wait for a place on the GPU where no cluster scheduler hands it out."""
    if engine == "local" and device.startswith("cuda"):
        with concurrency(GPU_LIMIT, occupy=1, strict=False):
            yield
    else:
        yield


def _dask_runner(address: str | None, workers: int, gpus: float) -> Runner:
    try:
        from prefect_dask.task_runners import DaskTaskRunner
    except ImportError as error:
        raise ConfigError("run.engine = 'dask' is not installed: pip install 'paano-fleet[dask]'") from error
    logging.getLogger("distributed").setLevel(logging.WARNING)  # it tells of every connection
    runner: Runner
    if address:
        runner = DaskTaskRunner(address=address)
        return runner
    import dask

    dask.config.set({"distributed.nanny.pre-spawn-environ.DASK_LOGGING__DISTRIBUTED": "warning"})
    cluster: dict[str, Any] = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    if gpus:
        import torch

        # As many workers as shares of the GPUs there are, each offering exactly one share.
        cluster["n_workers"] = max(1, int(torch.cuda.device_count() / gpus))
        cluster["resources"] = {"GPU": gpus}
    runner = DaskTaskRunner(cluster_kwargs=cluster)
    return runner


def _ray_runner(address: str | None, workers: int) -> Runner:
    try:
        import ray  # noqa: F401  prefect_ray imports it only when used
        from prefect_ray import RayTaskRunner
    except ImportError as error:
        raise ConfigError("run.engine = 'ray' is not installed: pip install 'paano-fleet[ray]'") from error
    # "local" always makes a cluster of our own; without an address Ray would join any it finds here.
    own = {"num_cpus": workers, "include_dashboard": False}
    runner: Runner = RayTaskRunner(address=address or "local", init_kwargs={} if address else own)
    return runner


@contextmanager
def _started(runner: Runner, kind: str, address: str | None) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(runner)
            if kind == "dask":
                _ = _dask_client(runner)  # connects: an absent scheduler is found before the first batch
        except (OSError, TimeoutError, ConnectionError) as error:
            raise Transient(
                f"the {kind} cluster at {address or 'this machine'} does not answer: {error}"
            ) from error
        yield


def _check_dask_gpus(runner: Runner, address: str | None, gpus: float) -> None:
    """Dask keeps a task for ever that no worker can take: say so instead."""
    workers = _dask_client(runner).scheduler_info(n_workers=-1)["workers"].values()
    if workers and all(worker["resources"].get("GPU", 0) < gpus for worker in workers):
        raise ConfigError(
            f"no worker of the Dask cluster at {address or 'this machine'} offers {gpus} of a GPU: start "
            "them with `dask worker … --resources GPU=1`, or set run.device = 'cpu'"
        )


def _dask_client(runner: Runner) -> Any:
    """The client of a Dask runner; it connects when first asked for."""
    return runner.client  # type: ignore[attr-defined]  # of DaskTaskRunner, which may not be installed

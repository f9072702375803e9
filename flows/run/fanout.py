"""Hand batches to the engine and gather the outcomes: the part that all flows share.

A batch is tried again only for what is transient; a batch that is lost for good is the outcome of its
sensors and not the end of the run. The run fails when more sensors failed than it may survive.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast
from uuid import UUID

from prefect import Task, task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.context import TagsContext
from prefect.runtime import flow_run

from flows.run.days import day_before_now
from flows.run.engine import Batches, open_engine, resolve_device
from flows.run.names import artifact_key
from flows.run.outcome import Outcome, State, failed
from flows.run.plan import Batch
from flows.run.workers import cores, has_processes, in_worker
from flows.settings.fleet_file import DEFAULT_FILE, Settings
from paano.errors import PaanoError, Transient
from storage.secrets import without_secrets

logging.getLogger("prefect.task_runs").addFilter(
    # Said of every task with a time limit on threads; the comment of run.time_limit says it once.
    lambda record: "cannot interrupt blocking operations" not in record.getMessage()
)

BACK_OFF = [5.0, 30.0, 120.0]  # seconds before each further try; the last one repeats

P = ParamSpec("P")
T = TypeVar("T")
Watcher = Callable[[str, int, int], None]
_watchers: list[Watcher] = []


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Tell `watcher(what, done, total)` how far the runs of this process are."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def load_settings(fleet_file: str) -> Settings:
    """Settings for a flow: from the given file, $PAANO_FLEET_FILE or fleet.toml; the device is chosen."""
    return resolve_device(Settings.load(_path(fleet_file)))


def _path(fleet_file: str) -> str:
    return fleet_file or os.environ.get("PAANO_FLEET_FILE", DEFAULT_FILE)


def run_name() -> str:
    """The name of a flow run: the fleet, the flow and what it is about, also when that is the default."""
    given = flow_run.parameters
    settings = Settings.load(_path(given.get("fleet_file") or ""))
    about = given.get("day") or given.get("as_of") or day_before_now(settings)
    if given.get("first"):
        about = f"{given['first']} to {given.get('last')}"
    return f"{settings.fleet.name}: {flow_run.flow_name} {about}"


def is_transient(_task: Any, _run: Any, state: Any) -> bool:
    """Whether a failed batch may work in a while (for `retry_condition_fn`)."""
    try:
        state.result()
    except Transient:
        return True
    except Exception:
        return False  # it is not hidden: the batch fails with it
    return False


def patient(work: Task[P, T], settings: Settings) -> Task[P, T]:
    """`work`, tried again while a store is away: `run.retries` times."""
    tries = settings.run.retries
    return work.with_options(
        retries=tries,
        retry_delay_seconds=(BACK_OFF + [BACK_OFF[-1]] * tries)[: max(1, tries)],
        retry_condition_fn=is_transient,
    )


class Given:
    """What a task gets beside its batch.

    Prefect looks for futures in every list, dict and dataclass among the parameters of a task, thing by
    thing: for 64 sensors that took longer than reading their history. It does not look into this.
    """

    def __init__(self, **values: Any) -> None:
        self.values = values


def batch_task(name: str, run_name: str) -> Callable[[Callable[..., list[Any]]], Batches]:
    """A Prefect task of a plain function `work(batch, …)`; a worker process does it, where there are some."""

    def made(work: Callable[..., list[Any]]) -> Batches:
        # A run is never asked for what an earlier one gave, so no digest is made of what a task gets.
        @task(name=name, task_run_name=run_name, cache_policy=NO_CACHE)
        @without_secrets
        def run(batch: Batch, given: Given) -> list[Any]:
            return in_worker(work, batch, **given.values)

        return run

    return made


def fan_out(
    what: str,
    work: Batches,
    batches: list[Batch],
    settings: Settings,
    by_sensor: Mapping[str, Mapping[str, Any]],
    *,
    gpus: float = 0.0,
    workers: int = 0,
    **arguments: Any,
) -> list[Any]:
    """The values of `work` for all batches, in the order of the batches; a lost batch gives failed outcomes.

    It gets its batch, the settings, of each mapping in `by_sensor` the part for its sensors, `arguments`.
    `gpus` is the share of a GPU that a batch asks for, `workers` how many run at once.
    """
    run = settings.run
    work = patient(work, settings).with_options(timeout_seconds=run.time_limit.total_seconds())
    plain = settings.to_dict()
    gathered: dict[int, list[Any]] = {}
    progress = Progress(settings.fleet.name, what, sum(len(batch.sensors) for batch in batches))
    at_once = (workers or run.workers or cores(run.threads)) + has_processes()  # one waits for its turn
    # Tags are the flow run's alone: for each tag of a task its server is asked for a limit, for seconds.
    untagged = TagsContext(current_tags=set())
    engine_of_run = open_engine(
        run.engine, address=run.address, workers=at_once, threads=run.threads, gpus=gpus
    )
    with untagged, engine_of_run as engine:
        futures = {}
        # The largest first, so that the workers end together.
        for batch in sorted(batches, key=lambda batch: -len(batch.sensors)):
            cut = {
                name: {sensor: values[sensor] for sensor in batch.sensors if sensor in values}
                for name, values in by_sensor.items()
            }
            given = Given(settings=plain, **cut, **arguments)
            futures[engine.submit(work, batch=batch, given=given)] = batch
        for future in engine.as_completed(futures):
            batch = futures[future]
            value = engine.result(future)
            gathered[batch.number] = lost(batch, value) if isinstance(value, BaseException) else value
            progress.add(len(batch.sensors))
    progress.finish()
    return [item for number in sorted(gathered) for item in gathered[number]]


def lost(batch: Batch, error: BaseException) -> list[Outcome]:
    """The outcomes of a batch that did not come back."""
    if isinstance(error, TimeoutError):
        error = PaanoError(f"{batch.name} took longer than run.time_limit and was given up")
    return [
        Outcome(sensor, State.FAILED, failed(sensor, error).reason, batch.number) for sensor in batch.sensors
    ]


class Progress:
    """A progress artifact in Prefect, written at most every few seconds, and the watchers of this process."""

    EVERY = 5.0

    def __init__(self, fleet: str, what: str, total: int) -> None:
        self.what, self.total, self.done, self.written = what, total, 0, time.monotonic()
        key = artifact_key(fleet, what, "progress")
        made = create_progress_artifact(progress=0.0, key=key, description=f"{fleet}: {what}")
        self.artifact = cast(UUID, made)  # a coroutine only inside asynchronous code
        self._notify()

    def add(self, sensors: int) -> None:
        """So many more sensors are done."""
        self.done += sensors
        self._notify()
        if time.monotonic() - self.written > self.EVERY:
            self.written = time.monotonic()
            update_progress_artifact(self.artifact, progress=100.0 * self.done / max(1, self.total))

    def finish(self) -> None:
        """All that will be done is done."""
        update_progress_artifact(self.artifact, progress=100.0)

    def _notify(self) -> None:
        for watcher in _watchers:
            watcher(self.what, self.done, self.total)

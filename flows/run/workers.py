"""Processes of this machine that work on the batches of a large run.

Threads of one process wait for each other whenever they run Python: with two threads a night keeps one and a
half cores busy. So the tasks of a large run hand their work to processes, one for each core, and wait. The
processes are forks of one server that has imported what a batch needs, once for all of them, while the flow
looks at its sensors. They know nothing of Prefect: a task is seen, tried again and given up as ever.

    with worker_processes(settings, sensors=500, run=str(flow_run.id), imports=SCORING):
        in_worker(score_shards, batch, ...)  # in a process; outside of the block: called as it is
"""

from __future__ import annotations

import gc
import importlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from multiprocessing import forkserver
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

import joblib

from flows.settings.fleet_file import Settings
from paano.errors import Transient

P = ParamSpec("P")
T = TypeVar("T")

IMPORTED = ["flows.run.imported"]  # by the server, before it forks
FOR_TRAINING = "flows.run.imported_for_training"
SCORING, TRAINING = "flows.work.night.batches", "flows.work.model.batches"  # by each process as it begins
_STARTING = threading.Lock()

_run = ""  # the flow run that this process works for; empty in the process of the flow itself


def run_of_worker() -> str:
    """The flow run that this process was started for; empty in any other process."""
    return _run


def cores(threads: int = 1) -> int:
    """How many workers of so many torch threads fit this machine or its container."""
    return max(1, int(joblib.cpu_count()) // max(1, threads))


def use_processes(settings: Settings, sensors: int) -> bool:
    """Whether a run of so many sensors works in processes of this machine."""
    run = settings.run
    return (
        run.engine == "local"
        and run.device == "cpu"  # on a GPU every process would need memory of its own
        and 0 < run.processes_from <= sensors
        and (run.workers or cores(run.threads)) > 1
        and "forkserver" in multiprocessing.get_all_start_methods()
    )


def get_ready(settings: Settings, sensors: int, *also: str) -> None:
    """Start the server that workers are forked from, if this run will want some: it imports meanwhile.

    `also` names modules to import beside the usual ones.
    """
    if use_processes(settings, sensors):
        multiprocessing.get_context("forkserver").set_forkserver_preload([*IMPORTED, *also])
        with _without_main():
            forkserver.ensure_running()


@contextmanager
def _without_main() -> Iterator[None]:
    """Processes started within the block do not run the script of this one: it may have no guard for that."""
    with _STARTING:
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


class Workers:
    """So many processes for one flow run. One that dies fails its batches as a store that is away does.

    They begin at once, beside whatever the flow does first, and import the modules `imports`.
    """

    def __init__(self, count: int, run: str, imports: str = "") -> None:
        self.count, self.run, self.imports = count, run, imports
        self._lock = threading.Lock()
        self._pool = self._start()
        self._beginning = threading.Thread(target=self._begin_all, args=(self._pool,))
        self._beginning.start()

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("forkserver")
        # The server may be older than this run, and its variables too.
        given = dict(os.environ), self.run, sys.path, self.imports
        return ProcessPoolExecutor(self.count, context, initializer=_begin, initargs=given)

    def _begin_all(self, pool: ProcessPoolExecutor) -> None:
        # A process is started when there is work for one more, and the server answers when it has imported.
        # What goes wrong here goes wrong again with the first real work, which tells of it.
        with suppress(BrokenProcessPool, EOFError, OSError), _without_main():
            for _ in range(self.count):
                pool.submit(os.getpid)

    def call(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """`work` in one of the processes; what it logged is logged here.

        Raises:
            Transient: the process was ended while it worked.
        """
        pool = self._pool
        try:
            with _without_main():  # a process is started when there is work for one more
                waiting = pool.submit(_logged, work, arguments, named)
            value, raised, logged = waiting.result()
        except BrokenProcessPool as error:
            with self._lock:
                if self._pool is pool:
                    self._pool = self._start()
            raise Transient(
                "a worker process was ended while it worked; if memory ran out, lower run.workers"
            ) from error
        for record in logged:
            logging.getLogger(record.name).handle(record)
        if raised is not None:
            raise raised
        return cast(T, value)  # which may be an error that `work` gives for a value

    def close(self) -> None:
        """End the processes. What still runs in them is left to end."""
        self._beginning.join()
        self._pool.shutdown(cancel_futures=True)


_workers: ContextVar[Workers | None] = ContextVar("workers", default=None)


@contextmanager
def worker_processes(settings: Settings, sensors: int, run: str, imports: str = "") -> Iterator[None]:
    """Let `in_worker` use processes within the block, if the run is large enough.

    `imports` is a module that each of them imports as it begins: the one of the work to come.
    """
    if has_processes() or not use_processes(settings, sensors):
        yield
        return
    get_ready(settings, sensors)
    opened = Workers(settings.run.workers or cores(settings.run.threads), run, imports)
    token = _workers.set(opened)
    gc.freeze()  # what is there by now stays to the end: to look for garbage in it takes 0.3 s each time
    try:
        yield
    finally:
        gc.unfreeze()
        _workers.reset(token)
        opened.close()


def has_processes() -> bool:
    """Whether `in_worker` uses processes now."""
    return _workers.get() is not None


def in_worker(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """`work(…)` in a process of `worker_processes`, where there are some; else here."""
    workers = _workers.get()
    return workers.call(work, *arguments, **named) if workers else work(*arguments, **named)


def side_by_side(asked: Iterable[tuple[Any, ...]], threads: int) -> list[Any]:
    """`work(*arguments)` of each (work, *arguments), in order: in the processes, if there are some, else in
    so many threads."""
    workers = _workers.get()  # a thread of the pool would not know of them
    with ThreadPoolExecutor(workers.count if workers else threads) as pool:
        return list(pool.map(lambda one: workers.call(*one) if workers else one[0](*one[1:]), asked))


# -- in a worker ---------------------------------------------------------------------------------------------


def _begin(variables: dict[str, str], run: str, path: list[str], imports: str) -> None:
    """Get a new process ready: it ends with the flow's, and sees the variables that the flow sees."""
    global _run
    _run = run
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the flow, which closes its workers
    os.environ.clear()
    os.environ.update(variables)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # more would take turns with the other processes
    sys.path[:] = path
    if imports:
        importlib.import_module(imports)
    gc.freeze()  # what is imported stays


def _end_with_parent() -> None:
    """End this process when the flow's does, however that ends."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Kept(logging.Handler):
    """Keeps what is logged, to be carried to another process."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args = record.getMessage(), None
        if record.exc_info:
            record.exc_text, record.exc_info = record.exc_text or self._traceback(record), None
        self.records.append(record)

    @staticmethod
    def _traceback(record: logging.LogRecord) -> str:
        return logging.Formatter().formatException(record.exc_info) if record.exc_info else ""


def _logged(
    work: Callable[..., T], arguments: tuple[object, ...], named: dict[str, object]
) -> tuple[T | None, Exception | None, list[logging.LogRecord]]:
    """The value of `work`, or what it raised, and what was logged meanwhile."""
    kept, root = _Kept(), logging.getLogger()
    root.addHandler(kept)
    try:
        return work(*arguments, **named), None, kept.records
    except Exception as error:
        return None, error, kept.records
    finally:
        root.removeHandler(kept)

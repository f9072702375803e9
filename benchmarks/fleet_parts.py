"""Where the seconds of a flow go, by part of the work, in its own process and in its workers.

A worker process imports this module as it begins, if `AS_WORKERS` says so, and writes what it counted to
`$PAANO_BENCHMARK_PARTS` when it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import util
from pathlib import Path
from typing import Any

from benchmarks.s3_requests import watched_requests

HELD: list[Any] = []  # for as long as this process lives
FOLDER = "PAANO_BENCHMARK_PARTS"
PLACES = [  # module, function, part: where they are used, if a process has them
    ("flows.work.night.load", "read_together", "reading"),
    ("flows.work.night.load", "load_champions", "registry"),
    ("flows.work.night.night", "commit_scores", "committing"),
    ("flows.work.night.night", "update_events", "events"),
    ("flows.work.model.training", "run_review_test", "review"),
    ("flows.score", "finish", "report"),
    ("flows.retrain", "finish", "report"),
]
KINDS = ("seconds", "cpu", "requests", "read")


@dataclass
class Parts:
    """Seconds of all threads by part of the work, S3 requests and bytes by store."""

    seconds: Counter[str] = field(default_factory=Counter)
    cpu: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    lock: Any = field(default_factory=threading.Lock)

    def __reduce__(self) -> tuple[Any, ...]:
        # Dask and Ray carry the flow's function, with what is watched in it, to their workers.
        return Parts, ()

    def gather(self, folder: Path) -> None:
        """Add what worker processes have left in `folder`."""
        for path in folder.glob("*.json"):
            for kind, figures in json.loads(path.read_text()).items():
                getattr(self, kind).update(figures)
            path.unlink()

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            with self.lock:
                self.seconds[part] += time.perf_counter() - wall
                self.cpu[part] += time.thread_time() - cpu


@contextlib.contextmanager
def watched(parts: Parts) -> Iterator[None]:
    """Time the parts of a night or a training in this process, and count what leaves it."""
    from paano.model import PaAno
    from storage.registry.registry import Registry

    def note(_operation: str, key: str, _written: int, read: int) -> None:
        store = key.split("/")[0]
        with parts.lock:
            parts.requests[store] += 1
            parts.read[store] += read

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            with parts.timed(part):
                return function(*arguments, **named)

        return call

    here = {
        name: module for name, module in sys.modules.items() if name.startswith(("flows", "paano", "storage"))
    }
    places = [(here[name], function, part) for name, function, part in PLACES if name in here]
    places += [(PaAno, "detect", "compute"), (PaAno, "fit", "compute")]
    places += [(Registry, "champions", "registry"), (Registry, "register", "registry")]
    held = [(place, name, getattr(place, name)) for place, name, _ in places]
    for place, name, part in places:
        setattr(place, name, timed(part, getattr(place, name)))
    try:
        with watched_requests(note):
            yield
    finally:
        for place, name, function in held:
            setattr(place, name, function)


# -- in a worker process -------------------------------------------------------------------------------------


def count_in_workers(folder: Path) -> None:
    """Let worker processes count, and leave in `folder` what they counted."""
    from flows.run import workers

    os.environ[FOLDER] = str(folder)
    workers.IMPORTED.append("benchmarks.fleet_worker")


def leave(parts: Parts) -> None:
    """Write what this process counted."""
    figures = {kind: dict(getattr(parts, kind)) for kind in KINDS}
    (Path(os.environ[FOLDER]) / f"{os.getpid()}.json").write_text(json.dumps(figures))


def count_here() -> None:
    """Count in every worker that is forked from this process, from when it has imported to its end."""
    from flows.run import workers

    known = workers._begin

    def begin(*given: Any) -> None:
        known(*given)
        parts = Parts()
        held = contextlib.ExitStack()
        held.enter_context(watched(parts))
        util.Finalize(None, leave, (parts,), exitpriority=100)
        HELD.append(held)

    workers._begin = begin  # where a new worker looks for it

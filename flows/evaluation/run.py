"""The work of `paano evaluate`: one job per file, detector and seed, in parallel, kept as soon as it is done.

A finished job is two files in a folder, named after everything that decides its result: file name and
content, settings with the seed, rows, the code of `paano` itself. So a run that was stopped goes on where it
was, and a result of other data, settings or code is never taken for this one.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

import paano
from flows.evaluation.published import collection_of
from paano.config import PaAnoConfig
from paano.errors import ConfigError, PaanoError, SeriesError

PAANO = "paano"
FIT_ROWS = 20_000  # what one fit costs beside scoring, in rows: only to tell the time left


@dataclass(frozen=True)
class Job:
    """One file, one detector, one seed. Small and plain: it travels to another process."""

    path: str
    digest: str  # of the file's content
    rows: int
    detector: str
    settings: dict[str, Any]  # of the model; empty for a baseline
    max_rows: int | None
    device: str
    code: str  # digest of the code, as it was when the run began

    @property
    def file(self) -> str:
        return Path(self.path).name

    @property
    def seed(self) -> int:
        return int(self.settings.get("seed", 0))

    @property
    def cost(self) -> float:
        rows = min(self.rows, self.max_rows or self.rows)
        return rows + FIT_ROWS if self.detector == PAANO else rows / 20

    @property
    def key(self) -> str:
        facts = asdict(self) | {"path": self.file}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Skip:
    """A file that gave no result, and why. `fault` marks what is no fault of the file."""

    file: str
    reason: str
    fault: bool = False


def code_digest() -> str:
    """Stands for the source of the method: its results belong to it."""
    digest = hashlib.sha256()
    room = Path(paano.__file__).parent
    for path in sorted(room.rglob("*.py")):
        digest.update(str(path.relative_to(room)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class Kept:
    """Finished results in a folder: `KEY.npy` with the scores, then `KEY.json`, which makes it count."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> dict[str, Any] | None:
        try:
            row = json.loads((self.folder / f"{key}.json").read_text())
        except FileNotFoundError:
            return None
        except ValueError:  # not written by us, or damaged since: made anew
            return None
        return row if isinstance(row, dict) and (self.folder / f"{key}.npy").exists() else None

    def put(self, key: str, row: dict[str, Any], scores: np.ndarray) -> None:
        part = self.folder / f"{key}.{os.getpid()}.part"
        with part.open("wb") as file:
            np.save(file, scores, allow_pickle=False)
        os.replace(part, self.folder / f"{key}.npy")
        part.write_text(json.dumps(row))
        os.replace(part, self.folder / f"{key}.json")

    def scores(self, key: str) -> np.ndarray:
        scores: np.ndarray = np.load(self.folder / f"{key}.npy", allow_pickle=False)
        return scores


def default_folder() -> Path:
    """Where results are kept without `--out`."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_home) / "paano" / "evaluate"


def find_files(folder: Path, pattern: str) -> list[Path]:
    """The CSV files below `folder` whose names match `pattern` (`*NAB*`; plain text is searched for)."""
    if not folder.exists():
        raise ConfigError(f"{folder}: there is no such folder")
    found = [folder] if folder.is_file() else sorted(folder.rglob("*.csv"))
    if not found:
        raise ConfigError(f"{folder}: holds no CSV files of the form NAME_tr_N_….csv")
    glob = pattern if any(mark in pattern for mark in "*?[") else f"*{pattern}*"
    chosen = [path for path in found if fnmatch(path.name, glob)]
    if not chosen:
        raise ConfigError(f"--files {pattern!r} matches none of the {len(found)} files in {folder}")
    return chosen


def plan(
    files: Sequence[Path],
    config: PaAnoConfig,
    *,
    seeds: int,
    baselines: Sequence[str],
    max_rows: int | None,
    device: str,
) -> tuple[list[Job], list[Skip]]:
    """All jobs, in the order of their files; a file that cannot even be read is skipped."""
    jobs: list[Job] = []
    skipped: list[Skip] = []
    code = code_digest()
    for path in files:
        try:
            content = path.read_bytes()
        except OSError as error:
            skipped.append(Skip(path.name, f"{path.name}: cannot be read ({error.strerror})"))
            continue
        digest, rows = hashlib.sha256(content).hexdigest(), content.count(b"\n")
        for seed in range(config.seed, config.seed + seeds):
            settings = config.replace(seed=seed).to_dict()
            jobs.append(Job(str(path), digest, rows, PAANO, settings, max_rows, device, code))
        jobs += [Job(str(path), digest, rows, name, {}, max_rows, "cpu", code) for name in baselines]
    return jobs, skipped


def run_job(job: Job, folder: Path) -> dict[str, Any] | Skip:
    """Do one job and keep its result; the same bits in any process, because it has one thread."""
    from paano.device import compute_threads

    try:
        with compute_threads(1):
            row, scores = _measured(job)
    except PaanoError as error:
        reason = str(error)
        return Skip(job.file, reason if reason.startswith(job.file) else f"{job.file}: {reason}")
    except Exception as error:  # the other files go on; the run ends with a failure that shows this one
        return Skip(job.file, f"{job.file}: {type(error).__name__}: {error}", fault=True)
    Kept(folder).put(job.key, row, scores)
    return row


def _measured(job: Job) -> tuple[dict[str, Any], np.ndarray]:
    from paano.evaluation.baselines import BASELINES
    from paano.evaluation.protocol import read_series, run_baseline, run_paano

    series = read_series(job.path)
    whole = len(series.values)
    if job.max_rows and job.max_rows < whole:
        series = series.head(job.max_rows)
        if job.max_rows <= series.train_rows:
            raise SeriesError(f"{job.file}: --max-rows {job.max_rows} leaves nothing after its training rows")
    if job.detector == PAANO:
        outcome = run_paano(series, PaAnoConfig.from_dict(job.settings), device=job.device)
    else:
        outcome = run_baseline(series, BASELINES[job.detector])
    row = {
        "file": job.file,
        "subset": series.subset,
        "collection": collection_of(series.channels),
        "detector": job.detector,
        "seed": job.seed,
        "rows": len(series.values),
        "cut": len(series.values) < whole,
        "train_rows": series.train_rows,
        "channels": series.channels,
        "anomalies": int(series.labels.sum()),
        "window": outcome.window,
        "unscored": outcome.unscored,
        **{name: None if np.isnan(value) else value for name, value in outcome.measures.items()},
        **{f"{name}_s": round(value, 4) for name, value in outcome.seconds.items()},
    }
    return row, outcome.scores


def run_jobs(
    jobs: Sequence[Job],
    kept: Kept,
    *,
    workers: int,
    fresh: bool = False,
    done: Callable[[Job, dict[str, Any] | Skip, bool], None] = lambda job, result, was_kept: None,
) -> tuple[list[tuple[Job, dict[str, Any]]], list[Skip]]:
    """Results in the order of `jobs`, whatever the number of workers. `done(job, result, kept before)`."""
    results: dict[int, dict[str, Any] | Skip] = {}
    todo: list[int] = []
    for i, job in enumerate(jobs):
        row = None if fresh else kept.get(job.key)
        if row is None:
            todo.append(i)
        else:
            results[i] = row
            done(job, row, True)
    todo.sort(key=lambda i: -jobs[i].cost)  # the longest first, so that no core waits at the end
    for i, result in _results(jobs, todo, kept.folder, workers):
        results[i] = result
        done(jobs[i], result, False)
    rows: list[tuple[Job, dict[str, Any]]] = []
    skipped: list[Skip] = []
    for i, job in enumerate(jobs):
        result = results[i]
        if not isinstance(result, Skip):
            rows.append((job, result))
        elif result not in skipped:  # a damaged file is damaged for every seed: said once
            skipped.append(result)
    return rows, skipped


def _results(
    jobs: Sequence[Job], todo: Sequence[int], folder: Path, workers: int
) -> Iterator[tuple[int, dict[str, Any] | Skip]]:
    """As they are finished."""
    if workers <= 1 or len(todo) <= 1:
        for i in todo:
            yield i, run_job(jobs[i], folder)
        return
    queue = deque(todo)
    while queue:
        flying: dict[
            Future[dict[str, Any] | Skip], int
        ] = {}  # never more than there are workers, so that it is known what ran
        with _pool(min(workers, len(queue))) as pool:
            try:
                while queue or flying:
                    while queue and len(flying) < workers:
                        flying[pool.submit(run_job, jobs[queue[0]], folder)] = queue[0]
                        queue.popleft()
                    ready = wait(flying, return_when=FIRST_COMPLETED).done
                    for future in sorted(ready, key=lambda f: f.exception() is not None):
                        result = future.result()
                        yield flying.pop(future), result
            except BrokenProcessPool:
                pass  # a worker died, mostly for want of memory: what ran then is tried once more, below
        for i in flying.values():
            yield i, _run_alone(jobs[i], folder)


def _run_alone(job: Job, folder: Path) -> dict[str, Any] | Skip:
    with _pool(1) as pool:
        try:
            return pool.submit(run_job, job, folder).result()
        except BrokenProcessPool:
            return Skip(
                job.file, f"{job.file}: the process that worked on it died (out of memory?)", fault=True
            )


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    spawn = multiprocessing.get_context("spawn")  # torch does not survive a fork
    pool = ProcessPoolExecutor(workers, mp_context=spawn, initializer=_die_with_parent)
    try:
        yield pool
    except BaseException:
        # On Ctrl-C nobody waits for a job of minutes; nothing half is kept.
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _die_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever. Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

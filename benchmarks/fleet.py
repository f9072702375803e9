"""What a night and a retraining cost beside their multiply-adds: the real flows on real servers.

    python -m benchmarks.fleet --sensors 500 --points 288 [--store s3|local] [--layout sensor|long]
                               [--engine local|threads|dask|ray] [--what score|retrain] [--json]
    python -m benchmarks.fleet --goals [--only NAME …]   # what fleet.json lacks
    python -m benchmarks.fleet --report                  # benchmarks/FLEET.md and its chart from that file

A run builds a fleet with history and registered models, starts S3, MLflow and Prefect servers beside it, and
measures three usual nights in a row (the night before is there, its tail still provisional), the last one
again, and the **floor** before and after each: the same `detect` calls on all cores, with models and history
in memory. The night whose ratio to its two floors is the middle one is the result. For a retraining the floor
is the same `fit` calls. Floor and flow are measured in turns, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from benchmarks.figures import show
from benchmarks.fleet_made import BUCKET, ENGINES, Built, build
from benchmarks.fleet_page import GOALS, RESULTS, known_results, write_report
from benchmarks.fleet_parts import Parts, count_in_workers, watched


def floor_of_night(built: Built, night: date, cores: int) -> float:
    """Seconds of the `detect` calls of a night on all cores, everything else at hand."""
    from flows.run.days import day_window
    from flows.work.night.compute import EPOCH, as_far_as_it_goes
    from flows.work.night.load import load_night
    from paano.device import compute_threads, give_back_memory

    fleet, window, spent = built.fleet, day_window(built.fleet.settings, night), 0.0
    versions = fleet.registry.champions(built.names)
    for first in range(0, len(built.names), 100):
        some = built.names[first : first + 100]
        champions, readings = load_night(fleet, window, some, versions)
        jobs = [
            (champions[name], as_far_as_it_goes(readings[name].cut(champions[name].reach(window)), window))
            for name in some
        ]

        def work(job: tuple[Any, Any]) -> None:
            champion, near = job
            champion.model.detect(near.values, origin=(near.start - EPOCH) // near.interval)

        with compute_threads(1), ThreadPoolExecutor(cores) as pool:
            began = time.perf_counter()
            list(pool.map(work, jobs))
            spent += time.perf_counter() - began
        del champions, readings, jobs
    give_back_memory()  # it is not the night's
    return spent


def floor_of_training(built: Built, cores: int) -> float:
    """Seconds of the `fit` calls of the retraining on all cores, the history at hand."""
    from flows.run.days import day_window
    from flows.work.model.training_history import begun, hold_out, sensor_config
    from paano import PaAno
    from paano.device import compute_threads
    from storage.window import Window

    settings = built.fleet.settings
    end = day_window(settings, built.night).end
    window = Window(end - settings.history.lookback, end)
    readings = built.fleet.history.read_many(built.names, window)
    jobs = []
    for name in built.names:
        config = sensor_config(settings, name)
        jobs.append((config, hold_out(begun(readings[name]), settings, config)[0].values))
    with compute_threads(1), ThreadPoolExecutor(cores) as pool:
        began = time.perf_counter()
        list(pool.map(lambda job: PaAno(job[0], device="cpu").fit(job[1]), jobs))
        return time.perf_counter() - began


def measure(wanted: argparse.Namespace) -> dict[str, Any]:
    """All figures of one fleet."""
    import joblib

    cores = int(joblib.cpu_count())
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paano-bench-")))
        server, tracking = start_servers(stack, folder, wanted)
        built = build(folder, wanted, server, tracking)
        return (
            run_score(built, wanted, cores) if wanted.what == "score" else run_retrain(built, wanted, cores)
        )


def start_servers(stack: contextlib.ExitStack, folder: Path, wanted: argparse.Namespace) -> tuple[Any, str]:
    """S3, MLflow and Prefect servers beside this process; the S3 server and the registry's address."""
    from flows.processes.servers import make_bucket, mlflow_server, prefect_server, s3_server

    server = None
    environment: dict[str, str] = {}
    if wanted.store == "s3":
        server = stack.enter_context(s3_server(folder / "s3"))
        environment = server.environment
        os.environ.update(environment)
        make_bucket(server, BUCKET)
    root = f"s3://{BUCKET}/mlflow" if server else str(folder / "mlflow-artifacts")
    # A server takes no file:// sources, so a local fleet has its registry beside it.
    tracking = stack.enter_context(mlflow_server(folder / "mlflow", root, environment)) if server else ""
    os.environ.setdefault("PREFECT_HOME", str(folder / "prefect-home"))
    os.environ["PREFECT_LOGGING_LEVEL"] = "ERROR"
    os.environ["PREFECT_API_URL"] = stack.enter_context(prefect_server(folder / "prefect", environment))
    return server, tracking


def run_score(built: Built, wanted: argparse.Namespace, cores: int) -> dict[str, Any]:
    """Usual nights in a row, the last of them again, and the floor before and after each."""
    from flows.processes.prefect_runs import run_tags
    from flows.score import score

    count_in_workers(parts_of(built))  # before the first run starts the server that they are forked from
    score(fleet_file=built.file, day=(built.night - timedelta(days=1)).isoformat())
    Parts().gather(parts_of(built))

    def scored(night: date) -> tuple[Spent, Parts]:
        with counted(built) as part, spent() as run, run_tags("bench"):  # as `paano score` runs it
            report = score(fleet_file=built.file, day=night.isoformat())
        assert report.counts["failed"] == 0, report.counts
        return run, part

    nights = []
    night = built.night
    for number, rows in enumerate(built.kept):
        night = built.night + timedelta(days=number)
        built.write(rows)
        floors = [floor_of_night(built, night, cores)]
        run, part = scored(night)
        floors.append(floor_of_night(built, night, cores))
        nights.append((run.seconds / statistics.mean(floors), floors, run, part))
    again, _ = scored(night)
    _, floors, run, part = sorted(nights, key=lambda each: each[0])[len(nights) // 2]
    objects = {
        kind: sum(1 for info in store.store.list(f"date={night}") if info.key.endswith(".parquet"))
        for kind, store in (("scores", built.fleet.scores), ("events", built.fleet.events))
    }
    found = figures(wanted, cores, floors, run, part, objects, history_bytes(built, night))
    last = nights[-1][2]
    ratios = [round(each[0], 3) for each in nights]
    return found | {"ratios": ratios, "again": round(again.seconds / last.seconds, 3)}


def run_retrain(built: Built, wanted: argparse.Namespace, cores: int) -> dict[str, Any]:
    """A first training of all sensors, and the floor before and after it."""
    from flows.processes.prefect_runs import run_tags
    from flows.retrain import retrain
    from flows.run.days import day_window

    as_of = day_window(built.fleet.settings, built.night).end.isoformat()
    count_in_workers(parts_of(built))
    with run_tags("bench"):  # imports and clients are there, as before a night
        retrain(fleet_file=built.file, as_of=as_of, sensors=built.names, dry_run=True)
    floors = [floor_of_training(built, cores)]
    with counted(built) as part, spent() as run, run_tags("bench"):
        report = retrain(fleet_file=built.file, as_of=as_of, sensors=built.names)
    assert report.counts["failed"] == 0, report.counts
    floors.append(floor_of_training(built, cores))
    return figures(wanted, cores, floors, run, part, {}, history_bytes(built, built.night))


@contextlib.contextmanager
def counted(built: Built) -> Iterator[Parts]:
    """Count what the block does, in this process and in its workers."""
    part = Parts()
    with watched(part):
        yield part
    part.gather(parts_of(built))


def parts_of(built: Built) -> Path:
    """Where worker processes leave what they counted."""
    folder = Path(built.file).parent / "parts"
    folder.mkdir(exist_ok=True)
    return folder


def history_bytes(built: Built, night: date) -> int:
    """The size of the history objects that a night has to read: its day and the day before."""
    days = [f"date={night - timedelta(days=n)}" for n in (0, 1)]
    return sum(info.size for info in built.fleet.history.store.list() if any(day in info.key for day in days))


def figures(
    wanted: argparse.Namespace,
    cores: int,
    floors: list[float],
    run: Spent,
    part: Parts,
    objects: dict[str, int],
    history: int,
) -> dict[str, Any]:
    """The figures by name."""
    seconds = run.seconds
    floor, sensors = statistics.mean(floors), wanted.sensors
    measured = sum(part.seconds.values())
    shares = {name: round(value / (seconds * cores), 3) for name, value in sorted(part.seconds.items())}
    shares["prefect and idle"] = round(max(0.0, 1 - measured / (seconds * cores)), 3)
    stores = {"history": part.requests["history"], "models": part.requests["models"]}
    return {
        **{key: getattr(wanted, key) for key in ("sensors", "points", "store", "layout", "engine", "what")},
        "machine": f"{platform.machine()}, {cores} cores, Python {platform.python_version()}",
        "load": round(os.getloadavg()[0], 1),
        "seconds": round(seconds, 2),
        "floor_seconds": round(floor, 2),
        "floors": [round(each, 2) for each in floors],
        "ratio": round(seconds / floor, 3),
        "overhead_ms": round(1000 * (seconds - floor) / sensors, 2),
        "again": None,
        "sensors_per_second": round(sensors / seconds, 1),
        "points_per_second": round(sensors * wanted.points / seconds),
        "cpu_seconds": round(run.cpu, 2),
        "cores_busy": round(run.cpu / seconds / cores, 3),
        "machine_busy": round(run.machine, 3),
        "parts_seconds": {name: round(value, 2) for name, value in part.seconds.most_common()},
        "parts_cpu_seconds": {name: round(value, 2) for name, value in part.cpu.most_common()},
        "shares": shares,
        "objects": objects,
        "requests": dict(part.requests),
        "requests_per_sensor": round(sum(stores.values()) / sensors, 2),
        "bytes_ratio": round(part.read["history"] / history, 3) if history and part.read["history"] else None,
        "peak_mb": run.peak_mb,
    }


@dataclass
class Spent:
    """What a run took."""

    seconds: float = 0.0
    cpu: float = 0.0  # seconds of this process and its workers
    machine: float = 0.0  # share of all cores that was not idle, the servers' work and any other included
    peak_mb: dict[str, float] = field(default_factory=dict)


@contextlib.contextmanager
def spent() -> Iterator[Spent]:
    """Measure the block."""
    import psutil

    found = Spent()
    began, cpu, before = time.perf_counter(), cpu_seconds(), psutil.cpu_times()
    with watched_memory() as found.peak_mb:
        yield found
    found.seconds = time.perf_counter() - began
    found.cpu = cpu_seconds() - cpu
    now = psutil.cpu_times()
    total, idle = sum(now) - sum(before), now.idle + now.iowait - before.idle - before.iowait
    found.machine = 1 - idle / total if total else 0.0


def cpu_seconds() -> float:
    """What this process and its workers have taken so far, those that have ended included."""
    import psutil

    me = psutil.Process()
    workers = [each for each in me.children(recursive=True) if name_of(each) == "worker"]
    total = time.process_time() + sum(me.cpu_times()[2:4])
    for process in workers:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += sum(process.cpu_times()[:4])  # its own, and of its children that have ended
    return total


@contextlib.contextmanager
def watched_memory() -> Iterator[dict[str, float]]:
    """The highest resident memory in MB of this process and its children by what they are, once a second."""
    import psutil

    peak: dict[str, float] = {}
    over = threading.Event()

    def look() -> None:
        me = psutil.Process()
        names: dict[Any, str] = {}
        while not over.wait(1.0):
            names = {me: "flow"} | {
                each: names.get(each) or name_of(each) for each in me.children(recursive=True)
            }
            for process, name in names.items():
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    peak[name] = max(peak.get(name, 0.0), round(process.memory_info().rss / 2**20))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join(5)


def name_of(process: Any) -> str:
    """What a child process is, by its command."""
    import psutil

    try:
        command = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        command = ""
    for word, name in (("weed", "s3"), ("mlflow", "mlflow"), ("prefect", "prefect")):
        if word in command:
            return name
    return "worker"


# -- goals ---------------------------------------------------------------------------------------------------


def run_goals(only: list[str]) -> None:
    """Measure every goal that is not known, each in a process of its own; keep what is done."""
    import subprocess

    for name, asked in GOALS.items():
        if only and name not in only:
            continue
        if not only and name in known_results():
            continue
        options = [text for key, value in asked.items() for text in (f"--{key}", str(value))]
        print(f"{name}: {' '.join(options)}", file=sys.stderr)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.fleet", *options, "--json"], stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            print(f"{name}: failed with code {done.returncode}", file=sys.stderr)
            continue
        kept = known_results() | {name: json.loads(done.stdout.strip().splitlines()[-1])}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__.splitlines()[0])
    parser.add_argument("--sensors", type=int, default=100)
    parser.add_argument("--points", type=int, default=288, help="per sensor and day")
    parser.add_argument("--store", choices=["s3", "local"], default="s3")
    parser.add_argument("--layout", choices=["sensor", "long"], default="sensor")
    parser.add_argument("--engine", choices=[*ENGINES], default="local")
    parser.add_argument("--workers", type=int, default=0, help="0: one per core")
    parser.add_argument("--what", choices=["score", "retrain"], default="score")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--goals", action="store_true", help="measure what benchmarks/fleet.json lacks")
    parser.add_argument("--only", nargs="*", default=[], help="of the goals, these, also if they are known")
    parser.add_argument("--report", action="store_true", help="write benchmarks/FLEET.md")
    wanted = parser.parse_args()
    if wanted.goals or wanted.only:
        run_goals(wanted.only)
    if wanted.report or wanted.goals or wanted.only:
        write_report()
        return
    show(measure(wanted), wanted.json)


if __name__ == "__main__":
    main()

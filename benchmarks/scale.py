"""How large a fleet may be: the real planner on 100,000 sensors, and the sizing formulas on a real run.

    python -m benchmarks.scale [--sensors 100000] [--points 288] [--json] [--plan-only]

1. The plan: sensors, champions and shards of a made-up fleet through the functions that the flows use. No
   history is read and no model computed.
2. The costs of one unit of work (a sensor, a shard, a thousand patches), measured on a small fleet with a
   real S3 server: every request is counted where it leaves.
3. The formulas of benchmarks/sizing.py, checked against a second, differently shaped real run.
4. The sizing table. deploy/README.md explains the same formulas.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.memory import peak_mb
from benchmarks.s3_requests import watched_requests
from benchmarks.sizing import PAGE, Costs, Shape, night, week

PLAN_SECONDS, PLAN_MEMORY = 10.0, 1e9  # what the planner may take for 100,000 sensors
RUNS = ((6, 288, 1), (12, 144, 2))  # sensors, points and shards: costs come from the first
TOLERANCE = {"requests": 0.15, "bytes": 0.35, "seconds": 0.75}  # of a formula, against the second run


# -- 1. the plan ---------------------------------------------------------------------------------------------


def plan(sensors: int, max_tasks: int = 500) -> dict[str, Any]:
    """Time, memory and size of the plans for a night and for training everything, by the flows' planner."""
    import cloudpickle

    from flows.run.plan import choose_shards, plan_sensors, plan_shards
    from flows.settings.fleet_file import Settings
    from storage.keys import model_name
    from storage.registry.registry import Champions, Version

    names = [f"site-{n // 500:03d}/line-{n // 50 % 10}/sensor-{n:06d}" for n in range(sensors)]
    settings = Settings().to_dict()
    begun = time.perf_counter()
    started = time.process_time()
    champions = Champions(
        (
            name,
            Version(
                name, model_name("fleet", name), 3, f"{n:064x}", f"s3://paano/models/fleet/{n:064x}", TAGS
            ),
        )
        for n, name in enumerate(names)
    )
    listed = time.process_time()
    shards = choose_shards(sensors)
    night = plan_shards(names, shards, max_tasks)
    training = plan_sensors(names, max_tasks // 2)
    planned = time.process_time()
    # What a task is given, as it leaves for a worker: ids, champions and settings, never data.
    sizes = [
        len(cloudpickle.dumps((batch, settings, {name: champions[name] for name in batch.sensors})))
        for batch in night
    ]
    sent = time.process_time()
    covered = sorted(name for batch in night for name in batch.sensors)
    assert covered == sorted(names), "every sensor must be in exactly one batch"
    assert len({shard for batch in night for shard in batch.shards}) == sum(len(b.shards) for b in night)
    return {
        "sensors": sensors,
        "shards": shards,
        "task_runs": len(night),
        "sensors_per_task": max(len(batch.sensors) for batch in night),
        "training_task_runs": len(training),
        "registry_calls": math.ceil(sensors / PAGE),
        "task_bytes_largest": max(sizes),
        "task_bytes_total": sum(sizes),
        "seconds": {
            "champions": round(listed - started, 3),
            "plan": round(planned - listed, 3),
            "pack": round(sent - planned, 3),
            "total": round(sent - started, 3),
            "wall": round(time.perf_counter() - begun, 3),
        },
        "peak_memory_bytes": int(peak_mb() * 2**20),
    }


TAGS = {
    "paano.sensor": "…",
    "paano.window": "2026-01-05/2026-02-02",
    "paano.kind": "trained",
    "paano.vus_pr": "0.81",
}


# -- 2. the costs of a unit of work --------------------------------------------------------------------------


@dataclass
class Meter:
    """What leaves the process: S3 requests and bytes by store, registry calls; and the patches scored."""

    requests: Counter = field(default_factory=Counter)  # (store, operation) -> count
    read: Counter = field(default_factory=Counter)  # store -> bytes
    written: Counter = field(default_factory=Counter)
    registry: int = 0
    patches: int = 0
    compute: float = 0.0
    seconds: float = 0.0
    lock: Any = field(default_factory=threading.Lock)

    def of(self, store: str) -> int:
        return sum(count for (name, _), count in self.requests.items() if name == store)


@contextmanager
def metered() -> Iterator[Meter]:
    """Count everything that the block sends, at the last place before the wire."""
    from paano.model import PaAno
    from storage.registry.client import RegistryClient
    from storage.tables.day_table import NOTE

    meter = Meter()
    ask, detect = RegistryClient.call, PaAno.detect

    def note(operation: str, key: str, written: int, read: int) -> None:
        store = "notes" if key.endswith(NOTE) else key.split("/")[0]  # a worker reads a note once
        with meter.lock:
            meter.requests[store, operation] += 1
            meter.written[store] += written
            meter.read[store] += read

    def counted_ask(self, *arguments, **named):
        meter.registry += 1
        return ask(self, *arguments, **named)

    def timed_detect(self, values, *arguments, **named):
        started = time.thread_time()
        answer = detect(self, values, *arguments, **named)
        meter.compute += time.thread_time() - started
        meter.patches += len(values) - self.config.patch + 1
        return answer

    RegistryClient.call, PaAno.detect = counted_ask, timed_detect
    started = time.process_time()  # of a core: busy neighbours and slow servers do not count
    try:
        with watched_requests(note):
            yield meter
    finally:
        meter.seconds = time.process_time() - started
        RegistryClient.call, PaAno.detect = ask, detect


@dataclass
class Measured:
    """A real fleet of some shape: its first night, a usual one, and one with an empty cache."""

    shape: Shape
    first: Meter
    warm: Meter
    cold: Meter
    model_bytes: int = 0


def run_for_real(shape: Shape, folder: Path, server: Any) -> Measured:
    """Three nights of a made-up fleet on a real S3 server, by the plain functions below the flows."""
    import polars as pl

    from flows.run.fleet import choose_sensors, fix_shards, open_fleet
    from flows.run.history import list_history
    from flows.run.plan import plan_shards, shard_members
    from flows.settings.fleet_file import Settings
    from flows.work.night.night import score_days
    from paano.evaluation.synth import FIRST_DAY, make_fleet
    from storage.history.reader import write_history
    from storage.objects.store import StorageOptions

    bucket, days = f"bench{shape.sensors}", shape.kept
    options = StorageOptions(
        endpoint=server.endpoint, region="us-east-1", key=server.key, secret=server.secret
    )
    make_bucket(server, bucket)
    step = timedelta(days=1) / shape.points
    for sensor in make_fleet(shape.sensors, days, step, seed=1, nights=1, kinds=["daily"]):
        rows = pl.DataFrame({"ts": sensor.ts, **dict(zip(sensor.channels, sensor.values.T, strict=True))})
        named = rows.with_columns(pl.col("ts").dt.replace_time_zone("UTC"), sensor=pl.lit(sensor.name))
        write_history(f"s3://{bucket}/history", named, options=options)
    (folder / "credentials").write_text(
        f"[default]\naws_access_key_id = {server.key}\naws_secret_access_key = {server.secret}\n"
    )

    def parts_with(cache: str) -> Any:
        return open_fleet(
            Settings.from_dict(
                {
                    "folder": folder,
                    "history": {"url": f"s3://{bucket}/history", "lookback": "7d"},
                    "scores": {"url": f"s3://{bucket}/scores", "shards": shape.shards},
                    "events": {"url": f"s3://{bucket}/events"},
                    "registry": {"artifacts": f"s3://{bucket}/models", "cache": str(folder / cache)},
                    "retrain": {"enough": shape.patch},
                    "run": {"url": f"s3://{bucket}/runs"},
                    "storage": {
                        "endpoint": server.endpoint,
                        "region": "us-east-1",
                        "credentials": str(folder / "credentials"),
                    },
                }
            )
        )

    def night(number: int, cache: str) -> Meter:
        fleet = parts_with(cache)
        day = (FIRST_DAY + timedelta(days=number)).date()
        with metered() as meter:
            names = choose_sensors(fleet, None)
            shards = fix_shards(fleet, len(names))
            champions = fleet.registry.champions(names)
            list_history(fleet, names, champions, [day])
            for batch in plan_shards(names, shards, 500):
                for members in shard_members(batch, shards):
                    outcomes = score_days(fleet, [day], members, dict(champions))
                    wrong = [outcome for outcome in outcomes if outcome.state == "failed"]
                    assert not wrong, wrong
        return meter

    first, warm, cold = night(5, "cache"), night(6, "cache"), night(7, "empty")
    return Measured(shape, first, warm, cold)


def make_bucket(server: Any, bucket: str) -> None:
    import s3fs

    s3fs.S3FileSystem(key=server.key, secret=server.secret, endpoint_url=server.endpoint).mkdir(bucket)


def measure_costs(run: Measured) -> Costs:
    """The costs of a unit of work in `run`."""
    shape, warm, cold, first = run.shape, run.warm, run.cold, run.first
    sensors, shards = shape.sensors, shape.used_shards
    rows = 2 * sensors * shape.points  # a night writes its day and finishes the day before
    least = smallest_object()
    pages = math.ceil(sensors / PAGE) + math.ceil(sensors * shape.kept / PAGE)  # of listings
    train, per_1000 = train_one()
    return Costs(
        seconds_per_1000_patches=1000 * warm.compute / warm.patches,
        seconds_per_sensor=max(0.0, warm.seconds - warm.compute) / sensors,
        list_requests_per_sensor=(warm.of("history") - pages) / sensors - shape.days_read,
        model_requests_per_sensor=cold.of("models") / sensors,
        model_bytes_per_sensor=cold.read["models"] / sensors,
        history_bytes_per_point=warm.read["history"]
        / (sensors * shape.points * shape.days_read * shape.channels),
        score_requests_per_shard=warm.of("scores") / shards,
        score_bytes_per_object=least,
        score_bytes_per_row=(warm.written["scores"] - 2 * shards * least) / rows,
        train_seconds=train,
        train_seconds_per_1000_points=per_1000,
        register_calls=(first.registry - math.ceil(sensors / PAGE)) / sensors,
        register_requests=first.of("models") / sensors,
        worker_bytes=int(peak_mb() * 2**20),
    )


def smallest_object() -> int:
    """Bytes of a score object with one row: what every object takes before its rows count."""
    import polars as pl

    from storage import parquet
    from storage.tables.scores import SCORE_SCHEMA, ScoreStore

    row = ["s", datetime(2026, 1, 1, tzinfo=UTC), 0.5, 1.0, False, "ok", 96, 1]
    frame = pl.DataFrame([row], schema=SCORE_SCHEMA, orient="row")
    return len(parquet.encode(frame, parquet.arrow_schema(SCORE_SCHEMA, ScoreStore.required)))


def train_one(points: int = 2016) -> tuple[float, float]:
    """Seconds of a core to train the default preset, and to bank and calibrate a thousand points with it."""
    from paano import PaAno, PaAnoConfig
    from paano.device import compute_threads
    from paano.evaluation.synth import make_fleet

    sensor = make_fleet(1, 7, timedelta(days=7) / points, seed=2, nights=1, kinds=["daily"])[0]
    started = time.process_time()
    with compute_threads(1):
        model = PaAno(PaAnoConfig.preset("default"), device="cpu").fit(sensor.values)
    seconds = time.process_time() - started
    share = model.seconds["train"] / sum(model.seconds.values())
    return seconds * share, 1000 * seconds * (1 - share) / points


# -- 3. the check -------------------------------------------------------------------------------------------


def check(run: Measured, costs: Costs) -> list[dict[str, Any]]:
    """The formulas against a run that they were not made from."""
    said, warm, cold = night(run.shape, costs), run.warm, run.cold
    pairs = [
        ("history requests", "requests", said["history_requests"], warm.of("history")),
        ("score requests, at most", "most", said["score_requests"], warm.of("scores")),
        ("event requests, at most", "most", said["event_requests"], warm.of("events")),
        ("model requests, empty cache", "requests", said["model_requests"], cold.of("models")),
        ("model requests, warm cache", "requests", 0, warm.of("models")),
        ("registry calls", "requests", said["registry_calls"], warm.registry),
        ("history bytes", "bytes", said["history_bytes"], warm.read["history"]),
        ("score bytes", "bytes", said["score_bytes"], warm.written["scores"]),
        ("model bytes, empty cache", "bytes", said["model_bytes"], cold.read["models"]),
        ("core seconds", "seconds", said["core_seconds"], warm.seconds),
    ]
    found = []
    for name, kind, formula, measured in pairs:
        off = abs(formula - measured) / max(1.0, measured)
        holds = measured <= formula if kind == "most" else off <= TOLERANCE[kind]
        found.append({"what": name, "formula": formula, "measured": measured, "off": off, "holds": holds})
    return found


# -- 4. the report -------------------------------------------------------------------------------------------


def sizes(costs: Costs, points: int) -> list[dict[str, Any]]:
    return [
        {"sensors": sensors, "points": points, "night": night(s, costs), "week": week(s, costs)}
        for sensors in (1_000, 10_000, 100_000)
        for s in [Shape(sensors, points, kept=0)]  # dates in the path: nothing is listed
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.split("\n")[0])
    parser.add_argument("--sensors", type=int, default=100_000, help="size of the planned fleet")
    parser.add_argument("--points", type=int, default=288, help="points per sensor and night in the table")
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")
    parser.add_argument("--plan-only", action="store_true", help="no real run and no table")
    options = parser.parse_args(arguments)
    result: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="seconds")}
    result["plan"] = made = plan(options.sensors)
    good = made["seconds"]["total"] < PLAN_SECONDS and made["peak_memory_bytes"] < PLAN_MEMORY
    if not options.plan_only:
        from flows.processes.servers import s3_server

        with tempfile.TemporaryDirectory() as folder, s3_server(Path(folder) / "s3") as server:
            for name in "ab":
                (Path(folder) / name).mkdir()
            costs = measure_costs(
                run_for_real(Shape(6, 288, shards=1, kept=8, later=1), Path(folder) / "a", server)
            )
            second = run_for_real(Shape(12, 144, shards=2, kept=8, later=1), Path(folder) / "b", server)
        result |= {
            "costs": asdict(costs),
            "check": check(second, costs),
            "sizes": [*sizes(costs, options.points), *sizes(costs, 5 * options.points)],
        }
        good = good and all(line["holds"] for line in result["check"])
    print(json.dumps(result, indent=2) if options.json else page(result))
    return 0 if good else 1


def page(result: dict[str, Any]) -> str:
    """The result for a person."""
    made = result["plan"]
    lines = [
        f"plan of {made['sensors']:,} sensors: {made['seconds']['total']:.2f} s of one core, "
        f"{made['peak_memory_bytes'] / 1e6:.0f} MB at its peak (limits {PLAN_SECONDS:.0f} s, 1000 MB)",
        f"  {made['task_runs']} task runs of at most {made['sensors_per_task']} sensors, "
        f"{made['shards']} shards, {made['registry_calls']} registry calls",
        f"  a task is given {made['task_bytes_largest'] / 1e3:.0f} kB, "
        f"all of them {made['task_bytes_total'] / 1e6:.1f} MB",
    ]
    if "costs" in result:
        lines += ["", "measured costs of a unit of work"]
        lines += [f"  {name.replace('_', ' '):28} {value:,.4g}" for name, value in result["costs"].items()]
        lines += ["", f"formulas against a second run{'formula':>14}{'measured':>12}"]
        lines += [
            f"  {line['what']:28}{line['formula']:>13,.1f}{line['measured']:>12,.1f}  "
            f"{'holds' if line['holds'] else 'DOES NOT HOLD'} ({line['off']:.0%} off)"
            for line in result["check"]
        ]
        lines += ["", TABLE]
        lines += [row(item) for item in result["sizes"]]
    return "\n".join(lines)


TABLE = (
    f"{'sensors':>8}{'points':>7}{'tasks':>6}{'cores':>6}{'core h':>7}{'worker':>8}{'requests':>10}"
    f"{'cold':>10}{'calls':>6}{'read':>9}{'written':>9}{'due':>7}{'core h':>7}{'cores':>6}{'or GPUs':>8}"
)


def row(item: dict[str, Any]) -> str:
    n, w = item["night"], item["week"]
    requests = n["history_requests"] + n["score_requests"] + n["event_requests"]
    return (
        f"{item['sensors']:>8,}{item['points']:>7}{n['task_runs']:>6}{n['cores']:>6}"
        f"{n['core_seconds'] / 3600:>7.2f}{n['worker_memory'] / 1e9:>6.1f}GB"
        f"{requests:>10,.0f}{requests + n['model_requests']:>10,.0f}{n['registry_calls']:>6}"
        f"{(n['history_bytes'] + n['score_bytes']) / 1e9:>7.2f}GB{n['score_bytes'] / 1e9:>7.2f}GB"
        f"{w['due']:>7,}{w['core_hours']:>7.1f}{w['cores']:>6}{w['gpus']:>8}"
    )


if __name__ == "__main__":
    sys.exit(main())

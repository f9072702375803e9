"""Bytes that a night of a fleet in long tables reads, however many tasks share them.

    python -m benchmarks.tables [--sensors 5000] [--batches 50] [--json] [--publish]

Long tables of three days are written to a real S3 server. The night's window is read once and handed out in
pieces (`History.scatter`), as a run does; then every batch reads its sensors from its piece. Beside it: what
the same batches read where each opens the tables itself.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import show
from benchmarks.fleet_page import RESULTS, known_results, write_report
from benchmarks.fleet_parts import Parts, watched

POINTS, CONTEXT = 288, 99
BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
BUCKET = "tables"


def write_tables(url: str, sensors: int, options: Any) -> list[str]:
    """Three days of all sensors, an object a day; the names."""
    import polars as pl

    from storage.history.layout import HistoryLayout
    from storage.history.reader import write_history

    names = [f"sensor-{n:05d}" for n in range(sensors)]
    rng, step = np.random.default_rng(0), timedelta(days=1) / POINTS
    for day in range(3):
        stamps = np.datetime64(BEGIN.replace(tzinfo=None), "us") + (
            np.arange(day * POINTS, (day + 1) * POINTS) * np.timedelta64(step)
        )
        rows = pl.DataFrame(
            {
                "sensor": np.repeat(names, POINTS),
                "ts": np.tile(stamps, sensors),
                "c0": (20 + rng.standard_normal(sensors * POINTS)).round(2),
            }
        ).with_columns(pl.col("ts").dt.replace_time_zone("UTC"))
        write_history(url, rows, HistoryLayout(kind="long", path="date={date}"), options)
    return names


def measure(sensors: int, batches: int) -> dict[str, Any]:
    """Bytes and seconds, read once for all and by every batch for itself."""
    from benchmarks.memory import peak_mb
    from flows.processes.servers import make_bucket, s3_server
    from flows.run.plan import plan_sensors
    from storage.history.layout import HistoryLayout
    from storage.history.reader import History
    from storage.objects.store import StorageOptions
    from storage.window import Window

    with tempfile.TemporaryDirectory() as folder, s3_server(Path(folder) / "s3") as server:
        os.environ.update(server.environment)
        make_bucket(server, BUCKET)
        url, options = f"s3://{BUCKET}/history", StorageOptions()
        names = write_tables(url, sensors, options)
        history = History(url, HistoryLayout(kind="long", path="date={date}"), options)
        night = Window(BEGIN + timedelta(days=2), BEGIN + timedelta(days=3))
        step = timedelta(days=1) / POINTS
        window = night.widen(2 * CONTEXT * step, 2 * CONTEXT * step)
        parts = [batch.sensors for batch in plan_sensors(names, batches)]
        held = {day: sum(i.size for i in history.store.list(f"date={day}")) for day in window.days()}
        size, found = sum(held.values()), {}
        for way in ("pieces", "each"):
            counted, began = Parts(), time.perf_counter()
            with watched(counted), tempfile.TemporaryDirectory() as place:
                pieces = history.scatter(window, parts, place) if way == "pieces" else [None] * len(parts)
                for some, piece in zip(parts, pieces, strict=True):
                    own = history.with_piece(piece) if piece else history
                    readings = own.read_many(some, window, dict.fromkeys(some, step))
                    assert all(reading.rows for reading in readings.values()), "a sensor has no rows"
            found[way] = {
                "bytes_ratio": round(counted.read["history"] / size, 3),
                "requests": counted.requests["history"],
                "seconds": round(time.perf_counter() - began, 1),
            }
    return {
        "sensors": sensors,
        "batches": len(parts),
        "table_mb": round(size / 2**20, 1),
        **found["pieces"],
        "each_batch_itself": found["each"],
        "peak_mb": round(peak_mb()),
    }


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sensors", type=int, default=5000)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="one object on standard output")
    parser.add_argument(
        "--publish", action="store_true", help="write it to benchmarks/fleet.json and FLEET.md"
    )
    options = parser.parse_args()
    result = measure(options.sensors, options.batches)
    if options.publish:
        RESULTS.write_text(json.dumps(known_results() | {"tables": result}, indent=1) + "\n")
        write_report()
    show(result, options.json)


if __name__ == "__main__":
    main()

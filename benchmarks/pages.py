"""What the pages cost: `python -m benchmarks.pages [--sensors 2000] [--days 365] [--json]`.

A store is made with a fleet of that size, and a bad last night in which every tenth sensor has an event. The
newest five weeks have a score every five minutes, the days before one an hour: every object of the year is
there, but those that no page below opens are smaller than a year at full rate would have them (`--full-rate
365` writes all of it). Sensors with an event have five weeks of history, the one that is opened has all days
at five minutes. No models are registered. Then the night report is written and opened in headless Chromium,
and the live view, just started, is asked for a sensor's week and again, and for a month of the fleet.
`--store FOLDER` keeps the store, or takes the one that is there. Bounds: the report under 5 MB and
interactive in under 3 s; the first paint of a sensor's week under 1 s, also of the first one.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.figures import show
from flows.pages.night_report import write_report
from flows.run.fleet import Fleet, open_fleet
from flows.settings.fleet_file import Settings
from flows.settings.template import render
from paano.alarms.events import event_id
from storage.history.reader import write_history
from storage.tables.events import EVENT_SCHEMA, EventStore
from storage.tables.scores import SCORE_SCHEMA, ScoreStore
from storage.window import Window
from tests.pages.chromium import chromium, open_page, wait_for, why_not

LAST = date(2026, 11, 15)
FINE, COARSE = timedelta(minutes=5), timedelta(hours=1)
FINE_DAYS = 35
SHARDS = 32
GROUPS = 40
EVERY = 10  # sensor has an event in the last night


def make_store(folder: Path, sensors: int, days: int, fine_days: int) -> Fleet:
    """A fleet of `sensors` with `days` of scores and events, and history of those with events."""
    names = [f"line-{n % GROUPS:02d}/sensor-{n:05d}" for n in range(sensors)]
    catalog = pl.DataFrame({"sensor": names, "group": [name.partition("/")[0] for name in names]})
    catalog.write_csv(folder / "catalog.csv")
    values = {"fleet": {"name": "benchmark"}, "history": {"catalog": "catalog.csv"}, "folder": folder}
    settings = Settings.from_dict(values)
    (folder / "fleet.toml").write_text(render(settings))
    fleet = open_fleet(settings)
    scores, events = ScoreStore(fleet.scores.store, SHARDS), EventStore(fleet.events.store, SHARDS)
    rng = np.random.default_rng(0)
    for back in reversed(range(days)):
        day = LAST - timedelta(days=back)
        scores.update(score_rows(names, day, FINE if back < fine_days else COARSE, rng), Window.day(day))
        some = names[:: EVERY if back == 0 else EVERY * 30]
        events.update(event_rows(some, day, rng), Window.day(day))
    for name in names[::EVERY]:
        length = max(days, FINE_DAYS) if name == names[0] else FINE_DAYS
        write_history(settings.place(settings.history.url), history_rows(name, length, rng))
    return open_fleet(settings)


def score_rows(names: list[str], day: date, step: timedelta, rng: np.random.Generator) -> pl.DataFrame:
    window = Window.day(day)
    stamps = pl.datetime_range(window.start, window.end, step, closed="left", time_zone="UTC", eager=True)
    count = len(names) * len(stamps)
    return pl.DataFrame(
        {
            "sensor": np.repeat(names, len(stamps)),
            "ts": pl.concat([stamps.cast(pl.Datetime("us", "UTC"))] * len(names)),
            "score": rng.gamma(2.0, 0.4, count).astype(np.float32),
        }
    ).select(
        "sensor", "ts", "score",
        threshold=pl.lit(6.0, pl.Float32), anomaly=pl.col("score") > 6.0, status=pl.lit("ok"),
        coverage=pl.lit(96, pl.UInt16), model_version=pl.lit(1, pl.Int32),
    ).cast(dict(SCORE_SCHEMA))  # fmt: skip


def event_rows(names: list[str], day: date, rng: np.random.Generator) -> pl.DataFrame:
    begin = Window.day(day).start
    rows = []
    for name in names:
        start = begin + FINE * int(rng.integers(0, 200))
        length = int(rng.integers(3, 80))
        rows.append(
            {
                "event_id": event_id(name, start), "sensor": name, "start": start,
                "end": start + length * FINE, "peak": start + (length // 2) * FINE,
                "score": 9.0, "severity": float(rng.gamma(2.0, 1.5)) + 1, "length": length + 1,
                "channels": ["value"], "cause": ["shape", "level"][length % 2], "model_version": 1,
            }
        )  # fmt: skip
    return pl.DataFrame([{key: row.get(key) for key in EVENT_SCHEMA} for row in rows], schema=EVENT_SCHEMA)


def history_rows(name: str, days: int, rng: np.random.Generator) -> pl.DataFrame:
    count = days * 288
    start = datetime(LAST.year, LAST.month, LAST.day, tzinfo=UTC) - timedelta(days=days - 1)
    stamps = pl.datetime_range(start, start + count * FINE, FINE, closed="left", time_zone="UTC", eager=True)
    values = 20 + 5 * np.sin(2 * np.pi * np.arange(count) / 144) + rng.normal(0, 0.4, count)
    return pl.DataFrame({"ts": stamps.cast(pl.Datetime("us", "UTC")), "value": values}).with_columns(
        sensor=pl.lit(name)
    )


def measure(sensors: int, days: int, fine_days: int, store: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="paano-pages-") as home:
        folder = store or Path(home)
        figures: dict[str, Any] = {
            "sensors": sensors,
            "days": days,
            "days_at_full_rate": min(days, fine_days),
        }
        if (folder / "fleet.toml").exists():
            fleet = open_fleet(Settings.load(folder / "fleet.toml"))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            began = time.perf_counter()
            fleet = make_store(folder, sensors, days, fine_days)
            figures["made_s"] = time.perf_counter() - began
        began = time.perf_counter()
        written = write_report(fleet, LAST)
        figures |= {"report_s": time.perf_counter() - began, "report_bytes": written.bytes}
        with chromium(Path(home) / "profile") as browser:
            open_page(browser, Path(written.address).as_uri())  # the browser itself warms up
            open_page(browser, Path(written.address).as_uri())
            figures |= {f"report_{name}": value for name, value in seen(browser).items()}
            figures["report_events"] = browser.execute_script("return DATA.events.length")
            figures["report_filter_ms"] = browser.execute_script(FILTER)
            with live_view(folder / "fleet.toml") as address:
                page = f"{address}/sensor?id={fleet.history.sensors().sensors[0].replace('/', '%2F')}"
                for name in ("first", "week"):  # the first request also opens the stores
                    open_page(browser, page)
                    figures |= {f"sensor_{name}_{key}": value for key, value in seen(browser).items()}
                open_page(browser, f"{address}/overview?days=30")
                figures |= {f"month_{name}": value for name, value in seen(browser).items()}
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in figures.items()}


# Typing into the search: until the filtered page is laid out.
FILTER = """
  const began = performance.now();
  document.getElementById('search').value = 'line-07';
  document.getElementById('search').dispatchEvent(new Event('input'));
  document.body.getBoundingClientRect();
  return performance.now() - began"""


def seen(browser: Any) -> dict[str, float]:
    """When the page was first painted and when its scripts had run, in milliseconds from the request."""
    return wait_for(
        browser,
        "const paint = performance.getEntriesByName('first-contentful-paint')[0]; if (!paint) return null;"
        "const all = performance.getEntriesByType('navigation')[0];"
        "return {paint_ms: paint.startTime, interactive_ms: all.domContentLoadedEventEnd}",
    )


class live_view:
    """`paano ui` in a process of its own; its address."""

    def __init__(self, fleet_file: Path) -> None:
        self.fleet_file = fleet_file

    def __enter__(self) -> str:
        words = [sys.executable, "-m", "flows.cli.app", "ui", "--port", "0", "-f", str(self.fleet_file)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", self.process.stdout.readline())
        assert found is not None
        return found[0]

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sensors", type=int, default=2000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--full-rate", type=int, default=FINE_DAYS, help="so many days at five minutes")
    parser.add_argument("--store", type=Path, help="folder of the store; made if it is not there")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    given = parser.parse_args()
    if reason := why_not():
        raise SystemExit(reason)
    show(measure(given.sensors, given.days, given.full_rate, given.store), given.json)


if __name__ == "__main__":
    main()

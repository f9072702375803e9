"""`paano demo`: a made-up fleet through the real flows, compared with the faults that were planted in it.

Everything it makes is in one folder; a second run begins anew. With `s3` the same happens on a real S3
server, a Prefect server and an MLflow server, which are started for it and stopped at the end.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.text import Text

from flows.cli.console import prepare, print_json, progress, screen, table
from flows.cli.run import call_flow
from flows.run.outcome import State
from flows.settings.fleet_file import DEFAULT_FILE, Settings
from flows.settings.template import render
from paano.errors import ConfigError
from storage.window import Window

if TYPE_CHECKING:
    from flows.run.fleet import Fleet

DAYS, NIGHTS = 21, 3
INTERVAL = timedelta(minutes=5)
START = datetime(2026, 1, 5, tzinfo=UTC)  # a fixed Monday: the demo is the same every time
BUCKET = "paano-demo"
MARK = "truth.parquet"
CATALOG = "catalog.csv"
GROUPS = {  # of the kinds of made-up sensors: where they could stand
    "line-1": ("pump", "duty", "motor", "regimes"),
    "building": ("daily", "weekly", "holes", "flat"),
    "lab": ("noisy", "quiet", "short", "new"),
}


def run(folder: Path, s3: bool = False, sensors: int = 12, as_json: bool = False) -> bool:
    """The whole demo in `folder`; whether most faults were found within the budget of false alarms."""
    began = time.monotonic()

    def say(text: str) -> None:
        if not as_json:
            screen.print(Text.assemble((f"{time.monotonic() - began:5.0f} s  ", "dim"), text))

    folder = folder.resolve()
    empty(folder)
    with contextlib.ExitStack() as stack:
        changes = stack.enter_context(servers(folder, say)) if s3 else {}
        settings = write_fleet_file(folder, changes)
        prepare(settings)
        say(f"making {sensors} sensors, {DAYS} days every {INTERVAL.seconds // 60} minutes")
        nights = write_history_of(settings, sensors)
        file = str(folder / DEFAULT_FILE)

        with progress(shown=not as_json):
            say("training, reviewing and registering a model for each (the first flow also starts Prefect)")
            trained = call_flow("retrain", file, as_of=nights[0].start.isoformat())
            for night in nights:
                say(f"scoring the night of {night.start:%Y-%m-%d}")
                call_flow("score", file, day=f"{night.start:%Y-%m-%d}")
        found = compare(settings, nights)
        found["report"] = settings.place(f"{settings.report.url}/latest.html")
        found |= {"seconds": round(time.monotonic() - began), "trained": trained.counts[State.OK]}
        if as_json:
            print_json(found)
        else:
            show(settings, found, s3)
    return bool(found["most_found"] and found["within_budget"])


def empty(folder: Path) -> None:
    """An empty folder; what a former demo left is removed, anything else is left alone."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).exists():
            raise ConfigError(
                f"{folder} is not empty and was not made by the demo; name another with --folder"
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def write_fleet_file(folder: Path, changes: dict[str, Any]) -> Settings:
    """The demo's fleet file: what `paano init` writes, with the servers' addresses if there are any."""
    values = {"fleet": {"name": "demo"}, "folder": folder, **changes}
    values["history"] = {"catalog": CATALOG, **values.get("history", {})}
    settings = Settings.from_dict(values)
    (folder / DEFAULT_FILE).write_text(render(settings), encoding="utf-8")
    return Settings.load(folder / DEFAULT_FILE)


def write_history_of(settings: Settings, sensors: int) -> list[Window]:
    """Write the made-up history, its catalog and truth.parquet; the nights to score."""
    from flows.run.fleet import storage_options
    from paano.evaluation.synth import make_fleet, truth
    from storage.history.reader import write_history

    fleet = make_fleet(sensors, DAYS, INTERVAL, seed=settings.fleet.seed, start=START, nights=NIGHTS)
    for sensor in fleet:
        frame = pl.DataFrame({"ts": sensor.ts}).select(
            sensor=pl.lit(sensor.name),
            ts=pl.col("ts").dt.cast_time_unit("us").dt.replace_time_zone("UTC"),
            **{
                channel: pl.Series(sensor.values[:, n]).fill_nan(None)
                for n, channel in enumerate(sensor.channels)
            },
        )
        write_history(settings.place(settings.history.url), frame, options=storage_options(settings))
    group_of = {kind: group for group, kinds in GROUPS.items() for kind in kinds}
    rows = {"sensor": [one.name for one in fleet], "group": [group_of[one.kind] for one in fleet]}
    pl.DataFrame(rows).write_csv(settings.folder / CATALOG)
    kinds = {"start": pl.Datetime("us", "UTC"), "end": pl.Datetime("us", "UTC")}
    pl.DataFrame(truth(fleet), schema_overrides=kinds).write_parquet(settings.folder / MARK)
    first = START.date() + timedelta(days=DAYS - NIGHTS)
    return [Window.day(first + timedelta(days=n)) for n in range(NIGHTS)]


def compare(settings: Settings, nights: list[Window]) -> dict[str, Any]:
    """What was found against what was planted.

    A fault counts as found when an event touches it or the patch before or after it, where its points still
    raise scores. An event that touches no fault is a false alarm.
    """
    from flows.run.fleet import open_fleet

    fleet = open_fleet(settings)
    whole = Window(nights[0].start - timedelta(days=1), nights[-1].end)
    events = fleet.events.read_many(None, whole).to_dicts()
    faults = pl.read_parquet(settings.folder / MARK).to_dicts()
    margin = settings.config().patch * INTERVAL

    def touches(event: dict[str, Any], fault: dict[str, Any]) -> bool:
        return bool(
            event["sensor"] == fault["sensor"]
            and event["start"] <= fault["end"] + margin
            and event["end"] >= fault["start"] - margin
        )

    rows = []
    for fault in faults:
        hits = [event for event in events if touches(event, fault)]
        best = max(hits, key=lambda event: (overlap(event, fault), event["severity"] or 0.0), default=None)
        rows.append(
            {
                "sensor": fault["sensor"],
                "planted": fault["kind"].replace("_", " "),
                "when": f"{fault['start']:%b %d %H:%M} – {fault['end']:%H:%M}",
                "found": f"{best['start']:%b %d %H:%M} – {best['end']:%H:%M}" if best else "missed",
                "overlap": round(overlap(best, fault), 2) if best else 0.0,
                "severity": best["severity"] if best else None,
                "channels": ", ".join(best["channels"] or []) if best else "",
            }
        )
    false = [event for event in events if not any(touches(event, fault) for fault in faults)]
    scored = len(fleet.registry.champions())
    allowed = math.ceil(settings.alarms.budget * scored * len(nights) / 30)
    hit = sum(row["found"] != "missed" for row in rows)
    return {
        "faults": rows,
        "planted": len(faults),
        "found": hit,
        "overlap": median(row["overlap"] for row in rows) if rows else 0.0,
        "false_alarms": len(false),
        "false": [f"{event['sensor']} {event['start']:%m-%d %H:%M}" for event in false],
        "incidents": incidents(fleet, whole),
        "budget": allowed,
        "most_found": hit > len(faults) / 2,
        "within_budget": len(false) <= allowed,
    }


def incidents(fleet: Fleet, window: Window) -> list[dict[str, Any]]:
    """The incidents of several sensors, by start: their group, when, and who moved first."""
    from flows.work.night.incidents import incidents_of

    rows = incidents_of(fleet, window).filter(pl.col("sensors").list.len() > 1)
    return [
        {
            "group": row["group"],
            "when": f"{row['start']:%b %d %H:%M} – {row['end']:%b %d %H:%M}",
            "sensors": ", ".join(row["sensors"]),
        }
        for row in rows.iter_rows(named=True)
    ]


def overlap(event: dict[str, Any], fault: dict[str, Any]) -> float:
    """Intersection over union of an event and a fault, each with its last row."""
    common = min(event["end"], fault["end"]) - max(event["start"], fault["start"]) + INTERVAL
    joined = max(event["end"], fault["end"]) - min(event["start"], fault["start"]) + INTERVAL
    return max(float(common / joined), 0.0)


def show(settings: Settings, found: dict[str, Any], s3: bool) -> None:
    table("planted and found", found["faults"])
    screen.print(
        Text.assemble(
            (f"{found['found']} of {found['planted']} planted faults found", "bold"),
            f" with a median overlap of {found['overlap']:.2f}, "
            f"false alarms: {found['false_alarms']} (the budget allows {found['budget']}), "
            f"{found['seconds']} s",
        )
    )
    for event in found["false"]:
        screen.print(f"  false alarm: {event}")
    if found["incidents"]:
        table(
            "incidents: events of a group that overlap, told as one, the first to move first",
            found["incidents"],
        )
    folder = os.path.relpath(settings.folder)
    folder = str(settings.folder) if folder.startswith("..") else folder
    file = os.path.join(folder, DEFAULT_FILE)
    here = "" if shutil.which("paano") else os.path.relpath(Path(sys.executable).parent) + os.sep
    lines = [
        f"{here}paano ui -f {file}  (nights, sensors, weeks and reviews in a browser)",
        f"{here}paano status -f {file}",
        f"{here}paano events -f {file}",
        f"{here}paano show pump-01 -f {file}",
        f"{here}paano review -f {file}  (which models need a look)",
    ]
    if not s3:
        page = Path(found["report"]).as_uri()
        screen.print(
            Text.assemble("The last night on a page, for a browser: ", (page, "bold")), soft_wrap=True
        )
    if s3:
        screen.print(f"The servers are stopped; their data and logs are in {folder}")
        lines = []
    else:
        lines += [
            f"{here}mlflow server --backend-store-uri sqlite:///{folder}/mlflow/mlflow.db  (models)",
            f"PREFECT_HOME={folder}/prefect {here}prefect server start  (runs)",
        ]
    if lines:
        screen.print(f"Where to look (scores in {folder}/scores, events in {folder}/events):")
    for line in lines:
        screen.print(f"  {line}", soft_wrap=True)


@contextlib.contextmanager
def servers(folder: Path, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Start the three servers, point this process at them; the keys of the fleet file that name them."""
    from flows.processes.servers import (
        leave_on_sigterm,
        make_bucket,
        mlflow_server,
        prefect_server,
        s3_server,
    )

    leave_on_sigterm()
    with contextlib.ExitStack() as stack:
        say("starting an S3 server (SeaweedFS)")
        s3 = stack.enter_context(s3_server(folder / "s3"))
        os.environ.update(s3.environment)
        make_bucket(s3, BUCKET)
        say("starting a Prefect server and an MLflow server (a minute, on new databases)")
        os.environ["PREFECT_HOME"] = str(folder / "prefect")
        os.environ["PREFECT_API_URL"] = stack.enter_context(prefect_server(folder / "prefect"))
        tracking = stack.enter_context(
            mlflow_server(folder / "mlflow", f"s3://{BUCKET}/mlflow", s3.environment)
        )
        yield {
            "history": {"url": f"s3://{BUCKET}/history"},
            "scores": {"url": f"s3://{BUCKET}/scores"},
            "events": {"url": f"s3://{BUCKET}/events"},
            "registry": {"tracking_uri": tracking, "artifacts": f"s3://{BUCKET}/models"},
            "run": {"url": f"s3://{BUCKET}/runs"},
            "storage": {"endpoint": s3.endpoint, "region": "us-east-1"},
        }

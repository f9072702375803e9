"""Small fleets for the flows' tests: a few sensors, half-hour steps, a model that trains in a blink."""

from __future__ import annotations

import functools
import hashlib
import shutil
import tempfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flows.run.fleet import Fleet, open_fleet, open_registry
from flows.settings.fleet_file import Settings
from storage.history.reader import write_history
from storage.window import Window

STEP = timedelta(minutes=30)
START = datetime(2026, 3, 2, tzinfo=UTC)
DAYS = 10
PATCH = 16


def settings_of(folder: Path, **changes: dict[str, Any]) -> Settings:
    """Settings of a tiny fleet in `folder`; each section of `changes` is laid over the defaults."""
    values: dict[str, dict[str, Any]] = {
        "fleet": {"name": "tiny"},
        "history": {"lookback": "8d"},
        "model": {"patch": PATCH, "width": 0.125, "iterations": 2, "minibatch": 16, "preset": "light"},
        "retrain": {"holdout": "2d", "floor": 0.0},
        "alarms": {"budget": 5.0},
        "run": {"workers": 2, "tolerated_failures": 0.0},
    }
    for section, keys in changes.items():
        values[section] = {**values.get(section, {}), **keys}
    return Settings.from_dict({**values, "folder": folder})


def write_fleet_file(settings: Settings) -> str:
    """The fleet file of `settings`; its path."""
    from flows.settings.template import render

    path = settings.folder / "fleet.toml"
    path.write_text(render(settings))
    return str(path)


def signal(number: int, rows: int, channels: int = 1) -> np.ndarray:
    """A noisy rhythm, different for every sensor. float64 [rows, channels]."""
    rng = np.random.default_rng(number)
    turns = np.arange(rows)[:, None] / (7 + number % 5) + rng.random((1, channels))
    return 20 + 5 * np.sin(2 * np.pi * turns) + 0.3 * rng.standard_normal((rows, channels))


def write_sensor(
    settings: Settings, sensor: str, values: np.ndarray, start: datetime = START, step: timedelta = STEP
) -> None:
    """Write the history of one sensor from `start` on."""
    first = np.datetime64(start.replace(tzinfo=None), "us")
    stamps = first + np.arange(len(values)) * np.timedelta64(step)
    columns = {f"c{n}": values[:, n] for n in range(values.shape[1])}
    frame = pl.DataFrame({"ts": stamps, **columns}).with_columns(
        pl.col("ts").dt.replace_time_zone("UTC"), sensor=pl.lit(sensor)
    )
    write_history(settings.place(settings.history.url), frame)


def make(folder: Path, sensors: int = 4, days: int = DAYS, **changes: dict[str, Any]) -> Fleet:
    """A fleet of sensors s00, s01, … with `days` days of history; every third has three channels."""
    settings = settings_of(folder, **changes)
    new_registry(settings)
    rows = days * 48
    for number in range(sensors):
        write_sensor(settings, f"s{number:02d}", signal(number, rows, 3 if number % 3 == 2 else 1))
    return open_fleet(settings)


@functools.cache
def empty_database() -> bytes:
    """A new MLflow database. Its many migrations take seconds, so they are done once."""
    with tempfile.TemporaryDirectory(prefix="paano-empty-") as folder:
        open_registry(settings_of(Path(folder))).champions()
        return (Path(folder) / "mlflow" / "mlflow.db").read_bytes()


def new_registry(settings: Settings) -> None:
    """Put an empty registry beside the fleet."""
    place = settings.folder / "mlflow" / "mlflow.db"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(empty_database())


def night(number: int) -> str:
    """The date of the `number`-th day of history, from 0."""
    return (START + timedelta(days=number)).date().isoformat()


def objects(fleet: Fleet, *kinds: str) -> dict[str, str]:
    """Name and digest of every object in the named folders (by default scores and events)."""
    found = {}
    for kind in kinds or ("scores", "events"):
        for path in sorted((fleet.settings.folder / kind).rglob("*")):
            if path.is_file():
                name = str(path.relative_to(fleet.settings.folder))
                found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def copy(fleet: Fleet, folder: Path) -> Fleet:
    """The same fleet, as it is now, in another folder."""
    shutil.copytree(fleet.settings.folder, folder)
    values = fleet.settings.to_dict()
    return open_fleet(Settings.from_dict({**values, "folder": str(folder)}))


def window_of(number: int) -> Window:
    """The `number`-th day of history."""
    return Window.day(date.fromisoformat(night(number)))

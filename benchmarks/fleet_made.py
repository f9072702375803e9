"""The fleet that `benchmarks.fleet` measures: history of made-up sensors and a registered model for each."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

FIRST = date(2026, 3, 2)
NIGHTS = 3  # that are scored in a row
KINDS = 4  # different models; every sensor has one of them, saved under its own name
LEARNED = 14  # days a model is made from
BUCKET = "fleet"
ENGINES: dict[str, dict[str, Any]] = {
    "local": {"engine": "local"},  # processes of this machine where the run is large enough
    "threads": {"engine": "local", "processes_from": 0},
    "dask": {"engine": "dask"},
    "ray": {"engine": "ray"},
}


@dataclass
class Built:
    """A fleet that is ready for a night."""

    file: str
    fleet: Any
    names: list[str]
    kept: list[list[tuple[str, Any]]]  # the rows of each night that is still to come: sensor, frame
    night: date  # the first of them
    write: Callable[[list[tuple[str, Any]]], None]  # rows into the history: the night comes when it is due


def values_of(number: int, days: int, points: int) -> np.ndarray:
    """A made-up series: the rhythm of its kind with noise of its own. float64 [days × points, 1].

    Sensors of a kind have the model of that kind, so that most of them are quiet, as in a real night.
    """
    kind, noise = np.random.default_rng(number % KINDS), np.random.default_rng(number)
    turns = np.arange(days * points) / points
    slow, fast = kind.random(2)
    shape = np.sin(2 * np.pi * (turns * (1 + number % KINDS) + slow)) + 0.4 * np.sin(
        14 * np.pi * (turns + fast)
    )
    return (20 + 5 * shape + 0.3 * noise.standard_normal(len(turns)))[:, None]


def build(folder: Path, wanted: argparse.Namespace, server: Any, tracking: str) -> Built:
    """History of the days before the night, and a champion for every sensor."""
    from flows.run.fleet import open_fleet, storage_options
    from flows.settings.fleet_file import Settings
    from flows.settings.template import render
    from paano.model import PaAno
    from storage.history.reader import write_history

    url = f"s3://{BUCKET}/" if server else f"{folder}/"
    values: dict[str, Any] = {
        "fleet": {"name": "bench"},
        "history": {"url": f"{url}history", "layout": wanted.layout, "lookback": f"{LEARNED}d"},
        "scores": {"url": f"{url}scores"},
        "events": {"url": f"{url}events"},
        "registry": {
            "tracking_uri": tracking,
            "artifacts": f"{url}models",
            "cache": str(folder / "cache"),
        },
        "run": {"url": f"{url}runs", "workers": wanted.workers, "device": "cpu", **ENGINES[wanted.engine]},
    }
    settings = Settings.from_dict({**values, "folder": folder})
    path = folder / "fleet.toml"
    path.write_text(render(settings))
    fleet = open_fleet(settings)
    step = timedelta(days=1) / wanted.points
    names = [f"sensor-{n:05d}" for n in range(wanted.sensors)]
    days = LEARNED + 2 if wanted.what == "retrain" else 3  # up to the first night
    night = FIRST + timedelta(days=LEARNED + 1)
    begin = datetime(night.year, night.month, night.day, tzinfo=UTC) - timedelta(days=days - 1)
    layout = fleet.history.layout

    def write(frames: list[tuple[str, Any]]) -> None:
        import polars as pl

        groups = [[frame] for _, frame in frames] if wanted.layout == "sensor" else [[f for _, f in frames]]
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda some: write_history(
                        settings.place(settings.history.url),
                        pl.concat(some),
                        layout,
                        storage_options(settings),
                    ),
                    groups,
                )
            )

    midnight = datetime(night.year, night.month, night.day, tzinfo=UTC)
    past: list[tuple[str, Any]] = []
    kept: list[list[tuple[str, Any]]] = [[] for _ in range(NIGHTS)]
    for number, name in enumerate(names):
        rows = frame_of(name, values_of(number, days + NIGHTS - 1, wanted.points), begin, step)
        past.append((name, rows.filter(rows["ts"] < midnight)))
        for n, frames in enumerate(kept):
            from_to = midnight + timedelta(days=n), midnight + timedelta(days=n + 1)
            frames.append((name, rows.filter(rows["ts"].is_between(*from_to, closed="left"))))

    write(past)
    if wanted.what == "score":
        models = [
            PaAno(settings.config(seed=kind), device="cpu").fit(values_of(kind, LEARNED, wanted.points))
            for kind in range(KINDS)
        ]
        register(fleet, names, models, step, begin)
    else:
        write(kept.pop(0))
    return Built(str(path), fleet, names, kept, night, write)


def frame_of(name: str, values: np.ndarray, begin: datetime, step: timedelta) -> Any:
    """The series as history rows."""
    import polars as pl

    stamps = np.datetime64(begin.replace(tzinfo=None), "us") + np.arange(len(values)) * np.timedelta64(step)
    frame = pl.DataFrame({"ts": stamps, "c0": values[:, 0]})
    return frame.with_columns(pl.col("ts").dt.replace_time_zone("UTC"), sensor=pl.lit(name))


def register(fleet: Any, names: list[str], models: list[Any], step: timedelta, begin: datetime) -> None:
    """A champion for every sensor: one of the few models, saved under the sensor's own name."""
    from flows.work.model.training import save_version
    from flows.work.model.version_facts import facts_of, recipe, tags_of
    from storage.history.reader import Reading
    from storage.registry.figures import VersionFigures
    from storage.registry.registry import CHAMPION

    def one(item: tuple[int, str]) -> None:
        number, name = item
        model = models[number % len(models)]
        past = Reading(name, begin, step, np.zeros((2, 1)), ["c0"])
        facts = facts_of(past, "trained", model.config)
        save_version(
            fleet,
            model,
            facts,
            tags_of(facts, model.config, recipe("trained", past, model.config)),
            "",
            CHAMPION,
            VersionFigures(),
        )

    for item in enumerate(names):  # one after the other: `save` sets the facts of the shared model
        one(item)

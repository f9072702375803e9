"""Which models of a fleet need a look, the worst first. Looks at tags, events and stored scores."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import polars as pl

from flows.pages.views import EventRow, events, last_day
from flows.run.days import day_window
from flows.run.fleet import Fleet
from flows.settings.duration import spell
from flows.work.model.version_facts import Kind
from paano.alarms.calibrate import Calibration
from paano.errors import PaanoError
from storage.registry.registry import Version
from storage.registry.tags import NOT_PASSED
from storage.window import Window

RECENT = timedelta(days=7)
FEWEST = 3  # events in RECENT before a sensor counts as alarming more than it may


class Why(StrEnum):
    """Why a model needs a look, in the order of the list."""

    FAILED = "failed the review test"
    WAITS = "waits for a decision"
    ALARMS = "alarms up"
    DRIFTED = "drifted"
    UNREADABLE = "model cannot be read"
    UNTRAINED = "untrained"
    STALE = "stale"
    NO_MODEL = "no model"


@dataclass(frozen=True)
class ReviewRow:
    """A model that needs a look."""

    sensor: str
    why: Why
    detail: str
    version: int | None
    vus_pr: float | None
    alarms: float | None
    weight: float = 0.0  # within the same reason, the heavier first

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def needs_review(fleet: Fleet, sensors: Sequence[str] | None = None, drift: bool = True) -> list[ReviewRow]:
    """A row for every reason why a model needs a look, the worst first.

    Args:
        fleet: the opened stores.
        sensors: only these; None: the whole fleet.
        drift: also compare recent scores with the calibration of each model, which fetches all models.
    """
    names = list(sensors) if sensors is not None else fleet.history.sensors().sensors
    champions, challengers = fleet.registry.champions_and_challengers(names)
    rows = [_challenger_row(version) for version in challengers.values()]
    rows += [
        ReviewRow(sensor, Why.NO_MODEL, "no champion is registered", None, None, None)
        for sensor in names
        if sensor not in champions
    ]
    day = last_day(fleet)
    if day is not None:
        end = day_window(fleet.settings, day).end
        recent = events(fleet, Window(end - RECENT, end), names if sensors is not None else None)
        rows += _alarm_rows(fleet, champions, recent)
        rows += _tag_rows(fleet, champions, end)
        if drift:
            rows += _drift_rows(fleet, champions, end)
    order = list(Why)
    return sorted(rows, key=lambda row: (order.index(row.why), -row.weight, row.sensor))


def _row(version: Version, why: Why, detail: str, weight: float = 0.0) -> ReviewRow:
    tags = version.parsed
    return ReviewRow(version.sensor, why, detail, version.version, tags.vus_pr, tags.alarms, weight)


def _challenger_row(version: Version) -> ReviewRow:
    tags = version.parsed
    why = Why.FAILED if tags.recommendation == NOT_PASSED else Why.WAITS
    return _row(version, why, tags.reason or "no review test is recorded", -(tags.vus_pr or 0.0))


def _alarm_rows(
    fleet: Fleet, champions: Mapping[str, Version], recent: Sequence[EventRow]
) -> list[ReviewRow]:
    """Sensors with more events in a week than three times what the budget lets expect."""
    allowed = max(FEWEST, 3 * fleet.settings.alarms.budget * RECENT.days / 30)
    counts = Counter(event.sensor for event in recent)
    return [
        _row(champions[sensor], Why.ALARMS, f"{count} events in {RECENT.days} days", count)
        for sensor, count in counts.items()
        if count >= allowed and sensor in champions
    ]


def _tag_rows(fleet: Fleet, champions: Mapping[str, Version], as_of: datetime) -> list[ReviewRow]:
    rows = []
    limit = fleet.settings.retrain.max_age
    for version in champions.values():
        tags = version.parsed
        if tags.kind == Kind.UNTRAINED:
            rows.append(_row(version, Why.UNTRAINED, "made on its first night; `paano retrain` trains it"))
        if tags.window_end is not None and as_of - tags.window_end > limit:
            age = as_of - tags.window_end
            detail = f"{age.days} days old, retrain.max_age is {spell(limit)}"
            rows.append(_row(version, Why.STALE, detail, age.days))
    return rows


def _drift_rows(fleet: Fleet, champions: Mapping[str, Version], end: datetime) -> list[ReviewRow]:
    """Sensors whose recent scores differ from those their model was calibrated on."""
    rules = fleet.settings.retrain
    window = Window(end - timedelta(days=rules.days), end)
    columns = ["sensor", "score", "model_version"]
    scores = fleet.scores.read_many(sorted(champions), window, columns).drop_nulls("score")
    by_sensor = {key[0]: part for key, part in scores.group_by("sensor")}
    folders = fleet.registry.fetch_many([champions[sensor] for sensor in sorted(by_sensor)])
    rows = []
    for sensor, folder in folders.items():
        version = champions[sensor]
        if isinstance(folder, PaanoError):
            rows.append(_row(version, Why.UNREADABLE, str(folder)))
            continue
        mine = by_sensor[sensor].filter(pl.col("model_version") == version.version)["score"].to_numpy()
        found = read_calibration(folder).drift(mine)
        if found.effective >= 1 and found.statistic > rules.drift and found.p < 0.01:
            detail = f"scores of {rules.days} days have shifted: KS {found.statistic:.2f}, p {found.p:.1g}"
            rows.append(_row(version, Why.DRIFTED, detail, found.statistic))
    return rows


def read_calibration(folder: Path) -> Calibration:
    """The calibration of a fetched model, without its weights."""
    return Calibration.from_dict(json.loads((folder / "model.json").read_bytes())["calibration"])

"""What there is to see of a fleet: plain rows for `status`, `sensors`, `events` and `show`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from typing import Any

import polars as pl

from flows.run.days import day_window, days_from, last_day_of, missed_nights
from flows.run.fleet import Fleet, absent_sensors
from flows.run.outcome import State
from flows.run.report import last_outcomes, run_store
from flows.work.model.decisions import version_figures
from paano.errors import ConfigError
from storage.window import Window, read_day

RECENT = timedelta(days=7)
SILENT = "silent"  # the cause of an event that is a stretch without data
FLOWS = ("score", "backfill", "heal", "retrain", "refresh", "review")


@dataclass(frozen=True)
class EventRow:
    """A stored event as people see it. Times are UTC, `end` is its last row."""

    event_id: str
    sensor: str
    start: datetime
    end: datetime
    peak: datetime
    score: float | None
    severity: float
    length: int
    channels: tuple[str, ...]
    cause: str
    model_version: int | None
    open: bool = False  # it may still go on: nothing normal was scored after it

    def during(self, window: Window) -> bool:
        """Whether it overlaps `window`."""
        return self.end >= window.start and self.start < window.end

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "channels": list(self.channels)}


@dataclass(frozen=True)
class SensorView:
    """Everything about one sensor in a window: versions, score rows and events."""

    sensor: str
    window: Window
    versions: list[dict[str, Any]]
    scores: pl.DataFrame
    events: list[EventRow]

    def to_dict(self) -> dict[str, Any]:
        return {
            "sensor": self.sensor,
            "window": self.window.to_dict(),
            "versions": self.versions,
            "scores": self.scores.to_dicts(),
            "events": [event.to_dict() for event in self.events],
        }


def last_day(fleet: Fleet) -> date | None:
    """The newest day of the fleet with scores."""
    return last_day_of(fleet.settings, fleet.scores.dates())


def status(fleet: Fleet) -> dict[str, Any]:
    """The fleet in a few numbers."""
    names = fleet.history.sensors().sensors
    every, challengers = fleet.registry.champions_and_challengers()
    champions = {name: every[name] for name in names if name in every}
    kinds = [version.parsed.kind or "?" for version in champions.values()]
    dates = fleet.scores.dates()
    day = last_day_of(fleet.settings, dates)
    facts: dict[str, Any] = {
        "fleet": fleet.settings.fleet.name,
        "sensors": len(names),
        **{f"{kind}_models": kinds.count(kind) for kind in sorted(set(kinds))},
        "without_model": len(set(names) - set(champions)),
        "waiting_for_review": sum(name in challengers for name in names),
        "last_night": day,
    }
    if missed := missed_nights(fleet, dates):
        facts["missed_nights"] = ", ".join(f"{night}" for night in missed)
    if every.stale:
        facts["registry"] = f"away, models as of {every.seen}"
    if absent := absent_sensors(fleet, every):
        facts["absent"] = absent
    if day is not None:
        end = day_window(fleet.settings, day).end
        week = Window(end - RECENT, end)
        found = events(fleet, week)
        facts["events_of_7_days"] = len(found)
        facts["open_events"] = sum(event.open for event in found)
        facts["events_by_day"] = events_by_day(fleet, day, found)
        facts |= {f"sensors_{state}": number for state, number in last_outcomes(fleet.settings, day).items()}
        from flows.pages.night_facts import due_sensors  # which itself needs the rows of this module

        facts["due"] = [concern.sensor for concern in due_sensors(fleet, champions, found, end)]
    facts["last_runs"] = last_runs(fleet)
    return facts


def events_by_day(fleet: Fleet, last: date, found: Sequence[EventRow]) -> dict[str, int]:
    """How many events touch each of the seven days to `last`."""
    counts = {}
    for day in days_from(last - timedelta(days=RECENT.days - 1), last):
        window = day_window(fleet.settings, day)
        counts[str(day)] = sum(event.during(window) for event in found)
    return counts


def last_runs(fleet: Fleet) -> list[dict[str, Any]]:
    """The newest kept run of every flow: what it was about and how its sensors ended."""
    rows = []
    for flow in FLOWS:
        store = run_store(fleet.settings, flow)
        day = max(store.dates(), default=None)
        if day is None:
            continue
        kept = store.read_many(None, Window.day(day), ["as_of", "title", "state"])
        newest = kept.filter(pl.col("as_of") == kept["as_of"].max())
        states = dict(newest["state"].value_counts().iter_rows())
        row = {"flow": flow, "about": newest["title"][0] or str(day)}
        rows.append(row | {str(state): states.get(state, 0) for state in State})
    return rows


def sensors(fleet: Fleet) -> list[dict[str, Any]]:
    """A row for each sensor: its model and its last night."""
    names = fleet.history.sensors().sensors
    champions, challengers = fleet.registry.champions_and_challengers(names)
    day = last_day(fleet)
    night: dict[str, dict[str, Any]] = {}
    if day is not None:
        rows = fleet.scores.read_many(
            names, day_window(fleet.settings, day), ["sensor", "score", "anomaly", "status"]
        )
        summed = rows.group_by("sensor").agg(
            scored=pl.col("score").is_not_null().sum(),
            missing=pl.col("status").is_in(["no_data", "no_model"]).sum(),
            anomalies=pl.col("anomaly").sum(),
        )
        night = {row.pop("sensor"): row for row in summed.iter_rows(named=True)}
    table = []
    for name in names:
        figures = version_figures(champions.get(name))
        table.append(
            {
                "sensor": name,
                "model": figures.get("kind") or "none",
                "version": figures.get("version"),
                "trained_to": figures.get("trained_to"),
                "vus_pr": figures.get("vus_pr"),
                "challenger": challengers[name].version if name in challengers else None,
                **night.get(name, {"scored": None, "missing": None, "anomalies": None}),
            }
        )
    return table


def events(
    fleet: Fleet, window: Window, names: Sequence[str] | None = None, least: float = 0.0
) -> list[EventRow]:
    """Events that overlap `window`, the most severe first; UnknownSensor if one of `names` is none."""
    if names is not None:
        catalog = fleet.history.sensors()
        names = [catalog[name].sensor for name in names]
    # An event lies in the date of its start and lasts at most twice alarms.longest.
    reach = window.widen(before=2 * fleet.settings.alarms.longest)
    rows = fleet.events.read_many(names, reach).filter(
        (pl.col("end") >= window.start) & (pl.col("severity").fill_null(0) >= least)
    )
    found = rows.sort(["severity", "start"], descending=[True, False], nulls_last=True).to_dicts()
    still_open = open_events(fleet, found)
    return [event_row(row, row["event_id"] in still_open) for row in found]


def event_row(row: dict[str, Any], still_open: bool = False) -> EventRow:
    """An event as stored, also by a release that called the cause `kind`."""
    return EventRow(
        event_id=row["event_id"],
        sensor=row["sensor"],
        start=row["start"],
        end=row["end"],
        peak=row["peak"],
        score=row["score"],
        severity=row["severity"] or 0.0,
        length=row["length"],
        channels=tuple(row["channels"] or ()),
        cause=row.get("cause") or row.get("kind") or "",
        model_version=row["model_version"],
        open=still_open,
    )


def open_events(fleet: Fleet, rows: list[dict[str, Any]]) -> set[str]:
    """The ids of those events after which no normal stretch was scored: they may still go on.

    A silence goes on while the rows after it have no data either.
    """
    day = last_day(fleet)
    if day is None or not rows:
        return set()
    late = [row for row in rows if row["end"] >= day_window(fleet.settings, day).start - RECENT]
    names = sorted({row["sensor"] for row in late})
    scored = (
        fleet.scores.read_many(names, day_window(fleet.settings, day), ["sensor", "ts", "score"])
        if names
        else None
    )
    if scored is None or not scored.height:
        return set()
    ends = scored.group_by("sensor").agg(
        scored=pl.col("ts").filter(pl.col("score").is_not_null()).max(),
        all=pl.col("ts").max(),
        step=pl.col("ts").sort().diff().median(),
    )
    last = {row["sensor"]: row for row in ends.iter_rows(named=True)}
    found = set()
    for row in late:
        end = last.get(row["sensor"])
        moment = end and end["all" if row.get("cause") == SILENT else "scored"]
        if end is None or moment is None:
            continue
        step = end["step"] or timedelta(0)
        settings = fleet.settings_for(row["sensor"])
        quiet = settings.alarms.merge or (settings.config().patch // 2) * step
        if row["end"] + quiet + step > moment:
            found.add(row["event_id"])
    return found


def sensor_view(
    fleet: Fleet, sensor: str, window: Window, known: Sequence[EventRow] | None = None
) -> SensorView:
    """Everything about one sensor: versions, and scores and events of `window`.

    `known` are events that were read already, the most severe first; without them they are read.
    """
    fleet.history.sensors()[sensor]  # UnknownSensor, with the nearest ids
    return SensorView(
        sensor,
        window,
        [version_figures(version) for version in fleet.registry.versions(sensor)],
        fleet.scores.read(sensor, window).drop("sensor"),
        events(fleet, window, [sensor])
        if known is None
        else [one for one in known if one.sensor == sensor and one.during(window)],
    )


def window_of(fleet: Fleet, since: str, until: str, days: int) -> Window:
    """The given days, or the last `days` that have scores; ConfigError for what is no day."""
    end = read_day(until) if until else last_day(fleet)
    if end is None:
        end = read_day(since) if since else date(1970, 1, 1)
    begin = read_day(since) if since else end - timedelta(days=days - 1)
    if begin > end:
        raise ConfigError(f"--since {begin} lies after --until {end}")
    return day_window(fleet.settings, begin, end)

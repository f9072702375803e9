"""What a night was like: numbers against the usual night, cells of the map, sensors that need a look."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from math import isfinite
from statistics import median
from typing import Any

import polars as pl

from flows.pages.views import SILENT, EventRow, events
from flows.run.days import day_of, day_window, days_with_rows
from flows.run.fleet import Fleet
from flows.run.outcome import State
from flows.run.report import night_outcomes, run_store
from flows.settings.duration import spell
from flows.work.model.version_facts import Kind
from flows.work.operations import Judged, judged, open_verdicts, verdict_by_event
from paano.errors import PaanoError
from paano.status import Status
from storage.registry.registry import Version
from storage.window import Window

USUAL = 30  # nights before this one that "usual" is the median of
FEWEST = 7  # of them that must be known before there is a usual night
HOUR = timedelta(hours=1)
LEVELS = (1, 2, 3, 5, 8)  # severities at which a colour begins, as in draw.js


@dataclass(frozen=True)
class Figure:
    """A number of the night, of the night before and of the usual night; None: not known."""

    name: str
    title: str
    now: float | None
    before: float | None = None
    usual: float | None = None
    percent: bool = False


@dataclass(frozen=True)
class Concern:
    """A sensor that needs a look, and why."""

    sensor: str
    why: str


@dataclass(frozen=True)
class MapRow:
    """A sensor on the map: a mark for each hour (or day)."""

    sensor: str
    group: str
    cells: str
    worst: float  # the greatest severity of its events; 0 without


@dataclass(frozen=True)
class NightFacts:
    """One night of a fleet."""

    day: date
    window: Window
    figures: list[Figure]
    events: list[EventRow]
    rows: list[MapRow]
    no_data: list[Concern]
    no_model: list[Concern]
    due: list[Concern]
    outcomes: dict[str, tuple[str, str]]  # state and reason by sensor
    notes: list[str]
    champions: Mapping[str, Version]
    recent: list[EventRow]  # of the nights before too, the most severe first
    verdicts: dict[str, str] = field(default_factory=dict)  # what people said, by the id of an event
    judged: list[Concern] = field(default_factory=list)  # sensors with verdicts, the least precise first


def gather_night(
    fleet: Fleet, day: date, notes: Iterable[str] = (), champions: Mapping[str, Version] | None = None
) -> NightFacts:
    """Read what there is to say about the night of `day`.

    Args:
        notes: of the run that just ended.
        champions: of all sensors, if they are known; else the registry is asked.
    """
    window = day_window(fleet.settings, day)
    catalog = fleet.history.sensors()
    champions = fleet.registry.champions(catalog.sensors) if champions is None else champions
    recent = events(fleet, Window(day_window(fleet.settings, day - timedelta(days=USUAL)).start, window.end))
    tonight = [event for event in recent if event.during(window)]
    scored = fleet.scores.read_many(catalog.sensors, window, ["sensor", "ts", "status"])
    rows = map_rows(fleet, window, tonight, scored, HOUR)
    kept = night_outcomes(fleet.settings, day)
    silent = silent_sensors(scored)
    without = sorted(set(catalog.sensors) - set(champions))
    said, precise, problem = what_people_said(fleet, window.end.date())
    return NightFacts(
        day=day,
        window=window,
        figures=figures_of(fleet, day, recent, scored, kept, len(silent), len(without)),
        events=tonight,
        rows=rows,
        no_data=[Concern(sensor, "no value in this night") for sensor in silent],
        no_model=[Concern(sensor, _why_no_model(kept, sensor)) for sensor in without],
        due=due_sensors(fleet, champions, recent, window.end),
        outcomes=kept,
        champions=champions,
        recent=recent,
        notes=[*notes, *problem],
        verdicts=said,
        judged=precise,
    )


def what_people_said(fleet: Fleet, today: date) -> tuple[dict[str, str], list[Concern], list[str]]:
    """Verdicts by event, the precision of each sensor that has some, and a note where they are damaged."""
    try:
        said = verdict_by_event(fleet)
        rows = judged(open_verdicts(fleet.settings), today)
    except PaanoError as error:  # the night is worth its page without them
        return {}, [], [f"verdicts are not shown: {error}"]
    return said, [Concern(one.sensor, _how_precise(one)) for one in rows], []


def _how_precise(one: Judged) -> str:
    counts = f"{one.confirmed} confirmed, {one.dismissed} dismissed, {one.expected} expected"
    return counts if one.precision is None else f"precision {one.precision:.0%}: {counts}"


def silent_sensors(scored: pl.DataFrame) -> list[str]:
    """Sensors with rows in the night and no value in any of them."""
    quiet = scored.group_by("sensor").agg(silent=(pl.col("status") == Status.NO_DATA).all())
    return sorted(quiet.filter("silent")["sensor"])


def map_rows(
    fleet: Fleet, window: Window, found: Sequence[EventRow], scored: pl.DataFrame, step: timedelta
) -> list[MapRow]:
    """A row for every sensor, the worst first: severity where there was an event, else what was scored."""
    count = -(-window.length // step)
    catalog = fleet.history.sensors()
    cells = {sensor: ["p"] * count for sensor in catalog.sensors}
    whole = step // timedelta(microseconds=1)
    place = (pl.col("ts") - window.start).dt.total_microseconds() // whole
    states = scored.group_by("sensor", place.alias("cell")).agg(
        values=pl.col("status").is_in([Status.OK, Status.PROVISIONAL]).any(),
        muted=(pl.col("status") == "muted").any(),
        model=(pl.col("status") != Status.NO_MODEL).any(),
    )
    for sensor, cell, values, muted, model in states.iter_rows():
        if sensor in cells and 0 <= cell < count:
            cells[sensor][cell] = "0" if values else "u" if muted else "x" if model else "m"
    worst: dict[str, float] = {}
    for event in sorted(found, key=lambda event: event.severity):
        if event.sensor not in cells:
            continue
        first = max(0, (event.start - window.start) // step)
        last = min(count - 1, (event.end - window.start) // step)
        mark = str(level_of(event.severity))
        for cell in range(first, last + 1):
            if event.cause != SILENT or cells[event.sensor][cell] != "x":  # hatched says it already
                cells[event.sensor][cell] = mark
        worst[event.sensor] = max(event.severity, worst.get(event.sensor, 0.0))
    rows = [
        MapRow(sensor, catalog[sensor].group or "", "".join(marks), round(worst.get(sensor, 0.0), 2))
        for sensor, marks in cells.items()
    ]
    return sorted(rows, key=lambda row: (-row.worst, not row.cells.strip("0"), row.sensor))


def level_of(severity: float) -> int:
    """The colour of a severity, 1 to 5."""
    return max(1, sum(severity + 0.05 >= least for least in LEVELS))


def figures_of(
    fleet: Fleet,
    day: date,
    recent: Sequence[EventRow],
    scored: pl.DataFrame,
    outcomes: Mapping[str, tuple[str, str]],
    silent: int,
    without: int,
) -> list[Figure]:
    """The night in numbers, each beside the night before and the usual night where they are known."""
    nights = [day - timedelta(days=n) for n in range(USUAL + 1)]
    known_nights = days_with_rows(fleet, nights[-1], day, fleet.scores.dates())
    during = {night: _during(recent, day_window(fleet.settings, night)) for night in known_nights}
    ran = kept_runs(fleet, nights[-1], day)

    def compare(
        name: str, title: str, now: float | None, values: Mapping[date, float], **more: Any
    ) -> Figure:
        others = [value for night, value in values.items() if night != day]
        usual = median(others) if len(others) >= FEWEST else None
        return Figure(name, title, now, values.get(nights[1]), usual, **more)

    def over_events(name: str, title: str, count: Callable[[list[EventRow]], float]) -> Figure:
        values = {night: float(count(found)) for night, found in during.items()}
        return compare(name, title, values.get(day), values)

    def over_runs(name: str, title: str, now: float | None, **more: Any) -> Figure:
        values = {night: value for night, row in ran.items() if (value := row[name]) is not None}
        return compare(name, title, now, values, **more)

    known = scored.filter(pl.col("status") != Status.NO_MODEL)
    missing = known.filter(pl.col("status") == Status.NO_DATA).height / known.height if known.height else None
    failed = sum(state == State.FAILED for state, _ in outcomes.values())
    return [
        over_events("events", "events", len),
        over_events("sensors", "sensors with events", lambda some: len({event.sensor for event in some})),
        over_events("worst", "worst severity", lambda some: max((e.severity for e in some), default=0.0)),
        over_runs(
            "scored",
            "sensors scored",
            float(known.filter(pl.col("status") != Status.NO_DATA)["sensor"].n_unique()),
        ),
        over_runs("missing", "values missing", missing, percent=True),
        over_runs("no_data", "sensors without data", float(silent)),
        over_runs("no_model", "sensors without model", float(without)),
        over_runs("failed", "sensors failed", float(failed) if outcomes else None),
    ]


def kept_runs(fleet: Fleet, first: date, last: date) -> dict[date, dict[str, float | None]]:
    """How the scoring runs from `first` to `last` ended, by night; a night without a kept run is absent.

    A run is kept under the date of its night.
    """
    window = Window(Window.day(first).start, Window.day(last).end)
    rows = run_store(fleet.settings, "score").read_many(
        None, window, ["as_of", "state", "reason", "rows", "missing"]
    )
    ok = pl.col("state") == State.OK
    empty = pl.col("rows") == pl.col("missing")
    found = rows.group_by(pl.col("as_of").dt.date().alias("night")).agg(
        scored=(ok & ~empty).sum(),
        missing=pl.col("missing").sum() / pl.col("rows").sum(),
        no_data=(ok & empty).sum(),
        no_model=pl.col("reason").fill_null("").str.starts_with("no_model").sum(),
        failed=(pl.col("state") == State.FAILED).sum(),
    )
    return {
        row.pop("night"): {name: _number(value) for name, value in row.items()}
        for row in found.iter_rows(named=True)
    }


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and isfinite(value) else None


def _during(found: Iterable[EventRow], night: Window) -> list[EventRow]:
    return [event for event in found if event.during(night)]


def due_sensors(
    fleet: Fleet, champions: Mapping[str, Version], recent: Sequence[EventRow], as_of: datetime
) -> list[Concern]:
    """Sensors whose model is due by what tags and events say; `paano retrain --dry-run` looks closer."""
    rules = fleet.settings.retrain
    alarming: dict[str, set[date]] = {}
    first = day_of(fleet.settings, as_of - timedelta(days=rules.days))
    last = day_of(fleet.settings, as_of - timedelta(microseconds=1))
    for event in recent:
        day = max(day_of(fleet.settings, event.start), first)
        while day <= min(day_of(fleet.settings, event.end), last):
            alarming.setdefault(event.sensor, set()).add(day)
            day += timedelta(days=1)
    concerns = []
    for sensor, version in sorted(champions.items()):
        tags, why = version.parsed, []
        if tags.kind == Kind.UNTRAINED:
            why.append("untrained model")
        if tags.window_end is not None and as_of - tags.window_end > rules.max_age:
            why.append(
                f"{(as_of - tags.window_end).days} days old, retrain.max_age is {spell(rules.max_age)}"
            )
        if len(alarming.get(sensor, ())) >= rules.days:
            why.append(f"events in each of {rules.days} nights: drifting, or a lasting fault")
        if why:
            concerns.append(Concern(sensor, "; ".join(why)))
    return concerns


def _why_no_model(outcomes: Mapping[str, tuple[str, str]], sensor: str) -> str:
    _, reason = outcomes.get(sensor, ("", ""))
    return reason.removeprefix("no_model: ") or "no champion is registered"

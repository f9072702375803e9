"""Events of a run: found in the stored score rows and the values there, explained, kept by their first date.

`paano.alarms.settle.settle` says which stored events a run may change and what takes their place; here are
its readers and writers. A sensor that has no anomalous row where rows were written, before and after, costs
nothing. Days that an event may reach to are read once for all sensors that ask.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import polars as pl

from flows.run.fleet import Fleet
from flows.run.outcome import Outcome, attempt, ok
from flows.work.night.compute import Scored
from flows.work.night.edges import edges_of
from flows.work.night.models import Models
from paano.alarms.events import Event
from paano.alarms.explain import explain, reach
from paano.alarms.settle import ScoredRows, Settled, carry_over, settle
from storage.tables.events import EVENT_SCHEMA
from storage.window import Window

COLUMNS = ["ts", "score", "status", "threshold", "model_version"]
TOP_CHANNELS = 3
BY_RULE = ["silent", "stuck"]  # causes of events that no score raised
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Written:
    """Score rows of a run: those of its sensors within `span` as they were and as they are now."""

    span: Window
    before: pl.DataFrame
    now: pl.DataFrame

    def noisy(self) -> set[str]:
        """The sensors with an anomalous row, before or now."""
        return {
            name for rows in (self.before, self.now) for name in rows.filter("anomaly")["sensor"].unique()
        }


class StoredRows:
    """Score rows of several sensors, a day at a time; a day is read once, and only if somebody asks."""

    def __init__(self, fleet: Fleet, sensors: list[str], written: Written) -> None:
        self.fleet, self.sensors, self.span = fleet, sensors, written.span
        self.known = _by_sensor(written.now.filter(pl.col("sensor").is_in(sensors)))
        self.days: dict[date, dict[str, ScoredRows]] = {}

    def changed(self, sensor: str) -> ScoredRows:
        """The rows of `sensor` in the span that was written."""
        return self.known.get(sensor, ScoredRows.none())

    def read(self, sensor: str, window: Window) -> ScoredRows:
        """The rows of `sensor` in `window` as they are stored now."""
        parts = [self._day(day).get(sensor) for day in window.days()]
        rows = ScoredRows.join([part for part in (*parts, self.known.get(sensor), ScoredRows.none()) if part])
        start, end = (np.datetime64(t.replace(tzinfo=None), "us") for t in (window.start, window.end))
        rows = rows.pick((rows.ts >= start) & (rows.ts < end))
        return rows.pick(np.argsort(rows.ts, kind="stable"))

    def _day(self, day: date) -> dict[str, ScoredRows]:
        """The stored rows of a day that are not already known."""
        if day not in self.days:
            window = Window.day(day)
            if self.span.start <= window.start and window.end <= self.span.end:
                self.days[day] = {}
            else:
                rows = self.fleet.scores.read_many(self.sensors, window, ["sensor", *COLUMNS])
                known = pl.col("ts").is_between(self.span.start, self.span.end, closed="left")
                self.days[day] = _by_sensor(rows.filter(~known))
        return self.days[day]


def _by_sensor(rows: pl.DataFrame) -> dict[str, ScoredRows]:
    """The rows of each sensor; they come sorted by sensor."""
    if not rows.height:
        return {}
    whole = ScoredRows(
        rows["ts"].dt.replace_time_zone(None).to_numpy().astype("datetime64[us]"),
        rows["score"].fill_null(float("nan")).to_numpy(),
        rows["status"].to_numpy().astype(str),
        rows["threshold"].fill_null(float("inf")).to_numpy(),
        rows["model_version"].fill_null(0).to_numpy(),
    )
    runs = rows["sensor"].rle()
    names, ends = runs.struct.field("value").to_list(), np.cumsum(runs.struct.field("len").to_numpy())
    return {
        name: whole.pick(slice(int(start), int(end)))
        for name, start, end in zip(names, [0, *ends[:-1]], ends, strict=True)
    }


def update_events(
    fleet: Fleet, window: Window, written: Written, scored: Mapping[str, Scored], batch: int
) -> dict[str, Outcome]:
    """Settle the events of the sensors whose rows were written; an outcome with their number for each.

    Args:
        window: the days asked for; events that end in it are counted.
        written: the score rows, before and now.
        scored: what was computed, by sensor; only sensors with a model have events.
    """
    counted = {sensor: ok(sensor, events=0, severity=0.0) for sensor, one in scored.items() if one.version}
    noisy = sorted(written.noisy() & set(counted))
    if not noisy:
        return counted
    stored, models = StoredRows(fleet, noisy, written), Models(fleet, scored)
    settled: dict[str, Settled] = {}
    found: dict[str, list[Event]] = {}

    def settle_one(sensor: str) -> Outcome:
        one, changed = scored[sensor], stored.changed(sensor)
        if len(changed) and one.rule and one.interval:
            settled[sensor] = settle(
                changed,
                lambda start, end: stored.read(sensor, Window(start, end)),
                sensor=sensor,
                merge=one.rule.merge,
                interval=one.interval,
                longest=one.rule.longest,
                calibration=lambda version: models.calibration(sensor, version),
                edges=edges_of(models, sensor),
            )
        return counted[sensor]

    def explain_one(sensor: str) -> Outcome:
        events, unexplained = carry_over(
            settled[sensor].events,
            events_of(before, sensor),
            # what is known around a peak that was just computed may be more than when it was explained
            anew=lambda event: written.span.contains(event.peak),
        )
        answers = {event.event_id: explained(scored[sensor], models, event) for event in unexplained}
        found[sensor] = [answers.get(event.event_id, event) for event in events]
        tonight = [event.severity for event in found[sensor] if window.contains(event.end)]
        return ok(sensor, events=len(tonight), severity=round(max(tonight, default=0.0), 2))

    outcomes = counted | {sensor: attempt(settle_one, sensor, batch) for sensor in noisy}
    if not settled:
        return outcomes
    span = settled_span(settled.values())
    before = fleet.events.read_many(list(settled), span)
    outcomes |= {sensor: attempt(explain_one, sensor, batch) for sensor in settled}
    commit_events(fleet, span, before, {sensor: settled[sensor] for sensor in found}, found)
    return outcomes


def settled_span(settled: Collection[Settled]) -> Window:
    """The time in which events were settled."""
    return Window(min(part.start for part in settled), max(part.end for part in settled) + MICROSECOND)


def commit_events(
    fleet: Fleet,
    span: Window,
    before: pl.DataFrame,
    settled: Mapping[str, Settled],
    found: Mapping[str, list[Event]],
    rule: str = "",
) -> None:
    """Put the events `found` in the place of those that were settled; equal ones are not written.

    Events of scores and those of each `rule` (silent, stuck) are settled apart: the others stay.
    """
    cause = pl.col("cause").fill_null("")
    kept = without_settled(before, settled, cause == rule if rule else ~cause.is_in(BY_RULE))
    replace_events(fleet, span, before, kept, found)


def without_settled(events: pl.DataFrame, settled: Mapping[str, Settled], which: pl.Expr) -> pl.DataFrame:
    """The stored `events` but for those that were settled, of those that `which` is true of."""
    bounds = pl.DataFrame(
        [(sensor, part.start, part.end) for sensor, part in settled.items()],
        schema={"sensor": pl.String, "first": pl.Datetime("us", "UTC"), "last": pl.Datetime("us", "UTC")},
        orient="row",
    )
    replaced = which & pl.col("start").is_between(pl.col("first"), pl.col("last")).fill_null(False)
    return events.join(bounds, on="sensor", how="left").filter(~replaced).select(events.columns)


def replace_events(
    fleet: Fleet,
    span: Window,
    before: pl.DataFrame,
    kept: pl.DataFrame,
    found: Mapping[str, Sequence[Event]],
) -> None:
    """Store `kept` and `found` in the place of the events `before` of these sensors, if that is a change."""
    now = pl.concat([kept, event_rows([event for events in found.values() for event in events])])
    now = now.sort(fleet.events.order)
    if not now.equals(before.sort(fleet.events.order)):
        fleet.events.update(now, span, list(found))


def explained(scored: Scored, models: Models, event: Event) -> Event:
    """The event with the channels that made it and its cause.

    Always the same rows around the peak are looked at, as far as they exist, whichever run looks.
    """
    champion = models.model(scored.sensor, event.model_version)
    before, after = reach(champion.model.config)
    if champion.model.channels == 1:
        before = after  # there is nothing to compare channels with: only the cause is asked for
    step = champion.interval
    near = models.values(champion, Window(event.peak - before * step, event.peak + (after + 1) * step))
    row = (event.peak - near.start) // step
    if not 0 <= row < len(near):
        return event  # its history is gone
    answer = explain(champion.model, near.values, row, top=TOP_CHANNELS)
    return event.explained((near.channels[index] for index, _ in answer.channels), answer.cause)


def events_of(stored: pl.DataFrame, sensor: str) -> list[Event]:
    """The stored events of a sensor."""
    names = [field.name for field in dataclasses.fields(Event) if field.name in stored.columns]
    rows = stored.filter(pl.col("sensor") == sensor).select(names).iter_rows(named=True)
    return [
        Event(**{**row, "channels": tuple(row["channels"] or ()), "cause": row["cause"] or ""})
        for row in rows
    ]


def event_rows(events: list[Event]) -> pl.DataFrame:
    """Events as the event store keeps them."""
    rows = [{key: getattr(event, key) for key in EVENT_SCHEMA} for event in events]
    return pl.DataFrame(
        [{**row, "channels": list(row["channels"])} for row in rows], schema=EVENT_SCHEMA, orient="row"
    )

"""Events of a night: found in the stored score rows, explained from the readings, kept by their first date.

`paano.events.settle` says which stored events a night may change and what takes their place; here are its
readers and writers. Days that an event may reach back to are read once for the whole shard.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import date, timedelta
from typing import TYPE_CHECKING

import polars as pl

from flows.outcome import Outcome, attempt, ok
from flows.parts import Parts
from paano.calibrate import Calibration
from paano.device import torch_threads
from paano.events import Event, ScoredRows, Settled, carry_over, settle
from paano.explain import explain, reach
from paano.model import PaAno
from storage.events import EVENT_SCHEMA
from storage.window import Window

if TYPE_CHECKING:
    from flows.scoring import Night

COLUMNS = ["ts", "score", "status", "threshold", "model_version"]
TOP_CHANNELS = 3


class StoredRows:
    """Score rows of a shard's sensors, a day at a time; a day is read once, and only if somebody asks."""

    def __init__(self, parts: Parts, sensors: list[str], known: pl.DataFrame, covered: Window) -> None:
        self.parts, self.sensors, self.covered = parts, sensors, covered
        self.by_sensor = {key[0]: rows for key, rows in known.group_by("sensor")}
        self.days: dict[date, dict[str, pl.DataFrame]] = {}

    def read(self, sensor: str, window: Window) -> ScoredRows:
        """The rows of `sensor` in `window` as they are stored now."""
        pieces = [self._day(day).get(sensor) for day in window.days()]
        known = [piece for piece in (*pieces, self.by_sensor.get(sensor)) if piece is not None]
        rows = pl.concat([piece.select(COLUMNS) for piece in known]) if known else pl.DataFrame(schema=ROWS)
        inside = pl.col("ts").is_between(window.start, window.end, closed="left")
        return scored_rows(rows.filter(inside).sort("ts"))

    def _day(self, day: date) -> dict[str, pl.DataFrame]:
        """The stored rows of a day that are not already known."""
        if day not in self.days:
            rows = self.parts.scores.read_many(self.sensors, Window.day(day), ["sensor", *COLUMNS])
            known = pl.col("ts").is_between(self.covered.start, self.covered.end, closed="left")
            self.days[day] = {key[0]: part for key, part in rows.filter(~known).group_by("sensor")}
        return self.days[day]


ROWS = {
    "ts": pl.Datetime("us", "UTC"),
    "score": pl.Float32,
    "status": pl.String,
    "threshold": pl.Float32,
    "model_version": pl.Int32,
}


def scored_rows(rows: pl.DataFrame) -> ScoredRows:
    return ScoredRows(
        rows["ts"].dt.replace_time_zone(None).to_numpy().astype("datetime64[us]"),
        rows["score"].fill_null(float("nan")).to_numpy(),
        rows["status"].to_numpy().astype(str),
        rows["threshold"].fill_null(float("inf")).to_numpy(),
        rows["model_version"].fill_null(0).to_numpy(),
    )


def update_events(
    parts: Parts, window: Window, covered: Window, rows: pl.DataFrame, nights: Mapping[str, Night], batch: int
) -> dict[str, Outcome]:
    """Settle the events of every scored sensor and write them; an outcome with their number for each.

    `rows` are all score rows of these sensors within `covered`, as just written.
    """
    scored = {sensor: night for sensor, night in nights.items() if night.champion}
    stored = StoredRows(parts, list(scored), rows, covered)
    settled: dict[str, Settled] = {}
    found: dict[str, pl.DataFrame] = {}

    def settle_one(sensor: str) -> Outcome:
        night = scored[sensor]
        changed = stored.read(sensor, covered)
        if len(changed):
            settled[sensor] = settle(
                changed,
                lambda start, end: stored.read(sensor, Window(start, end)),
                sensor=sensor,
                merge=merge_of(parts, night),
                interval=night.champion.interval,
                longest=parts.settings.alarms.longest,
                calibration=lambda version: calibration_of(parts, night, version),
            )
        return ok(sensor, events=0, severity=0.0)

    def explain_one(sensor: str) -> Outcome:
        events, unexplained = carry_over(settled[sensor].events, events_of(before, sensor))
        with torch_threads(parts.settings.run.threads):
            answers = {event.event_id: explained(scored[sensor], event) for event in unexplained}
        events = [answers.get(event.event_id, event) for event in events]
        found[sensor] = event_rows(events)
        tonight = [event.severity for event in events if window.start <= event.end < window.end]
        return ok(sensor, events=len(tonight), severity=round(max(tonight, default=0.0), 2))

    outcomes = {sensor: attempt(settle_one, sensor, batch) for sensor in scored}
    if not settled:
        return outcomes
    reach = Window(
        min(part.start for part in settled.values()),
        max(part.end for part in settled.values()) + timedelta(microseconds=1),
    )
    before = parts.events.read_many(list(settled), reach)
    outcomes |= {sensor: attempt(explain_one, sensor, batch) for sensor in settled}
    replaced = pl.any_horizontal(
        pl.lit(False),
        *(
            (pl.col("sensor") == sensor)
            & pl.col("start").is_between(settled[sensor].start, settled[sensor].end)
            for sensor in found
        ),
    )
    parts.events.update(pl.concat([before.filter(~replaced), *found.values()]), reach, list(settled))
    return outcomes


def merge_of(parts: Parts, night: Night) -> int:
    """The longest break inside an event, in rows: as set, or as the model was calibrated."""
    if parts.settings.alarms.merge is not None:
        return parts.settings.alarms.merge // night.champion.interval
    return night.champion.model.calibration.merge


def calibration_of(parts: Parts, night: Night, version: int) -> Calibration:
    """The calibration that a row was judged by; rows of a former champion keep theirs."""
    champion = night.champion
    if version == champion.version.version:
        return champion.model.calibration
    former = parts.registry.version(champion.version.sensor, version)
    return PaAno.load(parts.registry.fetch(former), device="cpu").calibration


def explained(night: Night, event: Event) -> Event:
    """The event with the channels to blame and what spoke, if its peak is in tonight's reading."""
    reading, model = night.reading, night.champion.model
    row = (event.peak - reading.start) // reading.interval
    if not 0 <= row < len(reading):
        return event.explained(reading.channels) if len(reading.channels) == 1 else event
    before, after = reach(model.config)
    first = max(0, row - before)  # always the same rows around a peak, whichever night looks at it
    answer = explain(model, reading.values[first : row + after + 1], row - first, top=TOP_CHANNELS)
    return event.explained((reading.channels[index] for index, _ in answer.channels), answer.kind)


def events_of(stored: pl.DataFrame, sensor: str) -> list[Event]:
    """The stored events of a sensor."""
    names = [field.name for field in dataclasses.fields(Event) if field.name in stored.columns]
    rows = stored.filter(pl.col("sensor") == sensor).select(names).iter_rows(named=True)
    return [
        Event(**{**row, "channels": tuple(row["channels"] or ()), "kind": row["kind"] or ""}) for row in rows
    ]


def event_rows(events: list[Event]) -> pl.DataFrame:
    """Events as the event store keeps them."""
    rows = [{key: getattr(event, key) for key in EVENT_SCHEMA} for event in events]
    return pl.DataFrame(
        [{**row, "channels": list(row["channels"])} for row in rows], schema=EVENT_SCHEMA, orient="row"
    )

"""Silence is an event too: a sensor that sent nothing for longer than `alarms.silent`.

It is found in the stored score rows, as all events are: rows without data that follow each other. So nights
and a backfill give the same. A stretch that the calendar mutes is not silent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import polars as pl

from flows.run.fleet import Fleet
from flows.work.known_periods import muted_of
from flows.work.night.compute import Scored
from flows.work.night.events import StoredRows, Written, commit_events, settled_span
from paano.alarms.events import Event
from paano.alarms.settle import ScoredRows, Settled, settle, without_short
from paano.status import Status
from storage.window import Window

SILENT = "silent"
SEVERITY = 1.0  # there is no score to rate it by


def update_silence(fleet: Fleet, written: Written, scored: Mapping[str, Scored]) -> None:
    """Settle the silent stretches of the sensors whose rows were written."""
    settled: dict[str, Settled] = {}
    for sensor, stored in _candidates(fleet, written, scored):
        one = scored[sensor]
        if one.rule is None or one.interval is None:
            continue
        interval, limit = one.interval, fleet.settings_for(sensor).alarms.silent
        read = _reader(fleet, sensor, stored)
        changed = _as_silence(stored.changed(sensor), muted_of(fleet, sensor, written.span))
        if limit and len(changed):
            longest = max(one.rule.longest, 2 * limit)
            part = settle(changed, read, sensor=sensor, merge=0, interval=interval, longest=longest)
            settled[sensor] = without_short(part, -(-limit // interval), interval, read)
    if not settled:
        return
    span = settled_span(settled.values())
    before = fleet.events.read_many(list(settled), span)
    found = {sensor: [_event(event) for event in part.events] for sensor, part in settled.items()}
    commit_events(fleet, span, before, settled, found, rule=SILENT)


def _candidates(fleet: Fleet, written: Written, scored: Mapping[str, Scored]) -> list[tuple[str, StoredRows]]:
    """Sensors with a model of which a row is without data, before or now."""
    names = {
        name
        for rows in (written.before, written.now)
        for name in rows.filter(pl.col("status") == str(Status.NO_DATA))["sensor"].unique()
    }
    some = sorted(name for name in names if name in scored and scored[name].version)
    stored = StoredRows(fleet, some, written)
    return [(name, stored) for name in some]


def _reader(fleet: Fleet, sensor: str, stored: StoredRows):  # type: ignore[no-untyped-def]  # as settle asks
    def read(start: datetime, end: datetime) -> ScoredRows:
        window = Window(start, end)
        return _as_silence(stored.read(sensor, window), muted_of(fleet, sensor, window))

    return read


def _as_silence(rows: ScoredRows, muted: Sequence[Window]) -> ScoredRows:
    """Rows whose score is 1 where there was no data, to be settled like any others."""
    silent = rows.status == str(Status.NO_DATA)
    for part in muted:
        start, end = (np.datetime64(t.replace(tzinfo=None), "us") for t in (part.start, part.end))
        silent &= ~((rows.ts >= start) & (rows.ts < end))
    return dataclasses.replace(
        rows,
        score=silent.astype(np.float32),
        status=np.full(len(rows), str(Status.OK)),
        threshold=np.full(len(rows), 0.5, np.float32),
    )


def _event(event: Event) -> Event:
    return dataclasses.replace(
        event, peak=event.start, score=float("nan"), severity=SEVERITY, cause=SILENT, model_version=None
    )

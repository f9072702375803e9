"""A sensor that is stuck: a channel has the same value for far longer than in training (`alarms.stuck`).

Each channel has its own limit and its own events, which name it: a setpoint that never changed in training is
not stuck when it goes on so. Channels of a sensor that are stuck at the same time are one incident.

It is found in the history, as far back and forth as the value stays the same, whichever days are scored. So
nights and a backfill give the same. A stretch that the calendar mutes is not stuck. A model that does not say
how long its channels repeated themselves in training, as those of earlier versions, gives no such events.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from flows.run.fleet import Fleet
from flows.work.alarm_rule import stuck_rows
from flows.work.known_periods import muted_of
from flows.work.night.compute import Scored
from flows.work.night.events import replace_events, settled_span, without_settled
from flows.work.night.load import Champion
from flows.work.night.rows import as_stamp
from paano.alarms.events import Event, event_id
from paano.alarms.repeats import repeating, runs
from paano.alarms.settle import ScoredRows, Settled, settle, without_short
from paano.status import Status
from storage.history.reader import Reading
from storage.window import Window

STUCK = "stuck"
SEVERITY = 1.0  # there is no score to rate it by


def with_stuck(fleet: Fleet, scored: Sequence[Scored], days: Sequence[Window]) -> list[Scored]:
    """What was computed, with the stuck stretches that the days may have changed. Nothing is stored."""
    limits = {one.sensor: found for one in scored if (found := limits_of(fleet, one))}
    if not limits:
        return list(scored)
    window = Window(days[0].start, days[-1].end)
    longest = max(
        longest_of(one.champion, limit) for one in scored for limit in limits.get(one.sensor, {}).values()
    )
    reach = window.widen(before=2 * longest, after=timedelta(days=1))
    stored = fleet.events.read_many(list(limits), reach, ["sensor", "start", "end", "cause", "channels"])
    return [
        dataclasses.replace(
            one,
            stuck={
                channel: part
                for channel, limit in limits.get(one.sensor, {}).items()
                if (part := _settled(fleet, one, channel, window, limit, stored.filter(_of(channel))))
            },
        )
        for one in scored
    ]


def limits_of(fleet: Fleet, one: Scored) -> dict[str, int]:
    """How many rows that repeat make a channel of `one` stuck; empty where the rule is off or of no use."""
    if one.champion is None or one.reading is None or not one.rows:
        return {}
    model = one.champion.model
    return stuck_rows(fleet.settings_for(one.sensor), model.config, model.facts)


def longest_of(champion: Champion | None, limit: int) -> timedelta:
    """A longer stretch is cut into several; each piece but the last is long enough to be an event."""
    return max(champion.rule.longest, 2 * limit * champion.interval) if champion else timedelta(0)


def _of(channel: str) -> pl.Expr:
    """Whether a stored event says that this channel was stuck."""
    return (pl.col("cause") == STUCK).fill_null(False) & pl.col("channels").list.contains(channel)


def _settled(
    fleet: Fleet, one: Scored, channel: str, window: Window, limit: int, stored: pl.DataFrame
) -> Settled | None:
    champion, reading = one.champion, one.reading
    if champion is None or reading is None:
        return None
    around = window.widen(champion.context, champion.context)
    near = reading.cut(around)
    if not len(near):
        return None
    flags = _repeating(reading, channel, champion)
    offset = (near.start - reading.start) // reading.interval
    inside = [run for run in runs(flags) if run[0] < offset + len(near) and run[1] > offset]
    # A run that reaches the edge of what was read may be longer than can be seen here.
    long = any(b - a >= limit or a <= 1 or b == len(flags) for a, b in inside)
    known = stored.filter((pl.col("sensor") == one.sensor) & (pl.col("end") >= near.start))
    if not long and known.is_empty():
        return None
    rows = _rows(near, flags[offset : offset + len(near)], muted_of(fleet, one.sensor, around))

    def read(start: datetime, end: datetime) -> ScoredRows:
        return read_rows(fleet, champion, channel, Window(start, end))

    interval = champion.interval
    longest = longest_of(champion, limit)
    part = settle(rows, read, sensor=one.sensor, merge=0, interval=interval, longest=longest)
    kept = without_short(part, limit, interval, read).events
    return dataclasses.replace(part, events=[_event(event, channel) for event in kept])


def _repeating(reading: Reading, channel: str, champion: Champion) -> np.ndarray:
    values = reading.values[:, [reading.channels.index(channel)]]
    return repeating(values, champion.model.config.max_gap)


def read_rows(fleet: Fleet, champion: Champion, channel: str, window: Window) -> ScoredRows:
    """Rows of the history in `window`: their score is 1 where `channel` repeats the row before."""
    sensor, config = champion.version.sensor, champion.model.config
    lead = (config.max_gap + 1) * champion.interval
    wide = fleet.history.read(
        sensor, window.widen(lead, lead), champion.interval, champion.model.facts.channel_names
    )
    flags = _repeating(wide, channel, champion)
    inside = (wide.ts >= as_stamp(window.start)) & (wide.ts < as_stamp(window.end))
    cut = wide.cut(window)
    return _rows(cut, flags[inside], muted_of(fleet, sensor, window))


def _rows(reading: Reading, flags: np.ndarray, muted: Sequence[Window]) -> ScoredRows:
    ts, score = reading.ts, flags.astype(np.float32)
    for part in muted:
        score[(ts >= as_stamp(part.start)) & (ts < as_stamp(part.end))] = 0
    many = len(ts)
    return ScoredRows(
        ts, score, np.full(many, str(Status.OK)), np.full(many, 0.5, np.float32), np.zeros(many, np.int64)
    )


def _event(event: Event, channel: str) -> Event:
    return dataclasses.replace(
        event,
        # a fault, or another channel, may begin in the same row
        event_id=event_id(f"{event.sensor}\n{STUCK}\n{channel}", event.start),
        peak=event.start,
        score=float("nan"),
        severity=SEVERITY,
        cause=STUCK,
        channels=(channel,),
        model_version=None,
    )


def update_stuck(fleet: Fleet, scored: Mapping[str, Scored]) -> None:
    """Store the stuck stretches that were found."""
    settled = {sensor: one.stuck for sensor, one in scored.items() if one.stuck}
    if not settled:
        return
    span = settled_span([part for some in settled.values() for part in some.values()])
    before = fleet.events.read_many(list(settled), span)
    kept = before
    for channel in sorted({channel for some in settled.values() for channel in some}):
        mine = {sensor: some[channel] for sensor, some in settled.items() if channel in some}
        kept = without_settled(kept, mine, _of(channel))
    found = {sensor: [e for part in some.values() for e in part.events] for sensor, some in settled.items()}
    replace_events(fleet, span, before, kept, found)

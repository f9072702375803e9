"""Stored events kept true: which events a run may change, and what takes their place.

Nightly runs, reruns and backfills give identical events, because events are a pure function of the stored
score rows and of the values in and a patch around a stretch of anomalous rows, and every run replaces whole
stretches only:

1. An event belongs to the date (UTC) on which it starts, also when it crosses midnight or lasts for days. The
   run of a later night that sees its stretch grow writes it again, with the same id.
2. A run that wrote the rows from `first` to `last` (the night, and the finished tail of the night before)
   calls `settle`. It reads older rows, as far back as the last break of more than `merge` quiet rows before
   `first`, and newer ones in the same way (there are some only when an old night is scored again). Within
   these bounds no event depends on a row outside them, neither before the change nor after it. With `longest`
   it reads no further than twice `longest` either way.
3. It replaces the sensor's stored events that start within `Settled.start … Settled.end` by `Settled.events`.

Provisional rows count, so a fault in the last minutes of a night is reported that night. The next night
finishes these rows and looks at the values again, now with what follows: an event may begin or end elsewhere,
become two, or vanish. Its id stays as long as its stretch begins in an `ok` row and it has the same number
among the events of the stretch. `Event.final` says that nothing that comes later can change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

import numpy as np

from paano.alarms.calibrate import Calibration
from paano.alarms.cuts import cuts_of
from paano.alarms.events import Edges, Event, anomalous, find_events
from paano.alarms.moments import as_datetime, as_datetime64, as_times, whole


@dataclass(frozen=True)
class ScoredRows:
    """Score rows of one sensor in order of time, as the score store keeps them."""

    ts: np.ndarray  # datetime64[us]
    score: np.ndarray  # float32, NaN = none
    status: np.ndarray  # str: the values of Status
    threshold: np.ndarray  # float32, one per row: a new model brings a new threshold
    version: np.ndarray  # int, the model version that gave the score

    def __len__(self) -> int:
        return len(self.ts)

    def pick(self, rows: np.ndarray | slice) -> ScoredRows:
        return ScoredRows(*(column[rows] for column in self.columns()))

    def columns(self) -> tuple[np.ndarray, ...]:
        return self.ts, self.score, self.status, self.threshold, self.version

    @classmethod
    def none(cls) -> ScoredRows:
        """No rows at all."""
        kinds = ("datetime64[us]", "float32", "str", "float32", "int64")
        return cls(*(np.empty(0, kind) for kind in kinds))

    @classmethod
    def join(cls, parts: Iterable[ScoredRows]) -> ScoredRows:
        return cls(*(np.concatenate(columns) for columns in zip(*(p.columns() for p in parts), strict=True)))


@dataclass(frozen=True)
class Settled:
    """Events of a stretch that depend on nothing outside it."""

    start: datetime
    end: datetime  # included
    events: list[Event]

    def replaces(self, event: Event) -> bool:
        """Whether a stored event of the sensor has to give way to `events`."""
        return self.start <= event.start <= self.end

    def dates(self, stored: Iterable[Event] = ()) -> list[date]:
        """The dates whose events may differ from the `stored` ones."""
        return sorted({e.date for e in self.events} | {e.date for e in stored if self.replaces(e)})


def settle(
    changed: ScoredRows,
    read: Callable[[datetime, datetime], ScoredRows],
    *,
    sensor: str,
    merge: int,
    interval: timedelta,
    calibration: Calibration | Callable[[int], Calibration] | None = None,
    longest: timedelta | None = None,
    step: timedelta = timedelta(days=1),
    edges: Edges | None = None,
) -> Settled:
    """The events of the rows just written and of all older and newer rows that could belong to them.

    Args:
        changed: the rows just written, at least one.
        read: `read(start, end)` gives the sensor's stored rows of the half-open stretch (or none). It is
            called for `step` after `step` until a break of more than `merge` rows that are not anomalous is
            found; rows that were never written are not.
        sensor, merge, calibration, interval, longest: as for `find_events`.
        step: how much is read at once.

    Returns:
        The events, and the stretch of time in which they replace the stored ones.

    Raises:
        ValueError: `changed` is empty.
    """
    if not len(changed):
        raise ValueError("no rows were changed, so there is nothing to settle")
    breadth = (merge + 1) * interval
    step = max(step, breadth + interval)
    times = as_times(changed.ts)
    begin, end = as_datetime(times[0]), as_datetime(times[-1])
    # An event that reaches one of these moments from afar is cut there, before the change and after it.
    cuts = cuts_of(longest, np.timedelta64(breadth))
    cut_before = as_datetime(cuts.upto(times[0])) if cuts else None
    cut_after = as_datetime(cuts.since(times[-1] + cuts.every)) if cuts else None

    def older(edge: datetime) -> tuple[ScoredRows, datetime]:
        return read(edge - step, edge), edge - step

    def newer(edge: datetime) -> tuple[ScoredRows, datetime]:
        return read(edge, edge + step), edge + step

    far = cut_before - timedelta(microseconds=whole(cuts.reach)) if cuts and cut_before else None
    first, before = _reach(begin, begin, older, breadth, far)
    if far and cut_before and first <= far:
        first = cut_before
    last, after = _reach(end, end + interval, newer, breadth, cut_after)
    if cut_after and last >= cut_after:
        last = cut_after - timedelta(microseconds=1)
    rows = ScoredRows.join([*reversed(before), changed, *after])
    ts = as_times(rows.ts)
    # The quiet rows after `last` are kept, to see that the last event is final.
    upto = last + breadth
    if cut_after:
        upto = min(upto, max(last, cut_after - timedelta(microseconds=1)))
    rows = rows.pick((ts >= as_datetime64(first)) & (ts <= as_datetime64(upto)))
    events = find_events(
        rows.ts,
        rows.score,
        rows.status,
        rows.threshold,
        sensor=sensor,
        merge=merge,
        calibration=calibration,
        interval=interval,
        longest=longest,
        version=rows.version,
        edges=edges,
    )
    return Settled(first, last, events)


def without_short(
    part: Settled, rows: int, interval: timedelta, read: Callable[[datetime, datetime], ScoredRows]
) -> Settled:
    """`part` without its events of fewer than `rows` rows.

    An event that was cut because it lasts very long goes on, however short its newest piece is. `read` is as
    for `settle`.
    """

    def goes_on(number: int, event: Event) -> bool:
        if number:
            return part.events[number - 1].end + interval == event.start
        if event.start > part.start:
            return False
        before = read(event.start - interval, event.start)
        return bool(anomalous(before.score, before.status, before.threshold).any())

    kept = [
        event for number, event in enumerate(part.events) if event.length >= rows or goes_on(number, event)
    ]
    return replace(part, events=kept)


def _reach(
    reached: datetime,
    edge: datetime,
    beyond: Callable[[datetime], tuple[ScoredRows, datetime]],
    breadth: timedelta,
    far: datetime | None,
) -> tuple[datetime, list[ScoredRows]]:
    """The farthest anomalous row joined to `reached` by breaks within `breadth`, and all rows read.

    Rows beyond `far` are not read: that the event comes from or goes there is all one has to know.
    """
    parts = []
    begin = reached
    while abs(edge - reached) <= breadth and not (far and abs(reached - begin) >= abs(far - begin)):
        rows, edge = beyond(edge)
        parts.append(rows)
        over = as_times(rows.ts)[anomalous(rows.score, rows.status, rows.threshold)]
        for moment in sorted((as_datetime(t) for t in over), key=lambda m: abs(m - reached)):
            if abs(moment - reached) > breadth:
                return reached, parts
            reached = moment
    return reached, parts


def carry_over(
    events: Iterable[Event], stored: Iterable[Event], anew: Callable[[Event], bool] = lambda event: False
) -> tuple[list[Event], list[Event]]:
    """Events with the explanations they already have, and those of them that still need one.

    An explanation belongs to a peak: an event with the same peak and score was explained from the same data,
    also when it begins earlier or later than before. Those that `anew` says yes to are explained again.
    """
    known = {(e.peak, np.float32(e.score), e.model_version): e for e in stored if e.channels}
    carried = []
    for event in events:
        old = known.get((event.peak, np.float32(event.score), event.model_version))
        carried.append(event.explained(old.channels, old.cause) if old and not anew(event) else event)
    return carried, [event for event in carried if not event.channels]

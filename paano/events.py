"""Events: stretches of time in which a sensor's score was over its threshold.

A row is **anomalous** when it has a score (status `ok` or `provisional`) above its threshold; a row without
data never is. Two anomalous rows belong to one event when at most `merge` rows lie between them, whatever
those rows are: a short hole or a short recovery does not end an event. An event starts at its first and ends
at its last anomalous row, both included. Its id is a hash of sensor and start.

Nightly runs, reruns and backfills give identical events, because events are a pure function of the stored
score rows and every run replaces whole events only:

1. An event belongs to the date (UTC) on which it starts, also when it crosses midnight or lasts for days. The
   run of a later night that sees it grow writes it again under its first date, with the same id.
2. A run that wrote the rows from `first` to `last` (the night, and the finished tail of the night before)
   calls `settle`. It reads older rows, as far back as the last break of more than `merge` quiet rows before
   `first`, and newer ones in the same way (there are some only when an old night is scored again). Within
   these bounds no event depends on a row outside them, neither before the change nor after it.
3. It replaces the sensor's stored events that start within `Settled.start … Settled.end` by `Settled.events`.

A sensor can stay in alarm for months, and no night should have to read months of scores. With `longest`, an
event is cut at fixed moments, the multiples of `longest` since 1970: at each one that it has reached for at
least `longest` (less one break). So an event lasts up to twice `longest`, a shorter one is never cut, and
whether it is cut depends on its own rows only: `settle` reads no further than twice `longest` either way.

Provisional rows count, so a fault in the last minutes of a night is reported that night. When the next night
has finished them, an event that began in an `ok` row keeps its id; one that began in a provisional row may
begin earlier or later, or vanish. `Event.final` tells: nothing that comes later can change a final event.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import numpy as np

from paano.calibrate import Calibration
from paano.level import speaker

SCORED = ("ok", "provisional")


@dataclass(frozen=True)
class Event:
    """One stretch of anomalous rows. Times are UTC."""

    event_id: str
    sensor: str
    start: datetime  # first anomalous row
    end: datetime  # last anomalous row, included
    peak: datetime  # the row furthest over its threshold
    score: float  # its score
    severity: float  # 1 = as rare as the alarm budget allows, +1 for every tenfold rarer
    length: int  # rows from start to end
    channels: tuple[str, ...] = ()  # the channels that made it, worst first
    kind: str = ""  # "shape", "level" or "shape and level": which part of the score spoke
    model_version: int | None = None  # that scored the peak
    final: bool = True  # nothing that comes later can change it

    @property
    def date(self) -> date:
        """The date that the event is stored under."""
        return self.start.date()

    def explained(self, channels: Iterable[str], kind: str | None = None) -> Event:
        """The same event with the channels to blame."""
        return dataclasses.replace(self, channels=tuple(channels), kind=self.kind if kind is None else kind)


@dataclass(frozen=True)
class ScoredRows:
    """Score rows of one sensor in order of time, as the score store keeps them."""

    ts: np.ndarray  # datetime64[us]
    score: np.ndarray  # float32, NaN = none
    status: np.ndarray  # "ok", "provisional", "no_data", "no_model"
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


def event_id(sensor: str, start: datetime) -> str:
    """Sixteen hexadecimal digits, the same wherever and whenever the event is found."""
    return hashlib.sha256(f"{sensor}\n{_microseconds(start)}".encode()).hexdigest()[:16]


def anomalous(score: np.ndarray, status: np.ndarray, threshold: np.ndarray | float) -> np.ndarray:
    """Which rows are over their threshold. Compared as float32, the type in which both are stored."""
    over = np.asarray(score, np.float32) > np.asarray(threshold, np.float32)  # False for NaN
    return over & np.isin(np.asarray(status), SCORED)


def find_events(
    ts: np.ndarray,
    score: np.ndarray,
    status: np.ndarray,
    threshold: np.ndarray | float,
    *,
    sensor: str,
    merge: int,
    calibration: Calibration | Callable[[int], Calibration] | None = None,
    interval: timedelta | None = None,
    longest: timedelta | None = None,
    version: np.ndarray | None = None,
    parts: Mapping[str, np.ndarray] | None = None,
) -> list[Event]:
    """The events of one sensor's score rows, in order of time.

    `calibration` gives the severity (0 without); when the rows come from several models it is a function
    from `version` to calibration, called for the row of the peak. `interval` is taken from `ts` unless given;
    `longest` cuts events that last longer (the module says how).
    `parts` holds the parts of the score, `{"shape": …, "level": …}`, and gives the kind.
    """
    ts = _times(ts)
    score = np.asarray(score, np.float32)
    threshold = np.broadcast_to(np.asarray(threshold, np.float32), score.shape)
    status = np.asarray(status)
    rows = np.flatnonzero(anomalous(score, status, threshold))
    if not rows.size:
        return []
    step = _interval(ts, interval)
    breadth = (merge + 1) * step
    firsts = np.flatnonzero(np.diff(ts[rows], prepend=ts[rows[0]] - breadth - step) > breadth)
    excess = score.astype(np.float64) - threshold
    provisional = np.flatnonzero(status == "provisional")
    # the first moment about which something may still change
    open_from = ts[provisional[0]] if provisional.size else ts[-1] + step

    events = []
    for inside, cut in _pieces(ts, np.split(rows, firsts[1:]), _cuts(longest, breadth)):
        start, end = ts[inside[0]], ts[inside[-1]]
        settled = end + breadth if cut is None else min(end + breadth, cut - np.timedelta64(1, "us"))
        peak = inside[np.argmax(excess[inside])]
        known = calibration
        if callable(calibration):
            known = calibration(int(version[peak]))
        events.append(
            Event(
                event_id=event_id(sensor, _datetime(start)),
                sensor=sensor,
                start=_datetime(start),
                end=_datetime(end),
                peak=_datetime(ts[peak]),
                score=float(score[peak]),
                severity=known.severity(float(score[peak]), float(threshold[peak])) if known else 0.0,
                length=round(float((end - start) / step)) + 1,
                kind=_kind(parts, peak),
                model_version=None if version is None else int(version[peak]),
                final=bool(settled < open_from),
            )
        )
    return events


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
) -> Settled:
    """The events of the rows just written and of all older and newer rows that could belong to them.

    `read(start, end)` gives the sensor's stored rows of the half-open stretch (or none). It is called for
    `step` after `step` until a break of more than `merge` quiet rows is found; rows that were never written
    are quiet.
    """
    if not len(changed):
        raise ValueError("no rows were changed, so there is nothing to settle")
    breadth = (merge + 1) * interval
    step = max(step, breadth + interval)
    times = _times(changed.ts)
    begin, end = _datetime(times[0]), _datetime(times[-1])
    # An event that reaches one of these moments from afar is cut there, before the change and after it.
    cuts = _cuts(longest, np.timedelta64(breadth))
    cut_before = cuts and _datetime(cuts.upto(times[0]))
    cut_after = cuts and _datetime(cuts.since(times[-1] + cuts.every))

    def older(edge: datetime) -> tuple[ScoredRows, datetime]:
        return read(edge - step, edge), edge - step

    def newer(edge: datetime) -> tuple[ScoredRows, datetime]:
        return read(edge, edge + step), edge + step

    far = cuts and cut_before - timedelta(microseconds=_whole(cuts.reach))
    first, before = _reach(begin, begin, older, breadth, far)
    if cuts and first <= far:
        first = cut_before
    last, after = _reach(end, end + interval, newer, breadth, cut_after)
    if cuts and last >= cut_after:
        last = cut_after - timedelta(microseconds=1)
    rows = ScoredRows.join([*reversed(before), changed, *after])
    ts = _times(rows.ts)
    # The quiet rows after `last` are kept, to see that the last event is final.
    upto = (
        last + breadth if not cuts else min(last + breadth, max(last, cut_after - timedelta(microseconds=1)))
    )
    rows = rows.pick((ts >= _datetime64(first)) & (ts <= _datetime64(upto)))
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
    )
    return Settled(first, last, events)


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
        over = _times(rows.ts)[anomalous(rows.score, rows.status, rows.threshold)]
        for moment in sorted((_datetime(t) for t in over), key=lambda m: abs(m - reached)):
            if abs(moment - reached) > breadth:
                return reached, parts
            reached = moment
    return reached, parts


def carry_over(events: Iterable[Event], stored: Iterable[Event]) -> tuple[list[Event], list[Event]]:
    """Events with the explanations they already have, and those of them that still need one.

    An event found again with the same peak was explained from the same data: nothing has to be read for it.
    """
    known = {(e.event_id, e.peak, np.float32(e.score)): e for e in stored if e.channels}
    carried = []
    for event in events:
        old = known.get((event.event_id, event.peak, np.float32(event.score)))
        carried.append(event.explained(old.channels, old.kind) if old else event)
    return carried, [event for event in carried if not event.channels]


# -- parts --


@dataclass(frozen=True)
class _Cuts:
    """The moments at which events may be cut."""

    every: np.timedelta64
    reach: np.timedelta64  # an event is cut where it began at least so long before

    def upto(self, moment: np.datetime64) -> np.datetime64:
        """The last cut not after `moment`."""
        return self._number(_whole(moment) // _whole(self.every))

    def since(self, moment: np.datetime64) -> np.datetime64:
        """The first cut not before `moment`."""
        return self._number(-(-_whole(moment) // _whole(self.every)))

    def _number(self, number: int) -> np.datetime64:
        return np.datetime64(number * _whole(self.every), "us")


def _cuts(longest: timedelta | None, breadth: np.timedelta64) -> _Cuts | None:
    if longest is None:
        return None
    every = max(np.timedelta64(longest), 2 * breadth)
    return _Cuts(every, every - breadth)


def _pieces(
    ts: np.ndarray, groups: Iterable[np.ndarray], cuts: _Cuts | None
) -> Iterable[tuple[np.ndarray, np.datetime64 | None]]:
    """Groups of anomalous rows, cut where they last too long, and the moment at which each would be cut."""
    for rows in groups:
        while cuts is not None:
            cut = cuts.since(ts[rows[0]] + cuts.reach)
            inside = int(np.searchsorted(ts[rows], cut))
            yield rows[:inside], cut
            if inside == rows.size:
                break
            rows = rows[inside:]
        else:
            yield rows, None


def _kind(parts: Mapping[str, np.ndarray] | None, row: int) -> str:
    return speaker(float(parts["shape"][row]), float(parts["level"][row])) if parts else ""


def _interval(ts: np.ndarray, interval: timedelta | None) -> np.timedelta64:
    if interval is not None:
        return np.timedelta64(interval)
    if ts.size < 2:
        return np.timedelta64(1, "us")
    return np.median(np.diff(ts).astype(np.int64)).astype(np.int64).astype("timedelta64[us]")


def _times(ts: np.ndarray) -> np.ndarray:
    return np.asarray(ts).astype("datetime64[us]")


def _datetime(moment: np.datetime64) -> datetime:
    return moment.astype("datetime64[us]").item().replace(tzinfo=UTC)


def _datetime64(moment: datetime) -> np.datetime64:
    return np.datetime64(_microseconds(moment), "us")


def _whole(moment: np.datetime64 | np.timedelta64) -> int:
    """Microseconds (since 1970)."""
    kind = "datetime64[us]" if isinstance(moment, np.datetime64) else "timedelta64[us]"
    return int(moment.astype(kind).astype(np.int64))


def _microseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

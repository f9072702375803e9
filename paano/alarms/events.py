"""Events: what went wrong, found in a sensor's score rows.

A row is **anomalous** when it has a score (status `ok` or `provisional`) above its threshold; a row without
data never is. Two anomalous rows belong to one **stretch** when at most `merge` rows lie between them,
whatever those rows are: a short hole or a short recovery does not end a stretch. It goes from its first to
its last anomalous row, both included.

A score is spread over a patch, so a stretch is up to two patches longer than the fault in it. `edges` looks
at the values again and gives the faults of a stretch (`paano.alarms.edges`): each of them that has an
anomalous row is an **event** with its own start and end, always within the stretch; if none has, or without
`edges`, the stretch is the event. Where `edges` finds nothing unlike the history, two looks disagree: then
the stretch is an event only if its score is clearly over the threshold (CLEAR). The id of an event is a hash
of the sensor, the start of its stretch and, from the second fault on, its number: it stays when the stretch
grows at its end.

A sensor can stay in alarm for months, and no night should have to read months of scores. With `longest`, a
stretch is cut at fixed moments, the multiples of `longest` since 1970: at each one that it has reached for at
least `longest` (less one break). So an event lasts up to twice `longest`, a shorter one is never cut, and
whether it is cut depends on its own rows only.

`paano.alarms.settle` keeps stored events true when score rows are written.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import numpy as np

from paano.alarms.calibrate import Calibration
from paano.alarms.cause import cause_of
from paano.alarms.cuts import cut_pieces, cuts_of
from paano.alarms.moments import as_datetime, as_datetime64, as_times, microseconds
from paano.status import SCORED, Status

# From the first and last row of a stretch and the model version that scored its peak (None: not known) to the
# first and last row of each fault in it, in order of time; nothing where every row is like the history.
Edges = Callable[[datetime, datetime, int | None], Sequence[tuple[datetime, datetime]]]

CLEAR = 1.3  # times the threshold: a higher score is an event although no row is unlike the history


@dataclass(frozen=True)
class Event:
    """One fault of a sensor, as far as its scores and values can tell. Times are UTC."""

    event_id: str
    sensor: str
    start: datetime  # first row
    end: datetime  # last row, included
    peak: datetime  # its row furthest over the threshold
    score: float  # its score
    severity: float  # 1 = as rare as the alarm budget allows, +1 for every tenfold rarer
    length: int  # rows from start to end
    channels: tuple[str, ...] = ()  # the channels that made it, worst first
    cause: str = ""  # which parts of the score raised it: "shape", "level", "next value"
    model_version: int | None = None  # that scored the peak
    final: bool = True  # nothing that comes later can change it

    @property
    def date(self) -> date:
        """The date that the event is stored under."""
        return self.start.date()

    def explained(self, channels: Iterable[str], cause: str | None = None) -> Event:
        """The same event with the channels that made it, and its cause if it is given."""
        return dataclasses.replace(
            self, channels=tuple(channels), cause=self.cause if cause is None else cause
        )


def event_id(sensor: str, start: datetime, number: int = 0) -> str:
    """Sixteen hexadecimal digits, the same wherever and whenever the event is found.

    `start` is the first row of the stretch, `number` counts the events of a stretch from 0.
    """
    name = f"{sensor}\n{microseconds(start)}" + (f"\n{number}" if number else "")
    return hashlib.sha256(name.encode()).hexdigest()[:16]


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
    edges: Edges | None = None,
) -> list[Event]:
    """The events of one sensor's score rows, in order of time.

    Args:
        ts, score, status: time, score and `Status` of each row, in order of time.
        threshold: of every row, or one for all.
        sensor: goes into each event and its id.
        merge: the longest break inside an event, in rows.
        calibration: gives the severity (0 without). When the rows come from several models it is a function
            from `version` to calibration, called for the row of the peak.
        interval: the time between two rows; taken from `ts` unless given.
        longest: cuts events that last longer (the module says how).
        version: the model version of each row.
        parts: the parts of the score, `{"shape": …, "level": …, "next_value": …}`; they give the cause.

    Raises:
        ValueError: `calibration` is a function and `version` is missing.
    """
    ts = as_times(ts)
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
    provisional = np.flatnonzero(status == Status.PROVISIONAL)
    # the first moment about which something may still change
    open_from = ts[provisional[0]] if provisional.size else ts[-1] + step

    events = []
    for stretch, cut in cut_pieces(ts, np.split(rows, firsts[1:]), cuts_of(longest, breadth)):
        last = ts[stretch[-1]] + breadth
        settled = last if cut is None else min(last, cut - np.timedelta64(1, "us"))
        begin = as_datetime(ts[stretch[0]])
        found = _faults(ts, stretch, version, score, threshold, edges)
        for number, (inside, start, end) in enumerate(found):
            peak = inside[np.argmax(excess[inside])]
            known = calibration
            if callable(known):
                if version is None:
                    raise ValueError(
                        "a calibration by version needs `version`, the model version of each row"
                    )
                known = known(int(version[peak]))
            events.append(
                Event(
                    event_id=event_id(sensor, begin, number),
                    sensor=sensor,
                    start=start,
                    end=end,
                    peak=as_datetime(ts[peak]),
                    score=float(score[peak]),
                    severity=known.severity(float(score[peak]), float(threshold[peak])) if known else 0.0,
                    length=round((end - start) / step.astype("timedelta64[us]").item()) + 1,
                    cause=_cause(parts, peak),
                    model_version=None if version is None else int(version[peak]),
                    final=bool(settled < open_from),
                )
            )
    return events


# -- parts --


def _faults(
    ts: np.ndarray,
    stretch: np.ndarray,
    version: np.ndarray | None,
    score: np.ndarray,
    threshold: np.ndarray,
    edges: Edges | None,
) -> list[tuple[np.ndarray, datetime, datetime]]:
    """The anomalous rows, the first and the last moment of each fault of a stretch of anomalous rows."""
    begin, end = as_datetime(ts[stretch[0]]), as_datetime(ts[stretch[-1]])
    whole = [(stretch, begin, end)]
    if edges is None:
        return whole
    peak = stretch[np.argmax(score[stretch].astype(np.float64) - threshold[stretch])]
    found = edges(begin, end, None if version is None else int(version[peak]))
    if not found and score[peak] <= CLEAR * threshold[peak]:
        return []
    faults = []
    for first, last in found:
        first, last = max(first, begin), min(last, end)
        inside = stretch[(ts[stretch] >= as_datetime64(first)) & (ts[stretch] <= as_datetime64(last))]
        if inside.size:
            faults.append((inside, first, last))
    return faults or whole


def _cause(parts: Mapping[str, np.ndarray] | None, row: int) -> str:
    return cause_of(**{name: float(part[row]) for name, part in parts.items()}) if parts else ""


def _interval(ts: np.ndarray, interval: timedelta | None) -> np.timedelta64:
    if interval is not None:
        return np.timedelta64(interval)
    if ts.size < 2:
        return np.timedelta64(1, "us")
    return np.timedelta64(int(np.median(np.diff(ts).astype(np.int64))), "us")

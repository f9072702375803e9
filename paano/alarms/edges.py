"""The true edges of an event: a second look at the rows in which a score was over its threshold.

A score is spread over a patch: a wild value of one row raises the scores of two patches around it. So the
stretch over the threshold says *that* something happened, and this module says *when*. A row is **normal**
when some window that holds it looks like a window of the kept history, and **faulty** when no window does.
Windows are as they were measured (not standardised), of three lengths, all channels together; "looks like" is
a distance to the nearest kept window of at most what 99 of 100 kept windows have to their own nearest, a
patch or more away. A row is faulty when the windows of one length say so. What short windows have found is
left out of longer ones, so a spike does not make all windows around it odd. As the window that ends just
before a fault is still normal, the edges are exact to the row where a fault begins abruptly.

Faulty rows with at most `gap_of` rows between them are one fault; one that is nowhere clearly beyond what is
normal (SURE) counts only if there is no other. Where a fault begins weakly, windows that hold only its first
rows still look normal: the rows beside it belong to it, too, as far as most of them are beyond what is
expected there (`paano.alarms.expected`, without the fault and what lies within `margin_of` of it).

Only rows within the stretch count, and only a patch around it is read (`reach`), whichever night looks: the
edges do not depend on where a window was cut. With a model without a kept history, or where nothing can be
said of any row, the stretch counts as one fault; a stretch in which no row is faulty has none.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from paano.alarms.expected import Past
from paano.config import PaAnoConfig
from paano.errors import SeriesError
from paano.scoring.kept import Kept
from paano.series import Series, read_series, valid_starts

if TYPE_CHECKING:
    from paano.model import PaAno

PARTS = (2 / 3, 1 / 3, 1 / 12)  # of a patch: the lengths of the windows
SHORTEST = 4  # rows of a window: fewer are never alike enough to say anything
SAMPLES = 200  # kept windows that say how far a normal window is from its nearest
ENOUGH = 20  # fewer say nothing
QUANTILE = 0.99  # of their distances: up to it a window is normal
SURE = 1.25  # times that distance: beyond it a row is not just the odd one in a hundred
MARGIN = 2 / 3  # of a patch: how far beside a fault more of its rows are looked for
BEYOND = 1.75  # half widths of the band of nine of ten normal rows, beyond which a row is not expected
MOST = 0.5  # of the rows from the fault to its edge have to be beyond it
LONGEST = 4  # patches: a longer fault is not filled with what is expected
MOST_CHANNELS = 32  # that are looked at: with more, those that are farthest from their usual values
BLOCK = 4_000_000  # products held at once (16 MB)
FAR = 1e4  # deviations: in the search for the nearest window, farther values count as this far

Span = tuple[int, int]


def reach(config: PaAnoConfig) -> int:
    """Rows before and after a stretch that are looked at."""
    return config.patch


def gap_of(patch: int) -> int:
    """The longest run of normal rows within one fault: a quarter of a patch."""
    return max(1, patch // 4)


def lengths_of(patch: int) -> tuple[int, ...]:
    """The window lengths, the longest first.

    >>> lengths_of(96)
    (64, 32, 8)
    """
    return tuple(sorted({max(SHORTEST, round(patch * part)) for part in PARTS}, reverse=True))


def margin_of(patch: int) -> int:
    """How many rows on either side of a fault may belong to it although some window says they are normal."""
    return round(MARGIN * patch)


def find_edges(model: PaAno, X: np.ndarray, first: int, last: int) -> list[Span]:
    """The faults in rows `first` … `last` of `X`, in which the model's score was over its threshold.

    Args:
        model: the fitted model that gave the scores.
        X: (N,) or (N, C), with `reach` rows before and after the stretch as far as there are any.
        first, last: the first and the last row of the stretch.

    Returns:
        First and last row of each fault, in order of time; none where every row looks like the kept history;
        the stretch itself where nothing can be said.

    Raises:
        SeriesError: the rows are not in `X`, or it has other channels than the model.
    """
    X = np.asarray(X, dtype=np.float64)
    X = X[:, None] if X.ndim == 1 else X
    if not 0 <= first <= last < len(X):
        raise SeriesError(f"rows {first} to {last} are not in a series of {len(X)} rows")
    if X.shape[1] != model.channels:
        raise SeriesError(f"the series has {X.shape[1]} channels, the model was fitted on {model.channels}")
    if model.kept is None:
        return [(first, last)]
    patch = model.config.patch
    cut = max(0, first - reach(model.config))
    series = read_series(X[cut : last + reach(model.config) + 1], model.config.max_gap)
    inside = slice(first - cut, last - cut + 1)
    series, kept = _farthest_channels(series, inside, model.kept)
    oddness = row_oddness(series, kept, patch)
    if not oddness[inside].any():
        return [(first, last)]
    rows = inside.start + np.flatnonzero(oddness[inside] > 1.0)
    spans = join_rows(rows, gap_of(patch))
    spans = [(a, b) for a, b in spans if oddness[a : b + 1].max() > SURE] or spans
    return [(cut + a, cut + b) for a, b in _with_rows_beside(series, inside, spans, Past(kept, patch))]


def row_oddness(series: Series, kept: Kept, patch: int) -> np.ndarray:
    """float64 [N]: above 1 where a row is faulty; 0 where nothing can be said.

    The largest over the window lengths of the smallest distance of the windows that hold the row, in units of
    the largest distance that is normal for that length. Rows that shorter windows found clearly faulty are
    left out of the distance; a window without half of its rows says nothing.
    """
    look = _Look(series, kept)
    oddness = np.zeros(len(series))
    for length in reversed(lengths_of(patch)):
        normal = look.normal_distance(length, patch)
        if normal is not None:
            distances = look.distances(length, oddness <= SURE)
            oddness = np.fmax(oddness, _least_around(distances / normal, length))  # not of NaN
    return oddness


def join_rows(rows: np.ndarray, gap: int) -> list[Span]:
    """First and last of each group of the rising `rows` with at most `gap` others between two neighbours.

    >>> join_rows(np.array([3, 4, 6, 20]), gap=1)
    [(3, 6), (20, 20)]
    """
    if not rows.size:
        return []
    ends = np.flatnonzero(np.diff(rows) > gap + 1)
    firsts, lasts = rows[np.r_[0, ends + 1]], rows[np.r_[ends, rows.size - 1]]
    return [(int(a), int(b)) for a, b in zip(firsts, lasts, strict=True)]


def _farthest_channels(series: Series, inside: slice, kept: Kept) -> tuple[Series, Kept]:
    """Of many channels those that are farthest from their usual values in the rows `inside`."""
    if series.channels <= MOST_CHANNELS:
        return series, kept
    centre, unit = _usual(kept)
    far = np.abs(np.where(series.usable[:, None], (series.values - centre) / unit, 0.0)[inside]).max(axis=0)
    chosen = np.sort(np.argsort(-far, kind="stable")[:MOST_CHANNELS])
    return (
        dataclasses.replace(series, values=series.values[:, chosen]),
        Kept(kept.codes[:, chosen], kept.low[chosen], kept.step[chosen]),
    )


def _usual(kept: Kept) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation [C] of the kept rows."""
    known = kept.values[kept.usable] if kept.usable.any() else np.zeros((1, kept.codes.shape[1]))
    centre = known.mean(axis=0)
    # a channel that never moved is measured in steps of its rounding
    return centre, np.maximum(known.std(axis=0), 1e-6 * np.maximum(np.abs(centre), 1e-100))


def _with_rows_beside(series: Series, inside: slice, spans: list[Span], past: Past) -> list[Span]:
    """The faults with the rows beside them of which most are beyond what is expected there.

    Those of the channel in which the fault itself is most often beyond it. Faults that meet become one.
    """
    usable = series.usable.copy()
    for a, b in spans:
        usable[a : b + 1] = False
    normal = dataclasses.replace(series, usable=usable)
    margin = margin_of(past.patch)
    wider: list[Span] = []
    for a, b in spans:
        if b - a < LONGEST * past.patch:
            begin, end = max(inside.start, a - margin), min(inside.stop, b + margin + 1)
            there = past.fill(normal, begin, end - 1)
            far = np.abs(series.values[begin:end] - there.mid) > BEYOND * (there.high - there.low) / 2
            far &= series.usable[begin:end, None]
            beyond = far[:, far[a - begin : b - begin + 1].sum(axis=0).argmax()]
            a, b = a - _rows_of(beyond[: a - begin][::-1]), b + _rows_of(beyond[b - begin + 1 :])
        if wider and a <= wider[-1][1] + 1:
            a, b = wider[-1][0], max(b, wider.pop()[1])
        wider.append((a, b))
    return wider


def _rows_of(beyond: np.ndarray) -> int:
    """How many of these rows belong to the fault before them: up to the last of which MOST are `beyond`."""
    share = np.cumsum(beyond) / np.arange(1, beyond.size + 1)
    far = np.flatnonzero(beyond & (share >= MOST))
    return int(far[-1]) + 1 if far.size else 0


class _Look:
    """A series and the kept history in the same units: the deviation of each channel in the latter."""

    def __init__(self, series: Series, kept: Kept) -> None:
        self.usable, self.kept_usable = series.usable, kept.usable
        centre, unit = _usual(kept)
        self.x = np.where(series.usable[:, None], (series.values - centre) / unit, 0.0)
        self.past = np.where(kept.usable[:, None], (kept.values - centre) / unit, 0.0)

    def normal_distance(self, length: int, exclude: int) -> float | None:
        """The distance to the nearest that is normal for a window of the kept history; None: too few."""
        starts = valid_starts(self.kept_usable, length)
        if not starts.size:
            return None
        some = starts[np.unique(np.linspace(0, starts.size - 1, SAMPLES).astype(np.int64))]
        near = np.abs(starts[None] - some[:, None]) <= exclude
        found = _nearest(self.past, some, length, None, self.past, starts, near)
        found = found[np.isfinite(found)]
        if found.size < ENOUGH:
            return None
        return max(float(np.quantile(found, QUANTILE)), 1e-9)

    def distances(self, length: int, counted: np.ndarray) -> np.ndarray:
        """float64 [N − length + 1]: of each window to the nearest kept one, over the rows that are `counted`.

        NaN where a row is missing or fewer than half are counted.
        """
        out = np.full(max(len(self.x) - length + 1, 0), np.nan)
        starts, past_starts = valid_starts(self.usable, length), valid_starts(self.kept_usable, length)
        rows = counted[starts[:, None] + np.arange(length)]  # [n, length]
        whole, enough = rows.all(axis=1), 2 * rows.sum(axis=1) >= length
        for some, their_rows in ((starts[whole], None), (starts[enough & ~whole], rows[enough & ~whole])):
            out[some] = _nearest(self.x, some, length, their_rows, self.past, past_starts)
        return out


def _windows(x: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """[n, length, C]: the windows of `x` [N, C] at `starts`."""
    windows: np.ndarray = x[starts[:, None] + np.arange(length)]
    return windows


def _nearest(
    x: np.ndarray,
    starts: np.ndarray,
    length: int,
    counted: np.ndarray | None,
    past: np.ndarray,
    past_starts: np.ndarray,
    excluded: np.ndarray | None = None,
) -> np.ndarray:
    """float64 [n]: root mean square difference of each window of `x` at `starts` to the nearest of `past`.

    Only rows that are `counted` [n, length] count, all if None. `excluded` [n, k] are pairs that do not
    count; where nothing is left the result is infinite.
    """
    weight = np.ones((starts.size, length)) if counted is None else counted.astype(float)
    out = np.empty(starts.size)
    rows = max(1, BLOCK // max(1, past_starts.size))
    for i in range(0, starts.size, rows):
        some, counts = _windows(x, starts[i : i + rows], length), weight[i : i + rows]
        alike = np.zeros((len(some), past_starts.size), np.float32)
        for c in range(past.shape[1]):  # one channel at a time: memory does not grow with them
            theirs = _windows(past[:, c].astype(np.float32), past_starts, length)  # [k, length]
            ours = np.clip(some[..., c] * counts, -FAR, FAR).astype(np.float32)
            # |a − b|² is smallest where a·b − |b|²/2 is largest
            alike += ours @ theirs.T
            if counted is None:
                alike -= np.square(theirs).sum(axis=1) / 2
            else:
                alike -= counts.astype(np.float32) @ np.square(theirs).T / 2
        if excluded is not None:
            alike[excluded[i : i + rows]] = -np.inf
        best = alike.argmax(axis=1)
        # from the differences themselves, in which nothing cancels
        apart = np.square(some - _windows(past, past_starts[best], length)).mean(axis=2)  # [m, length]
        there = np.isfinite(alike[np.arange(len(some)), best])
        out[i : i + rows] = np.where(there, np.sqrt(np.average(apart, axis=1, weights=counts)), np.inf)
    return out


def _least_around(distances: np.ndarray, length: int) -> np.ndarray:
    """float64 [N]: at each row the smallest of the `distances` [N − length + 1] of the windows that hold it.

    NaN where no window does.
    """
    pad = partial(np.full, length - 1, np.inf)
    padded = np.concatenate([pad(), np.where(np.isnan(distances), np.inf, distances), pad()])
    least = sliding_window_view(padded, length).min(axis=1)
    return np.where(np.isinf(least), np.nan, least)

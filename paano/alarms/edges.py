"""The true edges of an event: a second look at the rows in which a score was over its threshold.

A score is spread over a patch: a wild value of one row raises the scores of two patches around it. So the
stretch over the threshold says *that* something happened, and this module says *when*. A row is **normal**
when some window that holds it looks like a window of the kept history, and **faulty** when no window does.
Windows are as they were measured (not standardised), of three lengths, all channels together; "looks like" is
a distance to the nearest kept window of at most what 99 of 100 kept windows have to their own nearest, a
patch or more away. A row is faulty when the windows of one length say so. As the window that ends just before
a fault is still normal, the edges are exact to the row where a fault begins abruptly.

Faulty rows with at most `gap_of` rows between them are one fault; one that is nowhere clearly beyond what is
normal (SURE) counts only if there is no other. Only rows within the stretch count, and
only a patch around it is read (`reach`), whichever night looks: the edges do not depend on where a window was
cut. A model without a kept history, or a stretch in which no row is faulty by itself, keeps its edges.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

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
MOST_CHANNELS = 32  # that are looked at: with more, those that are farthest from their usual values
BLOCK = 4_000_000  # distances held at once (32 MB)

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


def find_edges(model: PaAno, X: np.ndarray, first: int, last: int) -> list[Span]:
    """The faults in rows `first` … `last` of `X`, in which the model's score was over its threshold.

    Args:
        model: the fitted model that gave the scores.
        X: (N,) or (N, C), with `reach` rows before and after the stretch as far as there are any.
        first, last: the first and the last row of the stretch.

    Returns:
        First and last row of each fault, in order of time; the stretch itself where nothing better is known.

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
    cut = max(0, first - reach(model.config))
    series = read_series(X[cut : last + reach(model.config) + 1], model.config.max_gap)
    inside = slice(first - cut, last - cut + 1)
    oddness = row_oddness(series, inside, model.kept, model.config.patch)[inside]
    spans = join_rows(np.flatnonzero(oddness > 1.0), gap_of(model.config.patch))
    sure = [(a, b) for a, b in spans if oddness[a : b + 1].max() > SURE]
    return [(first + a, first + b) for a, b in sure or spans] or [(first, last)]


def row_oddness(series: Series, inside: slice, kept: Kept, patch: int) -> np.ndarray:
    """float64 [N]: above 1 where a row is faulty; 0 where nothing can be said.

    The largest over the window lengths of the smallest distance of the windows that hold the row, in units of
    the largest distance that is normal for that length.
    """
    look = _Look(series, inside, kept)
    oddness = np.zeros(len(series))
    for length in lengths_of(patch):
        normal = look.normal_distance(length, patch)
        if normal is not None:
            oddness = np.fmax(oddness, _least_around(look.distances(length) / normal, length))  # not of NaN
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


class _Look:
    """A series and the kept history in the same units: the deviation of each channel in the latter."""

    def __init__(self, series: Series, inside: slice, kept: Kept) -> None:
        self.usable, self.kept_usable = series.usable, kept.usable
        known = kept.values[kept.usable]
        centre = known.mean(axis=0) if len(known) else np.zeros(series.channels)
        deviation = known.std(axis=0) if len(known) else np.ones(series.channels)
        # a channel that never moved is measured in steps of its rounding
        unit = np.maximum(deviation, 1e-6 * np.maximum(np.abs(centre), 1e-100))
        self.x = np.where(series.usable[:, None], (series.values - centre) / unit, 0.0)
        self.past = np.where(kept.usable[:, None], (kept.values - centre) / unit, 0.0)
        if series.channels > MOST_CHANNELS:
            far = np.abs(self.x[inside]).max(axis=0)
            chosen = np.sort(np.argsort(-far, kind="stable")[:MOST_CHANNELS])
            self.x, self.past = self.x[:, chosen], self.past[:, chosen]

    def normal_distance(self, length: int, exclude: int) -> float | None:
        """The distance to the nearest that is normal for a window of the kept history; None: too few."""
        starts = valid_starts(self.kept_usable, length)
        if not starts.size:
            return None
        some = starts[np.unique(np.linspace(0, starts.size - 1, SAMPLES).astype(np.int64))]
        near = np.abs(starts[None] - some[:, None]) <= exclude
        found = _nearest(self.past, some, self.past, starts, length, near)
        found = found[np.isfinite(found)]
        if found.size < ENOUGH:
            return None
        return max(float(np.quantile(found, QUANTILE)), 1e-9)

    def distances(self, length: int) -> np.ndarray:
        """float64 [N − length + 1]: of each window to the nearest kept one; NaN where a row is missing."""
        out = np.full(max(len(self.x) - length + 1, 0), np.nan)
        starts, past_starts = valid_starts(self.usable, length), valid_starts(self.kept_usable, length)
        out[starts] = _nearest(self.x, starts, self.past, past_starts, length)
        return out


def _nearest(
    x: np.ndarray,
    starts: np.ndarray,
    past: np.ndarray,
    past_starts: np.ndarray,
    length: int,
    excluded: np.ndarray | None = None,
) -> np.ndarray:
    """float64 [n]: root mean square difference of each window of `x` at `starts` to the nearest of `past`.

    `excluded` [n, k] are pairs that do not count; where nothing is left the result is infinite.
    """
    out = np.empty(starts.size)
    steps = np.arange(length)
    rows = max(1, BLOCK // max(1, past_starts.size))
    for i in range(0, starts.size, rows):
        some = starts[i : i + rows]
        alike = np.zeros((some.size, past_starts.size))
        for c in range(x.shape[1]):  # one channel at a time: memory does not grow with them
            theirs = past[past_starts[:, None] + steps, c]  # [k, length]
            # |a − b|² is smallest where a·b − |b|²/2 is largest
            alike += x[some[:, None] + steps, c] @ theirs.T - np.square(theirs).sum(axis=1) / 2
        if excluded is not None:
            alike[excluded[i : i + rows]] = -np.inf
        best = alike.argmax(axis=1)
        # from the differences themselves, in which nothing cancels
        apart = x[some[:, None] + steps] - past[past_starts[best][:, None] + steps]  # [m, length, C]
        there = np.isfinite(alike[np.arange(some.size), best])
        out[i : i + rows] = np.where(there, np.sqrt(np.square(apart).mean(axis=(1, 2))), np.inf)
    return out


def _least_around(distances: np.ndarray, length: int) -> np.ndarray:
    """float64 [N]: at each row the smallest of the `distances` [N − length + 1] of the windows that hold it.

    NaN where no window does.
    """
    pad = partial(np.full, length - 1, np.inf)
    padded = np.concatenate([pad(), np.where(np.isnan(distances), np.inf, distances), pad()])
    least = sliding_window_view(padded, length).min(axis=1)
    return np.where(np.isinf(least), np.nan, least)

"""Fit a calibration to training scores.

Above a high level `base` the peaks of the events are taken to follow a generalised Pareto distribution (peaks
over threshold; shape and scale by probability-weighted moments, Hosking & Wallis 1987: closed form, so the
same scores always give the same numbers). Two departures, both towards caution:

- the shape is shrunk towards 0 (an exponential tail) by the weight of `SHAPE_PRIOR` peaks and then clipped,
  since a short history says little about it;
- 1/n is added to the shape for n peaks: the predictive tail of an exponential whose scale is known from n
  peaks only. Without it a short history would give several times the alarms of its budget.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from paano.alarms.calibrate import Calibration
from paano.alarms.quantiles import GRID_ARRAY

ENOUGH_SCORES = 20  # fewer scores have no tail worth fitting
PEAKS = 50  # of events, that the tail is fitted to when the history has plenty
COUNTED = 10  # events down to which their number itself is used; beyond, the fitted tail
SHAPE_PRIOR = 10
SHAPE_RANGE = (-0.3, 0.4)
LEVELS = 64  # of the empirical rate curve
MEMORY_ROWS = 1 << 17  # enough to see over how many rows scores are correlated


def fit_calibration(scores: np.ndarray, *, patch: int = 96, merge: int | None = None) -> Calibration:
    """The calibration of training `scores` (one per row in order of time, NaN where there is none).

    `merge` is the longest break inside an event, in rows; half a patch unless given.
    """
    merge = default_merge(patch) if merge is None else int(merge)
    scores = np.asarray(scores, dtype=np.float64).reshape(-1)
    rows = np.flatnonzero(np.isfinite(scores))
    values = scores[rows]
    if not values.size:
        return Calibration(0, merge, 1.0, (), 0.0, 1.0, 0, 0.0, 1.0, (), ())
    quantiles = tuple(np.quantile(values, GRID_ARRAY).tolist())
    common: dict[str, Any] = {
        "scores": int(values.size),
        "merge": merge,
        "memory": _memory(scores, patch),
        "quantiles": quantiles,
    }

    levels, counts = _event_counts(rows, values, merge)
    if values.size < ENOUGH_SCORES or counts[0] < 2:
        # No tail to fit. One event is taken to have been seen at the top of the data, and the tail falls off
        # with the distance of the top from the middle, as an exponential sample of this size would show it.
        top, middle = float(values.max()), float(np.median(values))
        scale = (top - middle) / math.log(values.size + 2.0)
        if values.size < ENOUGH_SCORES:
            scale = max(scale, abs(top) / values.size)  # a handful of equal scores proves nothing
        scale = max(scale, _smallest_scale(values))
        one = 1.0 / values.size
        return Calibration(
            **common, base=top, over=one, peaks=1, shape=0.0, scale=scale, levels=(top,), rates=(one,)
        )

    enough = min(PEAKS, max(2, counts[0] // 2))
    start = int(np.flatnonzero(counts >= enough)[-1])  # the highest level with that many events
    base = float(levels[start])
    counted = int(np.flatnonzero(counts >= min(COUNTED, enough))[-1]) + 1
    excess = _peaks(rows, values, base, merge) - base
    shape, scale = _fit_pareto(excess)
    return Calibration(
        **common,
        base=base,
        over=float(np.mean(values > base)),
        peaks=int(excess.size),
        shape=shape,
        scale=max(scale, _smallest_scale(values)),
        levels=tuple(levels[:counted].tolist()),
        rates=tuple((counts[:counted] / values.size).tolist()),
    )


def default_merge(patch: int) -> int:
    """The longest break inside an event, in rows: half a patch.

    A fault of one point already raises the scores of a patch's length on either side, so two alarms closer
    than this are one.
    """
    return max(1, patch // 2)


def _smallest_scale(values: np.ndarray) -> float:
    """Below this a difference of scores is rounding."""
    return 1e-7 + 1e-3 * float(np.max(np.abs(values)))


def _event_counts(rows: np.ndarray, values: np.ndarray, merge: int) -> tuple[np.ndarray, np.ndarray]:
    """Rising levels and the number of events above each, never rising with the level.

    Low down events run together and their number falls again: the levels start where it is largest.
    """
    ordered = np.sort(values)[::-1]
    ranks = np.unique(np.geomspace(1, max(1, values.size // 2), LEVELS).astype(int))
    ranks = ranks[ranks < values.size]
    levels = np.unique(ordered[ranks])
    levels = levels[levels < ordered[0]]
    if not levels.size:
        return np.array([ordered[0]]), np.array([1])
    counts = np.empty(levels.size, dtype=np.int64)
    for i, level in enumerate(levels):  # rising, so ever fewer rows are left
        over = values > level
        rows, values = rows[over], values[over]
        counts[i] = _runs(rows, merge).size
    counts = np.maximum.accumulate(counts[::-1])[::-1]  # from the top down it can only grow
    lowest = int(np.flatnonzero(counts == counts[0])[-1])
    return levels[lowest:], counts[lowest:]


def _runs(rows: np.ndarray, merge: int) -> np.ndarray:
    """Where in the rising `rows` each event begins."""
    return np.flatnonzero(np.diff(rows, prepend=-(merge + 2)) > merge + 1)


def _peaks(rows: np.ndarray, values: np.ndarray, base: float, merge: int) -> np.ndarray:
    """The largest score of each event above `base`."""
    over = values > base
    return np.maximum.reduceat(values[over], _runs(rows[over], merge))


def _fit_pareto(excess: np.ndarray) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution, by probability-weighted moments."""
    excess = np.sort(excess)
    n = excess.size
    b0 = float(excess.mean())
    b1 = float(np.mean((1.0 - (np.arange(1, n + 1) - 0.35) / n) * excess))
    shape = 2.0 - b0 / (b0 - 2.0 * b1) if b0 > 2.0 * b1 else SHAPE_RANGE[1]
    shape = float(np.clip(shape * n / (n + SHAPE_PRIOR), *SHAPE_RANGE))
    return shape + 1.0 / n, b0 * (1.0 - shape)  # the scale keeps the mean of the peaks


def _memory(scores: np.ndarray, patch: int) -> float:
    """Integrated autocorrelation time of the ranks: how many scores are worth one independent one."""
    scores = scores[-MEMORY_ROWS:]
    present = np.isfinite(scores)
    n = int(present.sum())
    ranks = np.zeros(scores.size)
    ranks[present] = np.searchsorted(np.sort(scores[present]), scores[present], side="right")
    ranks[present] -= ranks[present].mean()
    variance = float(np.mean(ranks[present] ** 2))
    if n < 3 or variance == 0.0:
        return float(max(min(n, patch), 1))  # patches that overlap are not independent
    products, pairs = _products_by_lag(ranks), _products_by_lag(present.astype(np.float64))
    correlation = products / np.maximum(pairs, 1.0) / variance
    lags = correlation[1 : max(2, n // 3)]
    negative = np.flatnonzero(lags <= 0.0)  # beyond the first crossing it is noise
    lags = lags[: negative[0]] if negative.size else lags
    return float(np.clip(1.0 + 2.0 * lags.sum(), 1.0, n))


def _products_by_lag(x: np.ndarray) -> np.ndarray:
    """Σ x[t] x[t + lag] for each lag."""
    from scipy import fft  # scoring needs none of it

    size = fft.next_fast_len(2 * x.size - 1, real=True)
    products: np.ndarray = fft.irfft(np.abs(fft.rfft(x, size)) ** 2, size)
    return products[: x.size]

"""From training scores to a decision: how rare is a score, and which threshold keeps an alarm budget.

A calibration is fitted on the scores a model gives to its own training series with an exclusion zone (a patch
never matches itself; rows without a score are NaN). It holds three curves, all monotone:

    quantiles   the distribution of a single point's score, on a fixed grid (for drift tests)
    tail        −log10 of the probability that a point scores higher
    rate        how many *events* per row exceed a level; an event is a run of points over the level,
                merged over breaks of up to `merge` rows, exactly as `paano.events` merges them

Inside the data the curves are empirical. Above a high level `base` the peaks of the events are taken to
follow a generalised Pareto distribution (peaks over threshold; shape and scale by probability-weighted
moments, Hosking & Wallis 1987: closed form, so the same scores always give the same numbers). Three
departures, all towards caution:

- the shape is shrunk towards 0 (an exponential tail) by the weight of `SHAPE_PRIOR` peaks and then clipped,
  since a short history says little about it;
- 1/n is added to the shape for n peaks: the predictive tail of an exponential whose scale is known from n
  peaks only. Without it a short history would give several times the alarms of its budget;
- a tail of negative shape ends at a finite score. Past the level that the history would reach once in
  `TRUSTED` times its length the hazard is held constant instead, so a higher score is always rarer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import fft
from scipy.special import kolmogorov

from paano.errors import ArtifactError, ConfigError

DAYS_OF_BUDGET = 30
SEVERITY_CAP = 12.0  # a millionth of a millionth: beyond it the figure means nothing

ENOUGH_SCORES = 20  # fewer scores have no tail worth fitting
PEAKS = 50  # of events, that the tail is fitted to when the history has plenty
COUNTED = 10  # events down to which their number itself is trusted, and not only the fitted tail
SHAPE_PRIOR = 10
SHAPE_RANGE = (-0.3, 0.4)
TRUSTED = 10.0
LEVELS = 64  # of the empirical rate curve
MEMORY_ROWS = 1 << 17  # enough to see how long scores remember
LN10 = math.log(10.0)

# Probabilities at which `quantiles` are kept: even in the middle, finer and finer towards the top.
GRID = tuple(
    [i / 100 for i in range(100)]
    + [0.9925, 0.995, 0.9975, 0.999, 0.9995, 0.99975, 0.9999, 0.99995, 0.99999]
    + [1.0]
)
_GRID = np.array(GRID)


@dataclass(frozen=True)
class Drift:
    """How far recent scores are from the training scores."""

    statistic: float  # Kolmogorov–Smirnov: the largest difference of the two distribution functions
    p: float  # its probability if nothing changed, for the *effective* number of scores
    psi: float  # population stability index over ten bins; above 0.25 is commonly read as a shift
    effective: float  # independent scores that the recent ones are worth
    scores: int  # recent scores that were used
    direction: float  # training rank of the recent median minus one half: above 0 means higher scores


@dataclass(frozen=True)
class Calibration:
    """What training scores say about new ones. JSON-able, and usable (if vague) with few scores or none."""

    scores: int  # finite training scores
    merge: int  # rows of a break that still belongs to an event
    memory: float  # rows over which scores are correlated (integrated autocorrelation time)
    quantiles: tuple[float, ...]  # at GRID; empty without scores
    base: float  # level above which the tail is a generalised Pareto distribution
    over: float  # share of points above base
    peaks: int  # events above base that the tail was fitted to
    shape: float
    scale: float
    levels: tuple[float, ...]  # rising levels, as far as they had a good number of events …
    rates: tuple[float, ...]  # … and the events per row above each, falling

    # -- the three questions --

    def threshold(self, budget: float, interval_seconds: float) -> float:
        """The score above which about `budget` events per 30 days are to be expected from normal data.

        Infinite (never an alarm) for a budget of 0 or without any training score.
        """
        if not (math.isfinite(budget) and budget >= 0):
            raise ConfigError(f"alarm budget {budget!r} is not a number of events per 30 days, 0 or more")
        if not (math.isfinite(interval_seconds) and interval_seconds > 0):
            raise ConfigError(f"interval {interval_seconds!r} is not a positive number of seconds")
        if budget == 0 or not self.scores:
            return math.inf
        wanted = math.log(budget * interval_seconds / (DAYS_OF_BUDGET * 86_400))  # events per row
        log_rates = np.log(self.rates)
        if wanted < log_rates[-1]:
            return self.base + self._excess(self._top_hazard() + log_rates[-1] - wanted)
        # rates fall with the level; where they do not, the higher level is taken
        return float(np.interp(-wanted, -log_rates, self.levels))

    def tail(self, score: np.ndarray | float) -> np.ndarray:
        """−log10 of the probability that a point of normal data scores as high.

        0 at the smallest training score, 1 for one point in ten, strictly rising beyond the largest score.
        NaN stays NaN.
        """
        score = np.asarray(score, dtype=np.float64)
        if not self.scores:
            return np.full(score.shape, np.nan)
        quantiles = np.array(self.quantiles)
        # of equal quantiles the first counts: a score that half the data have is not rare
        levels, first = np.unique(quantiles[quantiles <= self.base], return_index=True)
        top = abs(math.log10(self.over))
        rarity = np.minimum(np.abs(np.log10(1.0 - np.minimum(_GRID[first], 1.0 - self.over))), top)
        if levels[-1] < self.base:
            levels, rarity = np.append(levels, self.base), np.append(rarity, top)
        inside = np.interp(score, levels, rarity)
        beyond = top + self._hazard(np.maximum(score - self.base, 0.0)) / LN10
        return np.where(np.isnan(score), np.nan, np.where(score > self.base, beyond, inside))

    def severity(self, peak: float, threshold: float) -> float:
        """1 for a peak exactly at `threshold`, and one more for every tenfold rarer event; 0 to 12.

        Rarity is counted in events of this sensor's own normal data, so figures compare between sensors.
        """
        if not self.scores or math.isnan(peak) or not math.isfinite(threshold):
            return 0.0
        if peak == math.inf:
            return SEVERITY_CAP
        tenfold = (self._log_rate(threshold) - self._log_rate(peak)) / LN10
        return float(np.clip(1.0 + tenfold, 0.0, SEVERITY_CAP))

    def drift(self, scores: np.ndarray) -> Drift:
        """Whether recent `scores` are distributed as the training scores were.

        A two-sample Kolmogorov–Smirnov test against the stored quantiles. Neighbouring scores share patches,
        so both samples count only one score per `memory` rows.
        """
        recent = np.sort(_finite(scores))
        if not self.scores or not recent.size:
            return Drift(math.nan, 1.0, math.nan, 0.0, int(recent.size), 0.0)
        levels, below, upto = self._distribution()
        found_below = np.searchsorted(recent, levels, side="left") / recent.size
        found_upto = np.searchsorted(recent, levels, side="right") / recent.size
        statistic = float(max(np.abs(found_below - below).max(), np.abs(found_upto - upto).max()))
        effective = recent.size / self.memory
        size = math.sqrt(effective * self.scores / (effective * self.memory + self.scores))
        p = float(kolmogorov((size + 0.12 + 0.11 / size) * statistic))
        middle = float(np.median(recent))
        rank = (np.interp(middle, levels, below) + np.interp(middle, levels, upto)) / 2
        return Drift(statistic, p, self._psi(recent), effective, int(recent.size), float(rank) - 0.5)

    # -- JSON --

    def to_dict(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Calibration:
        """The calibration written by `to_dict`; anything else is refused."""
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(stored, Mapping) or set(stored) != names:
            raise ArtifactError(f"a calibration has exactly the entries {', '.join(sorted(names))}")
        curves = {name: _curve(name, stored[name]) for name in ("quantiles", "levels", "rates")}
        counts = {name: _number(name, stored[name], whole=True) for name in ("scores", "merge", "peaks")}
        numbers = {name: _number(name, stored[name]) for name in names - set(curves) - set(counts)}
        calibration = cls(**curves, **counts, **numbers)
        _check(calibration)
        return calibration

    # -- the tail --

    def _hazard(self, excess: np.ndarray) -> np.ndarray:
        """−ln of the probability that the peak of an event over base is more than `excess` above it."""
        if self.shape >= 0:
            return _pareto_hazard(excess, self.shape, self.scale)
        trusted = self._trusted()
        end = (-math.expm1(self.shape * trusted)) * self.scale / -self.shape
        slope = 1.0 / (self.scale + self.shape * end)
        inside = _pareto_hazard(np.minimum(excess, end), self.shape, self.scale)
        return np.where(excess > end, trusted + (excess - end) * slope, inside)

    def _excess(self, hazard: float) -> float:
        """The inverse of `_hazard`."""
        if abs(self.shape) < 1e-9:
            return hazard * self.scale
        if self.shape > 0:
            return math.expm1(self.shape * hazard) * self.scale / self.shape
        trusted = self._trusted()
        end = math.expm1(self.shape * min(hazard, trusted)) * self.scale / self.shape
        return end + max(hazard - trusted, 0.0) * (self.scale + self.shape * end)

    def _trusted(self) -> float:
        return math.log(TRUSTED * max(self.peaks, 1))

    def _top_hazard(self) -> float:
        """Where the rates stop being counted and follow the fitted tail instead."""
        return float(self._hazard(np.float64(self.levels[-1] - self.base)))

    def _log_rate(self, level: float) -> float:
        """ln of the events per row above `level`."""
        if level > self.levels[-1]:
            beyond = float(self._hazard(np.float64(level - self.base))) - self._top_hazard()
            return math.log(self.rates[-1]) - beyond
        return float(np.interp(level, self.levels, np.log(self.rates)))

    def _distribution(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The distinct quantiles, and the share of training scores below and up to each."""
        levels, first, ties = np.unique(self.quantiles, return_index=True, return_counts=True)
        return levels, _GRID[first], _GRID[first + ties - 1]

    def _psi(self, recent: np.ndarray) -> float:
        levels, _, upto = self._distribution()
        edges = np.unique(np.interp(np.arange(1, 10) / 10, _GRID, self.quantiles))
        expected = np.diff(np.concatenate([[0.0], np.interp(edges, levels, upto), [1.0]]))
        found = np.diff(np.concatenate([[0], np.searchsorted(recent, edges, side="right"), [recent.size]]))
        # an empty bin counts as half a score, or it would decide alone
        floor = 0.5 / max(recent.size / self.memory, 1.0)
        expected, found = np.maximum(expected, floor), np.maximum(found / recent.size, floor)
        return float(np.sum((found - expected) * np.log(found / expected)))


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
    quantiles = tuple(np.quantile(values, _GRID).tolist())
    common = {
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


# -- parts of the fit --


def _finite(scores: np.ndarray) -> np.ndarray:
    scores = np.asarray(scores, dtype=np.float64).reshape(-1)
    return scores[np.isfinite(scores)]


def _smallest_scale(values: np.ndarray) -> float:
    """Below this a difference of scores is rounding, not news."""
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


def _pareto_hazard(excess: np.ndarray, shape: float, scale: float) -> np.ndarray:
    if abs(shape) < 1e-9:
        return excess / scale
    return np.log1p(shape * excess / scale) / shape


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
    size = fft.next_fast_len(2 * x.size - 1, real=True)
    return fft.irfft(np.abs(fft.rfft(x, size)) ** 2, size)[: x.size]


# -- reading it back --


def _number(name: str, value: Any, *, whole: bool = False) -> Any:
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not abs(value) < 1e300:
        raise ArtifactError(f"calibration.{name} = {value!r} is not a finite number")
    return value if whole else float(value)


def _curve(name: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, list | tuple) or len(values) > 4 * len(GRID):
        raise ArtifactError(f"calibration.{name} is not a short list of numbers")
    return tuple(_number(name, value) for value in values)


def _check(c: Calibration) -> None:
    rising = all(
        a <= b for curve in (c.quantiles, c.levels, c.rates[::-1]) for a, b in itertools.pairwise(curve)
    )
    fits = len(c.levels) == len(c.rates) and (
        (len(c.quantiles) == len(GRID) and c.levels and c.levels[-1] >= c.base and c.rates[-1] > 0)
        if c.scores
        else not (c.quantiles or c.levels)
    )
    in_range = (
        min(c.scores, c.merge, c.peaks) >= 0
        and c.memory >= 1
        and c.scale > 0
        and 0 < c.over <= 1
        and abs(c.shape) <= 1
    )
    if not (rising and fits and in_range):
        raise ArtifactError("the calibration's curves do not fit together; the model must be fitted again")

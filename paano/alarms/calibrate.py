"""From training scores to a decision: how rare is a score, and which threshold keeps an alarm budget.

A calibration is fitted on the scores a model gives to its own training series with an exclusion zone (a patch
never matches itself; rows without a score are NaN). It holds three curves, all monotone:

    quantiles   the distribution of a single point's score, on a fixed grid (for drift tests)
    tail        −log10 of the probability that a point scores higher
    rate        how many *events* per row exceed a level; an event is a run of points over the level,
                merged over breaks of up to `merge` rows, exactly as `paano.alarms.events` merges them

Inside the data the curves are empirical, above a high level `base` they follow a generalised Pareto
distribution (`paano.alarms.fit_calibration`). Where its shape is negative it would end at a finite score:
past the level that the history would reach once in `EXTRAPOLATED` times its length the hazard is held
constant instead, so a higher score is always rarer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from paano.alarms.drift import Drift, measure_drift
from paano.alarms.quantiles import GRID, GRID_ARRAY
from paano.errors import ArtifactError, ConfigError

DAYS_OF_BUDGET = 30
SEVERITY_CAP = 12.0  # a millionth of a millionth: beyond it the figure means nothing

EXTRAPOLATED = 10.0
LN10 = math.log(10.0)


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

        Args:
            budget: events per 30 days that are accepted, 0 or more.
            interval_seconds: the time between two rows.

        Returns:
            A score; infinite (never an alarm) for a budget of 0 or without any training score.

        Raises:
            ConfigError: the budget is below 0 or the interval is not above 0.
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
        rarity = np.minimum(np.abs(np.log10(1.0 - np.minimum(GRID_ARRAY[first], 1.0 - self.over))), top)
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
        return measure_drift(scores, self.quantiles, self.scores, self.memory)

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
        entries: dict[str, Any] = {**curves, **counts, **numbers}
        calibration = cls(**entries)
        _check(calibration)
        return calibration

    # -- the tail --

    def _hazard(self, excess: np.ndarray | float) -> np.ndarray:
        """−ln of the probability that the peak of an event over base is more than `excess` above it."""
        if self.shape >= 0:
            return _pareto_hazard(excess, self.shape, self.scale)
        last = self._last_hazard()
        end = (-math.expm1(self.shape * last)) * self.scale / -self.shape
        slope = 1.0 / (self.scale + self.shape * end)
        inside = _pareto_hazard(np.minimum(excess, end), self.shape, self.scale)
        return np.where(excess > end, last + (excess - end) * slope, inside)

    def _excess(self, hazard: float) -> float:
        """The inverse of `_hazard`."""
        if abs(self.shape) < 1e-9:
            return hazard * self.scale
        if self.shape > 0:
            return math.expm1(self.shape * hazard) * self.scale / self.shape
        last = self._last_hazard()
        end = math.expm1(self.shape * min(hazard, last)) * self.scale / self.shape
        return end + max(hazard - last, 0.0) * (self.scale + self.shape * end)

    def _last_hazard(self) -> float:
        return math.log(EXTRAPOLATED * max(self.peaks, 1))

    def _top_hazard(self) -> float:
        """Where the rates stop being counted and follow the fitted tail instead."""
        return float(self._hazard(self.levels[-1] - self.base))

    def _log_rate(self, level: float) -> float:
        """ln of the events per row above `level`."""
        if level > self.levels[-1]:
            beyond = float(self._hazard(level - self.base)) - self._top_hazard()
            return math.log(self.rates[-1]) - beyond
        return float(np.interp(level, self.levels, np.log(self.rates)))


def _pareto_hazard(excess: np.ndarray | float, shape: float, scale: float) -> np.ndarray:
    excess = np.asarray(excess, dtype=np.float64)
    hazard: np.ndarray = excess / scale if abs(shape) < 1e-9 else np.log1p(shape * excess / scale) / shape
    return hazard


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

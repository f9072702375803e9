"""Drift: are recent scores distributed as the training scores were?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paano.alarms.quantiles import GRID_ARRAY

DECIMALS = 6  # of a score: those of a channel that never moves differ by less, and only by rounding


@dataclass(frozen=True)
class Drift:
    """How far recent scores are from the training scores."""

    statistic: float  # Kolmogorov–Smirnov: the largest difference of the two distribution functions
    p: float  # its probability if nothing changed, for the *effective* number of scores
    psi: float  # population stability index over ten bins; above 0.25 is commonly read as a shift
    effective: float  # independent scores that the recent ones are worth
    scores: int  # recent scores that were used
    direction: float  # training rank of the recent median minus one half: above 0 means higher scores


def measure_drift(scores: np.ndarray, quantiles: Sequence[float], trained: int, memory: float) -> Drift:
    """Whether recent `scores` are distributed as the training scores were.

    A two-sample Kolmogorov–Smirnov test against the kept `quantiles` of `trained` training scores. Scores
    close in time share patches, so both samples count only one score per `memory` rows.
    """
    known = np.round(np.array(quantiles, dtype=np.float64), DECIMALS)
    values = np.round(np.asarray(scores, dtype=np.float64).reshape(-1), DECIMALS)
    recent = np.sort(values[np.isfinite(values)])
    if not trained or not recent.size:
        return Drift(math.nan, 1.0, math.nan, 0.0, int(recent.size), 0.0)
    levels, below, upto = _distribution(known)
    found_below = np.searchsorted(recent, levels, side="left") / recent.size
    found_upto = np.searchsorted(recent, levels, side="right") / recent.size
    statistic = float(max(np.abs(found_below - below).max(), np.abs(found_upto - upto).max()))
    effective = recent.size / memory
    size = math.sqrt(effective * trained / (effective * memory + trained))
    from scipy.special import kolmogorov  # a tenth of a second that looking at a fleet does not need

    p = float(kolmogorov((size + 0.12 + 0.11 / size) * statistic))
    middle = float(np.median(recent))
    rank = (np.interp(middle, levels, below) + np.interp(middle, levels, upto)) / 2
    psi = _stability(recent, known, memory)
    return Drift(statistic, p, psi, effective, int(recent.size), float(rank) - 0.5)


def _distribution(quantiles: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct quantiles, and the share of training scores below and up to each."""
    levels, first, ties = np.unique(quantiles, return_index=True, return_counts=True)
    return levels, GRID_ARRAY[first], GRID_ARRAY[first + ties - 1]


def _stability(recent: np.ndarray, quantiles: np.ndarray, memory: float) -> float:
    """The population stability index of the sorted `recent` scores."""
    levels, _, upto = _distribution(quantiles)
    edges = np.unique(np.interp(np.arange(1, 10) / 10, GRID_ARRAY, quantiles))
    expected = np.diff(np.concatenate([[0.0], np.interp(edges, levels, upto), [1.0]]))
    found = np.diff(np.concatenate([[0], np.searchsorted(recent, edges, side="right"), [recent.size]]))
    # an empty bin counts as half a score, or it would decide alone
    floor = 0.5 / max(recent.size / memory, 1.0)
    expected, found = np.maximum(expected, floor), np.maximum(found / recent.size, floor)
    return float(np.sum((found - expected) * np.log(found / expected)))

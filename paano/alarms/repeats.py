"""Rows that repeat the one before: a sensor that is stuck sends the same values again and again.

A row repeats when every channel of the series has exactly the value of the row before; a channel is asked for
alone. Holes that are bridged elsewhere are bridged here too, so a lost row within a stretch of the same value
does not end it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paano.series import read_series


def repeating(X: Any, max_gap: int) -> np.ndarray:
    """bool [N]: the rows that repeat the row before; a row without data does not, nor the row after it."""
    series = read_series(X, max_gap)
    same = np.zeros(len(series), bool)
    if len(series):
        equal = (series.values[1:] == series.values[:-1]).all(axis=1)
        same[1:] = equal & series.usable[1:] & series.usable[:-1]
    return same


def runs(flags: np.ndarray) -> list[tuple[int, int]]:
    """First row and row after the last of each stretch of true rows, in order."""
    edge = np.diff(np.concatenate([[False], np.asarray(flags, bool), [False]]).astype(np.int8))
    return list(zip(np.flatnonzero(edge == 1).tolist(), np.flatnonzero(edge == -1).tolist(), strict=True))


def longest_repeats(values: np.ndarray, max_gap: int) -> list[int]:
    """For each channel of [N, C], how many rows in a row repeated the one before, at most."""
    stretches = (runs(repeating(values[:, [channel]], max_gap)) for channel in range(values.shape[1]))
    return [max((end - first for first, end in some), default=0) for some in stretches]

"""A series as it comes, made ready: float64, holes bridged up to a limit, and which patches may be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from paano.errors import SeriesError

# Larger numbers would overflow float64 when a patch is squared; no sensor means them.
LARGEST = 1e150


@dataclass(frozen=True)
class Series:
    """N rows of C channels. `values` has no NaN; `usable` says which rows a patch may touch."""

    values: np.ndarray  # float64 [N, C]; 0 where not usable
    usable: np.ndarray  # bool [N]: every channel is there, or bridged
    missing: np.ndarray  # bool [N]: nothing was measured, or a channel lies in a hole too long to bridge
    pending: np.ndarray  # bool [N]: usable, or in a hole at the end that later rows may still bridge
    infinite: int  # values that were ±inf or beyond ±1e150, taken as missing

    def __len__(self) -> int:
        return len(self.values)

    @property
    def channels(self) -> int:
        return int(self.values.shape[1])


def read_series(X: Any, max_gap: int) -> Series:
    """Check `X` of shape (N,) or (N, C) and bridge its holes. NaN is missing, and so is ±inf.

    A hole of at most `max_gap` rows of a channel, with values on both sides, is bridged by a straight line.
    """
    values = _as_matrix(X)
    with np.errstate(invalid="ignore"):
        beyond = np.abs(values) > LARGEST  # true for ±inf, false for NaN
    infinite = int(beyond.sum())
    values[beyond] = np.nan

    absent = np.isnan(values)
    nothing = absent.all(axis=1)
    pending = ~absent
    for channel in np.flatnonzero(absent.any(axis=0)):
        _bridge(values[:, channel], absent[:, channel], pending[:, channel], max_gap)
    usable = ~np.isnan(values).any(axis=1)
    values[np.isnan(values)] = 0.0
    return Series(values, usable, nothing | ~usable, pending.all(axis=1), infinite)


def valid_starts(usable: np.ndarray, patch: int) -> np.ndarray:
    """int64 [n]: the rows at which a patch of usable rows starts, ascending."""
    if len(usable) < patch:
        return np.empty(0, dtype=np.int64)
    count = np.concatenate([[0], np.cumsum(usable)])  # [N + 1]
    return np.flatnonzero(count[patch:] - count[:-patch] == patch)


def _as_matrix(X: Any) -> np.ndarray:
    """`X` as a float64 [N, C] copy, or a SeriesError that says what it is instead."""
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(np.float64), np.nan)
    try:
        values = np.asarray(X)
        if values.dtype.kind == "c" or values.dtype.kind in "mM":
            what = "Complex data" if values.dtype.kind == "c" else f"{values.dtype} values are"
            raise TypeError(f"{what} not supported")
        values = np.array(values, dtype=np.float64, copy=True, order="C")
    except (TypeError, ValueError) as error:
        raise SeriesError(f"a series is numbers of shape (N,) or (N, C): {error}") from error
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim == 2 and values.shape[1] == 0:
        raise SeriesError(
            f"a series has at least one channel; 0 feature(s) (shape={values.shape}) while a minimum of 1 is "
            "required."
        )
    if values.ndim != 2:
        raise SeriesError(f"a series has shape (N,) or (N, C), not {np.shape(X)}")
    return values


def _bridge(values: np.ndarray, absent: np.ndarray, pending: np.ndarray, max_gap: int) -> None:
    """Fill the short holes of one channel in place; mark in `pending` those and a short one at the end."""
    edge = np.diff(np.concatenate([[False], absent, [False]]).astype(np.int8))
    first, stop = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1)  # a hole is rows first … stop − 1
    short = stop - first <= max_gap
    for a, b in zip(first[short], stop[short], strict=True):
        if a > 0:
            pending[a:b] = True
        else:
            continue
        if b < len(values):
            step = np.arange(1, b - a + 1) / (b - a + 1)
            values[a:b] = values[a - 1] + step * (values[b] - values[a - 1])

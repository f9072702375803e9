"""Sums, means and deviations over every window of the rows of an array."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Parts = tuple[np.ndarray, ...]


def sliding_sum(x: np.ndarray, window: int) -> np.ndarray:
    """[N − window + 1, C]: the sum over every window of the rows of `x` [N, C]."""
    (total,) = _over_windows((x,), window, lambda a, b, n, m: (a[0] + b[0],))
    return total


def sliding_moments(x: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation [N − window + 1, C] over every window of the rows of `x` [N, C]."""
    mean, squares = _over_windows((x, np.zeros_like(x)), window, _join_moments)
    return mean, np.sqrt(squares / window)


def _join_moments(a: Parts, b: Parts, n: int, m: int) -> Parts:
    """Mean and sum of squared deviations of n rows followed by m rows (Chan, Golub and LeVeque 1979)."""
    apart = b[0] - a[0]
    return a[0] + apart * (m / (n + m)), a[1] + b[1] + apart**2 * (n * m / (n + m))


def _over_windows(parts: Parts, window: int, join: Callable[[Parts, Parts, int, int], Parts]) -> Parts:
    """Join every `window` rows, doubling the length of what is joined: log₂ steps instead of `window`.

    A window is joined from its own rows alone and always in the same order. A running total would carry the
    rounding of one huge value to all later rows, and scores would depend on where the series was cut.
    """
    count = max(len(parts[0]) - window + 1, 0)
    if count == 0:
        return tuple(part[:0] for part in parts)
    joined: Parts | None = None
    length, size = 0, 1  # `joined` covers the first `length` rows of every window
    while True:
        if window & size:
            piece = tuple(part[length : length + count] for part in parts)
            joined = piece if joined is None else join(joined, piece, length, size)
            length += size
        if joined is not None and length == window:
            return joined
        parts = join(tuple(p[:-size] for p in parts), tuple(p[size:] for p in parts), size, size)
        size *= 2

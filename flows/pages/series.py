"""Series as pages carry them: thinned so that every peak stays, numbers short, a missing value is null.

A page gets `{"t0": ms, "step": ms, "v": […]}`, and `"i"`, the row of each value, where rows were left out.
The small pictures of a report are packed further: two characters a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

STRETCHES = 1_000  # of a series on a page, two points each
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
MISSING, TOP = 4095, 4094  # of the numbers that two characters can stand for
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Expected:
    """What a model would have expected instead of what was seen, channel by channel, on a regular grid."""

    start: datetime  # of the first row, UTC
    interval: timedelta
    channels: Sequence[str]
    low: np.ndarray  # float [N, C]: the band that normal values lie in
    mid: np.ndarray  # float [N, C]: the single most normal value
    high: np.ndarray  # float [N, C]

    def of(self, channel: str, stretches: int = STRETCHES) -> dict[str, Any] | None:
        """The band of one channel for a page, or None if it is not there."""
        if channel not in self.channels:
            return None
        column = list(self.channels).index(channel)
        return {
            name: page_series(self.start, self.interval, values[:, column], stretches, thin=False)
            for name, values in (("low", self.low), ("mid", self.mid), ("high", self.high))
        }


def kept_rows(values: np.ndarray, stretches: int = STRETCHES) -> np.ndarray:
    """The rows of the least and the greatest value of each stretch, in order; all rows of a short series."""
    count = len(values)
    if count <= 2 * stretches:
        return np.arange(count)
    size = -(-count // stretches)
    padded = np.full(size * stretches, np.nan)
    padded[:count] = values
    stretch = padded.reshape(stretches, size)
    base = np.arange(stretches) * size
    low = base + np.where(np.isnan(stretch), np.inf, stretch).argmin(axis=1)
    high = base + np.where(np.isnan(stretch), -np.inf, stretch).argmax(axis=1)
    keep = np.unique(np.concatenate([low, high]))
    return keep[keep < count]


def short_numbers(values: np.ndarray) -> list[float | None]:
    """Four significant digits, null where there is no number."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]


def milliseconds(moment: datetime) -> int:
    """Since 1970, as a browser counts."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def page_series(
    start: datetime,
    interval: timedelta,
    values: np.ndarray,
    stretches: int = STRETCHES,
    thin: bool = True,
) -> dict[str, Any]:
    """A series on a regular grid as a page carries it."""
    rows = kept_rows(values, stretches) if thin else np.arange(len(values))
    series: dict[str, Any] = {
        "t0": milliseconds(start),
        "step": interval / timedelta(milliseconds=1),
        "v": short_numbers(np.asarray(values)[rows]),
    }
    if len(rows) < len(values):
        series["i"] = rows.tolist()
    return series


def pack(values: np.ndarray, low: float, high: float) -> dict[str, Any]:
    """Values as text, two characters each: enough for a picture of a few dozen pixels."""
    span = high - low if high > low else 1.0
    known = np.isfinite(values)
    share = np.where(known, (np.where(known, values, low) - low) / span, 0.0)
    numbers = np.where(known, np.clip(np.rint(share * TOP), 0, TOP), MISSING).astype(int)
    text = "".join(ALPHABET[number // 64] + ALPHABET[number % 64] for number in numbers)
    return {"low": float(f"{low:.6g}"), "high": float(f"{low + span:.6g}"), "text": text}


def unpack(packed: dict[str, Any]) -> np.ndarray:
    """What `pack` was given, to within a four-thousandth of the span."""
    text = packed["text"]
    numbers = np.array(
        [64 * ALPHABET.index(text[n]) + ALPHABET.index(text[n + 1]) for n in range(0, len(text), 2)]
    )
    values = packed["low"] + (packed["high"] - packed["low"]) * numbers / TOP
    return np.where(numbers == MISSING, np.nan, values)


def runs_of(flags: np.ndarray) -> list[tuple[int, int]]:
    """(first, one past the last) row of every run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]

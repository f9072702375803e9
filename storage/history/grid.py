"""Rows onto a regular grid.

Grid points are multiples of the interval since 1970 (plus a fixed phase), never counted from the first row:
two overlapping windows give the same points and values, so that a nightly run and a backfill agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from storage.window import Window

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LARGEST = 50_000_000  # grid points; more is a wrong interval, not a history
_MICRO = timedelta(microseconds=1)


@dataclass(frozen=True)
class Grid:
    """The grid points of a window: `first + i·interval`, i < count, in microseconds since 1970."""

    first: int
    interval: int
    count: int
    reach: int  # a row belongs to a point at most this far away

    @classmethod
    def of(cls, window: Window, interval: timedelta, tolerance: float, phase: timedelta) -> Grid:
        step, shift = interval // _MICRO, phase // _MICRO
        low = -((shift - micros(window.start)) // step)  # ceiling
        high = -((shift - micros(window.end)) // step)
        return cls(low * step + shift, step, high - low, min(int(tolerance * step), step // 2))

    @property
    def span(self) -> tuple[int, int]:
        """First and last stamp, both included, that can belong to a point."""
        return self.first - self.reach, self.first + (self.count - 1) * self.interval + self.reach


def micros(time: datetime) -> int:
    """Microseconds since 1970."""
    return (time - EPOCH) // _MICRO


def moment(micro: int) -> datetime:
    return EPOCH + timedelta(microseconds=int(micro))


def to_grid(stamps: np.ndarray, values: np.ndarray, grid: Grid) -> tuple[np.ndarray, dict[str, int]]:
    """Values [N, C] at the grid points, NaN where there is none, and the counts of what was repaired.

    `stamps` int64 [n] microseconds and `values` float64 [n, C] come in the order of the files. Of several
    rows at one grid point the one with the latest stamp wins; of equal stamps, the last in that order.
    """
    low, high = grid.span
    near = (stamps >= low) & (stamps <= high)
    stamps, values = stamps[near], values[near]
    slots = (stamps - grid.first + grid.interval // 2) // grid.interval
    offset = stamps - (slots * grid.interval + grid.first)
    on_grid = (np.abs(offset) <= grid.reach) & (slots >= 0) & (slots < grid.count)
    inside = (slots >= 0) & (slots < grid.count)
    stamps, values, slots, offset = (a[on_grid] for a in (stamps, values, slots, offset))
    unsorted = int(np.count_nonzero(np.diff(stamps) < 0))
    order = np.argsort(stamps, kind="stable")
    slots, values, offset = slots[order], values[order], offset[order]
    last = np.append(slots[1:] != slots[:-1], True)[: len(slots)]
    slots, values, offset = slots[last], values[last], offset[last]

    out = np.full((grid.count, values.shape[1]), np.nan)
    out[slots] = values
    infinite = np.isinf(out)
    out[infinite] = np.nan
    counts = {
        "unsorted": unsorted,
        "repeated": int(len(stamps) - len(slots)),
        "snapped": int(np.count_nonzero(offset)),
        "off_grid": int(np.count_nonzero(inside & ~on_grid)),
        "infinite": int(np.count_nonzero(infinite)),
        "null": int(np.count_nonzero(np.isnan(values))),
        "holes": int(grid.count - len(slots)),
    }
    return out, counts


_NICE = sorted(
    {s * 1_000 for s in (1, 2, 4, 5, 10, 20, 25, 40, 50, 100, 200, 250, 500)}
    | {s * unit * 1_000_000 for unit in (1, 60) for s in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)}
    | {s * 3_600_000_000 for s in (1, 2, 3, 4, 6, 8, 12, 24, 168)}
)


def infer_interval(stamps: np.ndarray) -> timedelta | None:
    """The usual distance of neighbouring stamps: their median, or the round figure within 2 % of it."""
    gaps = np.diff(np.unique(stamps))
    if len(gaps) < 2:
        return None
    middle = float(np.median(gaps))
    nearest = min(_NICE, key=lambda nice: abs(math.log(nice / middle)))
    if abs(nearest - middle) <= 0.02 * middle:
        return timedelta(microseconds=nearest)
    unit = 1_000_000 if middle >= 10_000_000 else 1_000 if middle >= 10_000 else 1
    return timedelta(microseconds=max(1, round(middle / unit)) * unit)

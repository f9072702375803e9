"""What was read of one sensor: values on a regular grid, and what had to be repaired."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np

from storage.history.grid import micros
from storage.window import Window


@dataclass(frozen=True)
class Reading:
    """The rows of one sensor in a window, on a regular grid. NaN is missing."""

    sensor: str
    start: datetime  # of the first row, UTC
    interval: timedelta
    values: np.ndarray  # float64 [N, C]
    channels: list[str]  # C names
    repaired: dict[str, int] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)  # what was read, by address
    left_out: list[str] = field(default_factory=list)  # columns that only rise, taken for counters
    newest: datetime | None = None  # the last stamp that carries a value; None: nothing in the window
    seen_interval: timedelta | None = None  # the usual distance of the newest stamps, whatever was asked for

    def __len__(self) -> int:
        return len(self.values)

    @property
    def ts(self) -> np.ndarray:
        """datetime64[us] [N], UTC."""
        step = self.interval // timedelta(microseconds=1)
        return (micros(self.start) + step * np.arange(len(self))).astype("datetime64[us]")

    @property
    def end(self) -> datetime:
        """The time after the last row."""
        return self.start + len(self) * self.interval

    @property
    def rows(self) -> int:
        """Rows with at least one value."""
        return int(np.count_nonzero(~np.isnan(self.values).all(axis=1)))

    @property
    def note(self) -> str:
        """What a person should know of the channels; empty if there is nothing."""
        if not self.left_out:
            return ""
        it = "it only rises" if len(self.left_out) == 1 else "they only rise"
        return f"left out {', '.join(self.left_out)}: {it}; history.channels names what to keep"

    @property
    def digest(self) -> str:
        """Stands for exactly what a model sees: where the grid is, the channels and every value."""
        step = self.interval // timedelta(microseconds=1)
        head = json.dumps([micros(self.start), step, self.channels, self.values.shape], separators=(",", ":"))
        values = np.where(np.isnan(self.values), np.nan, self.values)  # one NaN of the many
        return hashlib.sha256(head.encode() + values.astype("<f8").tobytes()).hexdigest()[:32]

    def cut(self, window: Window) -> Reading:
        """The rows within `window`."""
        step = self.interval // timedelta(microseconds=1)
        low = max(0, -((micros(self.start) - micros(window.start)) // step))
        high = max(low, min(len(self), -((micros(self.start) - micros(window.end)) // step)))
        return replace(self, start=self.start + low * self.interval, values=self.values[low:high])

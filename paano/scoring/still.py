"""Channels that never moved in training: their surprise is counted, not measured.

Level and next value measure how far a channel is from what it did, in units of how much it moved. One that
never moved gives no unit: in millionths of its height every move is immeasurably far. With many channels (a
telemetry value beside dozens of commands that are nearly always 0), the first use of one command then hides
everything else. What training does say of such a channel is that n rows of it stood still; that the next row
is the first to move has a probability of at most 1 / (n + 1), if all rows are alike. So neither part is ever
more surprised by it than ln(1 + n) nats, seven to ten for a thousand to twenty thousand rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paano.errors import ArtifactError
from paano.series import Series

ROUNDING = 1e-6  # of a channel's height: a difference below it is no move
ROWS = "still.rows"


def still_rows(series: Series) -> np.ndarray:
    """int64 [C]: the rows in which a channel stood still; 0 for one that moved."""
    known = series.values[series.usable]
    if not len(known):
        return np.zeros(series.channels, dtype=np.int64)
    low, high = known.min(axis=0), known.max(axis=0)
    still = high - low <= ROUNDING * np.maximum(np.abs(low), np.abs(high))
    return np.where(still, len(known), 0).astype(np.int64)


def bounded(nats: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """The surprise [N, C] of each channel, at most ln(1 + n) where it stood still in n of the `rows` [C]."""
    if rows is None or not rows.any():
        return nats
    return np.where(rows > 0, np.minimum(nats, np.log1p(rows)), nats)


def still_shapes(channels: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensor that an artifact has beside its bank."""
    return {ROWS: ("I64", (channels,))}


def rows_from(tensors: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The rows as `tensors` gave them, None where a model does not count; what cannot be one is refused."""
    if ROWS not in tensors:
        return None
    rows = tensors[ROWS].copy()
    if (rows < 0).any():
        raise ArtifactError(f"{ROWS} has a number below 0; the model must be fitted again")
    return rows

"""The kept history: the newest rows of the training series, in 16 bits, inside the model.

Beside each bank vector a model has to know the patch that it stands for, to say what the series should have
done. The patches overlap: a tenth of them, one by one, are ten times the series. So the rows themselves are
kept once, at most `model.keep` of them and at most MOST_NUMBERS numbers, in 65,535 steps between the smallest
and the largest value of each channel: two bytes per row and channel (28 days of five minutes: 16 kB). A bank
position that lies in the kept rows says where its patch is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paano.errors import ArtifactError
from paano.series import Series

MISSING = np.int16(-32768)
STEPS = 65_534  # between the smallest and the largest value, coded −32767 … 32767
MOST_NUMBERS = 4_000_000  # kept at most, rows × channels: 8 MB


@dataclass(frozen=True)
class Kept:
    """R rows of C channels, the oldest first; a row that no patch may touch is missing."""

    codes: np.ndarray  # int16 [R, C], MISSING in every channel of a missing row
    low: np.ndarray  # float64 [C]: the smallest value
    step: np.ndarray  # float64 [C]: what one step of the code is worth

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def usable(self) -> np.ndarray:
        """bool [R]: rows that have values."""
        usable: np.ndarray = (self.codes != MISSING).all(axis=1)
        return usable

    @cached_property
    def values(self) -> np.ndarray:
        """float64 [R, C], NaN in missing rows."""
        values = self.low + (self.codes.astype(np.float64) + 32767.0) * self.step
        return np.where(self.usable[:, None], values, np.nan)

    def tensors(self) -> dict[str, np.ndarray]:
        """What an artifact keeps of it."""
        return {"kept.codes": self.codes, "kept.low": self.low, "kept.step": self.step}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Kept:
        """The kept history as `tensors` gave it; what cannot be one is refused."""
        kept = cls(*(tensors[f"kept.{name}"].copy() for name in ("codes", "low", "step")))
        missing = kept.codes == MISSING
        if (kept.step < 0).any() or (missing.any(axis=1) != missing.all(axis=1)).any():
            raise ArtifactError("the kept history does not fit together; the model must be fitted again")
        return kept

    def followed_by(self, series: Series, normal: np.ndarray, keep: int) -> Kept:
        """These rows and then the `normal` [N] rows of `series`, the oldest dropped; a hole lies between."""
        fresh = np.where((series.usable & normal)[:, None], series.values, np.nan)
        hole = np.full((1, fresh.shape[1]), np.nan)
        return _encode(np.concatenate([self.values, hole, fresh]), keep)


def keep_rows(series: Series, keep: int) -> Kept:
    """The newest rows of a series, at most `keep`."""
    return _encode(np.where(series.usable[:, None], series.values, np.nan), keep)


def most_rows(keep: int, channels: int) -> int:
    """How many rows are kept at most."""
    return max(1, min(keep, MOST_NUMBERS // channels))


def kept_shapes(rows: int, channels: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors that an artifact with a kept history of `rows` has beside its bank."""
    return {
        "kept.codes": ("I16", (rows, channels)),
        "kept.low": ("F64", (channels,)),
        "kept.step": ("F64", (channels,)),
    }


def plain_shapes(channels: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors that an artifact with a plain distance has beside its bank; here without torch."""
    return {
        "plain.flat": ("F64", (channels,)),
        "plain.unit": ("F64", (channels,)),
        "plain.typical": ("F64", (1,)),
    }


def _encode(values: np.ndarray, keep: int) -> Kept:
    """The newest rows of `values` [N, C], NaN where missing."""
    channels = values.shape[1]
    values = values[-most_rows(keep, channels) :]
    there = ~np.isnan(values).any(axis=1)
    known = values[there] if there.any() else np.zeros((1, channels))
    low = known.min(axis=0)
    step = (known.max(axis=0) - low) / STEPS
    steps = np.divide(values - low, step, out=np.zeros_like(values), where=step > 0)
    codes = np.full(values.shape, MISSING)
    codes[there] = (np.round(steps[there]) - 32767.0).astype(np.int16)
    return Kept(codes, low, step)

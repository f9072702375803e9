"""The plain distance: how far is a patch, as it is, from the nearest of the kept history?

What the encoder drops, no distance between embeddings can show. So the patches themselves are compared as
well, without an encoder: each channel of a patch, averaged to about 32 values and standardised, with those of
the kept history; what counts is the root mean square difference to the nearest.

A distance is measured in units of its 99th percentile in training (a patch never matches one that starts
within ±patch of it). Channels add up over √C, as the level's do, and what they have above their training
median is the surprise. It is a part of the shape: shape = SHARE × (encoder + plain). The form was chosen on
labelled series: benchmarks/ACCURACY.md.

Only the rows of a patch decide its numbers, so scores do not depend on where a series was cut; the history
is what the model keeps anyway, so an artifact grows by 16 bytes per channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from paano.errors import ArtifactError
from paano.scoring.kept import Kept
from paano.scoring.level import SHAPE_QUANTILE, over_channels
from paano.scoring.shape import exclude_near, spread
from paano.series import Series, valid_starts

SHARE = 0.75  # two looks at the shape must not outweigh the level
VALUES = 32  # of a patch, at least: neighbouring rows are averaged
PLACES = (
    8_192  # patches of the kept history, over all channels: a look-up costs a tenth of encoding the patch
)
# A patch that moves less than this share of what is typical is nearly flat: its noise is no shape.
FLAT_SHARE, LEAST_SHARE = 0.03, 0.01
PATCHES_AT_ONCE = 16_384
STANDARDISED_AT_ONCE = 512  # patches of 32 float64 (128 kB): all steps from averaging to float32 in the cache
ALIKE_AT_ONCE = 1_000_000  # products held at once (4 MB), most of which stay in a processor's cache
GROUP = 64  # products among which the largest is looked for without its place


class Compared(NamedTuple):
    """What patches are compared with, ready for `nearest`."""

    kept: Kept
    places: np.ndarray  # int64 [K]: rows of the kept history at which its patches start
    tables: list[Tensor]  # of each channel


@dataclass(frozen=True)
class Plain:
    """What is normal for the distances of C channels to the kept history."""

    patch: int
    flat: np.ndarray  # float64 [C]: a deviation far below this is no shape
    unit: np.ndarray  # float64 [C]: the distance that counts as 1
    typical: float  # the median of the training rows, which is no surprise
    # Made at the first look at a kept history: 1 MB, whatever the number of channels.
    _compared: Compared | None = field(default=None, init=False, repr=False, compare=False)

    def by_channel(self, series: Series, starts: np.ndarray, kept: Kept) -> np.ndarray:
        """float64 [N, C]: distance at each row by channel, from the patches at `starts`; NaN without any."""
        return self._to_points(series, starts, self._distances(series, starts, kept))

    def score(self, series: Series, starts: np.ndarray, kept: Kept) -> np.ndarray:
        """float64 [N]: the surprise of each row, all channels together; NaN where no patch is."""
        return self.surprise(self.by_channel(series, starts, kept))

    def surprise(self, distance: np.ndarray) -> np.ndarray:
        """float64 [N] from the distance [N, C] of each channel."""
        return np.maximum(over_channels(distance) - self.typical, 0.0)

    def take_in(self, series: Series, normal: np.ndarray, kept: Kept) -> Plain:
        """What the `normal` [N] rows still have, now that they are in the kept history, counts as 1 at most.

        With many channels only some of their patches are compared with.
        """
        distance = self.by_channel(series, valid_starts(series.usable, self.patch), kept)[normal]
        if not np.isfinite(distance).any():
            return self
        return replace(self, unit=self.unit * np.maximum(np.nanmax(distance, axis=0), 1.0))

    def _distances(
        self, series: Series, starts: np.ndarray, kept: Kept, first: int | None = None
    ) -> np.ndarray:
        """float64 [n, C]: in units; NaN where nothing is to compare with.

        `first` is the row of the series with which the kept history begins: patches near it are left out.
        """
        _, places, tables = self._compared_with(kept)
        out = np.full((len(starts), series.channels), np.nan)
        if not len(places):
            return out
        for c in range(series.channels):
            for i in range(0, len(starts), PATCHES_AT_ONCE):
                some = starts[i : i + PATCHES_AT_ONCE]
                ours = standardised(series.values[:, c], some, self.patch, self.flat[c])
                near = None if first is None else (some, places + first, self.patch)
                out[i : i + PATCHES_AT_ONCE, c] = nearest(ours, tables[c], len(places), near).numpy()
        out /= self.unit
        return out

    def _compared_with(self, kept: Kept) -> Compared:
        """The patches of the kept history, standardised once for all looks at it."""
        if self._compared is not None and self._compared.kept is kept:
            return self._compared
        places = places_of(kept, self.patch)
        patches = (
            standardised(kept.values[:, c], places, self.patch, self.flat[c]) for c in range(len(self.flat))
        )
        found = Compared(kept, places, [table_of(theirs) for theirs in patches] if len(places) else [])
        object.__setattr__(self, "_compared", found)
        return found

    def _to_points(self, series: Series, starts: np.ndarray, distances: np.ndarray) -> np.ndarray:
        points = [spread(distances[:, c], starts, len(series), self.patch)[0] for c in range(series.channels)]
        return np.stack(points, axis=1)

    # -- keeping --

    def tensors(self) -> dict[str, np.ndarray]:
        """What an artifact keeps of it."""
        return {"plain.flat": self.flat, "plain.unit": self.unit, "plain.typical": np.array([self.typical])}

    @classmethod
    def from_tensors(cls, patch: int, tensors: Mapping[str, np.ndarray]) -> Plain:
        """The plain distance as `tensors` gave it; what cannot be one is refused."""
        flat, unit, typical = (tensors[f"plain.{name}"].copy() for name in ("flat", "unit", "typical"))
        if not (flat > 0).all() or not (unit > 0).all() or typical[0] < 0:
            raise ArtifactError(
                "the plain distance's values do not fit together; the model must be fitted again"
            )
        return cls(patch, flat, unit, float(typical[0]))


def fit_plain(series: Series, starts: np.ndarray, kept: Kept, patch: int) -> tuple[Plain, np.ndarray]:
    """The plain distance of a training series, whose newest rows are `kept`, and its own scores float64 [N].

    A training row whose patches have nothing to be compared with has no surprise.
    """
    channels = series.channels
    flat = np.array([_flat_deviation(kept, c, patch) for c in range(channels)])
    found = Plain(patch, flat, np.ones(channels), 0.0)
    distance = found._to_points(
        series, starts, found._distances(series, starts, kept, len(series) - len(kept))
    )
    known = np.isfinite(distance).all(axis=1)
    if not known.any():
        return found, np.zeros(len(series))
    unit = np.quantile(distance[known], SHAPE_QUANTILE, axis=0)
    unit = np.where(unit > 1e-6, unit, 1.0)
    typical = float(np.median(over_channels(distance[known] / unit)))
    found = Plain(patch, flat, unit, typical)
    return found, np.where(known, found.surprise(distance / unit), 0.0)


def places_of(kept: Kept, patch: int) -> np.ndarray:
    """int64 [K]: rows of the kept history at which the patches start that are compared with, evenly."""
    starts = valid_starts(kept.usable, patch)
    most = max(1, PLACES // kept.codes.shape[1])
    return starts[:: -(-len(starts) // most)] if len(starts) else starts


def width_of(patch: int) -> int:
    """Rows that are averaged to one value.

    >>> width_of(96), width_of(48), width_of(16)
    (3, 1, 1)
    """
    return max(1, patch // VALUES)


def averages(values: np.ndarray, patch: int) -> np.ndarray:
    """float64 [N − patch + 1 or more, d]: the averaged patch from every row of `values` [N] on, a view."""
    width = width_of(patch)
    count = len(values) - width + 1
    mean = sum(values[i : i + count] for i in range(width)) / width  # [count], in a fixed order
    reach = (patch // width - 1) * width + 1
    return sliding_window_view(mean, reach)[:, ::width]


def averaged(values: np.ndarray, starts: np.ndarray, patch: int) -> np.ndarray:
    """float64 [n, d]: the patches of one channel `values` [N] at `starts` [n], without their mean.

    Rows left over by the averaging are not looked at.
    """
    return centred(averages(values, patch)[starts])


def centred(short: np.ndarray) -> np.ndarray:
    """float64 [n, d]: averaged patches without their mean, in place."""
    short -= short[:, :1].copy()  # exact where the signal is small beside its offset
    short -= short.mean(axis=1, keepdims=True)
    return short


def standardised(values: np.ndarray, starts: np.ndarray, patch: int, flat: float) -> Tensor:
    """float32 [n, d]: the averaged patches of one channel with about unit variance; flat ones stay small."""
    every = averages(values, patch)
    out = np.empty((len(starts), every.shape[1]), dtype=np.float32)
    for i in range(0, len(starts), STANDARDISED_AT_ONCE):
        part = slice(i, i + STANDARDISED_AT_ONCE)
        short = centred(every[starts[part]])
        short /= np.sqrt(np.square(short).mean(axis=1, keepdims=True) + flat**2)
        out[part] = short
    return torch.from_numpy(out)


def table_of(theirs: Tensor) -> Tensor:
    """float32 [K or more, d + 1]: `theirs` [K, d] as `nearest` looks them up.

    |a − b|² is smallest where a·b − |b|²/2 is largest: one product with −|b|²/2 as a further column.
    """
    count, size = theirs.shape
    table = torch.zeros(-(-count // GROUP) * GROUP, size + 1)
    table[:count, :size] = theirs
    table[:count, size] = -theirs.square().sum(dim=1) / 2
    table[count:, size] = -torch.inf
    return table


def nearest(
    ours: Tensor, table: Tensor, count: int, near: tuple[np.ndarray, np.ndarray, int] | None = None
) -> Tensor:
    """float32 [n]: root mean square difference of each of `ours` [n, d] to the nearest of the `table`'s K.

    `count` is K. `near` are the rows at which ours [n] and theirs [K] start and how close two may not be;
    where nothing is left the result is NaN.
    """
    theirs = table[:count, :-1]
    queries = torch.cat([ours, torch.ones(len(ours), 1)], dim=1)  # [n, d + 1]
    rows = max(1, ALIKE_AT_ONCE // len(table))
    room = torch.empty(min(rows, len(ours)), len(table))
    out = torch.empty(len(ours))
    for i in range(0, len(ours), rows):
        part = ours[i : i + rows]
        alike = torch.mm(queries[i : i + rows], table.T, out=room[: len(part)])  # [m, K]
        if near is not None:
            starts, position, exclude = near
            exclude_near(alike, starts[i : i + rows], position, exclude)
        best, which = _largest(alike)
        # from the differences themselves, in which nothing cancels
        apart = (part - theirs[which]).square().mean(dim=1).sqrt()
        out[i : i + rows] = torch.where(best > -torch.inf, apart, torch.nan)
    return out


def _largest(x: Tensor) -> tuple[Tensor, Tensor]:
    """The largest value of each row of `x` [m, K] and its column (0 where all are −inf).

    As `x.max(dim=1)` in a third of its time: one pass over K, a multiple of GROUP, without looking for the
    column, and one over a single group.
    """
    groups = x.view(len(x), -1, GROUP)
    group = groups.amax(dim=2).argmax(dim=1)
    best, place = groups[torch.arange(len(x)), group].max(dim=1)
    return best, torch.where(best > -torch.inf, group * GROUP + place, 0)


def _flat_deviation(kept: Kept, channel: int, patch: int) -> float:
    """FLAT_SHARE of the typical deviation of the channel's patches, and never nothing."""
    places = places_of(kept, patch)
    values = kept.values[:, channel]
    whole = float(np.nanstd(values)) if kept.usable.any() else 0.0
    typical = 0.0
    if len(places):
        deviation = np.sqrt(np.square(averaged(values, places, patch)).mean(axis=1))
        typical = float(np.median(deviation)) or float(deviation.mean())
    typical = max(typical, LEAST_SHARE * whole)
    return FLAT_SHARE * typical if typical > 0 else 1.0

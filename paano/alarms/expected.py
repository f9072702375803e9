"""What an event's rows should have been: the nearest normal stretches of the kept history, and a band.

The rows of the event are left out. What lies around them, half a patch on either side, is compared with every
place of the kept history (all channels together, each in units of its deviation); the rows that follow in the
same way at the few most alike places, moved to the height of the rows around, are what is normal here. Their
median is the expected value. The band is as wide as nine of ten normal rows need: the same is asked about
stretches of the kept history itself, where the true values are known, and the errors found there, in units of
how far the chosen places are apart, widen it here.

An event longer than two patches is filled piece by piece from its start: each piece goes on from the one
before, and the last one also has to meet what follows the event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paano.errors import NotFitted, SeriesError
from paano.scoring.kept import Kept
from paano.series import Series, read_series, valid_starts

if TYPE_CHECKING:
    from paano.model import PaAno

PLACES = 5  # of the kept history that are joined
TESTED = 40  # stretches of the kept history on which the band is tried
INSIDE = 0.9  # of normal rows that the band holds
PIECE = 2  # patches that are filled at once, at most
LEAST = 0.01  # of a channel's deviation: the narrowest the places may be apart


@dataclass(frozen=True)
class Expected:
    """Rows `first` … of a series as they should have been, [n, C] each; NaN where nothing can be said."""

    first: int
    low: np.ndarray
    mid: np.ndarray
    high: np.ndarray

    def __len__(self) -> int:
        return len(self.mid)

    @property
    def rows(self) -> np.ndarray:
        """int64 [n]: the rows of the series."""
        return np.arange(self.first, self.first + len(self))


def around(patch: int) -> int:
    """Rows before and after an event that are compared with the kept history: half a patch."""
    return max(2, patch // 2)


def expected(model: PaAno, X: np.ndarray, event: tuple[int, int]) -> Expected:
    """What rows `event` (first and last, both included) of `X` should have been, with a band.

    Args:
        model: a fitted model with a kept history (`model.keep`).
        X: (N,) or (N, C), with `around` rows before and after the event as far as there are any.
        event: first and last row.

    Raises:
        NotFitted: the model has no kept history.
        SeriesError: the rows are not in `X`, or it has other channels than the model.
    """
    if model.kept is None:
        raise NotFitted(
            "the model keeps no history (it was written by an earlier version, or model.keep is 0); "
            "train it again with `paano retrain`"
        )
    first, last = event
    series = read_series(X, model.config.max_gap)
    if not 0 <= first <= last < len(series):
        raise SeriesError(f"rows {first} to {last} are not in a series of {len(series)} rows")
    if series.channels != model.channels:
        raise SeriesError(
            f"the series has {series.channels} channels, the model was fitted on {model.channels}"
        )
    return Past(model.kept, model.config.patch).fill(series, first, last)


class Past:
    """The kept history, each channel with mean 0 and deviation 1."""

    def __init__(self, kept: Kept, patch: int) -> None:
        known = kept.values[kept.usable]
        self.centre = known.mean(axis=0) if len(known) else np.zeros(kept.codes.shape[1])
        deviation = known.std(axis=0) if len(known) else np.ones(kept.codes.shape[1])
        self.unit = np.where(deviation > 0, deviation, 1.0)
        self.usable, self.patch = kept.usable, patch
        self.values = np.where(kept.usable[:, None], (kept.values - self.centre) / self.unit, 0.0)
        self.length = min(PIECE * patch, max(1, len(kept) // 4))  # of a piece

    def fill(self, series: Series, first: int, last: int) -> Expected:
        x = (series.values - self.centre) / self.unit
        usable = series.usable.copy()
        usable[first : last + 1] = False
        shape = (last - first + 1, series.channels)
        mid, half = np.full(shape, np.nan), np.full(shape, np.nan)
        for a in range(first, last + 1, self.length):
            b = min(a + self.length, last + 1)
            found = self._piece(x, usable, a, b)
            if found is None:
                continue
            middle, apart = found
            mid[a - first : b - first] = middle
            half[a - first : b - first] = apart
            x[a:b], usable[a:b] = middle, True  # the next piece goes on from here
        return Expected(
            first,
            self.centre + (mid - half) * self.unit,
            self.centre + mid * self.unit,
            self.centre + (mid + half) * self.unit,
        )

    def _piece(
        self, x: np.ndarray, usable: np.ndarray, a: int, b: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Median [n, C] of the most alike places for rows a … b, and half the width of the band [n, C].

        The band is as many deviations of the places as hold nine of ten rows of stretches of the kept history
        that are filled in the same way. None if there is no place to look at.
        """
        begin, end = max(0, a - around(self.patch)), min(len(x), b + around(self.patch))
        compared = np.flatnonzero(usable[begin:end])  # not the event's rows, which are unusable
        places = valid_starts(self.usable, end - begin)
        if not places.size:
            return None
        tested = places[np.unique(np.linspace(0, places.size - 1, TESTED).astype(np.int64))]
        whole = np.stack([x[begin:end], *(self.values[start : start + end - begin] for start in tested)])
        distance, height = self._compare(whole[:, compared], places, compared)
        rows = slice(a - begin, b - begin)
        middle, deviation = self._like(places, distance[0], height[0], rows)
        errors = []
        for start, true, far, high in zip(tested, whole[1:], distance[1:], height[1:], strict=True):
            apart = (places + (end - begin) <= start - self.patch) | (
                places >= start + (end - begin) + self.patch
            )
            if apart.any():
                mid, unit = self._like(places[apart], far[apart], high[apart], rows)
                errors.append(np.abs(true[rows] - mid) / unit)
        if not errors:
            return middle, 2.0 * deviation
        return middle, deviation * np.quantile(np.concatenate(errors), INSIDE, axis=0)

    def _compare(
        self, whole: np.ndarray, places: np.ndarray, compared: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of stretches `whole` [T, K, C] at the rows `compared` [K] of every place [P]: the mean square
        difference, all channels together [T, P], and how much higher the stretch lies [T, P, C]."""
        distance = np.zeros((len(whole), places.size))
        height = np.zeros((len(whole), places.size, whole.shape[2]))
        for c in range(whole.shape[2] if compared.size else 0):
            theirs, ours = self.values[places[:, None] + compared, c], whole[:, :, c]  # [P, K], [T, K]
            both = ours @ theirs.T / compared.size
            square = np.square(ours).mean(axis=1)[:, None] + np.square(theirs).mean(axis=1)
            distance += np.maximum(square - 2 * both, 0.0)
            height[:, :, c] = ours.mean(axis=1)[:, None] - theirs.mean(axis=1)
        return distance, height

    def _like(
        self, places: np.ndarray, distance: np.ndarray, height: np.ndarray, rows: slice
    ) -> tuple[np.ndarray, np.ndarray]:
        """Median and deviation [n, C] of the rows at the most alike places, moved to the stretch's height."""
        chosen = _best_apart(places, distance, max(1, self.patch // 8))
        like = self.values[places[chosen, None] + np.arange(rows.start, rows.stop)] + height[chosen, None]
        return np.median(like, axis=0), np.maximum(like.std(axis=0), LEAST)


def _best_apart(places: np.ndarray, distance: np.ndarray, apart: int) -> np.ndarray:
    """The indices of at most PLACES places of the smallest distance, no two within `apart` rows."""
    # a chosen place rules out fewer than 2 · apart others, so only the nearest few need to be in order
    few = min(PLACES * 2 * apart, distance.size)
    near = np.flatnonzero(distance <= np.partition(distance, few - 1)[few - 1])
    chosen: list[int] = []
    for i in near[np.argsort(distance[near], kind="stable")]:
        if all(abs(int(places[i]) - int(places[j])) >= apart for j in chosen):
            chosen.append(int(i))
            if len(chosen) == PLACES:
                break
    return np.array(chosen)

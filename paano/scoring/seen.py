"""The values that a feature has had: which of them are kept, and how far the nearest one is."""

from __future__ import annotations

import numpy as np

SEEN = 1024  # values kept of a feature: half spread over the ranks, half over the range
FAR = np.iinfo(np.int64).max // 2  # beyond every row


def keep_values(values: np.ndarray) -> np.ndarray:
    """At most SEEN of the `values`, rising: all distinct ones if they fit, else some of each rank and place.

    No value is farther from a kept one than two thousandths of the range, and the smallest and the largest
    are kept.
    """
    distinct = np.unique(values)
    if len(distinct) <= SEEN:
        return distinct
    half = SEEN // 2
    by_rank = np.sort(values)[np.linspace(0, len(values) - 1, half).round().astype(int)]
    places = np.linspace(distinct[0], distinct[-1], half + 1)[:-1]
    by_place = distinct[np.minimum(np.searchsorted(distinct, places), len(distinct) - 1)]
    return np.unique(np.concatenate([by_rank, by_place]))


def fill_up(kept: np.ndarray) -> np.ndarray:
    return np.pad(kept, (0, SEEN - len(kept)), mode="edge")


def nearest_seen(seen: np.ndarray, values: np.ndarray) -> np.ndarray:
    """float64 [n]: distance of each of the `values` to the nearest of the rising `seen`."""
    seen = seen.astype(np.float64)
    after = np.searchsorted(seen, values).clip(0, len(seen) - 1)
    before = np.maximum(after - 1, 0)
    nearest: np.ndarray = np.minimum(np.abs(values - seen[before]), np.abs(seen[after] - values))
    return nearest


def nearest_elsewhere(values: np.ndarray, starts: np.ndarray, kept: np.ndarray, exclude: int) -> np.ndarray:
    """float64 [n]: distance to the nearest of `kept` that has a window outside ±exclude of one's own.

    Every window belongs to the kept value next to it. Of the windows of a kept value only the first and the
    last matter: one of the two is far enough away, or none is. Where nothing is, the result is NaN.
    """
    owner = np.searchsorted(kept, values).clip(0, len(kept) - 1)
    before = np.maximum(owner - 1, 0)
    values = values.astype(np.float64)
    owner = np.where(np.abs(values - kept[before]) < np.abs(kept[owner] - values), before, owner)
    first = np.full(len(kept), FAR)
    last = np.full(len(kept), -FAR)
    np.minimum.at(first, owner, starts)
    np.maximum.at(last, owner, starts)

    best = np.full(len(values), np.inf)
    low, high, end = starts - exclude, starts + exclude, len(kept) - 1
    for up in (True, False):  # among the values from one's own on, then among those down from it
        if up:
            place = _first_beyond(first, last, owner, low, high)
        else:
            place = end - _first_beyond(first[::-1], last[::-1], end - owner, low, high)
        found = (place >= 0) & (place <= end)
        best[found] = np.minimum(best[found], np.abs(kept[place[found]] - values[found]))
    return np.where(np.isfinite(best), best, np.nan)


def _first_beyond(
    first: np.ndarray, last: np.ndarray, place: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """int64 [n]: from `place` on, the first index with `first` below `low` or `last` above `high`; K if none.

    Spans of 2ᵖ entries are jumped over at once where none of them is beyond: log₂ K steps, not up to K.
    """
    count = len(first)
    smallest, largest = [np.append(first, -FAR)], [np.append(last, FAR)]  # the end is always beyond
    while 2 ** len(smallest) <= count:
        ahead = np.minimum(np.arange(count + 1) + 2 ** (len(smallest) - 1), count)
        smallest.append(np.minimum(smallest[-1], smallest[-1][ahead]))
        largest.append(np.maximum(largest[-1], largest[-1][ahead]))
    for p in reversed(range(len(smallest))):
        none = (smallest[p][place] >= low) & (largest[p][place] <= high)
        place = place + np.where(none, 2**p, 0)
    return place

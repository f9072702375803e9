"""The level score: has the series had this height, and this much movement, before?

The patches that the encoder sees are standardised: a shift of level, a value never seen, a sensor that is too
loud or too quiet look like nothing. This part looks at just that. Over windows of a patch, a quarter and a
sixteenth of it, and at the single point (`windows_of`), it takes the mean and the standard deviation of each
channel and asks how far the nearest value of the training series is, in units of that feature's own standard
deviation there. As with patches, a point gets the mean over all windows that contain it.

A distance of d units is taken to have the tail probability 1 / (1 + d), a heavy tail (Lomax): a value beyond
all seen before is news, twice as far is not twice the news. Then

    features of a channel   −ln p adds up (Fisher)
    channels                adds up too, over √C: many channels at rest are no noisier than one (Stouffer)
    shape and level         the shape distance in units of its 99th training percentile (an exponential tail:
                            cosine distances are bounded) plus what the level has above its training median

so both are nats of surprise, and a score says which of the two spoke. Fitting uses no label. The form was
chosen on labelled series: benchmarks/ACCURACY.md says what each choice was worth there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paano.errors import ArtifactError
from paano.series import Series, valid_starts

LADDER = (1, 4, 16)  # a patch and its parts
SEEN = 1024  # values kept of a feature: half spread over the ranks, half over the range
SHAPE_QUANTILE = 0.99
NO_NEWS = 1.0  # nats: `update` learns from rows below this even if training never came near it
# A feature that hardly moved in training is measured in hundredths of its channel's deviation, and a channel
# that never moved in millionths of its height: below that a difference is rounding, not news.
SMALLEST_SHARE, SMALLEST_PART = 0.01, 1e-6

FAR = np.iinfo(np.int64).max // 2  # beyond every row

Parts = tuple[np.ndarray, ...]
NUMBERS = ("shape_unit", "typical", "limit")  # in the order of the fields of Level

SHAPE, LEVEL, BOTH = "shape", "level", "shape and level"


def windows_of(patch: int) -> tuple[int, ...]:
    """The window lengths for a patch length, the longest first.

    >>> windows_of(96)
    (96, 24, 6, 1)
    """
    return (*sorted({patch // part for part in LADDER if patch // part >= 2}, reverse=True), 1)


def features_of(patch: int) -> tuple[tuple[int, str], ...]:
    """(window, what) of each feature; a single point has no deviation."""
    return tuple(
        (window, what)
        for window in windows_of(patch)
        for what in ("mean", "deviation")
        if window > 1 or what == "mean"
    )


@dataclass(frozen=True)
class Level:
    """What means and deviations the training series had. F features (`features_of`) of C channels."""

    patch: int
    centre: np.ndarray  # float64 [C]: subtracted from the values
    unit: np.ndarray  # float64 [F, C]: what counts as a distance of 1
    seen: np.ndarray  # float32 [F, C, SEEN]: rising, in units, the last repeated to fill up
    shape_unit: float  # the shape distance that counts as 1
    typical: float  # the median level of the training rows, which is no surprise
    limit: float  # the level up to which `update` judges a row normal

    def by_channel(self, series: Series) -> np.ndarray:
        """float64 [N, C]: nats of surprise at each row by channel, NaN where no window is whole."""
        total = np.zeros(series.values.shape)
        for f, feature in enumerate(_features(series, self.patch, self.centre)):
            distance = np.full(feature.values.shape, np.nan)  # [n, C]
            for c in range(series.channels):
                distance[:, c] = nearest_seen(self.seen[f, c], feature.values[:, c] / self.unit[f, c])
            total += np.log1p(feature.to_points(distance))
        return total

    def score(self, series: Series) -> np.ndarray:
        """float64 [N]: the level of each row, NaN where there is none."""
        return over_channels(self.by_channel(series))

    def combine(self, shape: np.ndarray, level: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Score and its two parts, which add up to it, from the shape distance and the level of each row."""
        shape, level = shape / self.shape_unit, np.maximum(level - self.typical, 0.0)
        return shape + level, shape, np.where(np.isnan(shape), np.nan, level)

    def update(self, series: Series, normal: np.ndarray) -> Level:
        """What the `normal` [N] rows show has now been seen as well, as far as it is no news (`limit`).

        The units stay, so scores before and after compare; a value once seen stays seen.
        """
        seen = self.seen.copy()
        familiar = self.score(series) <= self.limit  # false for NaN
        rows = replace(series, usable=series.usable & normal & familiar)
        for f, feature in enumerate(_features(rows, self.patch, self.centre)):
            for c in range(series.channels):
                fresh = (feature.values[:, c] / self.unit[f, c]).astype(np.float32)
                seen[f, c] = _fill(keep_values(np.concatenate([seen[f, c], fresh])))
        return replace(self, seen=seen)

    # -- keeping --

    def tensors(self) -> dict[str, np.ndarray]:
        return {"level.centre": self.centre, "level.unit": self.unit, "level.seen": self.seen}

    def numbers(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in NUMBERS}

    @classmethod
    def from_parts(cls, patch: int, tensors: Mapping[str, np.ndarray], numbers: Any) -> Level:
        """The level as `tensors` and `numbers` gave it; what cannot be one is refused."""
        if not isinstance(numbers, Mapping) or set(numbers) != set(NUMBERS):
            raise ArtifactError(f"a level has exactly the entries {', '.join(NUMBERS)}")
        for name in NUMBERS:
            value = numbers[name]
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
                raise ArtifactError(f"level.{name} = {value!r} is not a finite number of at least 0")
        level = cls(
            patch,
            tensors["level.centre"].copy(),
            tensors["level.unit"].copy(),
            tensors["level.seen"].copy(),
            *(float(numbers[name]) for name in NUMBERS),
        )
        if not (level.unit > 0).all() or level.shape_unit == 0 or (np.diff(level.seen) < 0).any():
            raise ArtifactError("the level's values do not fit together; the model must be fitted again")
        return level


def level_shapes(patch: int, channels: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors that an artefact with a level has beside its bank."""
    features = len(features_of(patch))
    return {
        "level.centre": ("F64", (channels,)),
        "level.unit": ("F64", (features, channels)),
        "level.seen": ("F32", (features, channels, SEEN)),
    }


def fit_level(
    series: Series, patch: int, shape: np.ndarray, normal_quantile: float
) -> tuple[Level, np.ndarray]:
    """The level of a training series and its own level scores float64 [N].

    `shape` [N] are the shape distances of the training rows. As there, a window never matches one that starts
    within ±patch of it; a row of which nothing else is left has no score.
    """
    known = series.values[series.usable]
    centre = known.mean(axis=0)  # [C]
    deviation, height = known.std(axis=0), np.abs(known).max(axis=0)
    smallest = np.maximum(SMALLEST_SHARE * deviation, SMALLEST_PART * np.where(height > 1e-100, height, 1.0))
    count, channels = len(features_of(patch)), series.channels
    unit = np.empty((count, channels))
    seen = np.empty((count, channels, SEEN), dtype=np.float32)
    total = np.zeros(series.values.shape)
    for f, feature in enumerate(_features(series, patch, centre)):
        unit[f] = np.maximum(feature.values.std(axis=0), smallest)
        distance = np.empty(feature.values.shape)
        for c in range(channels):
            values = (feature.values[:, c] / unit[f, c]).astype(np.float32)
            kept = keep_values(values)
            seen[f, c] = _fill(kept)
            distance[:, c] = nearest_elsewhere(values, feature.starts, kept, patch)
        total += np.log1p(feature.to_points(distance))
    training = over_channels(total)

    there = shape[np.isfinite(shape)]
    shape_unit = float(np.quantile(there, SHAPE_QUANTILE)) if there.size else 0.0
    shape_unit = shape_unit if shape_unit > 1e-6 else 1.0
    finite = training[np.isfinite(training)]
    typical, high = np.quantile(finite, [0.5, normal_quantile]).tolist() if finite.size else (0.0, 0.0)
    limit = max(typical + NO_NEWS, high)
    return Level(patch, centre, unit, seen, shape_unit, typical, limit), training


def over_channels(surprise: np.ndarray) -> np.ndarray:
    """float64 [N] from the surprise [N, C] of each channel."""
    return surprise.sum(axis=1) / np.sqrt(surprise.shape[1])


def speaker(shape: float, level: float) -> str:
    """Which of the two parts of a score spoke: the one with more than two thirds of it, or both.

    >>> speaker(1.2, 9.0)
    'level'
    """
    if not np.isfinite(level):
        return SHAPE
    share = level / max(shape + level, 1e-12)
    return LEVEL if share > 2 / 3 else SHAPE if share < 1 / 3 else BOTH


# -- distances ------------------------------------------------------------


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


def _fill(kept: np.ndarray) -> np.ndarray:
    return np.pad(kept, (0, SEEN - len(kept)), mode="edge")


def nearest_seen(seen: np.ndarray, values: np.ndarray) -> np.ndarray:
    """float64 [n]: distance of each of the `values` to the nearest of the rising `seen`."""
    seen = seen.astype(np.float64)
    after = np.searchsorted(seen, values).clip(0, len(seen) - 1)
    before = np.maximum(after - 1, 0)
    return np.minimum(np.abs(values - seen[before]), np.abs(seen[after] - values))


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


# -- windows ------------------------------------------------------------


@dataclass(frozen=True)
class _Feature:
    """One feature of all whole windows: `values` [n, C] of those that start at `starts` [n], of N rows."""

    window: int
    rows: int
    starts: np.ndarray
    values: np.ndarray

    def to_points(self, distance: np.ndarray) -> np.ndarray:
        """float64 [N, C]: at each row the mean `distance` [n, C] of the windows that contain it.

        A window without a distance has none in any channel.
        """
        there = np.isfinite(distance).all(axis=1)
        ends = self.starts[there] + self.window - 1
        padded = np.zeros((self.rows + self.window - 1, distance.shape[1]))
        count = np.zeros((self.rows + self.window - 1, 1))
        padded[ends], count[ends] = distance[there], 1.0
        with np.errstate(invalid="ignore"):
            return sliding_sum(padded, self.window) / sliding_sum(count, self.window)  # 0 / 0 is NaN


def _features(series: Series, patch: int, centre: np.ndarray) -> Iterator[_Feature]:
    """The features in the order of `features_of`."""
    values = np.where(series.usable[:, None], series.values - centre, 0.0)
    for window in windows_of(patch):
        starts = valid_starts(series.usable, window)
        mean, deviation = sliding_moments(values, window)
        yield _Feature(window, len(series), starts, mean[starts])
        if window > 1:
            yield _Feature(window, len(series), starts, deviation[starts])


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
    joined, length, size = None, 0, 1  # `joined` covers the first `length` rows of every window
    while True:
        if window & size:
            piece = tuple(part[length : length + count] for part in parts)
            joined = piece if joined is None else join(joined, piece, length, size)
            length += size
        if length == window:
            return joined
        parts = join(tuple(p[:-size] for p in parts), tuple(p[size:] for p in parts), size, size)
        size *= 2

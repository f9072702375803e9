"""The level score: has the series had this height, and this much movement, before?

The patches that the encoder sees are standardised: a shift of level, a value never seen, a sensor that moves
too much or too little cannot be seen in them. This part looks at just that. Over windows of a patch, a
quarter and a sixteenth of it, and at the single point (`windows_of`), it takes the mean and the standard
deviation of each channel and asks how far the nearest value of the training series is, in units of that
feature's own standard deviation there. As with patches, a point gets the mean over all windows that contain
it.

A distance of d units is taken to have the tail probability 1 / (1 + d), a heavy tail (Lomax): a value beyond
all seen before is a surprise, twice as far is less than twice the surprise. Then

    features of a channel   −ln p adds up (Fisher)
    channels                adds up too, over √C: many channels at rest are no noisier than one (Stouffer)
    shape and level         the shape distance in units of its 99th training percentile (an exponential tail:
                            cosine distances are bounded) plus what the level has above its training median

so both are nats of surprise, and the larger is the cause of a score (`paano.alarms.cause`). Fitting uses no
label. The form was chosen on labelled series: benchmarks/ACCURACY.md says what each choice was worth there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paano.errors import ArtifactError
from paano.scoring.seen import SEEN, fill_up, keep_values, nearest_elsewhere, nearest_seen
from paano.scoring.sliding import sliding_moments, sliding_sum
from paano.scoring.still import ROWS, bounded, rows_from
from paano.series import Series, valid_starts

LADDER = (1, 4, 16)  # a patch and its parts
SHAPE_QUANTILE = 0.99
SMALL_SURPRISE = 1.0  # nats: `update` learns from rows below this even if training never came near it
# A feature that hardly moved in training is measured in hundredths of its channel's deviation, and a channel
# that never moved in millionths of its height: below that a difference is rounding.
SMALLEST_SHARE, SMALLEST_PART = 0.01, 1e-6


NUMBERS = ("shape_unit", "typical", "limit")  # in the order of the fields of Level


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
    still: np.ndarray | None = None  # int64 [C]: rows in which a channel never moved (`paano.scoring.still`)

    def by_channel(self, series: Series) -> np.ndarray:
        """float64 [N, C]: nats of surprise at each row by channel, NaN where no window is whole."""
        total = np.zeros(series.values.shape)
        for f, feature in enumerate(_features(series, self.patch, self.centre)):
            distance = np.full(feature.values.shape, np.nan)  # [n, C]
            for c in range(series.channels):
                distance[:, c] = nearest_seen(self.seen[f, c], feature.values[:, c] / self.unit[f, c])
            total += np.log1p(feature.to_points(distance))
        return bounded(total, self.still)

    def score(self, series: Series) -> np.ndarray:
        """float64 [N]: the level of each row, NaN where there is none."""
        return over_channels(self.by_channel(series))

    def in_nats(self, shape: np.ndarray, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The two parts of the score, which add up, from the shape distance and the level of each row."""
        shape, level = shape / self.shape_unit, np.maximum(level - self.typical, 0.0)
        return shape, np.where(np.isnan(shape), np.nan, level)

    def update(self, series: Series, normal: np.ndarray, *, whatever: bool = False) -> Level:
        """What the `normal` [N] rows show has now been seen as well, as far as it is at most `limit`.

        The units stay, so scores before and after compare; a value once seen stays seen. With `whatever` the
        limit does not matter: a person says that these rows are normal.
        """
        seen = self.seen.copy()
        familiar = self.score(series) <= (np.inf if whatever else self.limit)  # false for NaN
        rows = replace(series, usable=series.usable & normal & familiar)
        for f, feature in enumerate(_features(rows, self.patch, self.centre)):
            for c in range(series.channels):
                fresh = (feature.values[:, c] / self.unit[f, c]).astype(np.float32)
                seen[f, c] = fill_up(keep_values(np.concatenate([seen[f, c], fresh])))
        return replace(self, seen=seen)

    # -- keeping --

    def tensors(self) -> dict[str, np.ndarray]:
        counted = {} if self.still is None else {ROWS: self.still}
        return {"level.centre": self.centre, "level.unit": self.unit, "level.seen": self.seen, **counted}

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
            **{name: float(numbers[name]) for name in NUMBERS},
            still=rows_from(tensors),
        )
        if not (level.unit > 0).all() or level.shape_unit == 0 or (np.diff(level.seen) < 0).any():
            raise ArtifactError("the level's values do not fit together; the model must be fitted again")
        return level


def level_shapes(patch: int, channels: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors that an artifact with a level has beside its bank."""
    features = len(features_of(patch))
    return {
        "level.centre": ("F64", (channels,)),
        "level.unit": ("F64", (features, channels)),
        "level.seen": ("F32", (features, channels, SEEN)),
    }


def fit_level(
    series: Series, patch: int, shape: np.ndarray, normal_quantile: float, still: np.ndarray | None = None
) -> tuple[Level, np.ndarray]:
    """The level of a training series and its own level scores float64 [N].

    `shape` [N] are the shape distances of the training rows. As there, a window never matches one that starts
    within ±patch of it; a row of which nothing else is left has no score. `still` [C] are the rows in which a
    channel never moved, if its surprise is to be bounded by them.
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
            seen[f, c] = fill_up(kept)
            distance[:, c] = nearest_elsewhere(values, feature.starts, kept, patch)
        total += np.log1p(feature.to_points(distance))
    training = over_channels(bounded(total, still))

    there = shape[np.isfinite(shape)]
    shape_unit = float(np.quantile(there, SHAPE_QUANTILE)) if there.size else 0.0
    shape_unit = shape_unit if shape_unit > 1e-6 else 1.0
    finite = training[np.isfinite(training)]
    typical, high = np.quantile(finite, [0.5, normal_quantile]).tolist() if finite.size else (0.0, 0.0)
    limit = max(typical + SMALL_SURPRISE, high)
    return Level(patch, centre, unit, seen, shape_unit, typical, limit, still), training


def over_channels(surprise: np.ndarray) -> np.ndarray:
    """float64 [N] from the surprise [N, C] of each channel."""
    total: np.ndarray = surprise.sum(axis=1) / np.sqrt(surprise.shape[1])
    return total


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
            mean: np.ndarray = sliding_sum(padded, self.window) / sliding_sum(count, self.window)
        return mean  # 0 / 0 is NaN


def _features(series: Series, patch: int, centre: np.ndarray) -> Iterator[_Feature]:
    """The features in the order of `features_of`."""
    values = np.where(series.usable[:, None], series.values - centre, 0.0)
    for window in windows_of(patch):
        starts = valid_starts(series.usable, window)
        mean, deviation = sliding_moments(values, window)
        yield _Feature(window, len(series), starts, mean[starts])
        if window > 1:
            yield _Feature(window, len(series), starts, deviation[starts])

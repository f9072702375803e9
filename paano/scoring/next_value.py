"""The next-value score: how far was each value from what the values before it announced?

A linear forecast in closed form: the next value minus the last one, by ridge regression on the differences
of the last p values to the last one. Its residual is looked at twice, at the row itself and over a patch
around it (root mean square, so that many small surprises count like a large one). Each counts for what it
has above its limit, in units of its own root mean square in training, as nats: ln(1 + d), as for the level;
the two add up. The residual of a row looks at no later row: it rises exactly where something begins, where
shape and level are spread over a patch.

The limit over a patch is the 99.9th percentile of training. At the row, one training row in a thousand would
then stand out of the training scores, each by itself: more often than an alarm budget allows, so that the
threshold would rise for shape and level as well. There the limit lies above the largest residual of
training, by as much as that is above the percentile (what a history a few times as long would have reached),
because a threshold that no training row has raised allows for no new one either.

Every channel has a forecast of its own; channels add up over √C, as the level's do. A row without p usable
rows before it has no forecast and no surprise of its own. Only the rows of a forecast decide its numbers,
added up in a fixed order: scores do not depend on where a series was cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from paano.errors import ArtifactError
from paano.scoring.sliding import sliding_sum
from paano.scoring.still import bounded, rows_from
from paano.series import Series, valid_starts

MOST_PAST = 48  # values that a forecast looks at
RIDGE = 1e-4  # of the mean square of the differences: what is added to the diagonal
QUANTILE = 0.999  # of the training rows: over a patch, up to it nothing is a surprise
LOOKS = 2  # the row itself, and a patch around it
ROWS_AT_ONCE = 20_000
# A residual is never measured in less than this share of the channel's deviation and of its height: below
# that a difference is rounding.
SMALLEST_SHARE, SMALLEST_PART = 1e-6, 1e-9


def past_of(patch: int) -> int:
    """How many values a forecast looks at: with half a patch around it, never more than a night reads."""
    return max(2, min(MOST_PAST, patch // 2))


@dataclass(frozen=True)
class NextValue:
    """The forecasts of C channels from their last p values."""

    patch: int
    weights: np.ndarray  # float64 [C, p − 1]: of the differences to the last value, the oldest first
    limit: np.ndarray  # float64 [LOOKS, C]: up to it nothing is a surprise
    unit: np.ndarray  # float64 [LOOKS, C]: what counts as a distance of 1
    still: np.ndarray | None = None  # int64 [C]: rows in which a channel never moved (`paano.scoring.still`)

    def residuals(self, series: Series) -> np.ndarray:
        """float64 [N, C]: value minus forecast, NaN in rows that have none."""
        past = self.weights.shape[1] + 1
        out = np.full(series.values.shape, np.nan)
        starts = valid_starts(series.usable, past + 1)
        if starts.size:
            last = series.values[starts + past - 1]
            apart = series.values[starts + past] - last
            for i in range(past - 1):
                apart -= self.weights[:, i] * (series.values[starts + i] - last)
            out[starts + past] = apart
        return out

    def sizes(self, series: Series) -> np.ndarray:
        """float64 [LOOKS, N, C]: the residual at each row and over a patch around it; none counts as 0."""
        size = np.abs(np.nan_to_num(self.residuals(series)))
        before = self.patch // 2
        padded = np.pad(np.square(size), ((before, self.patch - 1 - before), (0, 0)))
        return np.stack([size, np.sqrt(sliding_sum(padded, self.patch) / self.patch)])

    def by_channel(self, series: Series) -> np.ndarray:
        """float64 [N, C]: nats of surprise at each row by channel."""
        beyond = np.maximum(self.sizes(series) - self.limit[:, None], 0.0)
        nats: np.ndarray = np.log1p(beyond / self.unit[:, None]).sum(axis=0)
        return bounded(nats, self.still)

    def score(self, series: Series) -> np.ndarray:
        """float64 [N]: the surprise of each row, all channels together."""
        surprise = self.by_channel(series)
        total: np.ndarray = surprise.sum(axis=1) / np.sqrt(surprise.shape[1])
        return total

    def take_in(self, series: Series, normal: np.ndarray) -> NextValue:
        """Residuals as large as those of the `normal` [N] rows are no surprise from now on."""
        sizes = self.sizes(series)[:, normal]
        return replace(self, limit=np.maximum(self.limit, sizes.max(axis=1))) if sizes.size else self

    def tensors(self) -> dict[str, np.ndarray]:
        """What an artifact keeps of it."""
        return {"next.weights": self.weights, "next.limit": self.limit, "next.unit": self.unit}

    @classmethod
    def from_tensors(cls, patch: int, tensors: Mapping[str, np.ndarray]) -> NextValue:
        """The forecasts as `tensors` gave them; what cannot be one is refused."""
        weights, limit, unit = (tensors[f"next.{name}"].copy() for name in ("weights", "limit", "unit"))
        found = cls(patch, weights, limit, unit, rows_from(tensors))
        if not (found.unit > 0).all() or (found.limit < 0).any():
            raise ArtifactError("the forecast's values do not fit together; the model must be fitted again")
        return found


def next_value_shapes(patch: int, channels: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors that an artifact with a next-value part has beside its bank."""
    return {
        "next.weights": ("F64", (channels, past_of(patch) - 1)),
        "next.limit": ("F64", (LOOKS, channels)),
        "next.unit": ("F64", (LOOKS, channels)),
    }


def fit_next_value(series: Series, patch: int, still: np.ndarray | None = None) -> NextValue:
    """The forecasts of a training series. Where nothing can be learned, the forecast is the last value.

    `still` [C] are the rows in which a channel never moved, if its surprise is to be bounded by them.
    """
    past, channels = past_of(patch), series.channels
    starts = valid_starts(series.usable, past + 1)
    known = series.values[series.usable]
    height = np.abs(known).max(axis=0)
    smallest = np.maximum(
        SMALLEST_SHARE * known.std(axis=0), SMALLEST_PART * np.where(height > 1e-100, height, 1.0)
    )
    weights = np.zeros((channels, past - 1))
    for c in range(channels if starts.size else 0):
        weights[c] = _ridge(series.values[:, c], starts, past)
    limit, unit = np.zeros((LOOKS, channels)), np.ones((LOOKS, channels))
    found = NextValue(patch, weights, limit, unit)
    sizes = found.sizes(series)[:, starts + past]
    if starts.size:
        limit = np.quantile(sizes, QUANTILE, axis=1)
        limit[0] = 2 * sizes[0].max(axis=0) - limit[0]
        unit = np.sqrt(np.square(sizes).mean(axis=1))
    return NextValue(patch, weights, limit, np.maximum(unit, smallest), still)


def _ridge(values: np.ndarray, starts: np.ndarray, past: int) -> np.ndarray:
    """float64 [past − 1]: the weights of one channel; memory does not grow with the rows."""
    square, cross = np.zeros((past - 1, past - 1)), np.zeros(past - 1)
    steps = np.arange(past + 1)
    for i in range(0, starts.size, ROWS_AT_ONCE):
        rows = values[starts[i : i + ROWS_AT_ONCE, None] + steps]  # [m, past + 1]
        apart = rows - rows[:, past - 1 : past]
        square += apart[:, : past - 1].T @ apart[:, : past - 1]
        cross += apart[:, : past - 1].T @ apart[:, past]
    mean = float(np.trace(square)) / (past - 1)
    if not 0 < mean < np.inf:
        return np.zeros(past - 1)  # a series that never moved: the last value is the forecast
    weights: np.ndarray = np.linalg.solve(square + RIDGE * mean * np.eye(past - 1), cross)
    return weights

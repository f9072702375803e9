"""What each choice of the level score is worth, on the same shape scores of an untrained encoder.

    python -m benchmarks.level [--keep FOLDER]

Shape scores are made once per file (`benchmarks.accuracy --keep`) and kept in FOLDER; everything else takes
seconds. Univariate files of the tuning split.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.accuracy import (
    Task,
    data_folder,
    mean_and_error,
    ordered_files,
    plan,
    run,
    without_one_subset,
)
from paano.alarms.fit_calibration import fit_calibration
from paano.evaluation.metrics import evaluate, find_window
from paano.evaluation.protocol import read_series
from paano.scoring.seen import keep_values, nearest_elsewhere
from paano.scoring.sliding import sliding_moments, sliding_sum

PATCH = 96
LADDER = (96, 24, 6, 1)


class File:
    """One series with its shape scores, and the distances of any feature, computed once."""

    def __init__(self, task: Task, keep: Path):
        kept = keep / task.kept
        if not kept.exists():
            run(task, keep)
        with np.load(kept) as arrays:
            self.shape, self.shape_train = arrays["shape"].astype(float), arrays["train"].astype(float)
        series = read_series(task.path)
        self.subset, self.labels, self.n = series.subset, series.labels, series.train_rows
        self.x = series.values[:, :1]
        self.window = find_window(series.values[:, 0])
        self._distances: dict[tuple, np.ndarray] = {}

    def vus_pr(self, score: np.ndarray) -> float:
        return evaluate(score, self.labels, self.window)["vus_pr"]

    @cached_property
    def shape_unit(self) -> float:
        unit = float(np.nanquantile(self.shape_train, 0.99))
        return unit if unit > 1e-6 else 1.0

    def feature(self, window: int, what: str) -> np.ndarray:
        """[N − window + 1]: the feature of every window."""
        x = np.diff(self.x, axis=0, prepend=self.x[:1]) if what == "roughness" else self.x
        mean, deviation = sliding_moments(x - x[: self.n].mean(), window)
        if what == "mean":
            return mean[:, 0]
        if what == "log deviation":
            return np.log(deviation[:, 0] + 1e-3 * max(float(self.x[: self.n].std()), 1e-9))
        return deviation[:, 0]

    def distance(self, window: int, what: str, unit: str = "deviation") -> np.ndarray:
        """[N]: distance to the nearest training value at every point, the mean over the windows around it."""
        key = (window, what, unit)
        if key not in self._distances:
            values = self.feature(window, what)
            train = values[: self.n - window + 1]
            seen = np.sort(train)
            after = np.searchsorted(seen, values).clip(0, len(seen) - 1)
            before = np.maximum(after - 1, 0)
            distance = np.minimum(np.abs(values - seen[before]), np.abs(seen[after] - values))
            size = self._size(train, unit)
            self._distances[key] = self._to_points(distance / size, window, len(self.x))
        return self._distances[key]

    def own(self, window: int, what: str, unit: str = "deviation") -> np.ndarray:
        """[n]: the same at the training points, to windows that start a patch or more away."""
        values = self.feature(window, what)[: self.n - window + 1]
        scaled = (values / self._size(values, unit)).astype(np.float32)
        own = nearest_elsewhere(scaled, np.arange(len(scaled)), keep_values(scaled), PATCH)
        return self._to_points(own, window, self.n)

    def _size(self, train: np.ndarray, unit: str) -> float:
        """What counts as a distance of 1."""
        height = float(np.abs(self.x[: self.n]).max())
        spread = float(self.x[: self.n].std())
        size = {
            "deviation": lambda: float(train.std()),
            "range": lambda: float(np.ptp(train)),
            "quartiles": lambda: float(np.subtract(*np.quantile(train, [0.75, 0.25]))),
            "channel": lambda: spread,
        }[unit]()
        return max(size, 0.01 * spread, 1e-6 * (height or 1.0))

    def tail(self, window: int, what: str) -> np.ndarray:
        """[N]: −ln of the tail against the feature's own training distances with an exclusion zone."""
        key = (window, what, "tail")
        if key not in self._distances:
            values = self.feature(window, what)
            train = values[: self.n - window + 1]
            own = nearest_elsewhere(train, np.arange(len(train)), np.unique(train), PATCH)
            calibration = fit_calibration(self._to_points(own, window, self.n), patch=PATCH)
            raw = self.distance(window, what, "range") * max(float(np.ptp(train)), 1e-9)
            self._distances[key] = calibration.tail(raw) * math.log(10)
        return self._distances[key]

    @cached_property
    def shape_tail(self) -> np.ndarray:
        return fit_calibration(self.shape_train, patch=PATCH).tail(self.shape) * math.log(10)

    @staticmethod
    def _to_points(values: np.ndarray, window: int, rows: int) -> np.ndarray:
        padded, count = np.zeros((rows + window - 1, 1)), np.zeros((rows + window - 1, 1))
        there = np.flatnonzero(np.isfinite(values))
        padded[there + window - 1, 0], count[there + window - 1] = values[there], 1.0
        with np.errstate(invalid="ignore"):
            return (sliding_sum(padded, window) / sliding_sum(count, window))[:, 0]


def level_of(values: np.ndarray, train_rows: int, chosen: list[tuple[int, str]], unit: str) -> np.ndarray:
    """[N]: a level of the chosen features for the first channel of `values`, fitted on the first rows."""
    file = File.__new__(File)
    file.x, file.n, file._distances = values[:, :1], train_rows, {}
    total: np.ndarray = sum(np.log1p(file.distance(*feature, unit)) for feature in chosen)
    return total


def typical_of(train: np.ndarray, chosen: list[tuple[int, str]], unit: str) -> float:
    """The median of the same level of the training rows, where a window never matches one near it."""
    file = File.__new__(File)
    file.x, file.n, file._distances = train[:, :1], len(train), {}
    total = sum(np.log1p(file.own(*feature, unit)) for feature in chosen)
    finite = total[np.isfinite(total)]
    return float(np.median(finite)) if finite.size else 0.0


Score = Callable[[File], np.ndarray]


def features(ladder: tuple[int, ...], *whats: str) -> list[tuple[int, str]]:
    return [(window, what) for window in ladder for what in whats if window > 1 or what == "mean"]


OURS = features(LADDER, "mean", "deviation")


def level(chosen: list[tuple[int, str]], unit: str = "deviation", steep: float = 1.0) -> Score:
    return lambda file: sum(np.log1p(steep * file.distance(*feature, unit)) for feature in chosen)


def shape(file: File) -> np.ndarray:
    return file.shape / file.shape_unit


def both(other: Score, weight: float = 1.0) -> Score:
    return lambda file: weight * shape(file) + other(file)


def alternatives() -> dict[str, Score]:
    found: dict[str, Score] = {
        "shape + level (ours)": both(level(OURS)),
        "shape alone": shape,
        "level alone": level(OURS),
        "larger of the two": lambda file: np.maximum(shape(file), level(OURS)(file)),
        "ln(1 + shape) + level": lambda file: np.log1p(shape(file)) + level(OURS)(file),
        "shape counts double": both(level(OURS), 2.0),
        "shape counts half": both(level(OURS), 0.5),
        "sum of tails against own training distances": lambda file: (
            file.shape_tail + sum(file.tail(*feature) for feature in OURS)
        ),
        "largest of these tails": lambda file: np.maximum(
            file.shape_tail, np.max([file.tail(*feature) for feature in OURS], axis=0)
        ),
        "exponential tail: distances add up": both(
            lambda file: sum(file.distance(*feature) for feature in OURS)
        ),
        "distances capped at 2": both(
            lambda file: sum(np.minimum(file.distance(*feature), 2.0) for feature in OURS)
        ),
        "unit: range": both(level(OURS, "range")),
        "unit: quartiles": both(level(OURS, "quartiles")),
        "unit: deviation of the channel": both(level(OURS, "channel")),
        "distances count three times": both(level(OURS, steep=3.0)),
        "log deviation": both(level(features(LADDER, "mean", "log deviation"))),
        "without means": both(level(features(LADDER[:-1], "deviation"))),
        "without deviations": both(level(features(LADDER, "mean"))),
        "and roughness": both(level([*OURS, *features(LADDER[:-1], "roughness")])),
    }
    for gone in LADDER:
        rest = tuple(window for window in LADDER if window != gone)
        found[f"without window {gone}"] = both(level(features(rest, "mean", "deviation")))
    for ladder in ((96, 1), (96, 48, 24, 12, 6, 3, 1), (96, 32, 10, 3, 1)):
        name = ", ".join(map(str, ladder))
        found[f"windows {name}"] = both(level(features(ladder, "mean", "deviation")))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, default=Path("accuracy-scores"))
    parser.add_argument("--files", type=int, help="only the first so many files")
    options = parser.parse_args()
    paths = ordered_files(data_folder() / "TSB-AD-U-Tuning")[: options.files]
    tasks = plan(paths, ["untrained"], 1, 4)
    names = alternatives()
    found: dict[str, list[float]] = {name: [] for name in names}
    subsets = []
    for task in tasks:
        file = File(task, options.keep)
        subsets.append(file.subset)
        for name, score in names.items():
            found[name].append(file.vus_pr(score(file)))
    first, *_ = names
    print(f"{len(subsets)} files, untrained encoder of half width, one seed\n")
    print("| score | VUS-PR | minus ours | least and most, one subset left out |\n|---|---|---|---|")
    for name, values in found.items():
        mean, error = mean_and_error(values)
        gain = np.array(values) - np.array(found[first])
        difference, its_error = mean_and_error(gain)
        least, most = without_one_subset(gain, subsets)
        print(
            f"| {name} | {mean:.3f} ± {error:.3f} | {difference:+.3f} ± {its_error:.3f} "
            f"| {least:+.3f} … {most:+.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

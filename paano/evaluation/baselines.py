"""Three well-known detectors in a few lines of scikit-learn each, to see on one's own data what PaAno adds.

`FITS[name](past)` fits one to a series (N,) or (N, C) and gives a function from a series to one float32 score
per row; `BASELINES[name](X, train_rows)` is both steps in one. They are plain on purpose: channels are
standardised by the training rows, sub-sequences are as long as PaAno's patches but not normalised one by one,
a point's score is the mean over all sub-sequences that hold it. Missing rows have no score.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest

from paano.errors import SeriesTooShort

LENGTH = 96  # of a sub-sequence, as the paper's patches
MOST_FITTED = 10_000  # sub-sequences to fit on, evenly taken: more do not change a baseline
CHUNK_NUMBERS = 4_000_000  # of sub-sequences held at once

Score = Callable[[np.ndarray], np.ndarray]


def fit_pca(past: np.ndarray) -> Score:
    """Sub-sequence PCA: what the components of 90 % of the training variance leave unexplained."""
    scale = _Scale(past, LENGTH)
    pca = PCA(n_components=0.9, svd_solver="full").fit(scale.to_fit)
    return partial(scale.points, lambda p: np.square(p - pca.inverse_transform(pca.transform(p))).sum(axis=1))


def fit_kmeans(past: np.ndarray) -> Score:
    """Sub-sequence k-means: the distance to the nearest of 20 centres."""
    scale = _Scale(past, LENGTH)
    kmeans = KMeans(min(20, len(scale.to_fit)), n_init=1, random_state=0).fit(scale.to_fit)
    return partial(scale.points, lambda p: kmeans.transform(p).min(axis=1))


def fit_iforest(past: np.ndarray) -> Score:
    """Isolation forest on single rows: the published tables have it ahead of the one on sub-sequences."""
    scale = _Scale(past, 1)
    forest = IsolationForest(n_estimators=100, random_state=0).fit(scale.to_fit)
    return partial(scale.points, lambda p: -forest.score_samples(p))


FITS: dict[str, Callable[[np.ndarray], Score]] = {
    "pca": fit_pca,
    "kmeans": fit_kmeans,
    "iforest": fit_iforest,
}


def _fit_and_score(fit: Callable[[np.ndarray], Score], X: np.ndarray, train_rows: int) -> np.ndarray:
    return fit(X[:train_rows])(X)


BASELINES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    name: partial(_fit_and_score, fit) for name, fit in FITS.items()
}


class _Scale:
    """How a series is cut into standardised sub-sequences, as the training rows say."""

    def __init__(self, past: np.ndarray, length: int) -> None:
        past, _ = _bridged(past)
        if len(past) < length:
            raise SeriesTooShort(f"{len(past)} rows to train on, a sub-sequence needs {length}")
        self.length = length
        self.centre, spread = past.mean(axis=0), past.std(axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        windows = self._windows(past)
        self.to_fit = self._flat(
            windows[np.unique(np.linspace(0, len(windows) - 1, min(len(windows), MOST_FITTED)).astype(int))]
        )

    def _windows(self, X: np.ndarray) -> np.ndarray:
        """float32 (N - length + 1, C, length), a view until it is used."""
        X = ((X - self.centre) / self.spread).astype(np.float32)
        return np.lib.stride_tricks.sliding_window_view(X, self.length, axis=0)

    def _flat(self, windows: np.ndarray) -> np.ndarray:
        return windows.reshape(len(windows), -1)

    def points(self, score: Score, X: np.ndarray) -> np.ndarray:
        """Scores of all sub-sequences of `X`, in chunks, spread to points as their mean."""
        X, missing = _bridged(X)
        if len(X) < self.length:
            raise SeriesTooShort(f"{len(X)} rows to score, a sub-sequence needs {self.length}")
        windows = self._windows(X)
        step, count = max(1, CHUNK_NUMBERS // (X.shape[1] * self.length)), len(windows)
        patch = np.concatenate([score(self._flat(windows[i : i + step])) for i in range(0, count, step)])
        total = np.concatenate([[0.0], np.cumsum(patch, dtype=np.float64)])
        row = np.arange(len(X))
        first, last = np.maximum(row - self.length + 1, 0), np.minimum(row, count - 1) + 1
        point: np.ndarray = ((total[last] - total[first]) / (last - first)).astype(np.float32)
        point[missing] = np.nan
        return point


def _bridged(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`X` as (N, C) with straight lines over its holes, and the rows that had one."""
    X = np.array(X, dtype=np.float64)
    X = X.reshape(len(X), -1)
    known, rows = np.isfinite(X), np.arange(len(X))
    for c in np.flatnonzero(~known.all(axis=0)):
        X[:, c] = np.interp(rows, rows[known[:, c]], X[known[:, c], c]) if known[:, c].any() else 0.0
    return X, ~known.all(axis=1)

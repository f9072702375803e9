"""Three well-known detectors in a few lines of scikit-learn each, to see on one's own data what PaAno adds.

Each is `score(X, train_rows)`: fitted on the first rows of X (N,) or (N, C), one float32 score per row. They
are plain on purpose: channels standardised by the training rows, sub-sequences as PaAno's patches but not
normalised one by one, point scores the mean over all sub-sequences that hold the point. Missing rows have no
score.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest

from paano.errors import SeriesTooShort

LENGTH = 96  # of a sub-sequence, as the paper's patches
MOST_FITTED = 10_000  # sub-sequences to fit on, evenly taken: more do not change a baseline
CHUNK_NUMBERS = 4_000_000  # of sub-sequences held at once


def score_pca(X: np.ndarray, train_rows: int) -> np.ndarray:
    """Sub-sequence PCA: what the components of 90 % of the training variance leave unexplained."""
    patches = _Patches(X, train_rows)
    fitted = patches.to_fit()
    pca = PCA(n_components=0.9, svd_solver="full").fit(fitted)
    return patches.points(lambda p: np.square(p - pca.inverse_transform(pca.transform(p))).sum(axis=1))


def score_kmeans(X: np.ndarray, train_rows: int) -> np.ndarray:
    """Sub-sequence k-means: the distance to the nearest of 20 centres."""
    patches = _Patches(X, train_rows)
    fitted = patches.to_fit()
    kmeans = KMeans(min(20, len(fitted)), n_init=1, random_state=0).fit(fitted)
    return patches.points(lambda p: kmeans.transform(p).min(axis=1))


def score_iforest(X: np.ndarray, train_rows: int) -> np.ndarray:
    """Isolation forest on single rows: the published tables have it ahead of the one on sub-sequences."""
    patches = _Patches(X, train_rows, length=1)
    forest = IsolationForest(n_estimators=100, random_state=0).fit(patches.to_fit())
    return patches.points(lambda p: -forest.score_samples(p))


BASELINES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "pca": score_pca,
    "kmeans": score_kmeans,
    "iforest": score_iforest,
}


class _Patches:
    """The sub-sequences of a standardised series, a view until they are used."""

    def __init__(self, X: np.ndarray, train_rows: int, length: int = LENGTH) -> None:
        X = np.asarray(X, dtype=np.float64)
        X = X.reshape(len(X), -1)
        if train_rows < length:
            raise SeriesTooShort(f"{train_rows} rows to train on, a sub-sequence needs {length}")
        self.missing = ~np.isfinite(X).all(axis=1)
        X = np.stack([_bridged(channel) for channel in X.T], axis=1)
        spread = X[:train_rows].std(axis=0)
        X = (X - X[:train_rows].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        self.length = length
        self.train = train_rows - length + 1
        # (N - length + 1, C, length), a view
        self.windows = np.lib.stride_tricks.sliding_window_view(X.astype(np.float32), length, axis=0)

    def flat(self, rows: np.ndarray | slice) -> np.ndarray:
        return self.windows[rows].reshape(-1, self.windows.shape[1] * self.length)

    def to_fit(self) -> np.ndarray:
        return self.flat(np.unique(np.linspace(0, self.train - 1, min(self.train, MOST_FITTED)).astype(int)))

    def points(self, score: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Scores of all sub-sequences, in chunks, spread to points as their mean."""
        step = max(1, CHUNK_NUMBERS // (self.windows.shape[1] * self.length))
        count = len(self.windows)
        patch = np.concatenate([score(self.flat(slice(i, i + step))) for i in range(0, count, step)])
        total = np.concatenate([[0.0], np.cumsum(patch, dtype=np.float64)])
        row = np.arange(count + self.length - 1)
        first, last = np.maximum(row - self.length + 1, 0), np.minimum(row, count - 1) + 1
        point = ((total[last] - total[first]) / (last - first)).astype(np.float32)
        point[self.missing] = np.nan
        return point


def _bridged(channel: np.ndarray) -> np.ndarray:
    known = np.isfinite(channel)
    if known.all():
        return channel
    if not known.any():
        return np.zeros_like(channel)
    rows = np.arange(len(channel))
    return np.interp(rows, rows[known], channel[known])

"""The six measures of the TSB-AD benchmark, from one sort of the scores.

The definitions are those of the benchmark's own evaluation (Liu and Paparrizos, NeurIPS 2024): VUS in its
`opt` version with 250 thresholds, Range-F1 as the published tables compute it. The work is counted instead of
repeated: a point is known by the first threshold that raises it and by its distance to the nearest anomalies,
so all thresholds and all buffer widths come from small histograms. The slow obvious twin is in
`tests/oracle.py`.
"""

from __future__ import annotations

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from paano.errors import SeriesError

MEASURES = ("vus_pr", "vus_roc", "auc_pr", "auc_roc", "point_f1", "range_f1")

VUS_THRESHOLDS = 250
RANGE_THRESHOLDS = 100
EXISTENCE_WEIGHT = 0.2  # α of range recall; range precision has none

WINDOW_ROWS = 20_000  # the benchmark looks at no more rows than this
WINDOW_LAGS = 400
WINDOW_FIRST_LAG = 3
WINDOW_OTHERWISE = 125  # when the autocorrelation has no usable peak


def evaluate(scores: np.ndarray, labels: np.ndarray, window: int) -> dict[str, float]:
    """The six measures of `scores` (N,) against 0/1 `labels` (N,), buffers up to `window` points wide.

    A row without a score (NaN) can raise no alarm, so it takes the lowest score there is: an anomaly there is
    missed, never left out of the count.

    Returns:
        Each of `MEASURES`. One that is undefined is NaN: all six without any anomaly, the two ROC measures
        when every row is one.

    Raises:
        SeriesError: `scores` and `labels` are empty or differ in length, or `labels` are not 0 and 1.

    >>> evaluate(np.array([0.1, 0.2, 0.9, 0.1]), np.array([0, 0, 1, 0]), window=0)["auc_roc"]
    1.0
    """
    scores, labels, window = _checked(scores, labels, window)
    if not labels.any():
        return dict.fromkeys(MEASURES, float("nan"))
    starts, ends = segments(labels)
    vus_pr, vus_roc = _volumes(scores, labels, starts, ends, window)
    auc_pr, auc_roc, point_f1 = _point_measures(scores, labels)
    range_f1 = _range_f1(scores, labels, starts, ends)
    values = (vus_pr, vus_roc, auc_pr, auc_roc, point_f1, range_f1)
    return {name: float(value) for name, value in zip(MEASURES, values, strict=True)}


def evaluate_vus_pr(scores: np.ndarray, labels: np.ndarray, window: int) -> float:
    """VUS-PR alone, as `evaluate` gives it, for a third of its work."""
    scores, labels, window = _checked(scores, labels, window)
    if not labels.any():
        return float("nan")
    return float(_volumes(scores, labels, *segments(labels), window)[0])


def find_window(x: np.ndarray) -> int:
    """The period of `x` (N,) or of its first channel (N, C): the highest peak of its autocorrelation.

    125 where there is none between lags 6 and 303, as in the benchmark. Missing values are bridged by a
    straight line, because one hole would otherwise hide the period.
    """
    x = np.asarray(x, dtype=np.float64)
    x = (x if x.ndim == 1 else x.reshape(len(x), -1)[:, 0])[:WINDOW_ROWS]
    known = np.isfinite(x)
    if known.sum() < 2:
        return WINDOW_OTHERWISE
    if not known.all():
        rows = np.arange(len(x))
        x = np.interp(rows, rows[known], x[known])
    centred = x - x.mean()
    size = next_fast_len(2 * len(x) + 1, real=True)  # padded, so that the correlation does not wrap around
    spectrum = rfft(centred, size)
    covariance = irfft(spectrum.real**2 + spectrum.imag**2, size)[: min(len(x), WINDOW_LAGS + 1)]
    if covariance[0] <= 0:
        return WINDOW_OTHERWISE
    correlation = covariance[WINDOW_FIRST_LAG:] / covariance[0]
    inner = correlation[1:-1]
    peaks = 1 + np.flatnonzero((inner > correlation[:-2]) & (inner > correlation[2:]))
    if not len(peaks):
        return WINDOW_OTHERWISE
    best = int(peaks[np.argmax(correlation[peaks])])
    return best + WINDOW_FIRST_LAG if 3 <= best <= 300 else WINDOW_OTHERWISE


def segments(flags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and last row of every run of true `flags`."""
    padded = np.zeros(len(flags) + 2, dtype=np.int8)
    padded[1:-1] = flags
    steps = np.diff(padded)
    return np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1


def _checked(scores: np.ndarray, labels: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray, int]:
    scores = np.array(scores, dtype=np.float64)
    labels = np.asarray(labels)
    if scores.ndim != 1 or scores.shape != labels.shape or not len(scores):
        raise SeriesError(
            f"scores {scores.shape} and labels {labels.shape} must be two rows of equal length, not empty"
        )
    if not np.isin(labels, (0, 1)).all():
        raise SeriesError("labels must be 0 (normal) or 1 (anomaly)")
    if np.isinf(scores).any():
        raise SeriesError("scores must be finite, or NaN where a row has none")
    if window != int(window) or window < 0:
        raise SeriesError(f"window = {window!r} must be a whole number from 0")
    missing = np.isnan(scores)
    scores[missing] = 0.0 if missing.all() else scores[~missing].min()
    return scores, labels.astype(bool), int(window)


def _volumes(
    scores: np.ndarray, labels: np.ndarray, starts: np.ndarray, ends: np.ndarray, window: int
) -> tuple[float, float]:
    """VUS-PR and VUS-ROC: the areas of range-PR and range-ROC, averaged over buffers 0 … window.

    In a buffer of w points, half before and half after each anomaly, a row at distance d counts √(1 − d/w),
    and 1 where two buffers meet (two such roots are never less than 1).
    """
    count, positives = len(scores), int(labels.sum())
    ranked = np.sort(scores)[::-1]
    thresholds = ranked[np.linspace(0, count - 1, VUS_THRESHOLDS).astype(int)]  # falling
    # The first threshold that raises a row; all later ones do too.
    raised = np.searchsorted(-thresholds, -scores, side="left")
    predicted = np.cumsum(np.bincount(raised, minlength=VUS_THRESHOLDS))  # (T,)
    hits = np.cumsum(np.bincount(raised[labels], minlength=VUS_THRESHOLDS))  # (T,) within the anomalies

    buffered, existing = _buffers(raised, labels, starts, ends, window)  # both (window + 1, T)
    true = hits + buffered
    # The benchmark's middle way between counting the buffer fully and not at all.
    relevant = positives + buffered / 2
    recall = np.minimum(true / relevant, 1.0) * existing
    precision = true / predicted
    rest = count - relevant
    false_rate = np.divide(predicted - true, rest, out=np.full_like(rest, np.nan), where=rest > 0)

    zero, one = np.zeros((window + 1, 1)), np.ones((window + 1, 1))
    rise = np.diff(recall, axis=1, prepend=zero)
    area_pr = (rise * precision).sum(axis=1)
    area_roc = np.trapezoid(np.hstack([zero, recall, one]), np.hstack([zero, false_rate, one]), axis=1)
    return area_pr.mean(), area_roc.mean()


def _buffers(
    raised: np.ndarray, labels: np.ndarray, starts: np.ndarray, ends: np.ndarray, window: int
) -> tuple[np.ndarray, np.ndarray]:
    """For every buffer width and threshold: the weight raised in buffers, the share of anomalies found."""
    half = window // 2
    row, near, second = _distances(labels, starts, ends, half)
    level = raised[row]
    by_near = np.argsort(near, kind="stable")
    by_second = np.argsort(second, kind="stable")
    near_cut = np.searchsorted(near[by_near], np.arange(half + 2))
    second_cut = np.searchsorted(second[by_second], np.arange(half + 2))

    alone = np.zeros((half + 1, VUS_THRESHOLDS))  # rows in one buffer only, by distance and threshold
    shared = np.zeros(VUS_THRESHOLDS)  # rows where buffers meet
    # The first threshold that finds each anomaly (one row more, as the last may end where the series ends).
    edges = np.stack([starts, ends + 1], axis=1).ravel()
    lowest = np.minimum.reduceat(np.append(raised, VUS_THRESHOLDS), edges)[::2]
    gaps = starts[1:] - ends[:-1]

    buffered = np.zeros((window + 1, VUS_THRESHOLDS))
    existing = np.zeros((window + 1, VUS_THRESHOLDS))
    distance = np.arange(half + 1)
    for reach in range(half + 1):
        arrive = by_near[near_cut[reach] : near_cut[reach + 1]]
        alone[reach] = np.bincount(level[arrive], minlength=VUS_THRESHOLDS)
        leave = by_second[second_cut[reach] : second_cut[reach + 1]]
        np.subtract.at(alone, (near[leave], level[leave]), 1)
        shared += np.bincount(level[leave], minlength=VUS_THRESHOLDS)

        lowest = np.minimum(lowest, raised[np.maximum(starts - reach, 0)])
        lowest = np.minimum(lowest, raised[np.minimum(ends + reach, len(raised) - 1)])
        # Anomalies whose buffers touch count as one.
        groups = np.flatnonzero(np.concatenate([[True], gaps > 2 * reach]))
        found = np.bincount(np.minimum.reduceat(lowest, groups), minlength=VUS_THRESHOLDS) / len(groups)
        for width in (2 * reach, 2 * reach + 1):
            if width > window:
                continue
            weight = np.sqrt(1 - distance[: reach + 1] / max(width, 1))
            buffered[width] = weight @ alone[: reach + 1] + shared
            existing[width] = found
    return np.cumsum(buffered, axis=1), np.cumsum(existing, axis=1)


def _distances(
    labels: np.ndarray, starts: np.ndarray, ends: np.ndarray, half: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normal rows within `half` of an anomaly, their distances to the nearest and the second nearest one."""
    row = np.flatnonzero(~labels)
    far = len(labels) + half + 1
    before = np.searchsorted(ends, row)  # anomalies that end before the row
    padded_ends = np.concatenate([[-far, -far], ends])
    padded_starts = np.concatenate([starts, [2 * far, 2 * far]])
    candidates = np.stack(
        [
            row - padded_ends[before + 1],
            row - padded_ends[before],
            padded_starts[before] - row,
            padded_starts[before + 1] - row,
        ]
    )
    candidates.sort(axis=0)
    close = candidates[0] <= half
    return row[close], candidates[0, close], candidates[1, close]


def _point_measures(scores: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    """AUC-PR (average precision), AUC-ROC and the best Point-F1, rows of equal score taken together."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    last = np.concatenate([np.flatnonzero(ranked[1:] != ranked[:-1]), [len(ranked) - 1]])  # of each score
    true = np.cumsum(labels[order])[last].astype(np.float64)
    false = last + 1 - true
    recall, precision = true / true[-1], true / (true + false)
    auc_pr = np.sum(np.diff(recall, prepend=0.0) * precision)
    auc_roc = float("nan")
    if false[-1]:
        auc_roc = np.trapezoid(np.concatenate([[0.0], recall]), np.concatenate([[0.0], false / false[-1]]))
    f1 = 2 * precision * recall / (precision + recall + 1e-5)  # the benchmark's guard against 0 / 0
    return auc_pr, auc_roc, f1.max()


def _range_f1(scores: np.ndarray, labels: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> float:
    """The best F1 of range precision and range recall (flat bias) over 100 even thresholds."""
    best = 0.0
    label_sum = np.concatenate([[0], np.cumsum(labels)])
    for threshold in np.linspace(scores.min(), scores.max(), RANGE_THRESHOLDS):
        alarm = scores > threshold
        alarm_starts, alarm_ends = segments(alarm)
        if not len(alarm_starts):
            continue
        alarm_sum = np.concatenate([[0], np.cumsum(alarm)])
        found, overlap = _overlap(starts, ends, alarm_sum, alarm_starts, alarm_ends)
        recall = EXISTENCE_WEIGHT * found.mean() + (1 - EXISTENCE_WEIGHT) * overlap.mean()
        precision = _overlap(alarm_starts, alarm_ends, label_sum, starts, ends)[1].mean()
        if recall + precision:
            best = max(best, 2 * recall * precision / (recall + precision))
    return best


def _overlap(
    starts: np.ndarray,
    ends: np.ndarray,
    other_sum: np.ndarray,
    other_starts: np.ndarray,
    other_ends: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """For each range: whether others touch it, and its covered share over the number of those that do."""
    covered = other_sum[ends + 1] - other_sum[starts]
    begun = np.searchsorted(other_starts, ends, side="right")
    pieces = begun - np.searchsorted(other_ends, starts, side="left")
    return pieces > 0, covered / (ends + 1 - starts) / np.maximum(pieces, 1)

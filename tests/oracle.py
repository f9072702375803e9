"""Slow, obvious twins of every fast function. Nothing here is clever, so that a reader can believe it."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

# Measures: every definition written out, one threshold and one buffer at a time.


def slow_segments(flags):
    """[(first, last), …] of the runs of true flags."""
    runs, start = [], None
    for i, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = i
        if not flag and start is not None:
            runs.append((start, i - 1))
            start = None
    return runs


def slow_buffered_labels(labels, window):
    """Labels with √(1 − d/w) added at distance d ≤ w/2 on both sides of every anomaly, never above 1."""
    soft = [float(label) for label in labels]
    for first, last in slow_segments(labels):
        for d in range(1, window // 2 + 1):
            for i in (first - d, last + d):
                if 0 <= i < len(soft):
                    soft[i] += math.sqrt(1 - d / window)
    return [min(1.0, value) for value in soft]


def slow_merged(labels, window):
    """The anomalies widened by half a window on both sides; those that touch are one."""
    half, wide = window // 2, []
    for first, last in slow_segments(labels):
        if wide and first - half <= wide[-1][1]:
            wide[-1] = (wide[-1][0], last + half)
        else:
            wide.append((first - half, last + half))
    return [(max(first, 0), min(last, len(labels) - 1)) for first, last in wide]


def slow_vus(scores, labels, window, thresholds=250):
    """VUS-PR and VUS-ROC by their definition."""
    n, positives = len(scores), sum(labels)
    ranked = sorted(scores, reverse=True)
    levels = [ranked[int(i)] for i in np.linspace(0, n - 1, thresholds)]
    areas_pr, areas_roc = [], []
    for w in range(window + 1):
        soft, wide = slow_buffered_labels(labels, w), slow_merged(labels, w)
        curve = [(0.0, 0.0, 1.0)]  # recall, false rate, precision
        for level in levels:
            raised = [score >= level for score in scores]
            true = sum(s for s, r in zip(soft, raised, strict=True) if r)
            hard = sum(1 for y, r in zip(labels, raised, strict=True) if y and r)
            relevant = positives + (true - hard) / 2
            existing = sum(any(raised[a : b + 1]) for a, b in wide) / len(wide)
            recall = min(true / relevant, 1) * existing
            rest = n - relevant
            false_rate = (sum(raised) - true) / rest if rest > 0 else float("nan")
            curve.append((recall, false_rate, true / sum(raised)))
        areas_pr.append(sum((b[0] - a[0]) * b[2] for a, b in pairwise(curve)))
        curve.append((1.0, 1.0, 0.0))
        areas_roc.append(sum((b[1] - a[1]) * (a[0] + b[0]) / 2 for a, b in pairwise(curve)))
    return sum(areas_pr) / (window + 1), sum(areas_roc) / (window + 1)


def slow_range_recall(real, found, alpha):
    """Mean over the real ranges of α · touched + (1 − α) · covered share / number of ranges that touch it."""
    total = 0.0
    real_ranges, found_ranges = slow_segments(real), slow_segments(found)
    for first, last in real_ranges:
        touching = [r for r in found_ranges if r[0] <= last and r[1] >= first]
        covered = sum(bool(found[i]) for i in range(first, last + 1)) / (last - first + 1)
        if touching:
            total += alpha + (1 - alpha) * covered / len(touching)
    return total / len(real_ranges) if real_ranges else 0.0


def slow_range_f1(scores, labels):
    best = 0.0
    for level in np.linspace(min(scores), max(scores), 100):
        raised = [score > level for score in scores]
        recall, precision = slow_range_recall(labels, raised, 0.2), slow_range_recall(raised, labels, 0.0)
        if recall + precision > 0:
            best = max(best, 2 * recall * precision / (recall + precision))
    return best


def slow_point_f1(scores, labels):
    best = 0.0
    for level in set(scores):
        raised = [score >= level for score in scores]
        true = sum(r and y for r, y in zip(raised, labels, strict=True))
        precision, recall = true / sum(raised), true / sum(labels)
        best = max(best, 2 * precision * recall / (precision + recall + 1e-5))
    return best


def slow_evaluate(scores, labels, window):
    """All six measures; the two plain areas come from scikit-learn."""
    scores, labels = [float(s) for s in scores], [bool(y) for y in labels]
    vus_pr, vus_roc = slow_vus(scores, labels, window)
    return {
        "vus_pr": vus_pr,
        "vus_roc": vus_roc,
        "auc_pr": average_precision_score(labels, scores),
        "auc_roc": float("nan") if all(labels) else roc_auc_score(labels, scores),
        "point_f1": slow_point_f1(scores, labels),
        "range_f1": slow_range_f1(scores, labels),
    }


# -- decide: events --


def event_spans(flags, merge):
    """First and last row of each event: anomalous rows with at most `merge` rows between neighbours."""
    spans = []
    for row, flag in enumerate(flags):
        if not flag:
            continue
        if spans and row - spans[-1][1] - 1 <= merge:
            spans[-1] = (spans[-1][0], row)
        else:
            spans.append((row, row))
    return spans


# Level: every window on its own, every training value looked at.


def slow_nearest_elsewhere(values, starts, kept, exclude):
    """Distance of each value to the nearest kept one that stands for a window outside ±exclude."""
    owner = [min(range(len(kept)), key=lambda k: (abs(kept[k] - v), -k)) for v in values]
    found = []
    for value, start in zip(values, starts, strict=True):
        far = [kept[k] for k, other in zip(owner, starts, strict=True) if abs(other - start) > exclude]
        found.append(min((abs(float(k) - float(value)) for k in far), default=np.nan))
    return np.array(found)


def slow_level_features(x, patch):
    """{(window, what): {start: value}} of one channel without holes."""
    features = {}
    for window in sorted({patch, patch // 4, patch // 16} - {0, 1}, reverse=True):
        pieces = {s: x[s : s + window] for s in range(len(x) - window + 1)}
        features[window, "mean"] = {s: float(np.mean(piece)) for s, piece in pieces.items()}
        features[window, "deviation"] = {s: float(np.std(piece)) for s, piece in pieces.items()}
    features[1, "mean"] = dict(enumerate(x))
    return features


def slow_level(train, x, patch, exclude=None):
    """The level of each point of one channel; with `exclude`, `x` is `train` itself."""
    train, x = [float(v) for v in train], [float(v) for v in x]
    height = max(abs(v) for v in train)
    smallest = max(0.01 * float(np.std(train)), 1e-6 * (height if height > 0 else 1.0))
    known, asked = slow_level_features(train, patch), slow_level_features(x, patch)
    total = [0.0] * len(x)
    for (window, what), values in asked.items():
        seen = known[window, what]
        unit = max(float(np.std(list(seen.values()))), smallest)
        distance = {}
        for start, value in values.items():
            others = [v for s, v in seen.items() if exclude is None or abs(s - start) > exclude]
            distance[start] = min(abs(value - v) for v in others) / unit
        for i in range(len(x)):
            covering = [d for start, d in distance.items() if start <= i < start + window]
            total[i] += math.log1p(sum(covering) / len(covering))
    return total


def cut_spans(spans, flags, merge, every, zero):
    """Events cut at the multiples of `every` that they reach from afar; row 0 has the number `zero`."""
    cut = []
    for first, last in spans:
        while True:
            moments = [m for m in range(first + 1, last + 1) if (m + zero) % every == 0]
            moments = [m for m in moments if m - first >= every - (merge + 1)]
            if not moments:
                cut.append((first, last))
                break
            moment = moments[0]
            cut.append((first, max(row for row in range(first, moment) if flags[row])))
            first = min(row for row in range(moment, last + 1) if flags[row])
    return cut


def event_spans_of(over, merge):
    """`event_spans` for many rows, of which few are over."""
    spans = []
    for row in np.flatnonzero(over).tolist():
        if spans and row - spans[-1][1] - 1 <= merge:
            spans[-1] = (spans[-1][0], row)
        else:
            spans.append((row, row))
    return spans


# The method: holes, patches, encoder, losses, neighbours and points, one number at a time.


def slow_bridged(column, max_gap):
    """A channel with its short holes filled by a straight line; None where a hole stays."""
    filled = [float(v) if math.isfinite(v) and abs(v) <= 1e150 else None for v in column]
    out = list(filled)
    for first, last in slow_segments([v is None for v in filled]):
        if first == 0 or last == len(filled) - 1 or last - first + 1 > max_gap:
            continue
        a, b, steps = filled[first - 1], filled[last + 1], last - first + 2
        for i in range(first, last + 1):
            out[i] = a + (i - first + 1) / steps * (b - a)
    return out


def slow_starts(rows, patch, max_gap):
    """Rows at which a patch without a hole starts; `rows` is a list of rows of C numbers."""
    columns = [slow_bridged(column, max_gap) for column in zip(*rows, strict=True)]
    whole = [all(column[i] is not None for column in columns) for i in range(len(rows))]
    return [s for s in range(len(rows) - patch + 1) if all(whole[s : s + patch])]


def slow_standardised(column, eps=1e-5):
    """One channel of one patch, in exact fractions up to the root."""
    exact = [Fraction(float(v)) for v in column]
    mean = sum(exact) / len(exact)
    variance = sum((v - mean) ** 2 for v in exact) / len(exact)
    return [float(v - mean) / math.sqrt(float(variance) + eps) for v in exact]


def slow_encode(patch, layers):
    """Embedding of one patch [w][C] through [(weight [out][in][1][k], gain, bias, mean, variance), …]."""
    x = np.asarray(patch, dtype=np.float64)
    for weight, gain, bias, mean, variance in layers:
        outputs, inputs, _, kernel = weight.shape
        y = np.zeros((len(x), outputs))
        for t in range(len(x)):
            for o in range(outputs):
                for j in range(kernel):
                    s = t + j - kernel // 2
                    if 0 <= s < len(x):
                        y[t, o] += sum(x[s, i] * weight[o, i, 0, j] for i in range(inputs))
                y[t, o] = (y[t, o] - mean[o]) / math.sqrt(variance[o] + 1e-5) * gain[o] + bias[o]
        x = np.maximum(y, 0)
    return x.mean(axis=0)


def slow_cosine_distance(a, b):
    """1 − cosine; two vectors of length 0 are equal, one alone is at distance 1."""
    na, nb = (math.sqrt(sum(float(v) ** 2 for v in vector)) for vector in (a, b))
    if na == 0 or nb == 0:
        return 0.0 if na == nb else 1.0
    return 1 - sum(float(x) * float(y) for x, y in zip(a, b, strict=True)) / (na * nb)


def slow_nearest(vector, bank, k, start=None, positions=None, exclude=None):
    """Mean distance to the k nearest of the bank that are not within ±exclude of `start`; NaN without any."""
    distances = sorted(
        slow_cosine_distance(vector, other)
        for i, other in enumerate(bank)
        if exclude is None or abs(positions[i] - start) > exclude
    )[:k]
    return sum(distances) / len(distances) if distances else math.nan


def slow_points(scores, starts, rows, patch):
    """(mean, count) of the scores of all patches that contain each row; NaN is no score."""
    points = []
    for row in range(rows):
        inside = [
            score
            for score, start in zip(scores, starts, strict=True)
            if start <= row < start + patch and not math.isnan(score)
        ]
        points.append((sum(inside) / len(inside) if inside else math.nan, len(inside)))
    return points


def slow_negative(h, i, how):
    """The patch of the minibatch, other than i, that is `how` in cosine distance."""
    others = sorted((slow_cosine_distance(h[i], h[j]), j) for j in range(len(h)) if j != i)
    return {"closest": others[0], "farthest": others[-1], "median": others[(len(others) - 1) // 2]}[how][1]


def slow_triplet(z, positive, negative, margin, counts):
    losses = [
        max(0.0, slow_cosine_distance(a, p) - slow_cosine_distance(a, n) + margin)
        for a, p, n, counted in zip(z, positive, negative, counts, strict=True)
        if counted
    ]
    return sum(losses) / len(losses) if losses else 0.0


def slow_infonce(z, positive, temperature, counts):
    losses = []
    for i, counted in enumerate(counts):
        if counted:
            match = math.exp((1 - slow_cosine_distance(z[i], positive[i])) / temperature)
            others = [
                math.exp((1 - slow_cosine_distance(z[i], z[j])) / temperature)
                for j in range(len(z))
                if j != i
            ]
            losses.append(-math.log(match / (match + sum(others))))
    return sum(losses) / len(losses) if losses else 0.0


def slow_pretext(before, has_before, random):
    total = 0.0
    for logit, there, others in zip(before, has_before, random, strict=True):
        if there:
            total -= math.log(1 / (1 + math.exp(-logit)))
        total -= sum(math.log(1 - 1 / (1 + math.exp(-o))) for o in others) / len(others)
    return total / len(before)


# -- edges --


def nearest_window(window: np.ndarray, counted: np.ndarray, past: np.ndarray, usable: np.ndarray) -> float:
    """Root mean square difference of `window` [m, C], over the rows that are `counted` [m], to the nearest
    window of usable rows of `past`."""
    found = [
        math.sqrt(float(np.mean((window - past[s : s + len(window)])[counted] ** 2)))
        for s in range(len(past) - len(window) + 1)
        if usable[s : s + len(window)].all()
    ]
    return min(found, default=math.inf)


def row_oddness(x: np.ndarray, usable: np.ndarray, lengths, normal, past, past_usable, sure) -> np.ndarray:
    """For each row the largest over the lengths of the smallest distance of a window that holds it; rows that
    a shorter length put above `sure` are left out of longer windows, of which half have to remain."""
    out = np.zeros(len(x))
    for length, limit in sorted(zip(lengths, normal, strict=True)):
        counted = out <= sure
        before = out.copy()
        for row in range(len(x)):
            held = [
                nearest_window(x[s : s + length], counted[s : s + length], past, past_usable) / limit
                for s in range(max(0, row - length + 1), min(row, len(x) - length) + 1)
                if usable[s : s + length].all() and counted[s : s + length].sum() >= length / 2
            ]
            if held:
                out[row] = max(before[row], min(held))
    return out


def rows_beside(beyond, most: float) -> int:
    """Of the rows beside a fault, the last that is `beyond` with a share of at least `most` up to it."""
    return max(
        (n + 1 for n in range(len(beyond)) if beyond[n] and sum(beyond[: n + 1]) >= most * (n + 1)), default=0
    )


# -- next value --


def forecast_residuals(x: np.ndarray, usable: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Value minus forecast of one channel, row by row; NaN where a row of the past is missing."""
    past = len(weights) + 1
    out = np.full(len(x), np.nan)
    for t in range(past, len(x)):
        if usable[t - past : t + 1].all():
            last = x[t - 1]
            out[t] = x[t] - last - sum(w * (x[t - past + i] - last) for i, w in enumerate(weights))
    return out


def next_value_nats(residuals: np.ndarray, patch: int, limit, unit) -> np.ndarray:
    """ln(1 + d) of the residual at each row and of its root mean square over a patch around it."""
    known = [0.0 if math.isnan(r) else r for r in residuals]
    nats = []
    for t in range(len(known)):
        first = t - patch // 2
        near = [known[i] for i in range(max(0, first), min(len(known), first + patch))]
        sizes = abs(known[t]), math.sqrt(sum(r * r for r in near) / patch)
        nats.append(sum(math.log1p(max(s - m, 0) / u) for s, m, u in zip(sizes, limit, unit, strict=True)))
    return np.array(nats)


# -- channels that never moved --


def counted(nats: float, rows: int) -> float:
    """The surprise of a channel that stood still in `rows` rows of training; 0: it moved."""
    return nats if rows == 0 or math.isnan(nats) else min(nats, math.log1p(rows))


# -- plain distance --


def plain_patch(values: np.ndarray, width: int, flat: float) -> np.ndarray:
    """One channel of one patch, averaged over `width` rows and standardised."""
    short = np.array([np.mean(values[i : i + width]) for i in range(0, len(values) - width + 1, width)])
    short = short - short.mean()
    return short / math.sqrt(float(np.mean(short**2)) + flat**2)


def plain_distances(
    values: np.ndarray, starts, past: np.ndarray, places, patch: int, width: int, flat: float, apart=None
) -> np.ndarray:
    """Of each patch at `starts` to the nearest of those at `places` of the past, one channel, pair by pair.

    `apart` (first, exclude): place p begins at row first + p of the same series; closer ones are no match.
    """
    theirs = [(p, plain_patch(past[p : p + patch], width, flat)) for p in places]
    out = []
    for start in starts:
        ours = plain_patch(values[start : start + patch], width, flat)
        found = [
            math.sqrt(float(np.mean((ours - other) ** 2)))
            for p, other in theirs
            if apart is None or abs(apart[0] + p - start) > apart[1]
        ]
        out.append(min(found, default=math.nan))
    return np.array(out)

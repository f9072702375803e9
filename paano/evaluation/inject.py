"""Faults put into normal data, so that a detector can be judged without a single label.

| kind | what a person would see | rows (w = patch) | channels |
|---|---|---|---|
| spike | one to three wild values | 1 to 3 | some |
| drop | the reading collapses and comes back | w/8 to w/4 | some |
| shift | the level is off for a while | w/2 to w | some |
| drift | the level creeps away | w to 2w | some |
| flat | the sensor is stuck at one value | w/2 to w | some |
| noise | a burst of noise | w/3 to w | some |
| warp | the process runs too fast, then too slow | w to 2w | all |
| lost_period | a cycle does not happen | one period | all |
| broken_relation | a channel goes its own, otherwise normal, way | w to 2w | some |

Sizes are relative to the spread of the channel around the fault, so it is as hard to see on a calm sensor as
on a wild one. "Some" channels are one in five, at least one. Randomness is passed in: equal seeds give equal
faults, so two models can be compared on the same ones.
"""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from paano.errors import ConfigError, SeriesTooShort
from paano.evaluation.metrics import evaluate_vus_pr, find_window
from paano.model import remembering

Rng = np.random.Generator


# -- one fault: `x` [N, C] is changed between rows a and b --


def _spike(x: np.ndarray, a: int, b: int, channels: np.ndarray, size: float, rng: Rng) -> None:
    for c in channels:
        x[a:b, c] += rng.choice([-1, 1]) * size * rng.uniform(5, 8) * spread(x, a, b, c)


def _drop(x: np.ndarray, a: int, b: int, channels: np.ndarray, size: float, rng: Rng) -> None:
    for c in channels:
        depth = np.nanmin(_around(x, a, b, c)) - size * rng.uniform(1, 2) * spread(x, a, b, c)
        x[a:b, c] = depth + 0.05 * (x[a:b, c] - depth)


def _shift(x: np.ndarray, a: int, b: int, channels: np.ndarray, size: float, rng: Rng) -> None:
    for c in channels:
        x[a:b, c] += rng.choice([-1, 1]) * size * rng.uniform(2, 3) * spread(x, a, b, c)


def _drift(x: np.ndarray, a: int, b: int, channels: np.ndarray, size: float, rng: Rng) -> None:
    for c in channels:
        x[a:b, c] += (
            rng.choice([-1, 1]) * size * rng.uniform(3, 5) * spread(x, a, b, c) * np.linspace(0, 1, b - a)
        )


def _flat(x: np.ndarray, a: int, b: int, channels: np.ndarray, size: float, rng: Rng) -> None:
    x[a:b, channels] = x[a, channels]


def _noise(x: np.ndarray, a: int, b: int, channels: np.ndarray, size: float, rng: Rng) -> None:
    for c in channels:
        x[a:b, c] += size * rng.uniform(0.8, 1.5) * spread(x, a, b, c) * rng.standard_normal(b - a)


def _warp(x: np.ndarray, a: int, b: int, channels: np.ndarray, size: float, rng: Rng) -> None:
    """Time runs up to 1.9 times too fast and then too slow (or the reverse), and is right at both ends."""
    rows = np.arange(b - a)
    bend = rng.choice([-1, 1]) * min(0.9, 0.9 * size) * (b - a) / (2 * math.pi)
    at = rows + bend * np.sin(2 * math.pi * rows / (b - a))
    for c in range(x.shape[1]):
        x[a:b, c] = np.interp(at, rows, x[a:b, c])


def _lost_period(x: np.ndarray, a: int, b: int, channels: np.ndarray, size: float, rng: Rng) -> None:
    """A straight line from before to after, with the channel's own fine noise on it."""
    for c in range(x.shape[1]):
        near = _around(x, a, b, c)
        fine = np.nanmedian(np.abs(np.diff(near, 2))) / (0.6745 * math.sqrt(6)) if len(near) > 2 else 0.0
        x[a:b, c] = np.linspace(x[a, c], x[b - 1, c], b - a) + fine * rng.standard_normal(b - a)


def _broken_relation(x: np.ndarray, a: int, b: int, channels: np.ndarray, size: float, rng: Rng) -> None:
    """The channel shows what it showed at another time, the least alike of a few, at the level it has now."""
    if x.shape[1] < 2:
        raise ConfigError("a broken relation needs at least two channels")
    n = b - a
    starts = rng.integers(0, len(x) - n + 1, size=16)
    for c in channels:
        here = x[a:b, c] - x[a:b, c].mean()
        others = [
            x[s : s + n, c] - x[s : s + n, c].mean() for s in starts if np.isfinite(x[s : s + n, c]).all()
        ]
        alike = [abs(_correlation(here, other)) for other in others]
        if others:
            x[a:b, c] = others[int(np.argmin(alike))] + x[a:b, c].mean()


FAULTS: dict[str, Callable[..., None]] = {
    "spike": _spike,
    "drop": _drop,
    "shift": _shift,
    "drift": _drift,
    "flat": _flat,
    "noise": _noise,
    "warp": _warp,
    "lost_period": _lost_period,
    "broken_relation": _broken_relation,
}
KINDS = tuple(FAULTS)

# Shortest and longest fault in patches; spikes are counted in rows, a lost period is as long as the period.
LENGTHS = {
    "drop": (1 / 8, 1 / 4),
    "shift": (1 / 2, 1),
    "drift": (1, 2),
    "flat": (1 / 2, 1),
    "noise": (1 / 3, 1),
    "warp": (1, 2),
    "broken_relation": (1, 2),
}


def kinds_for(channels: int) -> tuple[str, ...]:
    """The kinds that a series with so many channels can have."""
    return KINDS if channels > 1 else tuple(kind for kind in KINDS if kind != "broken_relation")


def put_fault(
    x: np.ndarray,
    kind: str,
    start: int,
    length: int,
    rng: Rng,
    *,
    size: float = 1.0,
    channels: Iterable[int] | None = None,
) -> None:
    """One fault in rows start … start + length of `x` [N, C], in place. What is missing stays missing."""
    if kind not in FAULTS:
        raise ConfigError(f"unknown fault {kind!r}. Allowed: {', '.join(KINDS)}")
    if channels is None:
        channels = rng.choice(x.shape[1], size=math.ceil(x.shape[1] / 5), replace=False)
    end = start + length
    gaps = np.isnan(x[start:end])
    for c in np.flatnonzero(gaps.any(axis=0)):
        there = np.flatnonzero(~gaps[:, c])
        if there.size:
            x[start:end, c] = np.interp(np.arange(length), there, x[start + there, c])
    FAULTS[kind](x, start, end, np.sort(np.asarray(list(channels))), size, rng)
    x[start:end][gaps] = np.nan


def inject(
    X: np.ndarray, kind: str, rng: Rng, *, patch: int = 96, faults: int | None = None, size: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """A copy of `X` with faults of one `kind`, and the 0/1 label of each row.

    As many faults as fit with at least a patch of normal rows between them, at most `faults` (8), where the
    fewest rows are missing.
    """
    x = np.array(X, dtype=np.float64)
    x = x[:, None] if x.ndim == 1 else x
    labels = np.zeros(len(x), dtype=np.int8)
    if kind not in FAULTS:
        raise ConfigError(f"unknown fault {kind!r}. Allowed: {', '.join(KINDS)}")
    room = 4 * patch  # a normal patch, a fault of up to two, and one to move it in
    count = min(8 if faults is None else faults, (len(x) - patch) // room)
    if count < 1:
        raise SeriesTooShort(
            f"{len(x)} rows are too few for a fault and normal rows around it; {5 * patch} are needed"
        )
    clean = x.copy()
    missing = np.concatenate([[0], np.cumsum(np.isnan(x).any(axis=1))])
    width = (len(x) - patch) / count
    for i in range(count):
        length = _length(kind, patch, clean, rng)
        # the first patch of its share stays normal, so neighbours never meet
        low, high = int(i * width) + patch, int((i + 1) * width) - length
        starts = np.arange(low, max(high, low) + 1)
        holes = missing[starts + length] - missing[starts]
        best = starts[holes == holes.min()]
        start = int(best[int(rng.random() * best.size)])
        if holes.min() <= length / 5:
            put_fault(x, kind, start, length, rng, size=size)
            labels[start : start + length] = 1
    return (x if np.ndim(X) == 2 else x[:, 0]), labels


def fault_test(
    score: Callable[[np.ndarray], np.ndarray] | Any,
    X: np.ndarray,
    *,
    seed: int,
    kinds: Iterable[str] | None = None,
    patch: int = 96,
    size: float = 1.0,
    faults: int | None = None,
    stride: int = 4,
) -> dict[str, float]:
    """VUS-PR for each kind of fault put into the normal rows `X`, and their `mean`.

    The faults depend on `X`, `seed`, `patch`, `faults` and `size`, not on the model: give the same ones to
    champion and challenger.

    Args:
        score: a fitted model, or a function from a series to one score per row.
        X: normal rows, (N,) or (N, C).
        seed: decides where the faults are and how they look.
        kinds: which faults; all that the channels allow unless given.
        patch, size, faults: as for `inject`.
        stride: a model scores every `stride`-th patch only, which is enough to compare by.

    Raises:
        ConfigError: there is no such kind of fault.
        SeriesTooShort: `X` has no room for a fault.
    """
    call = _with_stride(score, stride).score if hasattr(score, "score") else score
    X = np.asarray(X, dtype=np.float64)
    X = X[:, None] if X.ndim == 1 else X
    window = min(find_window(X), patch)
    results = {}
    for kind in kinds_for(X.shape[1]) if kinds is None else kinds:
        rng = np.random.default_rng([seed, zlib.crc32(kind.encode())])
        faulty, labels = inject(X, kind, rng, patch=patch, size=size, faults=faults)
        results[kind] = evaluate_vus_pr(call(faulty), labels, window)
    found = [value for value in results.values() if not math.isnan(value)]
    results["mean"] = float(np.mean(found)) if found else math.nan
    return results


def _with_stride(model: Any, stride: int) -> Any:
    """The model, scoring fewer patches, and none twice: most of a series has no fault."""
    lighter = copy.copy(remembering(model))
    lighter.config = model.config.replace(stride=max(stride, model.config.stride))
    return lighter


# -- what is normal around a fault --


def spread(x: np.ndarray, a: int, b: int, channel: int) -> float:
    """The standard deviation of the channel around rows a … b; never 0, or a fault would be none."""
    near = _around(x, a, b, channel)
    for values in (near, x[:, channel]):
        deviation = float(np.nanstd(values)) if np.isfinite(values).any() else 0.0
        if deviation > 1e-9 * float(np.nanmax(np.abs(values), initial=0.0)):
            return deviation
    return max(0.1 * abs(float(np.nanmean(near))), 1.0) if np.isfinite(near).any() else 1.0


def _around(x: np.ndarray, a: int, b: int, channel: int) -> np.ndarray:
    reach = max(4 * (b - a), 200)
    return x[max(0, a - reach) : b + reach, channel]


def _length(kind: str, patch: int, x: np.ndarray, rng: Rng) -> int:
    if kind == "spike":
        return int(rng.integers(1, 4))
    if kind == "lost_period":
        return int(np.clip(find_window(x), patch // 4, 2 * patch))
    low, high = LENGTHS[kind]
    return max(2, round(patch * rng.uniform(low, high)))


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size > 0 else 0.0

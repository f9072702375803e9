"""What each part of the score is worth, and ideas that might lift it further, on the same files and seeds.

    python -m benchmarks.candidates --extra [--seeds 1] [--workers 2] [--out candidates.jsonl]
    python -m benchmarks.candidates --more [--files 31]        also ideas that need a second encoder

Differences are to `before`, the preset `default` of version 0.1.0 (shape with three neighbours, and level);
what gains more than twice its standard error, at no more than twice the cost, becomes a part of `default`.
Every finished (file, seed) is one line of `--out`; a run can be stopped and taken up again. Univariate files
of the TSB-AD tuning split, with `--extra` also the 68 of neither split; every fourth patch is scored.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from benchmarks.accuracy import labelled_files, mean_and_error, without_one_subset
from benchmarks.level import LADDER, features, level_of, typical_of
from benchmarks.resumable import read_rows, run_tasks
from flows.evaluation.published import UNIVARIATE, series_of
from paano import PaAno, PaAnoConfig, patches
from paano.alarms.fit_calibration import fit_calibration
from paano.config import KEEP
from paano.device import compute_threads
from paano.evaluation.baselines import FITS
from paano.evaluation.metrics import evaluate, find_window
from paano.evaluation.protocol import LabelledSeries, parse_name
from paano.evaluation.protocol import read_series as read_file
from paano.scoring.bank import Bank, bank_size, kmeans, nearest_members
from paano.scoring.kept import keep_rows
from paano.scoring.level import fit_level
from paano.scoring.next_value import QUANTILE, fit_next_value, past_of
from paano.scoring.plain import SHARE, fit_plain
from paano.scoring.shape import nearest_distance, spread, strided
from paano.series import Series, read_series, valid_starts

OURS, BEFORE = "default", "before"
STRIDE = 4
GROUPS = ("UCR", "WSD", "Stock")  # and all others together
PLACES = 4000  # training patches that plain ones are compared with, about


class Shape(NamedTuple):
    """Distances of all rows and, with an exclusion zone, of the training rows."""

    whole: np.ndarray
    train: np.ndarray

    def in_units(self) -> np.ndarray:
        """In units of the 99th training percentile, as `paano.scoring.level` combines them."""
        unit = float(np.nanquantile(self.train, 0.99))
        return self.whole / (unit if unit > 1e-6 else 1.0)


class Encoded:
    """A trained encoder with the embeddings of one series."""

    def __init__(self, series: LabelledSeries, config: PaAnoConfig):
        self.config = config
        self.model = PaAno(config, "cpu").fit(series.values[: series.train_rows])
        self.train, self.whole = (
            read_series(values, config.max_gap)
            for values in (series.values[: series.train_rows], series.values)
        )
        self.train_starts = valid_starts(self.train.usable, config.patch)
        self.starts = strided(valid_starts(self.whole.usable, config.patch), STRIDE)
        self.train_vectors = self._embed(self.train, self.train_starts)
        self.vectors = self._embed(self.whole, self.starts)

    def _embed(self, series: Series, starts: np.ndarray) -> Tensor:
        return torch.from_numpy(
            self.model.embed(np.where(series.usable[:, None], series.values, np.nan), starts)
        )

    def shape(self, k: int = 3) -> Shape:
        """The published distance, to the k nearest of the model's bank."""
        near = nearest_distance(
            self.train_vectors, self.model.bank, k, starts=self.train_starts, exclude=self.config.patch
        )
        return self._spread(nearest_distance(self.vectors, self.model.bank, k).numpy(), near.numpy())

    def standardised(self) -> Shape:
        """Euclidean distance of embeddings whose every dimension has unit deviation in training."""
        centre, deviation = self.train_vectors.mean(dim=0), self.train_vectors.std(dim=0)
        deviation = deviation.clamp_min(1e-3 * float(deviation.max()) + 1e-9)
        train, whole = ((v - centre) / deviation for v in (self.train_vectors, self.vectors))
        size = bank_size(len(train), self.config.bank_share, self.config.bank_cap)
        generator = torch.Generator().manual_seed(self.config.seed)
        chosen = nearest_members(train, kmeans(train, size, generator))
        bank = Bank(train[chosen], self.train_starts[chosen.numpy()])
        return self._spread(
            _euclidean(whole, bank), _euclidean(train, bank, self.train_starts, self.config.patch)
        )

    def plain(self, shaped: bool) -> Shape:
        """Distance of patches, value by value, to the nearest of training: standardised, or only centred."""
        patch = self.config.patch
        train, whole = (
            torch.from_numpy(part.values[:, 0].copy()).unfold(0, patch, 1)[torch.from_numpy(starts)]
            for part, starts in ((self.train, self.train_starts), (self.whole, self.starts))
        )
        deviation = float(self.train.values[self.train.usable].std()) or 1.0
        typical = float(train.std(dim=1, correction=0).median())

        def scaled(x: Tensor) -> Tensor:
            x = x - x.mean(dim=1, keepdim=True)
            size = (x.square().mean(dim=1, keepdim=True) + 1e-3 * typical**2 + 1e-18).sqrt()
            return (x / (size if shaped else deviation)).float()

        step = max(1, len(train) // PLACES)
        places, queries = scaled(train[::step]), scaled(train)
        position = self.train_starts[::step]
        return self._spread(
            _plain(scaled(whole), places), _plain(queries, places, self.train_starts, position, patch)
        )

    def _spread(self, whole: np.ndarray, train: np.ndarray) -> Shape:
        patch = self.config.patch
        return Shape(
            spread(whole, self.starts, len(self.whole), patch)[0],
            spread(train, self.train_starts, len(self.train), patch)[0],
        )


def _euclidean(vectors: Tensor, bank: Bank, starts: np.ndarray | None = None, exclude: int = 0) -> np.ndarray:
    """Mean distance to the 3 nearest of the bank, without those within ±exclude of `starts`."""
    found = []
    for rows in torch.arange(len(vectors)).split(1024):
        distance = torch.cdist(vectors[rows], bank.vectors)
        if starts is not None:
            near = np.abs(bank.position[None] - starts[rows.numpy(), None]) <= exclude
            distance[torch.from_numpy(near)] = torch.inf
        best = distance.topk(min(3, len(bank)), dim=1, largest=False).values
        there = best.isfinite()
        found.append(torch.where(there, best, 0.0).sum(dim=1) / there.sum(dim=1))  # 0 / 0 is NaN
    return torch.cat(found).numpy()


def _plain(
    x: Tensor,
    places: Tensor,
    starts: np.ndarray | None = None,
    position: np.ndarray | None = None,
    exclude: int = 0,
) -> np.ndarray:
    """Distance to the nearest of `places`, without those within ±exclude of `starts`."""
    found = []
    for rows in torch.arange(len(x)).split(1024):
        distance = torch.cdist(x[rows], places)
        if starts is not None and position is not None:
            near = np.abs(position[None] - starts[rows.numpy(), None]) <= exclude
            distance[torch.from_numpy(near)] = torch.inf
        best = distance.min(dim=1).values
        found.append(torch.where(best.isfinite(), best, torch.nan))
    return torch.cat(found).numpy()


def detrended(standardise: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`paano.patches.standardise` on patches [m, w, C] without their straight line."""

    def without_line(x: Tensor, unit: Tensor | None = None) -> Tensor:
        t = torch.linspace(-1, 1, x.shape[1], dtype=x.dtype)[None, :, None]
        x = x - x.mean(dim=1, keepdim=True)
        return standardise(x - t * (x * t).mean(dim=1, keepdim=True) / t.square().mean(), unit)

    return without_line


def smoothed(score: np.ndarray, rows: int) -> np.ndarray:
    """The mean over `rows` around each row that has a score."""
    there, kernel = np.isfinite(score), np.ones(rows)
    total, count = (np.convolve(x, kernel, mode="same") for x in (np.where(there, score, 0.0), there))
    return np.where(there, total / np.maximum(count, 1), np.nan)


def candidates(series: LabelledSeries, seed: int, more: bool = False) -> Iterator[tuple[str, np.ndarray]]:
    """The score of every candidate: first what `default` was in version 0.1.0, then what it is."""
    config = PaAnoConfig.preset(OURS, level="none", keep=0, seed=seed)
    base = Encoded(series, config)
    shape, nearest = base.shape(3), base.shape(1)
    level, training = fit_level(base.train, config.patch, shape.train, config.normal_quantile)
    raw = level.score(base.whole)
    surprise = fit_next_value(base.train, config.patch)
    announced = valid_starts(base.train.usable, past_of(config.patch) + 1) + past_of(config.patch)
    usual, sizes = surprise.sizes(base.train)[:, announced], surprise.sizes(base.whole)

    def nats(limit: np.ndarray) -> np.ndarray:
        """Surprise of the next value above `limit` [2, C], at the row and over a patch."""
        return np.log1p(np.maximum(sizes - limit[:, None], 0.0) / surprise.unit[:, None])[..., 0]

    row, patch = nats(surprise.limit)

    def both(one: np.ndarray) -> np.ndarray:
        return one + np.maximum(raw - level.typical, 0.0)

    kept = keep_rows(base.train, KEEP)
    looked, _ = fit_plain(base.train, base.train_starts, kept, config.patch)
    plain = looked.score(base.whole, base.starts, kept)

    ours = both(shape.in_units())
    now = both(nearest.in_units()) + row + patch
    yield BEFORE, ours
    shaped = both(SHARE * (nearest.in_units() + plain))
    yield OURS, shaped + row + patch
    yield "default without the next value", shaped
    yield "default, next value over a patch alone", shaped + patch
    yield "default, next value at the row alone", shaped + row
    high, most = np.quantile(usual, QUANTILE, axis=1), usual.max(axis=1)
    for name, limit in (
        ("default, next value at the row above the 99.9th percentile", high),
        ("default, next value at the row above the largest", np.stack([most[0], high[1]])),
        ("default, next value over a patch above the largest", np.stack([surprise.limit[0], most[1]])),
    ):
        yield name, shaped + nats(limit).sum(axis=0)
    yield "default without plain patches", now
    yield "default without plain patches, shape counts 3/4", both(SHARE * nearest.in_units()) + row + patch
    yield "default, plain patches count fully", now + plain
    yield "default, encoder counts half", both(nearest.in_units() / 2 + plain) + row + patch
    yield "default without the encoder", both(2 * SHARE * plain) + row + patch
    yield "shape alone", shape.in_units()
    yield "level alone", np.maximum(raw - level.typical, 0.0)
    for k in (1, 10):
        yield f"k = {k}", both(base.shape(k).in_units())
    yield "and the next value, row and patch", ours + row + patch
    yield "and the next value, row alone", ours + row
    yield "and the next value, patch alone", ours + patch
    for name, unit, rough in (
        ("level in quartiles", "quartiles", False),
        ("level with roughness", "deviation", True),
    ):
        chosen = [
            *features(LADDER, "mean", "deviation"),
            *(features(LADDER[:-1], "roughness") if rough else []),
        ]
        other = level_of(base.whole.values, len(base.train), chosen, unit)
        typical = typical_of(base.train.values, chosen, unit)
        changed = np.maximum(other - typical, 0.0)
        yield name, shape.in_units() + changed
        yield f"default without plain patches, {name}", nearest.in_units() + changed + row + patch
    standardised, centred = base.plain(True).in_units(), base.plain(False).in_units()
    yield "default, plain patches neither averaged nor thinned out", now + standardised
    yield "default, plain patches centred only", now + centred
    for rows in (24, 48):
        yield f"smoothed over {rows} points", smoothed(ours, rows)
    high = float(np.nanquantile(training, 0.99))
    yield "level only above its 99th training percentile", shape.in_units() + np.maximum(raw - high, 0.0)
    tails = [fit_calibration(t, patch=config.patch) for t in (shape.train, training)]
    yield "sum of log tails of shape and level", tails[0].tail(shape.whole) + tails[1].tail(raw)

    past = series.values[: series.train_rows]
    for name in ("kmeans", "pca"):  # sub-sequences as they are, not standardised one by one
        found = FITS[name](past)(series.values).astype(float)
        middle, high = np.nanquantile(found[: len(past)], [0.5, 0.99])
        news = np.maximum(found - high, 0.0) / max(high - middle, 1e-9)
        yield f"and plain sub-sequences ({name})", ours + np.log1p(news)
        yield f"default and plain sub-sequences ({name})", now + np.log1p(news)
    if not more:
        return

    longer = Encoded(series, PaAnoConfig.preset("light", unit="typical", keep=0, seed=seed)).shape(1)
    yield "default, trained as light", both(SHARE * (longer.in_units() + plain)) + row + patch

    standard = base.standardised()
    yield "standardised embeddings, shape alone", standard.in_units()
    yield "standardised embeddings", both(standard.in_units())

    others = {
        "two encoders": config.replace(seed=seed + 1000),
        "and an untrained encoder": PaAnoConfig.preset("untrained", seed=seed),
        "patches of 96 and 32": config.replace(patch=32),
    }
    for name, other in others.items():
        second = Encoded(series, other).shape().in_units()
        yield name, both((shape.in_units() + np.where(np.isnan(second), shape.in_units(), second)) / 2)
    with mock.patch.object(patches, "standardise", detrended(patches.standardise)):
        straight = Encoded(series, config).shape()
    yield "detrended patches, shape alone", straight.in_units()
    yield "detrended patches", both(straight.in_units())


def run(task: tuple[Path, int, bool]) -> dict[str, Any]:
    path, seed, more = task
    series = read_file(path)
    window = find_window(series.values[:, 0])
    with compute_threads(1):
        found = {
            name: round(evaluate(score.astype(np.float32), series.labels, window)["vus_pr"], 6)
            for name, score in candidates(series, seed, more)
        }
    return {"file": path.name, "subset": series.subset, "seed": seed, "vus_pr": found}


def as_evaluated(values: np.ndarray, subsets: list[str]) -> tuple[float, float]:
    """Mean and standard error with every subset weighted by its number of series in the evaluation split.

    Subsets of which no file is here stay out.
    """
    weights = np.array([series_of(UNIVARIATE, subset) / subsets.count(subset) for subset in subsets])
    weights /= weights.sum()
    mean = float(weights @ values)
    return mean, float(np.sqrt(np.square(weights * (values - mean)).sum()))


def table(rows: list[dict[str, Any]], against: str = BEFORE) -> str:
    """Means over files (of each, over its seeds) with paired differences to `against`, by group too."""
    files = sorted({row["file"] for row in rows})
    subsets = [parse_name(file)[0] for file in files]
    groups = np.array([subset if subset in GROUPS else "others" for subset in subsets])
    shown = [group for group in (*GROUPS, "others") if (groups == group).sum() > 1]
    sizes = " | ".join(f"{group} ({int((groups == group).sum())})" for group in shown)
    lines = [
        f"{len(files)} files, {len(rows)} runs\n",
        f"| candidate | VUS-PR | minus {against} | least and most, one subset left out "
        f"| weighted | {sizes} |",
        "|---" * (5 + len(shown)) + "|",
    ]

    def per_file(value: Callable[[dict[str, float]], float]) -> np.ndarray:
        return np.array([np.mean([value(r["vus_pr"]) for r in rows if r["file"] == file]) for file in files])

    for name in rows[0]["vus_pr"]:
        gains = per_file(lambda found, name=name: found[name] - found[against])
        least, most = without_one_subset(gains, subsets)
        mean, error = mean_and_error(per_file(lambda found, name=name: found[name]))
        by_group = [mean_and_error(gains[groups == group]) for group in shown]
        lines.append(
            "| {} | {:.3f} ± {:.3f} | {:+.3f} ± {:.3f} | {:+.3f} … {:+.3f} | {:+.3f} ± {:.3f} | {} |".format(
                name, mean, error, *mean_and_error(gains), least, most, *as_evaluated(gains, subsets),
                " | ".join(f"{gain:+.3f} ± {its_error:.3f}" for gain, its_error in by_group),
            )
        )  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--files", type=int, help="only the first so many files, the shortest first")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("candidates.jsonl"))
    parser.add_argument("--extra", action="store_true", help="also the 68 files of neither split")
    parser.add_argument("--more", action="store_true", help="also ideas that need a second encoder")
    parser.add_argument("--against", default=BEFORE, help="candidate that the others are compared with")
    parser.add_argument("--table", action="store_true", help="run nothing, print what --out holds")
    options = parser.parse_args()
    rows = read_rows(options.out)
    if not options.table:
        folders = ["TSB-AD-U-Tuning", *(["TSB-AD-U-Extra"] if options.extra else [])]
        have = {(row["file"], row["seed"]) for row in rows}
        tasks = [
            (path, seed, options.more)
            for seed, path in itertools.product(
                range(options.seeds), labelled_files(folders)[: options.files]
            )
            if (path.name, seed) not in have
        ]
        for progress, row in run_tasks(run, tasks, options.out, options.workers):
            rows.append(row)
            print(f"{progress}  seed {row['seed']}: {row['file']}", flush=True)
    print(table(rows, options.against))


if __name__ == "__main__":
    main()

"""Ideas that might lift preset `default` further, each against it on the same files and seeds.

    python -m benchmarks.candidates [--seeds 2] [--files 31] [--workers 2] [--out candidates.jsonl]

Nothing here is part of the method: what gains more than twice its standard error would become a setting.
Every finished (file, seed) is one line of `--out`; a run can be stopped and taken up again. Univariate files
of the TSB-AD tuning split below 60,000 rows, the shortest first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from benchmarks.accuracy import LONG, data_folder, mean_and_error, without_one_subset
from paano import PaAno, PaAnoConfig, patches
from paano.bank import Bank, bank_size, kmeans, nearest_members
from paano.baselines import FITS
from paano.calibrate import fit_calibration
from paano.device import torch_threads
from paano.level import fit_level
from paano.metrics import evaluate, find_window
from paano.protocol import LabelledSeries, parse_name
from paano.protocol import read_series as read_file
from paano.score import nearest_distance, spread
from paano.series import Series, read_series, valid_starts

OURS = "default"


class Shape(NamedTuple):
    """Distances of all rows and, with an exclusion zone, of the training rows."""

    whole: np.ndarray
    train: np.ndarray

    def in_units(self) -> np.ndarray:
        """In units of the 99th training percentile, as `paano.level` combines them."""
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
        self.train_starts, self.starts = (
            valid_starts(part.usable, config.patch) for part in (self.train, self.whole)
        )
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


def candidates(series: LabelledSeries, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """The score of every candidate; the first is `default` itself."""
    config = PaAnoConfig.preset(OURS, level="none", seed=seed)
    base = Encoded(series, config)
    shape = base.shape()
    level, training = fit_level(base.train, config.patch, shape.train, config.normal_quantile)
    raw = level.score(base.whole)

    def both(one: np.ndarray) -> np.ndarray:
        return one + np.maximum(raw - level.typical, 0.0)

    ours = both(shape.in_units())
    yield OURS, ours
    yield "shape alone", shape.in_units()
    for k in (1, 10):
        yield f"k = {k}", both(base.shape(k).in_units())
    for rows in (24, 48):
        yield f"smoothed over {rows} points", smoothed(ours, rows)
    high = float(np.nanquantile(training, 0.99))
    yield "level only above its 99th training percentile", shape.in_units() + np.maximum(raw - high, 0.0)
    tails = [fit_calibration(t, patch=config.patch) for t in (shape.train, training)]
    yield "sum of log tails of shape and level", tails[0].tail(shape.whole) + tails[1].tail(raw)

    past = series.values[: series.train_rows]
    for name in ("kmeans", "pca"):  # sub-sequences as they are, not standardised one by one
        plain = FITS[name](past)(series.values).astype(float)
        middle, high = np.nanquantile(plain[: len(past)], [0.5, 0.99])
        news = np.maximum(plain - high, 0.0) / max(high - middle, 1e-9)
        yield f"and plain sub-sequences ({name})", ours + np.log1p(news)

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


def run(task: tuple[Path, int]) -> dict[str, Any]:
    path, seed = task
    series = read_file(path)
    window = find_window(series.values[:, 0])
    with torch_threads(1):
        found = {
            name: round(evaluate(score.astype(np.float32), series.labels, window)["vus_pr"], 6)
            for name, score in candidates(series, seed)
        }
    return {"file": path.name, "subset": series.subset, "seed": seed, "vus_pr": found}


def table(rows: list[dict[str, Any]]) -> str:
    """Means over files (of each, over its seeds) with paired differences to `default`."""
    lines = [
        "| candidate | VUS-PR | minus default | least and most, one subset left out |",
        "|---|---|---|---|",
    ]
    files = sorted({row["file"] for row in rows})
    subsets = [parse_name(file)[0] for file in files]
    lines = [
        f"{len(files)} files, {len(rows)} runs\n",
        "| candidate | VUS-PR | minus default | least and most, one subset left out |",
        "|---|---|---|---|",
    ]

    def per_file(value: Callable[[dict[str, float]], float]) -> np.ndarray:
        return np.array([np.mean([value(r["vus_pr"]) for r in rows if r["file"] == file]) for file in files])

    for name in rows[0]["vus_pr"]:
        gains = per_file(lambda found, name=name: found[name] - found[OURS])
        least, most = without_one_subset(gains, subsets)
        mean, error = mean_and_error(per_file(lambda found, name=name: found[name]))
        gain, its_error = mean_and_error(gains)
        lines.append(
            f"| {name} | {mean:.3f} ± {error:.3f} | {gain:+.3f} ± {its_error:.3f} "
            f"| {least:+.3f} … {most:+.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--files", type=int, help="only the first so many files, the shortest first")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("candidates.jsonl"))
    parser.add_argument("--table", action="store_true", help="run nothing, print what --out holds")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    if not options.table:
        lengths = {p: p.read_bytes().count(b"\n") for p in (data_folder() / "TSB-AD-U-Tuning").glob("*.csv")}
        paths = sorted((p for p in lengths if lengths[p] <= LONG), key=lengths.__getitem__)[: options.files]
        if not paths:
            parser.error(
                f"no CSV files in {data_folder()}/TSB-AD-U-Tuning; set PAANO_DATA to the folder above it"
            )
        have = {(row["file"], row["seed"]) for row in rows}
        tasks = [(p, s) for s, p in itertools.product(range(options.seeds), paths) if (p.name, s) not in have]
        context = multiprocessing.get_context("spawn")  # torch does not survive a fork
        with context.Pool(options.workers) as pool, options.out.open("a") as file:
            for done, row in enumerate(pool.imap_unordered(run, tasks), start=1):
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(f"{done}/{len(tasks)}  seed {row['seed']}: {row['file']}", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()

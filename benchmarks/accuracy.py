"""Which settings earn their cost: VUS-PR on the TSB-AD tuning split, without labels in training.

    python -m benchmarks.accuracy                       untrained, light, paper and default, file by file
    python -m benchmarks.accuracy --study --seeds 3     every variant of ACCURACY.md
    python -m benchmarks.accuracy --study --table --have benchmarks/accuracy-results.csv
                                                        run nothing, print the tables of rows already there

Every finished (file, variant, seed) is one line of `--out`, so a run can be stopped and taken up again; what
`--have` holds is not run again either. Short files and the smallest file of every subset come first, all
files before a second seed: a run cut short is still spread over all subsets. Files of more than 60,000 rows
are scored at stride 4 (`--long-stride`).
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.resumable import run_tasks
from flows.evaluation.published import UNIVARIATE, series_of
from paano.config import PaAnoConfig
from paano.evaluation.protocol import LabelledSeries, measure, parse_name, read_series

ROOT = Path(__file__).resolve().parent.parent
LONG = 60_000  # rows

# name → (preset, changes)
MAIN: dict[str, tuple[str, dict[str, Any]]] = {
    "untrained": ("untrained", {}),
    "light": ("light", {}),
    "paper": ("paper", {}),
    "default": ("default", {}),
}
PRETEXT = {"contrast": "none", "pretext_ratio": 1.0}
STUDY: dict[str, tuple[str, dict[str, Any]]] = {
    **MAIN,
    "untrained, full width": ("untrained", {"width": 1.0}),
    "untrained, k = 1": ("untrained", {"neighbours": 1}),
    "untrained, bank 1 %": ("untrained", {"bank_share": 0.01}),
    "untrained, stride 2": ("untrained", {"stride": 2}),
    "untrained, stride 4": ("untrained", {"stride": 4}),
    "untrained, stride 8": ("untrained", {"stride": 8}),
    "untrained, patch 32": ("untrained", {"patch": 32}),
    "pretext alone, 20": ("light", {**PRETEXT, "iterations": 20}),
    "pretext alone, 50": ("light", {**PRETEXT, "iterations": 50}),
    "pretext alone, 100": ("light", {**PRETEXT, "iterations": 100}),
    "triplet alone": ("light", {"pretext_weight": 0.0}),
    "light, M = 512": ("light", {"minibatch": 512}),
    "light, full width": ("light", {"width": 1.0}),
    "light, negative median": ("light", {"negative": "median"}),
    "light, negative closest": ("light", {"negative": "closest"}),
    "light, negative random": ("light", {"negative": "random"}),
    "light, k = 1": ("light", {"neighbours": 1}),
    "light, bank 1 %": ("light", {"bank_share": 0.01}),
    "default, raw unit": ("default", {"unit": "raw"}),
}


class Task(NamedTuple):
    path: Path
    variant: str
    seed: int
    config: PaAnoConfig

    @property
    def key(self) -> tuple[str, str, str]:
        """Two variants may come to the same settings on a long file: each has a row of its own."""
        return self.path.name, self.variant, self.config.digest

    @property
    def kept(self) -> str:
        """The name of its scores in the folder `--keep`."""
        return f"{self.path.stem}-{self.config.digest}.npz"


def data_folder() -> Path:
    """Where the benchmark's files are: `PAANO_DATA`, else `../shared/data` beside the repository."""
    return Path(os.environ.get("PAANO_DATA") or ROOT.parent / "shared" / "data")


def labelled_files(folders: Iterable[str] = ("TSB-AD-U-Tuning", "TSB-AD-U-Extra")) -> list[Path]:
    """The univariate series with labels, the smallest first.

    Raises:
        SystemExit: there are none.
    """
    found = [path for folder in folders for path in (data_folder() / folder).glob("*.csv")]
    if not found:
        raise SystemExit(
            f"no CSV files in {data_folder()}/TSB-AD-U-Tuning; set PAANO_DATA to the folder above it"
        )
    return sorted(found, key=lambda path: (path.stat().st_size, path.name))


def ordered_files(folder: Path) -> list[Path]:
    """All files: the smallest of every subset first, then the second smallest of every subset, and so on."""
    by_subset = defaultdict(list)
    for path in sorted(folder.glob("*.csv"), key=lambda path: path.stat().st_size):
        by_subset[parse_name(path.name)[0]].append(path)
    rounds = itertools.zip_longest(*by_subset.values())
    return [path for row in rounds for path in sorted(filter(None, row), key=lambda p: p.stat().st_size)]


def plan(files: list[Path], variants: Iterable[str], seeds: int, long_stride: int) -> Iterator[Task]:
    """Seeds last, then files, then variants."""
    for seed in range(seeds):
        for path in files:
            rows = path.read_bytes().count(b"\n") - 1
            for variant in variants:
                preset, changes = STUDY[variant]
                config = PaAnoConfig.preset(preset, **changes, seed=seed)
                if rows > LONG:
                    config = config.replace(stride=max(config.stride, long_stride))
                yield Task(path, variant, seed, config)


def run(task: Task, keep: Path | None = None) -> dict[str, Any]:
    """One row of the result: the protocol on one file, with one torch thread."""
    from paano.device import compute_threads
    from paano.model import PaAno

    series: LabelledSeries = read_series(task.path)
    with compute_threads(1):
        began = time.perf_counter()
        model = PaAno(task.config, device="cpu").fit(series.values[: series.train_rows])
        fitted = time.perf_counter()
        found = model.detect(series.values)
        scored = time.perf_counter()
    outcome = measure(series, found.score, {})
    if model.level is None:
        parts = {"with_level": with_level(series, task.config, found.shape, model.training_scores())}
    else:
        parts = {"shape": found.shape, "level": found.level, "next_value": found.next_value}
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        np.savez(keep / task.kept, shape=found.shape, level=found.level, train=model.training_scores())
    return {
        "kind": "U" if series.channels == 1 else "M",
        "file": task.path.name,
        "subset": series.subset,
        "variant": task.variant,
        "seed": task.seed,
        "digest": task.config.digest,
        "stride": task.config.stride,
        **{name: round(value, 6) for name, value in outcome.measures.items()},
        **{f"{n}_vus_pr": round(measure(series, p, {}).measures["vus_pr"], 6) for n, p in parts.items()},
        "train_s": round(model.seconds["train"], 3),
        "fit_s": round(fitted - began, 3),
        "score_s": round(scored - fitted, 3),
    }


def with_level(
    series: LabelledSeries, config: PaAnoConfig, shape: np.ndarray, train: np.ndarray
) -> np.ndarray:
    """What the score would be if the level were on: it needs the shape's scores, not the encoder."""
    from paano.scoring.level import fit_level
    from paano.series import read_series as read_values

    values = series.values[: series.train_rows]
    level, _ = fit_level(
        read_values(values, config.max_gap), config.patch, train.astype(float), config.normal_quantile
    )
    both = level.in_nats(shape.astype(float), level.score(read_values(series.values, config.max_gap)))
    return np.sum(both, axis=0)


def run_all(
    tasks: list[Task], known: list[dict[str, Any]], out: Path, workers: int, keep: Path | None
) -> None:
    """Run what is not `known` yet and append each row to `out` as it is finished."""
    have = {(row["file"], row["variant"], row["digest"]) for row in known}
    tasks = [task for task in tasks if task.key not in have]
    for done, row in run_tasks(_Run(keep), tasks, out, workers):
        print(
            f"{done}  {row['vus_pr']:.3f}  {row['variant']}, seed {row['seed']}: "
            f"{row['file']} ({row['fit_s']:.0f} s + {row['score_s']:.0f} s)",
            flush=True,
        )


class _Run:
    """A call that can be sent to another process."""

    def __init__(self, keep: Path | None):
        self.keep = keep

    def __call__(self, task: Task) -> dict[str, Any]:
        return run(task, self.keep)


def read_rows(out: Path) -> list[dict[str, Any]]:
    """What a run has written (JSON lines), or a table of it (CSV)."""
    if not out.exists():
        return []
    if out.suffix != ".csv":
        return [json.loads(line) for line in out.read_text().splitlines()]
    texts = ("kind", "file", "subset", "variant", "digest", "code")
    with out.open(newline="") as file:
        return [
            {name: value if name in texts else json.loads(value) for name, value in row.items() if value}
            for row in csv.DictReader(file)
        ]


def write_csv(rows: list[dict[str, Any]], path: Path) -> None:
    """The same rows for a spreadsheet."""
    names = dict.fromkeys(name for row in rows for name in row)  # in order, each once
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """Mean and standard error of the mean."""
    values = np.asarray(list(values), dtype=float)
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), float(error)


def table(rows: list[dict[str, Any]], against: str) -> str:
    """Per variant: files, runs (files × seeds), mean VUS-PR as it is and with the level on, each with the
    difference to `against` on the same files and seeds, and the median deviation of a file between seeds."""
    by_variant = _by_variant(rows)
    reference = by_variant.get(against, {})
    lines = [
        f"| variant | TFLOP | files | runs | VUS-PR | minus {against} | with level | minus {against} "
        "| between seeds | fit s | score s |",
        "|" + "---|" * 11,
    ]
    for variant in sorted(by_variant, key=list(STUDY).index):
        found = by_variant[variant]
        cells = []
        for name in ("vus_pr", "with_level_vus_pr"):
            values = {key: row[name] for key, row in found.items() if name in row}
            cells.append("{:.3f} ± {:.3f}".format(*mean_and_error(_per_file(values))) if values else "")
            gains = {
                key: value - reference[key][name]
                for key, value in values.items()
                if name in reference.get(key, {})
            }
            gain = "{:+.3f} ± {:.3f}".format(*mean_and_error(_per_file(gains))) if gains else ""
            cells.append(f"{gain} ({len({f for f, _ in gains})})" if gains and variant != against else "")
        fit, score = (np.median([row[name] for row in found.values()]) for name in ("fit_s", "score_s"))
        by_file = _by_file({key: row["vus_pr"] for key, row in found.items()})
        seeds = [np.std(values, ddof=1) for values in by_file.values() if len(values) > 1]
        cells.append(f"{np.median(seeds):.3f}" if seeds else "")
        preset, changes = STUDY[variant]
        cost = training_cost(PaAnoConfig.preset(preset, **changes))
        lines.append(
            f"| {variant} | {cost:.2f} | {len(by_file)} | {len(found)} | {' | '.join(cells)} "
            f"| {fit:.1f} | {score:.1f} |"
        )
    return "\n".join(lines)


def training_cost(config: PaAnoConfig) -> float:
    """TFLOP of training on one channel: counted, so that it does not depend on what else the machine does."""
    from paano.network.encoder import multiply_adds

    with_pretext = math.ceil(config.iterations * config.pretext_ratio) if config.pretext_weight else 0
    patches = config.minibatch * (2 * config.iterations + with_pretext)
    return 6 * multiply_adds(config, 1) * patches / 1e12  # forward and twice that backward


def compare(rows: list[dict[str, Any]], one: str, other: str, level: bool) -> str:
    """One line: `one` minus `other`, which is given the level where `level` says so, on the same runs."""
    by_variant, name = _by_variant(rows), "with_level_vus_pr" if level else "vus_pr"
    found, partner = by_variant[one], by_variant[other]
    subset = {row["file"]: row["subset"] for row in rows}
    gains = {
        key: row["vus_pr"] - partner[key][name]
        for key, row in found.items()
        if name in partner.get(key, {}) and partner[key]["stride"] == row["stride"]
    }
    title = f"{one} minus {other}{' with level' if level else ''}"
    if not gains:
        return f"{title}: no runs in common"
    by_file = {file: float(np.mean(values)) for file, values in _by_file(gains).items()}
    subsets, values = [subset[file] for file in by_file], list(by_file.values())
    least, most = without_one_subset(values, subsets)
    # Each subset counts as often as it occurs in the evaluation split, which has other series of it.
    weights = [series_of(UNIVARIATE, s) / subsets.count(s) for s in subsets]
    return (
        "{}: {:+.3f} ± {:.3f} ({} files, {} runs), better on {}; {:+.3f} … {:+.3f} without one subset; "
        "{:+.3f} with the subsets weighted as in the evaluation split".format(
            title, *mean_and_error(values), len(values), len(gains), sum(v > 0 for v in values),
            least, most, np.average(values, weights=weights),
        )
    )  # fmt: skip


def without_one_subset(values: Iterable[float], subsets: list[str]) -> tuple[float, float]:
    """The least and the largest mean that is left when the files of one subset are left out."""
    values = np.asarray(list(values))
    means = [values[[s != gone for s in subsets]].mean() for gone in set(subsets) if set(subsets) != {gone}]
    return (min(means), max(means)) if means else (math.nan, math.nan)


def _by_variant(rows: list[dict[str, Any]]) -> dict[str, dict[tuple[str, int], dict[str, Any]]]:
    """variant → (file, seed) → row; what has a level of its own is also its score with the level."""
    found: dict[str, dict[tuple[str, int], dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        full = row if "level_vus_pr" not in row else {"with_level_vus_pr": row["vus_pr"], **row}
        found[row["variant"]][row["file"], row["seed"]] = full
    return found


def _by_file(values: dict[tuple[str, int], float]) -> dict[str, list[float]]:
    by_file = defaultdict(list)
    for (file, _), value in values.items():
        by_file[file].append(value)
    return by_file


def _per_file(values: dict[tuple[str, int], float]) -> list[float]:
    """The mean over seeds of each file: files are independent, seeds of a file are not."""
    return [float(np.mean(v)) for v in _by_file(values).values()]


def per_file(rows: list[dict[str, Any]]) -> str:
    """One line per file, one column per variant."""
    variants = sorted({row["variant"] for row in rows}, key=list(STUDY).index)
    cells = defaultdict(list)
    for row in rows:
        cells[row["file"], row["variant"]].append(row["vus_pr"])
    lines = ["| file | " + " | ".join(variants) + " |", "|---" * (len(variants) + 1) + "|"]
    for file in sorted({file for file, _ in cells}):
        values = [cells.get((file, variant)) for variant in variants]
        shown = " | ".join(f"{np.mean(v):.3f}" if v else "" for v in values)
        lines.append(f"| {file} | {shown} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", action="store_true", help="every variant, not only the four presets")
    parser.add_argument("--variants", help="only these, separated by semicolons")
    parser.add_argument("--files", type=int, help="only the first so many files (see the order above)")
    parser.add_argument("--kind", choices=("U", "M"), default="U", help="univariate or multivariate files")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--long-stride", type=int, default=4, help=f"stride for more than {LONG:,} rows")
    parser.add_argument("--out", type=Path, default=Path("accuracy.jsonl"))
    parser.add_argument("--have", type=Path, help="rows known before, JSON lines or CSV: not run again")
    parser.add_argument("--keep", type=Path, help="folder for the scores themselves")
    parser.add_argument("--table", action="store_true", help="run nothing, print what is there")
    parser.add_argument("--csv", type=Path, help="write all rows here as well")
    parser.add_argument("--against", default="untrained", help="variant that the others are compared with")
    options = parser.parse_args(arguments)

    variants = options.variants.split(";") if options.variants else list(STUDY if options.study else MAIN)
    for variant in variants:
        if variant not in STUDY:
            parser.error(f"unknown variant {variant!r}; known: {'; '.join(STUDY)}")
    if options.out.suffix == ".csv":
        parser.error(f"--out {options.out}: a run is kept as JSON lines; a CSV is only read, by --have")
    if options.have and not options.have.exists():
        parser.error(f"--have {options.have}: there is no such file")
    before = read_rows(options.have) if options.have else []
    known = [*before, *read_rows(options.out)]
    if not options.table:
        folder = data_folder() / f"TSB-AD-{options.kind}-Tuning"
        files = ordered_files(folder)[: options.files]
        if not files:
            parser.error(f"no CSV files in {folder}; set PAANO_DATA to the folder that holds it")
        tasks = list(plan(files, variants, options.seeds, options.long_stride))
        run_all(tasks, known, options.out, options.workers, options.keep)
        known = [*before, *read_rows(options.out)]
    if options.csv:
        write_csv(known, options.csv)
    rows = [row for row in known if row["variant"] in variants and row["kind"] == options.kind]
    print(per_file(rows), table(rows, options.against), sep="\n\n", end="\n\n")
    if "default" in variants and options.kind == "U":
        others = [variant for variant in MAIN if variant in variants and variant != "default"]
        for other, level in itertools.product(others, (False, True)):
            print(compare(rows, "default", other, level))


if __name__ == "__main__":
    main()

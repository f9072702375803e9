"""Whether more training pays, and whether faults put into normal data can choose the model of a series.

    python -m benchmarks.choice [--subset UCR] [--workers 2] [--out choice.jsonl]
    python -m benchmarks.choice --table                     what --out holds

For each labelled series two models: `default`, and `longer`, the same with the training of the preset `light`
(100 steps with negatives instead of 20 of the pretext task, about four times the cost). `chosen` is, for each
series, the one of the two that finds injected faults better: both are trained on the first 80 % of the
training rows and tested on the rest, as a retraining does (`flows/work/model/review_test.py`); `best` is the
better of the two by the labels, which nobody has. Every finished series is one line of `--out`.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import labelled_files, mean_and_error
from benchmarks.resumable import read_rows, run_tasks
from paano import PaAno, PaAnoConfig
from paano.device import compute_threads
from paano.errors import PaanoError
from paano.evaluation.inject import fault_test
from paano.evaluation.metrics import evaluate, find_window
from paano.evaluation.protocol import parse_name, read_series

STRIDE = 4
FITTED = 0.8  # of the training rows, in the choice
TRAINING = ("contrast", "iterations", "pretext_ratio")  # what `longer` has from `light`


def configs() -> dict[str, PaAnoConfig]:
    """The two candidates."""
    light = PaAnoConfig.preset("light").to_dict()
    return {
        "default": PaAnoConfig.preset("default", stride=STRIDE),
        "longer": PaAnoConfig.preset("default", stride=STRIDE, **{name: light[name] for name in TRAINING}),
    }


def run(path: Path) -> dict[str, Any]:
    """VUS-PR by the labels and in the fault test, of both candidates."""
    series = read_series(path)
    past, window = series.values[: series.train_rows], find_window(series.values[:, 0])
    cut = int(len(past) * FITTED)
    labelled, injected = {}, {}
    with compute_threads(1):
        for name, config in configs().items():
            score = PaAno(config, "cpu").fit(past).score(series.values)
            labelled[name] = evaluate(score, series.labels, window)["vus_pr"]
            try:
                part = PaAno(config, "cpu").fit(past[:cut])
                injected[name] = fault_test(part, past[cut:], seed=0, patch=config.patch)["mean"]
            except PaanoError:  # too short to be held out: the default stays
                injected[name] = math.nan
    return {"file": path.name, "labelled": labelled, "injected": injected}


def table(rows: list[dict[str, Any]]) -> str:
    """Means over UCR, where shapes decide, and over the others, with paired differences to `default`."""
    ucr = np.array([parse_name(row["file"])[0] == "UCR" for row in rows])
    found = {name: np.array([row["labelled"][name] for row in rows]) for name in configs()}
    longer = np.array([row["injected"]["longer"] > row["injected"]["default"] for row in rows])
    found["chosen"] = np.where(longer, found["longer"], found["default"])
    found["best"] = np.maximum(found["longer"], found["default"])
    lines = [
        "| series | files | score | VUS-PR | minus default | better, worse |",
        "|---|---|---|---|---|---|",
    ]
    groups = {"UCR": ucr, "others": ~ucr, "all": np.ones(len(rows), dtype=bool)}
    for group, inside in groups.items():
        if not inside.any():
            continue
        for name, values in found.items():
            gains = (values - found["default"])[inside]
            mean, error = mean_and_error(gains)
            lines.append(
                f"| {group} | {inside.sum()} | {name} | {values[inside].mean():.3f} "
                f"| {mean:+.3f} ± {error:.3f} | {(gains > 1e-3).sum()}, {(gains < -1e-3).sum()} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subset", help="only the series of this subset")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("choice.jsonl"))
    parser.add_argument("--table", action="store_true", help="run nothing, print what --out holds")
    options = parser.parse_args()
    rows = read_rows(options.out)
    if not options.table:
        done = {row["file"] for row in rows}
        wanted = [
            path
            for path in labelled_files()
            if path.name not in done and options.subset in (None, parse_name(path.name)[0])
        ]
        for progress, row in run_tasks(run, wanted, options.out, options.workers):
            rows.append(row)
            print(f"{progress}  {row['file']}", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()

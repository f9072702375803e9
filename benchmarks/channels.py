"""Many channels: what the bound on channels that never moved in training is worth.

    python -m benchmarks.channels [--workers 2] [--out channels.jsonl]
    python -m benchmarks.channels --table                   what --out holds

Two kinds of series. The four labelled multivariate files of the TSB-AD tuning split: telemetry beside dozens
of commands. And, because four are few, made ones: a univariate labelled series (2,000 training rows, and up
to 2,000 around its first anomaly) beside 30 commands that are 0 but for pulses, of which many come late or
never within the training rows; labels are those of the one series, whose score alone is `alone`.

Differences are to `measured`, the preset `default` without the bound: `counted` is the default, the others
have another bound, or one for every channel. Every fourth patch is scored. Every finished series is one line
of `--out`; a run can be stopped and taken up again.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import data_folder, labelled_files, mean_and_error
from benchmarks.resumable import read_rows, run_tasks
from paano import PaAno, PaAnoConfig
from paano.device import compute_threads
from paano.evaluation.metrics import evaluate_vus_pr, find_window
from paano.evaluation.protocol import LabelledSeries, read_series
from paano.model import remembering

MEASURED, COUNTED = "measured", "counted"
STRIDE = 4
COMMANDS, PULSES = 30, (0.1, 30.0)  # channels, and pulses of each in TRAINED rows: least and most
TRAINED, SCORED, LEAD = 2_000, 2_000, 1_200  # rows of a made series; LEAD of them before the first anomaly
LONGEST = 480_000  # bytes of a file that a series is made from
NATS = (4, 6, 8, 10, 15, 20)  # other bounds


def commands(rows: int, rng: np.random.Generator) -> np.ndarray:
    """float64 [rows, COMMANDS]: 0, but for pulses of 1."""
    found = np.zeros((rows, COMMANDS))
    for c in range(COMMANDS):
        low, high = np.log(PULSES)
        apart, length = TRAINED / np.exp(rng.uniform(low, high)), rng.integers(1, 30)
        row = 1 + int(rng.exponential(apart))
        while row < rows:
            end = row + max(1, rng.poisson(length))
            found[row:end, c] = 1.0
            row = end + 1 + int(rng.exponential(apart))
    return found


def cut(series: LabelledSeries) -> LabelledSeries | None:
    """The newest training rows and those around the first anomaly; None where too little is left."""
    past = series.values[max(0, series.train_rows - TRAINED) : series.train_rows]
    anomalies = np.flatnonzero(series.labels[series.train_rows :]) + series.train_rows
    if len(past) < 1_500 or not len(anomalies):
        return None
    first = max(series.train_rows, int(anomalies[0]) - LEAD)
    rows = slice(first, first + SCORED)
    values = np.concatenate([past, series.values[rows]])
    labels = np.concatenate([np.zeros(len(past), dtype=bool), series.labels[rows]])
    if not np.isfinite(values).all() or labels[len(past) :].mean() > 0.3:
        return None
    return replace(series, train_rows=len(past), values=values, labels=labels)


def candidates(series: LabelledSeries, seed: int = 0) -> Iterator[tuple[str, np.ndarray]]:
    """The score with every bound: one model, of which only the bound changes."""
    config = PaAnoConfig.preset("default", stride=STRIDE, seed=seed)
    past = series.values[: series.train_rows]
    model = remembering(PaAno(config, "cpu").fit(past))
    assert model.level is not None and model.next_value is not None and model.level.still is not None
    still = model.level.still
    every = np.full_like(still, len(past))
    bounds = {MEASURED: None, COUNTED: still, "every channel": every}
    bounds |= {f"{nats} nats": np.where(still > 0, int(np.expm1(nats)), 0) for nats in NATS}
    for name, rows in bounds.items():
        other = copy.copy(model)
        other.level = replace(model.level, still=rows)
        other.next_value = replace(model.next_value, still=rows)
        yield name, other.score(series.values)


def run(task: tuple[Path, bool]) -> dict[str, Any]:
    """VUS-PR of all candidates, as it is or beside commands."""
    path, made = task
    series, found = read_series(path), {}
    window = find_window(series.values[:, 0])
    with compute_threads(1):
        if made:
            part = cut(series)
            if part is None:
                return {"file": path.name, "made": True, "vus_pr": {}}
            config = PaAnoConfig.preset("default", stride=STRIDE)
            alone = PaAno(config, "cpu").fit(part.values[: part.train_rows]).score(part.values)
            found["alone"] = evaluate_vus_pr(alone, part.labels, window)
            rng = np.random.default_rng(list(path.name.encode()))
            series = replace(
                part, values=np.concatenate([part.values, commands(len(part.values), rng)], axis=1)
            )
        for name, score in candidates(series):
            found[name] = evaluate_vus_pr(score, series.labels, window)
    still = int((np.ptp(series.values[: series.train_rows], axis=0) == 0).sum())
    return {
        "file": path.name,
        "made": made,
        "channels": series.channels,
        "still": still,
        "vus_pr": {name: round(value, 6) for name, value in found.items()},
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The labelled files one by one, and the means of both kinds with paired differences to `measured`."""
    rows = [row for row in rows if row["vus_pr"]]
    kinds = {"labelled": [r for r in rows if not r["made"]], "made": [r for r in rows if r["made"]]}
    files = sorted(kinds["labelled"], key=lambda row: row["file"])
    titles = [
        f"{row['file'].split('_Sensor')[0]} ({row['still']} of {row['channels']} still)" for row in files
    ]
    sizes = [f"{name} ({len(kind)})" for name, kind in kinds.items()]
    heads = [*titles, *(head for size in sizes for head in (size, f"minus {MEASURED}"))]
    lines = [f"| bound | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for name in [*(rows[0]["vus_pr"] if rows else ()), *(["alone"] if kinds["made"] else [])]:
        if name == "alone" and lines[-1].startswith("| alone"):
            continue
        cells = [f"{row['vus_pr'][name]:.3f}" if name in row["vus_pr"] else "" for row in files]
        for kind in kinds.values():
            there = [row["vus_pr"] for row in kind if name in row["vus_pr"]]
            mean = f"{np.mean([found[name] for found in there]):.3f}" if there else ""
            gain = (
                "{:+.3f} ± {:.3f}".format(*mean_and_error([f[name] - f[MEASURED] for f in there]))
                if there
                else ""
            )
            cells += [mean, gain]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("channels.jsonl"))
    parser.add_argument("--table", action="store_true", help="run nothing, print what --out holds")
    options = parser.parse_args()
    rows = read_rows(options.out)
    if not options.table:
        done = {(row["file"], row["made"]) for row in rows}
        labelled = sorted((data_folder() / "TSB-AD-M-Tuning").glob("*.csv"))
        made = [path for path in labelled_files() if path.stat().st_size < LONGEST]
        tasks = [(path, False) for path in labelled] + [(path, True) for path in made]
        tasks = [(path, kind) for path, kind in tasks if (path.name, kind) not in done]
        for progress, row in run_tasks(run, tasks, options.out, options.workers):
            rows.append(row)
            print(f"{progress}  {row['file']}", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()

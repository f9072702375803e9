"""How fast the method is, against what this machine can do.

    python -m benchmarks.method            a table; about twenty minutes on an idle core
    python -m benchmarks.method --quick    a minute: shorter, scaled up, and no year of minutes
    python -m benchmarks.method --former   only `score_of_former`, ten seconds (2,000 rows; with --quick 500)
    python -m benchmarks.method --json     one object on standard output

Shares are of the rate of a float32 matrix product (2048³) on as many threads, in the same run, each at its
best of several turns. `score_of_former` is what scoring costs with the preset `default`, against the settings
that it had in version 0.1.0 (shape with three neighbours, and level): the same encoder on the same rows, in
turns, with four weeks of five minutes in the kept history, where the plain distance costs most. One thread is
how a fleet runs it: as many workers as cores, one torch thread each. On a busy machine `--clock cpu` counts
the processor time of this process only.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.localise import FORMER, fit_alike
from benchmarks.memory import peak_mb
from paano import PaAno, PaAnoConfig
from paano.network.encoder import layer_shapes, multiply_adds
from paano.network.fused import fit_many
from paano.network.losses import pretext_weight
from paano.network.train import train

GOALS = {
    "train_of_gemm": "at least 0.50",
    "score_of_gemm": "at least 0.70",
    "score_of_former": "at most 1.15",
    "light_speedup": "at least 12",
    "growth_exponent": "at most 1.1",
    "year_peak_mb": "below 2000",
}
YEAR = 525_600  # minutes
FOUR_WEEKS = 8_064  # rows of five minutes


class Clock:
    """Seconds of a call, by the wall or by this process's own processor time."""

    def __init__(self, kind: str):
        self.read = time.perf_counter if kind == "wall" else time.process_time

    def of(self, work: Callable[[], Any]) -> float:
        began = self.read()
        work()
        return self.read() - began

    def best(self, work: Callable[[], Any], rounds: int) -> float:
        return min(self.of(work) for _ in range(rounds))


def series(rows: int, seed: int = 0) -> np.ndarray:
    """A daily and an hourly wave with noise, in minutes."""
    t, rng = np.arange(rows), np.random.default_rng(seed)
    return np.sin(t * 2 * np.pi / 1440) + 0.5 * np.sin(t * 2 * np.pi / 60) + 0.1 * rng.normal(size=rows)


def gemm_rate(clock: Clock) -> float:
    """Multiply-adds per second of a float32 matrix product."""
    a, b = (torch.rand(2048, 2048) for _ in range(2))
    a @ b
    return 2048**3 / clock.best(lambda: a @ b, 7)


def against_gemm(clock: Clock, work: Callable[[], Any], multiply_adds: float, rounds: int) -> float:
    """The share of the matrix product's rate that `work` reaches; both at their best, taken in turns."""
    rate, seconds = gemm_rate(clock), math.inf
    work()
    for _ in range(rounds):
        seconds = min(seconds, clock.of(work))
        rate = max(rate, gemm_rate(clock))
    return multiply_adds / seconds / rate


def training_multiply_adds(config: PaAnoConfig, channels: int) -> int:
    """Forward and backward of the encoder over a whole training; the first layer needs no input gradient."""
    first = layer_shapes(config, channels)[0]
    one = 3 * multiply_adds(config, channels) - config.patch * first.inputs * first.outputs * first.kernel
    encoded = sum(
        config.minibatch
        * (3 if pretext_weight(step, config.iterations, 1.0, config.pretext_ratio, "linear") else 2)
        for step in range(config.iterations)
    )
    return encoded * one


def train_share(clock: Clock, preset: str, iterations: int) -> float:
    config = PaAnoConfig.preset(preset, iterations=iterations)
    x = series(10_000)

    def work() -> None:
        train([PaAno(config, "cpu").prepare(x)[1]], config)

    return against_gemm(clock, work, training_multiply_adds(config, 1), 2)


def score_share(clock: Clock, preset: str, rows: int) -> float:
    """Everything that scoring does counts as time, only the encoder's multiply-adds as work."""
    config = PaAnoConfig.preset(preset, iterations=0)
    model = PaAno(config, "cpu").fit(series(2_000))
    x = series(rows + config.patch - 1, seed=1)
    return against_gemm(clock, lambda: model.score(x), rows * multiply_adds(config, 1), 2)


def score_of_former(clock: Clock, rows: int, rounds: int) -> float:
    """The cost of scoring with the preset `default`, against that with its settings of version 0.1.0."""
    now = PaAnoConfig.preset("default", iterations=1)
    models = fit_alike(series(FOUR_WEEKS), now, now.replace(**FORMER))
    x, seconds = series(rows + now.patch - 1, seed=1), [math.inf] * 2
    for _ in range(rounds):
        for i, model in enumerate(models):
            seconds[i] = min(seconds[i], clock.of(lambda model=model: model.score(x)))
    return seconds[0] / seconds[1]


def end_to_end(clock: Clock, preset: str, rows: int, iterations: int) -> float:
    """Seconds to fit and score; with fewer iterations the training is scaled up to the preset's."""
    config, x = PaAnoConfig.preset(preset), series(rows)
    short = config.replace(iterations=iterations)
    model = PaAno(short, "cpu")
    read, material = model.prepare(x)
    began = clock.read()
    ((encoder, losses),) = train([material], short)
    training = (clock.read() - began) * training_multiply_adds(config, 1) / training_multiply_adds(short, 1)
    return training + clock.of(lambda: model.finish(read, material, encoder, losses, 0.0).score(x))


def bank_and_score(clock: Clock, preset: str, rows: int) -> dict[str, float]:
    """Seconds of bank and score and the peak memory of a process that fits and scores `rows`."""
    config, x = PaAnoConfig.preset(preset, iterations=10), series(rows)  # more would take no more memory
    model = PaAno(config, "cpu")
    read, material = model.prepare(x)
    ((encoder, losses),) = train([material], config)
    seconds = clock.of(lambda: model.finish(read, material, encoder, losses, 0.0).score(x))
    return {"seconds": seconds, "peak_mb": peak_mb()}


def in_own_process(arguments: argparse.Namespace, rows: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.method", "--one", str(rows)]
    command += ["--clock", arguments.clock, "--threads", str(arguments.threads)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out)


def fused_speed(clock: Clock, device: str, models: int, iterations: int) -> float:
    """How many times faster several models train at once than one by one."""
    config = PaAnoConfig.preset("light", iterations=iterations)
    many = [series(2_000, seed) for seed in range(models)]
    together = clock.of(lambda: fit_many(config, many, device, fused=True))
    return clock.of(lambda: fit_many(config, many, device, fused=False)) / together


def run(arguments: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """The figures by name, each as soon as it is known."""
    clock, quick = Clock(arguments.clock), arguments.quick
    yield "threads", arguments.threads
    yield "clock", arguments.clock
    if arguments.former:
        yield "score_of_former", score_of_former(clock, 500 if quick else 2_000, 12)
        return
    yield "gemm_gflops", 2 * gemm_rate(clock) / 1e9

    yield "train_of_gemm", train_share(clock, "paper", 2 if quick else 20)
    yield "score_of_gemm", score_share(clock, "paper", 500 if quick else 5_000)
    yield "score_of_former", score_of_former(clock, 500 if quick else 2_000, 12)
    yield "light_train_of_gemm", train_share(clock, "light", 5 if quick else 50)
    yield "light_score_of_gemm", score_share(clock, "light", 1_000 if quick else 10_000)

    rows = 1_000 if quick else 10_000
    seconds = {"light": math.inf, "paper": math.inf}  # to fit and score these rows, in turns
    for _ in range(1 if quick else 5):
        for preset, iterations in (("light", 10 if quick else 100), ("paper", 2 if quick else 20)):
            seconds[preset] = min(seconds[preset], end_to_end(clock, preset, rows, iterations))
    yield "light_seconds", seconds["light"]
    yield "paper_seconds", seconds["paper"]
    yield "light_speedup", seconds["paper"] / seconds["light"]

    x = series(3_000 if quick else 20_000, seed=1)
    costs = {}  # of scoring every s-th patch, against every patch
    for stride in (1, 2, 4, 8):
        model = PaAno(PaAnoConfig.preset("light", iterations=0, stride=stride), "cpu").fit(series(1_000))
        costs[stride] = clock.best(lambda model=model: model.score(x), 2)
        if stride > 1:
            yield f"stride_{stride}_cost", costs[stride] / costs[1]

    yield "fused_speedup_cpu", fused_speed(clock, "cpu", 4, 3 if quick else 20)
    if torch.cuda.is_available():
        fused_speed(clock, "cuda", 2, 3)
        yield "fused_speedup_cuda", fused_speed(clock, "cuda", 16, 100)

    small, large = (2_000, 8_000) if quick else (50_000, YEAR)
    short, long = in_own_process(arguments, small), in_own_process(arguments, large)
    yield "growth_rows", [small, large]
    yield "growth_seconds", [round(short["seconds"], 2), round(long["seconds"], 2)]
    yield "growth_exponent", math.log(long["seconds"] / short["seconds"]) / math.log(large / small)
    yield ("peak_mb" if quick else "year_peak_mb"), long["peak_mb"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one object on standard output")
    parser.add_argument("--quick", action="store_true", help="smaller and shorter; no year of minutes")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--former", action="store_true", help="only the cost against the settings of 0.1.0")
    parser.add_argument("--one", type=int, metavar="ROWS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.one:
        print(json.dumps(bank_and_score(Clock(arguments.clock), "light", arguments.one)))
        return
    result = {}
    for name, value in run(arguments):
        result[name] = value
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        print(
            f"{name:24} {shown:>24}  {GOALS.get(name, '')}",
            file=sys.stderr if arguments.json else sys.stdout,
            flush=True,
        )
    if arguments.json:
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

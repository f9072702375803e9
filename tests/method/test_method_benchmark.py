"""The benchmark runs and names its figures. What they are is for an idle machine to say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.method import Clock, score_of_former, training_multiply_adds
from paano import PaAnoConfig


def test_training_costs_what_the_design_counts():
    """100 iterations of 1,024 patches, three times forward, and the predecessors of the first 20."""
    config = PaAnoConfig.preset("paper")
    want = 3 * 27.6e6 * (100 * 1024 + 20 * 512)
    assert training_multiply_adds(config, 1) == pytest.approx(want, rel=0.005)


def test_the_parts_that_were_added_cost_little_beside_the_encoder():
    """The goal is 1.15, which a busy machine and 200 rows cannot show."""
    assert 1.0 < score_of_former(Clock("cpu"), 200, 2) < 2.5


@pytest.mark.slow
def test_the_benchmark_prints_one_object_with_its_figures():
    command = [sys.executable, "-m", "benchmarks.method", "--quick", "--json", "--threads", "1"]
    root = Path(__file__).resolve().parents[2]
    out = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=root, timeout=1800
    ).stdout
    figures = json.loads(out)
    names = {"train_of_gemm", "score_of_gemm", "score_of_former", "light_speedup", "growth_exponent"}
    assert {*names, "stride_4_cost"} <= set(figures)
    assert 0 < figures["train_of_gemm"] < 2 and 0 < figures["score_of_gemm"] < 2

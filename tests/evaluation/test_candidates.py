"""The ideas beside the default: benchmarks/candidates.py."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.candidates import BEFORE, OURS, STRIDE, candidates, detrended, smoothed, table
from paano import PaAno, PaAnoConfig
from paano.patches import standardise

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_first_candidates_are_the_default_before_and_now(bumped):
    found = candidates(bumped, seed=1)
    former = {"neighbours": 3, "next_value": "none", "still": "measured", "keep": 0}
    for name, changes in ((BEFORE, former), (OURS, {})):
        config = PaAnoConfig.preset("default", seed=1, stride=STRIDE, **changes)
        score = PaAno(config, "cpu").fit(bumped.values[:800]).score(bumped.values)
        title, candidate = next(found)
        assert title == name
        np.testing.assert_allclose(candidate, score, rtol=1e-4)
    assert all(np.shape(score) == (len(bumped.values),) for _, score in found)


def test_a_straight_line_is_gone_from_a_detrended_patch_and_the_rest_stays():
    t = torch.arange(96, dtype=torch.float64)[None, :, None]
    wave = torch.sin(t * 2 * np.pi / 12)
    plain, tilted = (detrended(standardise)(x) for x in (wave, wave + 3 * t + 7))
    assert torch.allclose(plain, tilted, atol=1e-9)
    assert float((tilted * (t - t.mean())).mean().abs()) < 1e-6


def test_smoothing_takes_the_mean_of_the_rows_that_have_a_score():
    found = smoothed(np.array([np.nan, 1.0, 3.0, 5.0, np.nan]), 3)
    np.testing.assert_allclose(found, [np.nan, 2.0, 3.0, 4.0, np.nan])


def test_differences_are_taken_on_the_same_runs_and_averaged_over_seeds_first():
    def row(file, seed, ours, other):
        return {"file": file, "subset": "", "seed": seed, "vus_pr": {BEFORE: ours, "idea": other}}

    rows = [
        row("1_NAB_id_1_tr_9_.csv", 0, 0.1, 0.2),
        row("1_NAB_id_1_tr_9_.csv", 1, 0.1, 0.4),
        row("2_UCR_id_1_tr_9_.csv", 0, 0.5, 0.5),
    ]
    idea = next(line for line in table(rows).splitlines() if line.startswith("| idea"))
    assert "| 0.400 ± 0.100 | +0.100 ± 0.100 | +0.000 … +0.200 |" in idea
    weighted = 23 * 0.2 / (23 + 70)  # 23 series of NAB and 70 of UCR are in the evaluation split
    assert f"| {weighted:+.3f} ± " in idea


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "benchmarks/ACCURACY.md"])
def test_the_published_gain_is_that_of_the_rows_that_are_kept(page):
    lines = (ROOT / "benchmarks" / "candidates-results.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert len({row["file"] for row in rows}) == 110
    cells = next(line for line in table(rows).splitlines() if line.startswith(f"| {OURS} |")).split("|")
    words = " ".join((ROOT / page).read_text().replace("**", "").split())
    assert cells[3].strip() in words  # the mean difference and its error

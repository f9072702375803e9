"""The study behind the default preset: benchmarks/accuracy.py."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.accuracy import (
    compare,
    mean_and_error,
    read_rows,
    run_all,
    table,
    with_level,
    without_one_subset,
    write_csv,
)
from paano import PaAno, PaAnoConfig


def test_a_level_added_afterwards_gives_the_score_of_a_model_that_had_it(bumped):
    config = PaAnoConfig.preset("untrained", width=0.125)

    plain = PaAno(config, "cpu").fit(bumped.values[:800])
    whole = PaAno(config.replace(level="tail"), "cpu").fit(bumped.values[:800])

    afterwards = with_level(bumped, config, plain.detect(bumped.values).shape, plain.training_scores())
    np.testing.assert_allclose(afterwards, whole.score(bumped.values), rtol=1e-5)


def test_differences_are_taken_on_the_same_files_and_seeds_and_averaged_over_seeds_first():
    def row(variant, file, seed, value):
        return {
            "variant": variant, "file": file, "seed": seed, "vus_pr": value, "fit_s": 1.0, "score_s": 1.0,
        }  # fmt: skip

    rows = [
        row("untrained", "a", 0, 0.1), row("untrained", "a", 1, 0.3), row("untrained", "b", 0, 0.5),
        row("light", "a", 0, 0.2), row("light", "a", 1, 0.6), row("light", "b", 0, 0.5),
        row("light", "c", 0, 0.9),  # no partner: in the mean, not in the difference
    ]  # fmt: skip
    light = next(line for line in table(rows, "untrained").splitlines() if line.startswith("| light"))
    cells = [cell.strip() for cell in light.strip("|").split("|")]
    assert cells[2:4] == ["3", "4"]  # files, runs
    assert float(cells[4].split()[0]) == pytest.approx(np.mean([0.4, 0.5, 0.9]), abs=6e-4)
    assert cells[5] == "+0.100 ± 0.100 (2)"  # a: +0.2 on average, b: 0


def test_two_variants_are_compared_on_the_runs_that_both_have():
    def row(variant, file, subset, value, **more):
        run = {"variant": variant, "file": file, "subset": subset, "seed": 0, "stride": 1}
        return {**run, "vus_pr": value, **more}

    rows = [
        row("default", "a", "NAB", 0.5), row("default", "b", "UCR", 0.2), row("default", "c", "UCR", 0.9),
        row("paper", "a", "NAB", 0.1, with_level_vus_pr=0.6), row("paper", "b", "UCR", 0.4),
    ]  # fmt: skip
    line = compare(rows, "default", "paper", level=False)
    assert "+0.100 ± 0.300 (2 files, 2 runs), better on 1; -0.200 … +0.400 without one subset" in line
    weighted = (23 * 0.4 - 70 * 0.2) / (23 + 70)  # 23 series of NAB and 70 of UCR are published
    assert f"{weighted:+.3f} with the subsets weighted" in line
    assert "-0.100 ± nan (1 files, 1 runs)" in compare(rows, "default", "paper", level=True)
    assert "no runs in common" in compare(rows, "default", "light", level=False)


def test_every_subset_is_left_out_in_turn():
    assert without_one_subset([1.0, 2.0, 6.0], ["a", "a", "b"]) == (1.5, 6.0)


def test_what_is_known_is_not_run_again(tmp_path):
    class Task:
        key = ("file.csv", "light", "0123")

    known = [{"file": "file.csv", "variant": "light", "digest": "0123"}]
    run_all([Task()], known, tmp_path / "out.jsonl", 1, None)
    assert read_rows(tmp_path / "out.jsonl") == []


def test_the_error_is_that_of_the_mean():
    mean, error = mean_and_error([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5
    assert error == pytest.approx(np.std([1, 2, 3, 4], ddof=1) / 2)


def test_rows_come_back_from_a_table_as_they_went_in(tmp_path):
    rows = [
        {"file": "001_x.csv", "variant": "light", "seed": 0, "digest": "0123", "vus_pr": 0.25},
        {"file": "002_x.csv", "variant": "light", "seed": 1, "digest": "12e4", "with_level_vus_pr": 0.5},
    ]
    write_csv(rows, tmp_path / "rows.csv")
    assert read_rows(tmp_path / "rows.csv") == rows

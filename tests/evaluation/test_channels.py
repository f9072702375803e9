"""Many channels, and the choice of a model: benchmarks/channels.py, benchmarks/choice.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import choice
from benchmarks.channels import COMMANDS, COUNTED, LEAD, MEASURED, TRAINED, candidates, commands, cut, table
from benchmarks.resumable import read_rows
from paano import PaAno, PaAnoConfig
from paano.evaluation.protocol import LabelledSeries

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def labelled(rows: int, train: int, first: int, channels: int = 1) -> LabelledSeries:
    values = np.sin(np.arange(rows) / 9)[:, None] * np.arange(1, channels + 1)
    labels = np.zeros(rows, dtype=bool)
    labels[first : first + 20] = True
    return LabelledSeries("one", "UCR", train, values, labels, "")


def test_a_cut_series_has_the_anomaly_and_the_newest_training_rows():
    part = cut(labelled(9000, 5000, 8000))
    assert part.train_rows == TRAINED
    assert np.flatnonzero(part.labels)[0] == TRAINED + LEAD
    np.testing.assert_array_equal(
        part.values[: part.train_rows], labelled(9000, 5000, 8000).values[3000:5000]
    )
    assert cut(labelled(3000, 1000, 2000)) is None


def test_commands_are_pulses_of_which_some_never_came_in_training():
    found = commands(2 * TRAINED, np.random.default_rng(0))
    assert found.shape == (2 * TRAINED, COMMANDS) and set(np.unique(found)) == {0.0, 1.0}
    still = found[:TRAINED].max(axis=0) == 0
    assert 0 < still.sum() < COMMANDS and found[TRAINED:, still].any()


@pytest.mark.slow
def test_the_first_bounds_are_the_settings():
    series = labelled(900, 600, 800, channels=2)
    series.values[:, 1] = 0.0
    series.values[700:703, 1] = 1.0
    found = dict(candidates(series))
    for still in (MEASURED, COUNTED):
        config = PaAnoConfig.preset("default", stride=4, still=still)
        score = PaAno(config, "cpu").fit(series.values[:600]).score(series.values)
        np.testing.assert_allclose(found[still], score, rtol=1e-5)
    assert found[COUNTED][650:750].max() < found[MEASURED][650:750].max()


def test_the_published_figures_are_those_of_the_rows_that_are_kept():
    page = (BENCHMARKS / "ACCURACY.md").read_text().replace("**", "")
    rows = read_rows(BENCHMARKS / "channels-results.jsonl")
    line = next(line for line in table(rows).splitlines() if line.startswith(f"| {COUNTED} "))
    assert line in page
    for line in choice.table(read_rows(BENCHMARKS / "choice-results.jsonl")).splitlines():
        assert line in page

"""Channels that never moved in training: paano/scoring/still.py."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paano import PaAno, PaAnoConfig
from paano.errors import ArtifactError, ConfigError
from paano.scoring.level import fit_level
from paano.scoring.next_value import fit_next_value
from paano.scoring.still import bounded, rows_from, still_rows
from paano.series import read_series
from tests.oracle import counted

ROWS, PATCH = 400, 16
CONFIG = PaAnoConfig.preset("default", patch=PATCH, iterations=0, width=0.0625)


def wave_and_command(rows: int, used_at: int | None = None, seed: int = 0) -> np.ndarray:
    """A noisy wave beside a command that is 0, but for three rows from `used_at` on."""
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(rows) / 5) + 0.05 * rng.standard_normal(rows)
    command = np.zeros(rows)
    if used_at is not None:
        command[used_at : used_at + 3] = 1.0
    return np.stack([wave, command], axis=1)


def test_a_channel_stands_still_if_it_moves_by_no_more_than_rounding():
    x = np.ones((50, 5))
    x[:, 1] = np.linspace(0, 1, 50)
    x[:, 2] = 1e5 + 1e-4 * (np.arange(50) % 2)
    x[:, 3] = 0.0
    x[:, 4] = 1e5 + (np.arange(50) % 2)
    x[7:10] = np.nan  # bridged, so these rows count
    x[20:30] = np.nan  # not bridged
    assert still_rows(read_series(x, 3)).tolist() == [40, 0, 40, 40, 0]
    assert still_rows(read_series(np.full((5, 2), np.nan), 3)).tolist() == [0, 0]


def test_the_bound_is_that_of_the_slow_twin():
    nats = np.array([[0.0, 3.0, 90.0], [np.nan, 50.0, 90.0]])
    rows = np.array([10, 0, 1000])
    expected = [[counted(v, n) for v, n in zip(row, rows, strict=True)] for row in nats]
    np.testing.assert_array_equal(bounded(nats, rows), expected)
    assert bounded(nats, None) is nats


def test_level_and_next_value_are_bounded_in_the_still_channel_alone():
    past = read_series(wave_and_command(ROWS), 3)
    later = wave_and_command(200, used_at=100, seed=1)
    later[150:155, 0] += 1e6
    later = read_series(later, 3)
    shape = np.ones(ROWS)
    still = still_rows(past)
    for fit in (lambda still: fit_level(past, PATCH, shape, 0.99, still)[0],
                lambda still: fit_next_value(past, PATCH, still)):  # fmt: skip
        free, held = fit(None).by_channel(later), fit(still).by_channel(later)
        np.testing.assert_array_equal(held[:, 0], free[:, 0])
        np.testing.assert_array_equal(held[:, 1], np.minimum(free[:, 1], math.log(ROWS + 1)))
        assert np.nanmax(free) > math.log(ROWS + 1) > np.nanmin(held)
        assert np.nanmax(free[:, 1]) > math.log(ROWS + 1) == np.nanmax(held[:, 1])


def test_a_fault_of_another_channel_is_no_longer_hidden():
    values = wave_and_command(300, used_at=50, seed=2)
    values[200:210, 0] += 3.0
    past = wave_and_command(ROWS)
    counted_score = PaAno(CONFIG, "cpu").fit(past).score(values)
    measured_score = PaAno(CONFIG.replace(still="measured"), "cpu").fit(past).score(values)
    assert counted_score[30:80].max() < counted_score[180:230].max()
    assert measured_score[30:80].max() > measured_score[180:230].max()


def test_the_first_move_of_a_lonely_channel_is_an_alarm():
    past = np.full(ROWS, 4.0)
    later = np.where(np.arange(200) > 150, 5.0, 4.0)
    model = PaAno(CONFIG, "cpu").fit(past)
    score = model.score(later)
    assert score[:100].max() < model.calibration.threshold(1.0, 300.0) < score[160]


def test_scores_do_not_depend_on_where_the_series_was_cut():
    values = wave_and_command(300, used_at=120, seed=3)
    model = PaAno(CONFIG, "cpu").fit(wave_and_command(ROWS))
    whole, near = model.detect(values), CONFIG.context
    for low, high in ((0, 150), (118, 260), (121, 300)):
        part = model.detect(values[low:high])
        inner = slice(near if low else 0, len(part.score) - (near if high < 300 else 0))
        np.testing.assert_allclose(part.score[inner], whole.score[low:high][inner], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(part.level[inner], whole.level[low:high][inner])
        np.testing.assert_array_equal(part.next_value[inner], whole.next_value[low:high][inner])


def test_the_rows_are_saved_and_a_model_without_them_measures(tmp_path):
    past, later = wave_and_command(ROWS), wave_and_command(200, used_at=100)
    model = PaAno(CONFIG, "cpu").fit(past)
    model.save(tmp_path / "counted")
    np.testing.assert_array_equal(PaAno.load(tmp_path / "counted", "cpu").score(later), model.score(later))
    model = PaAno(CONFIG.replace(still="measured"), "cpu").fit(past)
    model.save(tmp_path / "measured")
    assert b"still.rows" not in (tmp_path / "measured" / "bank.safetensors").read_bytes()
    np.testing.assert_array_equal(PaAno.load(tmp_path / "measured", "cpu").score(later), model.score(later))


def test_what_has_been_taken_in_is_no_surprise_any_more():
    values = wave_and_command(300, used_at=120, seed=4)
    model = PaAno(CONFIG, "cpu").fit(wave_and_command(ROWS))
    before = model.detect(values)
    after = model.take_in(values, range(110, 135)).detect(values)
    assert after.level[121] < before.level[121] and after.next_value[121] < before.next_value[121]


def test_settings_and_tensors_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match=r"model\.level"):
        PaAnoConfig(still="counted")
    assert PaAnoConfig.preset("default", level="none").still == "measured"
    assert rows_from({}) is None
    with pytest.raises(ArtifactError, match="below 0"):
        rows_from({"still.rows": np.array([-1])})

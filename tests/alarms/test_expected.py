"""What an event's rows should have been: near the truth, within a band, from the model alone."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from paano import PaAno, PaAnoConfig
from paano.alarms.expected import around
from paano.errors import NotFitted, SeriesError

PATCH = 24
CONFIG = PaAnoConfig.preset("default", patch=PATCH, iterations=0, width=0.0625, keep=4000)


def wave(rows: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    """A slow and a fast rhythm; the second channel follows the first."""
    rng = np.random.default_rng(seed)
    t = np.arange(rows)
    one = 3 * np.sin(t * 2 * np.pi / 240) + np.sin(t * 2 * np.pi / 20)
    return np.stack([500 + (c + 1) * one for c in range(channels)], axis=1) + 0.1 * rng.standard_normal(
        (rows, channels)
    )


@functools.cache
def model(channels: int = 1) -> PaAno:
    return PaAno(CONFIG, "cpu").fit(wave(2400, channels))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rows", [1, 10, 2 * PATCH, 5 * PATCH])
def test_the_expected_values_are_near_the_true_ones_and_mostly_within_the_band(channels, rows):
    true = wave(600, channels, seed=5)
    inside = []
    for first in range(60, 400, 50):
        x = true.copy()
        x[first : first + rows] += 50
        found = model(channels).expected(x, (first, first + rows - 1))
        assert found.first == first
        assert found.mid.shape == found.low.shape == found.high.shape == (rows, channels)
        assert (found.low <= found.mid).all()
        assert (found.mid <= found.high).all()
        expected = true[first : first + rows]
        assert np.abs(found.mid - expected).mean() < 0.6 * channels
        inside.append(np.mean((found.low <= expected) & (expected <= found.high)))
    assert np.mean(inside) > 0.7


def test_the_fault_itself_does_not_matter():
    x = wave(400, seed=5)
    one = model().expected(x, (200, 209))
    x[200:210] = 1e6
    two = model().expected(x, (200, 209))
    np.testing.assert_array_equal(one.mid, two.mid)
    np.testing.assert_array_equal(one.high, two.high)


def test_only_the_rows_around_the_event_matter():
    x = wave(400, seed=5)
    near = around(PATCH)
    whole = model().expected(x, (200, 209))
    cut = model().expected(x[200 - near : 210 + near], (near, near + 9))
    np.testing.assert_allclose(cut.mid, whole.mid)
    np.testing.assert_allclose(cut.low, whole.low)


def test_missing_rows_around_an_event_and_the_end_of_a_series_are_no_obstacle():
    x = wave(300, seed=5)
    true = x[280:].copy()
    x[270:275], x[280:] = np.nan, 0.0
    found = model().expected(x, (280, 299))
    assert np.abs(found.mid - true).mean() < 1.0


def test_a_saved_model_gives_the_same(tmp_path):
    x = wave(400, seed=5)
    model().save(tmp_path)
    loaded = PaAno.load(tmp_path, "cpu")
    np.testing.assert_array_equal(loaded.expected(x, (200, 209)).mid, model().expected(x, (200, 209)).mid)


def test_a_model_without_a_kept_history_says_what_to_do():
    plain = PaAno(CONFIG.replace(keep=0), "cpu").fit(wave(300))
    with pytest.raises(NotFitted, match="paano retrain"):
        plain.expected(wave(100), (10, 12))


def test_rows_that_are_not_there_are_refused():
    with pytest.raises(SeriesError, match="rows 90 to 120"):
        model().expected(wave(100), (90, 120))
    with pytest.raises(SeriesError, match="2 channels"):
        model().expected(wave(100, 2), (10, 12))

"""The surprise of the next value: exact in time, the same wherever a series is cut."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paano import PaAno, PaAnoConfig
from paano.alarms.cause import cause_of
from paano.alarms.explain import explain
from paano.errors import ArtifactError, ConfigError
from paano.scoring import next_value as module
from paano.scoring.next_value import NextValue, fit_next_value, past_of
from paano.series import read_series
from tests import oracle

PATCH = 16
CONFIG = PaAnoConfig.preset("default", patch=PATCH, iterations=0, width=0.0625, keep=0)


def wave(rows: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    t = np.arange(rows)[:, None] + 5 * np.arange(channels)
    return 10 + np.sin(t / 4) + 0.05 * rng.standard_normal((rows, channels))


@functools.cache
def model(channels: int = 1) -> PaAno:
    return PaAno(CONFIG, "cpu").fit(wave(800, channels))


def test_a_wild_value_is_a_surprise_from_its_own_row_on():
    x = wave(300, seed=1)
    x[150] += 2
    size, _ = model().next_value.sizes(read_series(x, 0))
    assert np.flatnonzero(size > 5 * model().next_value.limit[0])[0] == 150
    assert model().detect(x).next_value[150] > 1


def test_the_three_parts_add_up_to_the_score():
    found = model().detect(wave(300, seed=1))
    np.testing.assert_allclose(found.shape + found.level + found.next_value, found.score, rtol=1e-5)


def test_no_training_row_is_a_surprise_by_itself_and_one_in_a_thousand_over_its_patch():
    series = read_series(wave(5000, 2), 0)
    found = fit_next_value(series, PATCH)
    beyond = found.sizes(series) > found.limit[:, None]
    assert not beyond[0].any()
    assert 0 < beyond[1].mean() < 0.002


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 2), st.sampled_from([6, 9, 16]))
def test_it_equals_the_slow_twin(seed, channels, patch):
    rng = np.random.default_rng(seed)
    found = fit_next_value(read_series(wave(200, channels, seed), 0), patch)
    x = wave(70, channels, seed + 1)
    x[rng.integers(70)] += 3
    x[rng.integers(70, size=2)] = np.nan
    series = read_series(x, 0)
    nats = found.by_channel(series)
    for c in range(channels):
        slow = oracle.forecast_residuals(series.values[:, c], series.usable, found.weights[c])
        np.testing.assert_allclose(found.residuals(series)[:, c], slow, atol=1e-9)
        slow = oracle.next_value_nats(slow, patch, found.limit[:, c], found.unit[:, c])
        np.testing.assert_allclose(nats[:, c], slow, atol=1e-7)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(0, 40))
def test_a_score_does_not_depend_on_where_the_series_was_cut(seed, before, after):
    rng = np.random.default_rng(seed)
    x = wave(250, seed=seed)
    x[rng.random(250) < 0.03] = np.nan
    first, last, context = 120, 130, CONFIG.context
    low, high = first - context - before, last + context + after
    whole, cut = model().detect(x), model().detect(x[low:high])
    np.testing.assert_array_equal(whole.next_value[first:last], cut.next_value[first - low : last - low])


def test_the_unit_of_a_channel_does_not_matter():
    one, other = (fit_next_value(read_series(scale * wave(400), 0), PATCH) for scale in (1.0, 1e-5))
    x = wave(100, seed=1)
    x[50] += 1
    np.testing.assert_allclose(one.score(read_series(x, 0)), other.score(read_series(1e-5 * x, 0)), atol=1e-6)


def test_long_series_are_fitted_in_pieces(monkeypatch):
    whole = fit_next_value(read_series(wave(400), 0), PATCH)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 37)
    pieces = fit_next_value(read_series(wave(400), 0), PATCH)
    np.testing.assert_allclose(pieces.weights, whole.weights, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("values", [np.full(200, 7.0), np.zeros(200), 1e140 * np.sin(np.arange(200.0))])
def test_a_series_that_never_moves_or_is_huge_has_a_forecast(values):
    found = fit_next_value(read_series(values, 0), PATCH)
    assert np.isfinite(found.weights).all() and (found.unit > 0).all()
    assert (found.score(read_series(values, 0)) < 1).all()


def test_a_series_too_short_for_a_forecast_has_no_surprise():
    rows = past_of(PATCH)
    found = fit_next_value(read_series(wave(rows), 0), PATCH)
    assert (found.score(read_series(wave(rows), 0)) == 0).all()


def test_an_event_of_it_says_so_and_names_the_channel():
    x = wave(300, 3, seed=1)
    quick = model(3).detect(x)
    assert set(np.isfinite(quick.next_value[quick.status == "ok"])) == {True}
    x[150, 2] += 1.2
    answer = explain(model(3), x, 150)
    assert "next value" in answer.cause
    assert answer.channels[0][0] == 2


@pytest.mark.parametrize(
    ("parts", "cause"),
    [
        ((9, 1, 1), "shape"),
        ((1, 1, 9), "next value"),
        ((5, 5, 0), "shape and level"),
        ((4, 0.5, 4), "shape and next value"),
        ((3, 3, 3), "shape, level and next value"),
        ((2, np.nan, np.nan), "shape"),
        ((0, 0, 0), "shape"),
    ],
)
def test_the_cause_names_the_parts_that_count(parts, cause):
    assert cause_of(*parts) == cause


def test_rows_that_a_person_calls_normal_are_no_surprise():
    x = wave(300, seed=1)
    x[150] += 2
    series = read_series(x, 0)
    found = fit_next_value(read_series(wave(800), 0), PATCH)
    taught = found.take_in(series, np.arange(300) == 150)
    assert found.score(series)[150] > taught.score(series)[150] == 0
    assert found.take_in(series, np.zeros(300, dtype=bool)) is found


def test_it_is_kept_in_the_artifact_and_what_cannot_be_one_is_refused(tmp_path):
    x = wave(200, seed=1)
    model().save(tmp_path)
    np.testing.assert_array_equal(PaAno.load(tmp_path, "cpu").score(x), model().score(x))
    tensors = model().next_value.tensors()
    with pytest.raises(ArtifactError, match="fitted again"):
        NextValue.from_tensors(PATCH, {**tensors, "next.unit": 0 * tensors["next.unit"]})


def test_it_needs_the_level_whose_unit_it_shares():
    with pytest.raises(ConfigError, match=r"model\.level"):
        PaAnoConfig(next_value="ridge")
    assert PaAnoConfig.preset("default", level="none").next_value == "none"
    assert PaAnoConfig.preset("default").replace(level="none").next_value == "none"

"""The plain distance: patches compared as they are, the same wherever a series is cut."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paano import PaAno, PaAnoConfig
from paano.alarms.explain import explain
from paano.errors import ArtifactError, ConfigError
from paano.scoring import plain as module
from paano.scoring.kept import keep_rows
from paano.scoring.plain import Plain, fit_plain, places_of, width_of
from paano.series import Series, read_series, valid_starts
from tests import oracle

PATCH = 64  # two rows are averaged
CONFIG = PaAnoConfig.preset("default", patch=PATCH, iterations=0, width=0.0625)


def beats(rows: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    t = np.arange(rows)[:, None] + 5 * np.arange(channels)
    return 10 + np.sin(t / 6) + 0.5 * np.sin(t / 3) + 0.05 * rng.standard_normal((rows, channels))


def other_form(x: np.ndarray, first: int, channel: int = 0) -> np.ndarray:
    """A beat of another form at the same height."""
    x = x.copy()
    t = np.arange(first, first + 38) + 5 * channel
    x[first : first + 38, channel] = 10 + np.sin(t / 6) - 0.5 * np.sin(t / 3)
    return x


def points(distances: np.ndarray, starts: np.ndarray, rows: int, patch: int) -> np.ndarray:
    return np.array([mean for mean, _ in oracle.slow_points(distances, starts, rows, patch)])


@functools.cache
def model(channels: int = 1) -> PaAno:
    return PaAno(CONFIG, "cpu").fit(beats(900, channels))


def plain_of(model: PaAno, series: Series) -> np.ndarray:
    return model.plain.score(series, valid_starts(series.usable, PATCH), model.kept)


def test_a_beat_of_another_form_stands_out_and_an_ordinary_one_does_not():
    x = other_form(beats(400, seed=1), 200)
    surprise = plain_of(model(), read_series(x, 0))
    assert surprise[200:238].min() > 2 * np.nanquantile(surprise[:130], 0.99)


def test_it_is_a_part_of_the_shape():
    x = beats(300, seed=1)
    without = PaAno(CONFIG.replace(plain="none"), "cpu").fit(beats(900))
    shape = module.SHARE * (without.detect(x).shape + plain_of(model(), read_series(x, 0)))
    found = model().detect(x)
    np.testing.assert_allclose(found.shape, shape, rtol=1e-5)
    np.testing.assert_allclose(found.shape + found.level + found.next_value, found.score, rtol=1e-5)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 2), st.sampled_from([6, 20, 64]))
def test_it_equals_the_slow_twin(seed, channels, patch):
    rng = np.random.default_rng(seed)
    past = beats(170, channels, seed)
    past[rng.integers(170)] = np.nan
    train = read_series(past, 0)
    kept = keep_rows(train, 150)  # not all of it
    starts = valid_starts(train.usable, patch)
    found, scores = fit_plain(train, starts, kept, patch)
    x = beats(90, channels, seed + 1)
    x[rng.integers(90)] = np.nan
    series = read_series(x, 0)
    ours = valid_starts(series.usable, patch)
    distance = found.by_channel(series, ours, kept)
    training = np.empty((len(past), channels))
    for c in range(channels):
        twin = (kept.values[:, c], places_of(kept, patch), patch, width_of(patch), found.flat[c])
        slow = oracle.plain_distances(series.values[:, c], ours, *twin) / found.unit[c]
        np.testing.assert_allclose(distance[:, c], points(slow, ours, 90, patch), atol=1e-5)
        slow = oracle.plain_distances(train.values[:, c], starts, *twin, apart=(20, patch)) / found.unit[c]
        training[:, c] = points(slow, starts, 170, patch)
    known = np.isfinite(training).all(axis=1)
    total = training.sum(axis=1) / np.sqrt(channels)
    if known.any():
        assert found.typical == pytest.approx(np.median(total[known]), abs=1e-5)
    np.testing.assert_allclose(scores, np.where(known, np.maximum(total - found.typical, 0), 0.0), atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(0, 40))
def test_a_score_does_not_depend_on_where_the_series_was_cut(seed, before, after):
    rng = np.random.default_rng(seed)
    x = beats(500, seed=seed)
    x[rng.random(500) < 0.005] = np.nan
    first, last, context = 240, 260, CONFIG.context
    low, high = first - context - before, last + context + after
    whole, cut = (plain_of(model(), read_series(part, CONFIG.max_gap)) for part in (x, x[low:high]))
    np.testing.assert_allclose(whole[first:last], cut[first - low : last - low], rtol=1e-6, atol=1e-6)


def test_the_unit_and_the_offset_of_a_sensor_do_not_matter():
    x = other_form(beats(300, seed=1), 150)
    found = []
    for scale, offset in ((1.0, 0.0), (1e-5, 0.0), (1.0, 1e6)):
        fitted = PaAno(CONFIG, "cpu").fit(scale * beats(900) + offset)
        found.append(plain_of(fitted, read_series(scale * x + offset, 0)))
    np.testing.assert_allclose(found[1], found[0], atol=1e-3)
    np.testing.assert_allclose(found[2], found[0], atol=1e-3)


@pytest.mark.parametrize("values", [np.full(300, 7.0), np.zeros(300), 1e140 * np.sin(np.arange(300.0))])
def test_a_series_that_never_moves_or_is_huge_has_finite_scores(values):
    series = read_series(values, 0)
    starts = valid_starts(series.usable, PATCH)
    found, scores = fit_plain(series, starts, keep_rows(series, 300), PATCH)
    assert np.isfinite(scores).all()
    assert np.isfinite(found.score(series, starts, keep_rows(series, 300))).all()


def test_the_noise_of_a_resting_channel_is_no_shape():
    rng = np.random.default_rng(0)
    past, x = (np.concatenate([beats(900, seed=s), np.full((300, 1), 10.0)]) for s in (0, 1))
    past += 1e-4 * rng.standard_normal(past.shape)
    x += 1e-4 * rng.standard_normal(x.shape)
    fitted = PaAno(CONFIG, "cpu").fit(past)
    assert plain_of(fitted, read_series(x, 0))[1000:1200].max() < 0.5


def test_a_series_with_nothing_to_compare_with_has_no_surprise():
    series = read_series(beats(PATCH), 0)
    found, scores = fit_plain(series, np.array([0]), keep_rows(series, 100), PATCH)
    assert (scores == 0).all()
    assert found.score(series, np.array([0]), keep_rows(series, 100)).shape == (PATCH,)


def test_a_long_history_is_compared_with_at_even_steps():
    series = read_series(beats(12_000, 2), 0)
    places = places_of(keep_rows(series, 16_384), PATCH)
    assert len(places) <= module.PLACES // 2
    assert len(set(np.diff(places))) == 1


def test_long_series_are_scored_in_pieces(monkeypatch):
    x = read_series(beats(300, seed=1), 0)
    whole = plain_of(model(), x)
    monkeypatch.setattr(module, "PATCHES_AT_ONCE", 37)
    monkeypatch.setattr(module, "ALIKE_AT_ONCE", 5000)
    np.testing.assert_allclose(plain_of(model(), x), whole, atol=1e-6)


def test_an_event_of_it_says_shape_and_names_the_channel():
    x = other_form(beats(500, 3, seed=1), 400, channel=2)
    answer = explain(model(3), x, 420)
    assert "shape" in answer.cause
    assert answer.channels[0][0] == 2


def test_rows_that_a_person_calls_normal_are_none_afterwards(tmp_path):
    x = other_form(beats(400, 2, seed=1), 200, channel=1)
    model(2).save(tmp_path)
    before = plain_of(model(2), read_series(x, 0))[200:238]
    taught = PaAno.load(tmp_path, "cpu").take_in(x, np.arange(200, 238))
    after = plain_of(taught, read_series(x, 0))[200:238]
    assert before.min() > 1 > after.max()


def test_it_is_kept_in_the_artifact_and_what_cannot_be_one_is_refused(tmp_path):
    x = beats(200, seed=1)
    model().save(tmp_path)
    np.testing.assert_array_equal(PaAno.load(tmp_path, "cpu").score(x), model().score(x))
    tensors = model().plain.tensors()
    with pytest.raises(ArtifactError, match="fitted again"):
        Plain.from_tensors(PATCH, {**tensors, "plain.unit": 0 * tensors["plain.unit"]})


def test_it_needs_the_level_and_the_kept_history():
    for settings_ in ({"plain": "nearest"}, {"plain": "nearest", "keep": 9}):
        with pytest.raises(ConfigError, match=r"model\.keep above 0 and model\.level"):
            PaAnoConfig(**settings_)
    for change in ({"level": "none"}, {"keep": 0}):
        assert PaAnoConfig.preset("default", **change).plain == "none"
        assert PaAnoConfig.preset("default").replace(**change).plain == "none"

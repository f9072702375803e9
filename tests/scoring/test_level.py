"""The level score: what standardised patches cannot see."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paano import PaAno, PaAnoConfig
from paano.alarms.cause import cause_of
from paano.errors import ArtifactError
from paano.scoring.level import Level, features_of, fit_level, over_channels, windows_of
from paano.scoring.seen import SEEN, keep_values, nearest_elsewhere
from paano.scoring.sliding import sliding_moments, sliding_sum
from paano.series import read_series
from tests.oracle import slow_level, slow_nearest_elsewhere

PATCH = 32
CONFIG = PaAnoConfig.preset("untrained", patch=PATCH, width=0.125, level="tail", seed=5)


def wave(rows, seed=0, channels=1):
    """A daily curve with noise; every channel has its own phase."""
    rng = np.random.default_rng(seed)
    phase = np.arange(channels) * 0.7
    return np.sin(np.arange(rows)[:, None] * 2 * np.pi / 24 + phase) + 0.05 * rng.normal(
        size=(rows, channels)
    )


def fit(train, config=CONFIG):
    return PaAno(config, device="cpu").fit(train)


@pytest.fixture(scope="module")
def model():
    return fit(wave(900))


def level_of(train, patch=PATCH):
    series = read_series(train, 3)
    return fit_level(series, patch, np.zeros(len(series)), 0.99)


# -- what it sees --


def test_a_shift_of_level_that_shape_cannot_see_is_found(model):
    x = wave(900, seed=1)
    x[400:500] += 5.0
    found = model.detect(x)
    inside, outside = found.level[440:460], found.level[100:300]
    assert inside.min() > outside.max() + 3
    assert abs(np.median(found.shape[440:460]) - np.median(found.shape[100:300])) < 0.5
    assert cause_of(found.shape[450], found.level[450]) == "level"


def test_a_sensor_that_is_too_quiet_and_one_that_is_too_loud_are_found(model):
    quiet, loud = wave(900, seed=1), wave(900, seed=1)
    quiet[400:500] *= 0.05
    loud[400:500] *= 3.0
    for x in (quiet, loud):
        level = model.detect(x).level
        assert level[440:460].min() > level[100:300].max() + 1


def test_another_shape_at_the_same_level_is_put_down_to_shape(model):
    x = wave(900, seed=1)
    x[400:500, 0] = np.sin(np.arange(100) * 2 * np.pi / 9)  # the same height, another period
    found = model.detect(x)
    assert found.shape[450] > 3 * np.median(found.shape[100:300])
    assert cause_of(found.shape[450], found.level[450]) == "shape"


def test_the_parts_add_up_to_the_score(model):
    found = model.detect(wave(300, seed=2))
    np.testing.assert_allclose(found.shape + found.level, found.score, rtol=1e-6)


def test_any_other_value_of_a_channel_that_never_moved_is_news():
    for height in (0.0, 1.0, -273.15, 1e9):
        level, training = level_of(np.full(400, height))
        assert np.nanmax(training) == 0
        x = np.full(300, height)
        x[150] = height + 0.01 * max(abs(height), 1.0)
        score = level.score(read_series(x, 3))
        assert score[150] > 5
        assert score[:100].max() < 1e-9


def test_rounding_noise_on_a_channel_that_never_moved_is_no_news():
    level, _ = level_of(np.full(400, 1e6))
    noisy = np.full(300, 1e6) * (1 + 1e-12 * np.random.default_rng(0).normal(size=300))
    assert level.score(read_series(noisy, 3)).max() < 0.01


def test_one_odd_channel_of_many_is_heard():
    train, x = wave(900, channels=30), wave(600, seed=1, channels=30)
    x[300:360, 17] += 4.0
    found = fit(train).detect(x)
    assert found.level[320:340].min() > found.level[:200].max() + 1


def test_many_channels_at_rest_do_not_add_up_to_an_alarm():
    for channels in (1, 40):
        found = fit(wave(900, channels=channels)).detect(wave(600, seed=1, channels=channels))
        assert np.median(found.level) < 0.3
        assert np.quantile(found.level, 0.99) < 1.5


def test_the_preset_of_the_paper_has_no_level():
    for name in ("paper", "light", "untrained"):
        assert PaAnoConfig.preset(name).level == "none"
    found = fit(wave(300), CONFIG.replace(level="none")).detect(wave(200))
    assert np.isnan(found.level).all()
    np.testing.assert_array_equal(found.shape, found.score)


# -- streaming --


@pytest.mark.parametrize("channels", [1, 3])
def test_a_window_with_context_scores_the_same_as_the_whole_series(channels):
    model, x = fit(wave(600, channels=channels)), wave(700, seed=3, channels=channels)
    x[200] = 1e12  # one huge value must not leave rounding behind it
    x[330:332] = np.nan
    x[450:480] = np.nan
    whole = model.score(x)
    context = CONFIG.context
    for first, last in ((150, 260), (210, 340), (331, 332), (420, 500), (600, 640)):
        cut = max(0, first - context)
        part = model.score(x[cut : last + context])[first - cut : last - cut]
        np.testing.assert_allclose(part, whole[first:last], rtol=1e-6, atol=1e-6)


def test_a_hole_has_no_score_and_does_not_hide_what_is_beside_it(model):
    x = wave(600, seed=4)
    x[200:260] = np.nan
    x[300:330] += 5.0
    found = model.detect(x)
    assert np.isnan(found.level[200:260]).all()
    assert (found.status[200:260] == "no_data").all()
    assert found.level[305:325].min() > 3
    there = found.status != "no_data"
    assert np.isfinite(found.score[there]).all()


# -- calibration --


def test_training_scores_are_those_of_the_combined_score(model):
    scores = model.training_scores()
    assert np.isfinite(scores).all()
    threshold = np.quantile(scores, 0.999)
    fresh = model.score(wave(900, seed=9))
    assert np.mean(fresh > threshold) < 0.02
    assert model.calibration.scores == len(scores)


def test_a_value_of_training_is_never_compared_with_itself():
    x = wave(900)
    x[600:640] += 5.0  # once only, so nothing outside ±patch is like it
    _, training = level_of(x)
    assert training[615:625].min() > training[100:400].max() + 1


def test_a_history_of_one_patch_still_scores():
    model = fit(wave(PATCH))
    assert np.isnan(model.training_scores()).all()
    assert np.isfinite(model.score(wave(100, seed=1))).all()


# -- keeping and following --


def test_a_saved_level_scores_the_same(tmp_path, model):
    model.save(tmp_path)
    x = wave(300, seed=1) * 1.5
    loaded = PaAno.load(tmp_path, device="cpu")
    for mine, its in zip(model.detect(x).__dict__.values(), loaded.detect(x).__dict__.values(), strict=True):
        np.testing.assert_array_equal(mine, its)
    assert loaded.level.limit == model.level.limit


@pytest.mark.parametrize(
    ("name", "value"),
    [("unit", 0.0), ("seen", np.linspace(1, 0, SEEN, dtype=np.float32)), ("shape_unit", 0.0), ("limit", "1")],
)
def test_an_impossible_level_is_refused(model, name, value):
    tensors, numbers = model.level.tensors(), model.level.numbers()
    if f"level.{name}" in tensors:
        tensors[f"level.{name}"] = np.broadcast_to(value, tensors[f"level.{name}"].shape)
    else:
        numbers[name] = value
    with pytest.raises(ArtifactError):
        Level.from_parts(PATCH, tensors, numbers)


def test_update_follows_a_slow_drift_but_not_a_jump():
    def restless(rows, seed):
        return wave(rows, seed) + 0.5 * np.sin(np.arange(rows) / 60)[:, None]

    model, drifted = fit(restless(1500, 0)), restless(600, 20) + 0.6
    before = model.detect(drifted).level
    for step in range(1, 13):
        model.update(restless(600, step) + 0.05 * step)
    assert np.mean(model.detect(drifted).level) < 0.5 * np.mean(before)

    jumped = fit(restless(1500, 0)).update(restless(600, 1) + 5.0)
    assert np.median(jumped.detect(restless(600, 2) + 5.0).level) > 3


def test_the_level_has_a_fixed_size_however_long_the_history():
    short, _ = level_of(wave(300))
    long, _ = level_of(wave(20_000))
    assert short.seen.shape == long.seen.shape == (len(features_of(PATCH)), 1, SEEN)


# -- the parts, against slow twins --


@pytest.mark.parametrize("patch", [32, 20, 7])
def test_the_level_is_that_of_its_slow_twin(patch):
    train, x = wave(160, seed=1)[:, 0], wave(90, seed=2)[:, 0]
    x[40:50] += 2.0
    level, training = level_of(train, patch)
    np.testing.assert_allclose(
        level.score(read_series(x, 3)), slow_level(train, x, patch), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(training, slow_level(train, train, patch, exclude=patch), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window", [1, 2, 6, 7, 24, 96, 100])
def test_moments_over_windows_are_those_of_each_window_alone(window):
    x = np.random.default_rng(window).normal(size=(100, 3)) + 1e6
    view = np.lib.stride_tricks.sliding_window_view(x, window, axis=0)
    mean, deviation = sliding_moments(x, window)
    np.testing.assert_allclose(mean, view.mean(axis=-1), rtol=1e-12)
    np.testing.assert_allclose(deviation, view.std(axis=-1), atol=1e-8)
    np.testing.assert_allclose(sliding_sum(x, window), view.sum(axis=-1), rtol=1e-12)


def test_kept_values_leave_no_value_far_away():
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=50_000), rng.standard_cauchy(size=50_000), np.arange(5000.0) ** 3):
        kept = keep_values(values)
        assert len(kept) <= SEEN
        assert kept[0] == values.min() and kept[-1] == values.max()
        after = np.searchsorted(kept, values).clip(1, len(kept) - 1)
        gap = np.minimum(np.abs(values - kept[after - 1]), np.abs(kept[after] - values))
        assert gap.max() <= np.ptp(values) / 500


def test_the_nearest_elsewhere_is_never_in_the_exclusion_zone():
    values = np.array([0.0, 1.0, 1.0, 5.0, 0.5])
    distance = nearest_elsewhere(values, np.arange(5), np.unique(values), exclude=1)
    np.testing.assert_allclose(distance, [0.5, 0.5, 0.5, 4.0, 0.5])
    assert np.isnan(nearest_elsewhere(values, np.arange(5), np.unique(values), exclude=5)).all()


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=60),
    st.integers(0, 20),
    st.integers(1, 13),
)
def test_the_nearest_elsewhere_is_that_of_its_slow_twin(numbers, exclude, every):
    values = np.array(numbers, dtype=np.float32)
    starts = np.cumsum(1 + values.astype(np.int64) % 3)  # rising, with holes
    kept = np.unique(values)[::every]
    found = nearest_elsewhere(values, starts, kept, exclude)
    np.testing.assert_array_equal(found, slow_nearest_elsewhere(values, starts, kept, exclude))


def test_channels_add_up_as_independent_evidence_does():
    np.testing.assert_allclose(over_channels(np.array([[3.0]])), 3.0)
    np.testing.assert_allclose(over_channels(np.array([[3.0, 1.0, 0.0, 4.0]])), 4.0)


def test_windows_are_a_patch_its_parts_and_the_point():
    assert windows_of(96) == (96, 24, 6, 1)
    assert windows_of(4) == (4, 1)

"""Calibration: an alarm budget is kept on data of known distribution, and odd training scores do no harm."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.signal import lfilter

from paano.alarms.calibrate import SEVERITY_CAP, Calibration
from paano.alarms.fit_calibration import default_merge, fit_calibration
from paano.alarms.quantiles import GRID
from paano.errors import ArtifactError, ConfigError
from tests import oracle

MINUTE = 60.0


def autoregressive(n, rng, memory=0.98):
    return lfilter([math.sqrt(1 - memory**2)], [1, -memory], rng.standard_normal(n))


SOURCES = {
    "exponential": lambda n, rng: rng.exponential(size=n),
    "normal": lambda n, rng: rng.standard_normal(n),
    "Pareto of shape 0.2": lambda n, rng: stats.genpareto(0.2).rvs(n, random_state=rng),
    "autoregressive": autoregressive,
    "log-normal autoregressive": lambda n, rng: np.exp(autoregressive(n, rng)),
    "mean over a patch": lambda n, rng: np.convolve(rng.exponential(size=n + 95), np.ones(96) / 96, "valid"),
}


def budget_for(events_per_row: float) -> float:
    """The budget, in events per 30 days of one-minute data."""
    return events_per_row * 30 * 86_400 / MINUTE


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("rows", "factor"), [(2_000, 4.0), (20_000, 1.6), (100_000, 1.5)])
def test_fresh_data_alarm_about_as_often_as_the_budget_allows(source, rows, factor):
    # one event in 10,000 rows: far beyond the shortest history, well inside the longest
    counts = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        calibration = fit_calibration(SOURCES[source](rows, rng))
        threshold = calibration.threshold(budget_for(1e-4), MINUTE)
        fresh = SOURCES[source](100_000, rng)
        counts.append(len(oracle.event_spans_of(fresh > threshold, calibration.merge)))
    assert 10 / factor < np.mean(counts) < 10 * factor


def test_a_larger_budget_never_raises_the_threshold():
    calibration = fit_calibration(np.random.default_rng(1).exponential(size=5_000))
    budgets = np.geomspace(1e-6, 1e6, 200)
    thresholds = [calibration.threshold(b, MINUTE) for b in budgets]
    assert (np.diff(thresholds) <= 0).all()
    assert calibration.threshold(0, MINUTE) == math.inf


def test_twice_the_interval_is_half_the_rows_and_so_half_the_chances():
    calibration = fit_calibration(np.random.default_rng(2).exponential(size=5_000))
    assert calibration.threshold(3, 2 * MINUTE) == calibration.threshold(6, MINUTE)


def test_one_tenth_of_an_exponential_budget_costs_ln_10_more_score():
    calibration = fit_calibration(np.random.default_rng(3).exponential(size=200_000))
    low, high = (calibration.threshold(budget_for(rate), MINUTE) for rate in (1e-4, 1e-5))
    assert high - low == pytest.approx(math.log(10), rel=0.25)


def test_a_short_hole_does_not_make_two_events_of_one():
    rows = np.arange(40_000)
    scores = np.random.default_rng(4).random(40_000)
    scores[rows % 1_000 < 60] = 5 + (rows // 1_000)[rows % 1_000 < 60] / 100  # forty plateaus
    holed = np.where(rows % 1_000 == 30, np.nan, scores)
    whole, bridged, apart = fit_calibration(scores), fit_calibration(holed), fit_calibration(holed, merge=0)
    threshold = [c.threshold(budget_for(10 / 40_000), MINUTE) for c in (whole, bridged, apart)]
    assert threshold[1] == pytest.approx(threshold[0], abs=0.02)
    assert threshold[2] > threshold[0] + 0.02


@pytest.mark.parametrize("source", SOURCES)
def test_the_tail_is_the_probability_of_a_higher_score(source):
    rng = np.random.default_rng(5)
    calibration = fit_calibration(SOURCES[source](50_000, rng))
    fresh = np.sort(SOURCES[source](200_000, rng))
    for share in (0.5, 0.1, 0.01):
        assert calibration.tail(fresh[-int(share * fresh.size)]) == pytest.approx(
            -math.log10(share), abs=0.25
        )


def test_the_tail_rises_strictly_beyond_the_largest_training_score():
    for source in SOURCES.values():
        scores = source(3_000, np.random.default_rng(6))
        tail = fit_calibration(scores).tail(np.linspace(scores.max(), scores.max() * 100, 5_000))
        assert (np.diff(tail) > 0).all()
        assert np.isfinite(tail).all()


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.one_of(st.floats(0, 2, width=32), st.just(float("nan"))), max_size=300),
    st.integers(1, 60),
)
def test_any_training_scores_give_monotone_curves_and_come_back_from_json(scores, merge):
    calibration = fit_calibration(np.array(scores), merge=merge)
    assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration
    levels = np.linspace(-1, 5, 200)
    tail = calibration.tail(levels)
    if not np.isfinite(scores).any():
        assert np.isnan(tail).all()
        assert calibration.threshold(1, MINUTE) == math.inf
        return
    assert (np.diff(tail) >= 0).all()
    assert tail[0] == 0
    threshold = calibration.threshold(1, MINUTE)
    assert math.isfinite(threshold)
    assert calibration.severity(threshold, threshold) == pytest.approx(1.0)
    severities = [calibration.severity(peak, threshold) for peak in levels]
    assert (np.diff(severities) >= 0).all()
    assert 0 <= min(severities) <= max(severities) <= SEVERITY_CAP
    assert 0 <= calibration.drift(np.array(scores)).p <= 1


@pytest.mark.parametrize(
    "scores",
    [
        np.zeros(500),
        np.full(500, 0.3),
        np.full(5, 0.3),
        np.array([0.2]),
        np.arange(400.0),
        np.r_[np.zeros(499), 1.0],
    ],
    ids=["zeros", "all equal", "five equal", "one", "a ramp", "one outlier"],
)
def test_training_scores_without_a_tail_never_alarm_on_themselves(scores):
    calibration = fit_calibration(scores)
    for interval in (1.0, MINUTE, 3600.0, 86_400.0):
        assert not (scores > calibration.threshold(1, interval)).any()


def test_rounding_is_no_alarm_after_scores_of_nothing_but_zero():
    calibration = fit_calibration(np.zeros(10_000))
    assert 1e-7 < calibration.threshold(1, MINUTE) < 1e-4


def test_a_handful_of_scores_gives_a_vaguer_threshold_than_many():
    rng = np.random.default_rng(7)
    many = rng.random(5_000)
    assert fit_calibration(many[:10]).threshold(1, MINUTE) > fit_calibration(many).threshold(1, MINUTE)


def test_infinite_scores_are_left_out():
    scores = np.random.default_rng(8).random(300)
    nothing = np.full(2, np.nan)
    assert fit_calibration(np.r_[scores, np.inf, -np.inf]) == fit_calibration(np.r_[scores, nothing])


def test_severity_grows_by_one_when_the_event_is_ten_times_rarer():
    for seed, source in enumerate(SOURCES.values()):
        calibration = fit_calibration(source(20_000, np.random.default_rng(seed)))
        threshold, rarer = (calibration.threshold(budget_for(rate), MINUTE) for rate in (1e-4, 1e-6))
        assert calibration.severity(threshold, threshold) == pytest.approx(1)
        assert calibration.severity(rarer, threshold) == pytest.approx(3)
        assert calibration.severity(math.inf, threshold) == SEVERITY_CAP
        assert calibration.severity(math.nan, threshold) == 0


def test_severity_does_not_depend_on_the_unit_of_the_score():
    scores = np.random.default_rng(9).exponential(size=5_000)
    one, thousand = fit_calibration(scores), fit_calibration(1000 * scores)
    threshold = one.threshold(1, MINUTE)
    assert thousand.threshold(1, MINUTE) == pytest.approx(1000 * threshold)
    assert thousand.severity(2000 * threshold, 1000 * threshold) == pytest.approx(
        one.severity(2 * threshold, threshold)
    )


# -- drift --


def test_scores_of_the_same_source_rarely_drift_and_shifted_ones_do():
    for source in ("exponential", "autoregressive", "mean over a patch"):
        false_alarms, misses = 0, 0
        for seed in range(25):
            rng = np.random.default_rng(seed)
            scores = SOURCES[source](30_000, rng)
            calibration = fit_calibration(scores)
            recent = SOURCES[source](5_000, rng)
            false_alarms += calibration.drift(recent).p < 0.01
            shifted = calibration.drift(recent + scores.std())
            misses += shifted.p > 0.01 or shifted.direction <= 0
        assert false_alarms <= 3, source
        assert misses <= 2, source


def test_independent_scores_give_the_p_value_of_a_two_sample_test():
    rng = np.random.default_rng(10)
    trained, recent = rng.random(4_000), rng.random(900) ** 1.1
    found = fit_calibration(trained).drift(recent)
    expected = stats.ks_2samp(trained, recent, method="asymp")
    assert found.statistic == pytest.approx(expected.statistic, abs=0.012)  # on the grid of quantiles
    assert found.p == pytest.approx(expected.pvalue, abs=0.1)
    assert found.effective == pytest.approx(900, rel=0.1)


def test_the_stability_index_is_small_for_the_same_and_large_for_other_scores():
    rng = np.random.default_rng(11)
    calibration = fit_calibration(rng.exponential(size=20_000))
    assert calibration.drift(rng.exponential(size=5_000)).psi < 0.02
    assert calibration.drift(2 * rng.exponential(size=5_000)).psi > 0.25


def test_a_channel_that_never_moves_does_not_drift_by_rounding():
    rng = np.random.default_rng(0)
    known = fit_calibration(1e-7 * rng.random(4_000))
    found = known.drift(np.full(900, 2e-17))
    assert found.statistic == 0 and found.p == 1 and found.psi == 0
    assert known.drift(np.full(900, 0.1)).p < 1e-6


def test_nothing_recent_and_nothing_trained_is_no_drift():
    assert fit_calibration(np.array([])).drift(np.ones(5)).p == 1
    assert fit_calibration(np.random.default_rng(0).random(99)).drift(np.full(9, np.nan)).p == 1


# -- reading it back --


def test_a_stored_calibration_that_does_not_fit_together_is_refused():
    good = fit_calibration(np.random.default_rng(12).random(1_000)).to_dict()
    Calibration.from_dict(good)
    for name, value in {
        "scale": -1.0,
        "shape": math.nan,
        "scores": 1.5,
        "over": 0,
        "quantiles": good["quantiles"][::-1],
        "levels": good["levels"][:-1],
        "rates": ["x"] * len(good["rates"]),
        "base": good["base"] + 1,
        "memory": True,
        "merge": 10**400,
    }.items():
        with pytest.raises(ArtifactError):
            Calibration.from_dict({**good, name: value})
    with pytest.raises(ArtifactError):
        Calibration.from_dict({k: v for k, v in good.items() if k != "base"})
    with pytest.raises(ArtifactError):
        Calibration.from_dict({**good, "more": 1})
    with pytest.raises(ArtifactError):
        Calibration.from_dict([])


def test_budgets_and_intervals_that_are_none_are_refused():
    calibration = fit_calibration(np.random.default_rng(13).random(100))
    for budget, interval in ((-1, 60), (math.nan, 60), (1, 0), (1, math.inf)):
        with pytest.raises(ConfigError):
            calibration.threshold(budget, interval)


def test_a_calibration_is_frozen_and_keeps_a_fixed_grid():
    calibration = fit_calibration(np.random.default_rng(14).random(100))
    assert len(calibration.quantiles) == len(GRID)
    assert calibration.quantiles[0], calibration.quantiles[-1] == (0, 1)
    assert calibration.merge == default_merge(96)
    with pytest.raises(dataclasses.FrozenInstanceError):
        calibration.scale = 1.0

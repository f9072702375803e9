"""The measures equal the benchmark's own and their slow twins, on every shape of labels and scores."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paano.errors import SeriesError
from paano.evaluation.metrics import MEASURES, evaluate, evaluate_vus_pr, find_window
from tests.oracle import slow_evaluate

PUBLISHED_NAMES = {
    "vus_pr": "VUS-PR",
    "vus_roc": "VUS-ROC",
    "auc_pr": "AUC-PR",
    "auc_roc": "AUC-ROC",
    "point_f1": "Standard-F1",
    "range_f1": "R-based-F1",
}


def test_all_golden_rows_equal_the_benchmarks_own_values(data):
    golden = data / "golden"
    rows = json.loads((golden / "expected.json").read_text())
    assert len(rows) == 24
    for row in rows:
        table = np.loadtxt(data / "TSB-AD-U-Tuning" / row["file"], delimiter=",", skiprows=1)
        scores = np.load(golden / row["file"].replace(".csv", ".npz"))[row["score"]]
        assert find_window(table[:, 0]) == row["window"], row["file"]
        found = evaluate(scores, table[:, -1], row["window"])
        expected = {name: row[published] for name, published in PUBLISHED_NAMES.items()}
        assert found == pytest.approx(expected, abs=1e-4), (row["file"], row["score"])


@st.composite
def labelled_scores(draw):
    """Scores with many ties and labels in runs, some at the borders, at least one of them 1."""
    runs = draw(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=1, max_size=9))
    labels = np.concatenate([np.full(length, label) for label, length in runs])
    if not labels.any():
        labels[draw(st.integers(0, len(labels) - 1))] = True
    values = draw(st.sampled_from([1, 2, 5, 1000]))
    scores = draw(st.lists(st.integers(0, values), min_size=len(labels), max_size=len(labels)))
    return np.array(scores, dtype=np.float32) / 7, labels


@settings(max_examples=60, deadline=None)
@given(labelled_scores(), st.integers(0, 14))
def test_the_measures_equal_their_slow_twins(case, window):
    scores, labels = case
    expected = slow_evaluate(scores, labels, window)
    assert evaluate(scores, labels, window) == pytest.approx(expected, abs=1e-9, nan_ok=True)
    assert evaluate_vus_pr(scores, labels, window) == pytest.approx(expected["vus_pr"], abs=1e-9)


def test_the_measures_equal_their_slow_twins_on_a_longer_series():
    rng = np.random.default_rng(3)
    labels = np.zeros(400, dtype=bool)
    for start in (0, 40, 44, 50, 200, 390):  # buffers that meet, and both borders
        labels[start : start + rng.integers(1, 12)] = True
    scores = rng.normal(size=400) + labels
    assert evaluate(scores, labels, 30) == pytest.approx(slow_evaluate(scores, labels, 30), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(labelled_scores(), st.integers(0, 14))
def test_only_the_order_of_the_scores_decides_five_of_the_measures(case, window):
    scores, labels = case
    plain, stretched = evaluate(scores, labels, window), evaluate(np.exp(scores / 50), labels, window)
    for name in set(MEASURES) - {"range_f1"}:  # its thresholds are even in the scores
        assert stretched[name] == pytest.approx(plain[name], abs=1e-9, nan_ok=True)


@settings(max_examples=60, deadline=None)
@given(labelled_scores(), st.integers(0, 14))
def test_every_measure_lies_between_0_and_1(case, window):
    found = evaluate(*case, window)
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in found.values() if not np.isnan(value))


def test_constant_scores_are_as_good_as_the_share_of_anomalies():
    labels = np.zeros(100)
    labels[40:50] = 1
    found = evaluate(np.full(100, 0.3), labels, 0)
    assert found["auc_pr"] == pytest.approx(0.1)
    assert found["auc_roc"] == pytest.approx(0.5)
    assert found["range_f1"] == 0.0  # no threshold raises anything


def test_without_any_anomaly_all_measures_are_undefined():
    assert all(np.isnan(value) for value in evaluate(np.arange(10.0), np.zeros(10), 4).values())


def test_with_nothing_but_anomaly_only_the_roc_measures_are_undefined():
    found = evaluate(np.arange(10.0), np.ones(10), 4)
    assert {name for name, value in found.items() if np.isnan(value)} == {"vus_roc", "auc_roc"}
    assert found["vus_pr"] == pytest.approx(1.0)


@pytest.mark.parametrize("place", [slice(0, 5), slice(95, 100)])
def test_an_anomaly_at_the_border_can_be_found_perfectly(place):
    labels = np.zeros(100)
    labels[place] = 1
    found = evaluate(labels, labels, 0)
    # The point F1 carries the benchmark's guard of 1e-5.
    assert found == pytest.approx(dict.fromkeys(MEASURES, 1.0), abs=1e-2)


def test_a_row_without_a_score_counts_as_never_raised():
    rng = np.random.default_rng(0)
    scores, labels = rng.random(200), np.zeros(200)
    labels[50:60] = labels[150:160] = 1
    holed, lowest = scores.copy(), scores.copy()
    holed[45:55] = np.nan
    lowest[45:55] = np.nanmin(holed)
    assert evaluate(holed, labels, 8) == evaluate(lowest, labels, 8)
    constant = evaluate(np.zeros(200), labels, 8)
    assert evaluate(np.full(200, np.nan), labels, 8) == constant


@pytest.mark.parametrize(
    ("scores", "labels", "window", "said"),
    [
        ([0.0, 1.0], [0, 1, 0], 3, "equal length"),
        ([], [], 3, "not empty"),
        ([0.0, np.inf], [0, 1], 3, "finite"),
        ([0.0, 1.0], [0, 2], 3, "0 (normal) or 1"),
        ([0.0, 1.0], [0, 1], -1, "whole number"),
        ([0.0, 1.0], [0, 1], 2.5, "whole number"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_a_reason(scores, labels, window, said):
    with pytest.raises(SeriesError) as caught:
        evaluate(np.array(scores), np.array(labels), window)
    assert said in str(caught.value)


@pytest.mark.parametrize("period", [7, 24, 100, 300])
def test_the_window_is_the_period_of_a_periodic_series(period):
    t = np.arange(6000)
    wave = np.sin(2 * np.pi * t / period) + 1e-3 * np.random.default_rng(0).normal(size=len(t))
    assert find_window(wave) == pytest.approx(period, abs=1)
    assert find_window(np.stack([wave, t], axis=1)) == find_window(wave)  # the first channel decides
    wave[100:104] = np.nan
    assert find_window(wave) == pytest.approx(period, abs=1)


@pytest.mark.parametrize(
    "x", [np.zeros(500), np.arange(500.0), np.array([1.0]), np.full(9, np.nan), np.array([1e9, 1e9])]
)
def test_the_window_is_125_where_there_is_no_period(x):
    assert find_window(x) == 125


def test_a_hundred_thousand_rows_take_less_than_a_few_seconds():
    rng = np.random.default_rng(1)
    labels = np.zeros(100_000)
    for start in rng.integers(0, 99_000, 300):
        labels[start : start + rng.integers(1, 40)] = 1
    start = time.process_time()
    evaluate(rng.normal(size=100_000) + labels, labels, 125)
    assert time.process_time() - start < 3

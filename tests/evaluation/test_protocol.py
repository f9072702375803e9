"""One file of the benchmark: its name, its rows, what is refused, and the three plain detectors."""

from __future__ import annotations

import numpy as np
import pytest

from paano.config import PaAnoConfig
from paano.errors import SeriesError, SeriesTooShort
from paano.evaluation.baselines import BASELINES
from paano.evaluation.protocol import check, parse_name, read_series, run_baseline, run_paano
from tests.evaluation.conftest import write_series

TINY = PaAnoConfig(patch=16, width=0.0625, iterations=2, minibatch=16)


@pytest.mark.parametrize(
    ("name", "subset", "rows"),
    [
        ("004_NAB_id_4_Facility_tr_1007_1st_1437.csv", "NAB", 1007),
        ("852_OPPORTUNITY_id_11_HumanActivity_tr_500_1st_566.csv", "OPPORTUNITY", 500),
        ("boiler_tr_800.csv", "other", 800),
    ],
)
def test_the_name_gives_subset_and_training_rows(name, subset, rows):
    assert parse_name(name) == (subset, rows)


def test_a_name_without_training_rows_is_refused_with_the_form_it_should_have():
    with pytest.raises(SeriesError, match="tr_N"):
        parse_name("boiler.csv")


def test_a_file_is_read_with_all_its_channels_and_labels(tmp_path):
    series = read_series(write_series(tmp_path, "001_NAB_id_1_X_tr_100_1st_280.csv", channels=3))
    assert series.values.shape == (400, 3)
    assert series.labels.sum() == 15
    assert (series.subset, series.train_rows, series.channels) == ("NAB", 100, 3)


def test_an_empty_cell_is_a_missing_value(tmp_path):
    path = tmp_path / "a_tr_2.csv"
    path.write_text("a,b,Label\n1,2,0\n,3,0\n4,,1\n5,nan,0\n")
    values = read_series(path).values
    assert np.isnan(values).tolist() == [[False, False], [True, False], [False, True], [False, True]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Label"),
        (b"Data,Label\n", "no rows"),
        (b"Data,Value\n1,0\n", "Label"),
        (b"Data,Label\n1,0\n2\n", "damaged"),
        (b"Data,Label\n1,0\n2,x\n", "damaged"),
        (b"Data,Label\n1,0,3\n2,0,3\n", "damaged"),
        (b"Data,Label\n1,0\n2,3\n", "neither 0 nor 1"),
        (b"Data,Label\n1,\n2,0\n", "damaged"),
        (b"Data,Label\n1,nan\n2,0\n", "neither 0 nor 1"),
        (b"\x89PNG\r\n\x1a\n\x00\xff", "not a text file"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, content, said):
    path = tmp_path / "007_NAB_id_1_X_tr_2_1st_1.csv"
    path.write_bytes(content)
    with pytest.raises(SeriesError) as caught:
        read_series(path)
    assert path.name in str(caught.value)
    assert said in str(caught.value)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(SeriesError, match=r"gone_tr_5\.csv"):
        read_series(tmp_path / "gone_tr_5.csv")


def test_a_series_without_test_rows_or_without_anomaly_means_nothing(tmp_path):
    series = read_series(write_series(tmp_path, "a_tr_100.csv"))
    with pytest.raises(SeriesError, match="100 rows"):
        check(series.head(100))
    with pytest.raises(SeriesError, match="no anomaly"):
        check(series.head(200))


def test_the_protocol_fits_on_the_first_rows_and_measures_all(tmp_path):
    series = read_series(write_series(tmp_path, "a_tr_150.csv"))
    outcome = run_paano(series, TINY)
    assert outcome.scores.shape == (400,)
    assert outcome.unscored == 0
    assert outcome.window == pytest.approx(20, abs=1)
    assert set(outcome.seconds) == {"fit", "train", "bank", "score"}
    assert all(0 <= value <= 1 for value in outcome.measures.values())


def test_an_anomaly_within_the_training_rows_does_not_stop_the_protocol(tmp_path):
    series = read_series(write_series(tmp_path, "a_tr_300.csv"))
    assert series.labels[:300].any()
    assert run_paano(series, TINY).measures["auc_roc"] > 0


def test_rows_without_a_score_are_counted(tmp_path):
    series = read_series(write_series(tmp_path, "a_tr_150.csv"))
    series.values[320:360] = np.nan
    assert run_paano(series, TINY).unscored >= 40


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_finds_a_plain_fault(tmp_path, name):
    series = read_series(write_series(tmp_path, "a_tr_200.csv", channels=2))
    series.values[280:295] += 4
    outcome = run_baseline(series, BASELINES[name])
    assert outcome.scores.dtype == np.float32
    assert outcome.measures["vus_roc"] > 0.8


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_gives_the_same_scores_again_and_none_to_missing_rows(name):
    X = np.sin(np.arange(500) / 5)
    X[300:310] = np.nan
    first, again = (BASELINES[name](X, 200) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(np.isnan(first), np.isnan(X))


def test_a_baseline_refuses_fewer_training_rows_than_a_sub_sequence():
    with pytest.raises(SeriesTooShort):
        BASELINES["pca"](np.zeros(500), 50)

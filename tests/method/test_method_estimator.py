"""scikit-learn's conventions, and tables of pandas, polars and Arrow with their time index."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from paano import PaAno, PaAnoConfig
from paano.errors import NotFitted, SeriesError
from paano.estimator import ParameterError

CONFIG = PaAnoConfig(patch=4, iterations=0, width=0.0625)
# Checks of scikit-learn that a detector of series does not pass, and why.
EXPECTED = {
    "check_no_attributes_set_in_init": "facts, losses and level exist (empty) before fitting",
    "check_dont_overwrite_parameters": "bank, calibration and channels are the library's own names",
    "check_do_not_raise_errors_in_init_or_set_params": "a device that is not there is refused at once",
    "check_dtype_object": "what is not a number is a SeriesError, which is a ValueError and no TypeError",
    "check_methods_sample_order_invariance": "the order of the rows is the series",
    "check_methods_subset_invariance": "a row is scored with the rows around it",
    "check_fit2d_1sample": "the message says how many rows a patch needs",
    "check_fit1d": "a series of one channel may have shape (N,)",
    "check_fit2d_predict1d": "an array of shape (N,) is a series of one channel",
}


def model(**changes) -> PaAno:
    return PaAno(CONFIG.replace(**changes), "cpu")


@pytest.mark.filterwarnings("ignore::UserWarning")  # of the checks themselves
def test_the_checks_of_scikit_learn_pass_but_for_those_that_cannot_apply():
    failed = {}
    for estimator, check in estimator_checks_generator(model(), mark=None):
        try:
            check(estimator)
        except Exception as error:
            if type(error).__name__ != "SkipTest":
                failed[check.func.__name__] = error
    assert failed.keys() == EXPECTED.keys(), failed


def test_a_clone_has_the_parameters_and_is_not_fitted(wave):
    fitted = model(seed=7).fit(wave)
    again = clone(fitted)
    assert again.config == fitted.config and again.get_params() == fitted.get_params()
    for error in (NotFitted, NotFittedError):
        with pytest.raises(error):
            again.score(wave)
    assert np.array_equal(again.fit(wave).score(wave), fitted.score(wave))


def test_settings_are_parameters_and_a_change_makes_the_model_unfitted(wave):
    fitted = model().fit(wave)
    assert fitted.get_params()["config__patch"] == 4 and fitted.get_params(deep=False).keys() == {
        "config",
        "device",
    }
    changed = fitted.set_params(config__patch=8, config__seed=3)
    assert changed is fitted and changed.config == CONFIG.replace(patch=8, seed=3)
    with pytest.raises(NotFittedError):
        changed.score(wave)
    for wrong in ({"patch": 8}, {"config__patch": "x"}, {"config__nothing": 1}, {"device": "abacus"}):
        with pytest.raises(ParameterError):
            changed.set_params(**wrong)
    assert changed.config.patch == 8


def test_predict_is_minus_one_where_the_score_is_over_the_threshold(wave):
    faulty = np.array(wave, copy=True)
    faulty[60:64] += 50.0
    faulty[100:110] = np.nan
    fitted = model(level="tail", max_gap=0).fit(wave)
    score, decision, predicted = (
        fitted.score(faulty),
        fitted.decision_function(faulty),
        fitted.predict(faulty),
    )
    assert np.array_equal(fitted.score_samples(faulty), -score.astype(float), equal_nan=True)
    assert np.array_equal(predicted == -1, score.astype(float) > -fitted.offset_)
    assert np.array_equal(decision < 0, predicted == -1)
    assert (
        (predicted[60:64] == -1).all() and np.isnan(score[100:110]).all() and (predicted[100:110] == 1).all()
    )
    assert np.array_equal(fitted.fit_predict(wave), fitted.predict(wave))


def test_it_is_the_last_step_of_a_pipeline(wave):
    steps = make_pipeline(StandardScaler(), model()).fit(np.reshape(wave, (-1, 1)))
    assert set(steps.predict(np.reshape(wave, (-1, 1)))) <= {-1, 1}


# -- tables


@pytest.fixture
def table(wave):
    """Values [N, 2], and the same as tables of three libraries with a time index."""
    values = np.column_stack([wave, np.roll(wave, 5)])
    start = datetime(2026, 1, 5, tzinfo=UTC)
    ts = [start + timedelta(minutes=5 * n) for n in range(len(values))]
    columns = {"flow": values[:, 0], "power": values[:, 1]}
    return values, {
        "pandas": pd.DataFrame(columns, index=pd.DatetimeIndex(ts, name="ts")),
        "polars": pl.DataFrame({"ts": ts, **columns}),
        "arrow": pa.table({"ts": pa.array(ts, pa.timestamp("us", "UTC")), **columns}),
    }


def test_a_table_gives_the_scores_of_its_values_and_keeps_its_time_index(table):
    values, tables = table
    fitted = model().fit(values)
    want, decided = fitted.score(values), fitted.predict(values)
    frame = tables["pandas"]
    answer = fitted.score(frame)
    assert isinstance(answer, pd.Series) and answer.index.equals(frame.index) and answer.name == "score"
    assert np.array_equal(answer.to_numpy(), want, equal_nan=True)
    assert fitted.predict(frame).tolist() == decided.tolist()
    assert fitted.detect(frame).index.equals(frame.index)

    answer = fitted.score(tables["polars"])
    assert answer.columns == ["ts", "score"] and answer["ts"].equals(tables["polars"]["ts"])
    assert np.array_equal(answer["score"].to_numpy(), want, equal_nan=True)
    assert fitted.predict(tables["polars"])["prediction"].to_list() == decided.tolist()

    answer = fitted.score(tables["arrow"])
    assert answer.column_names == ["ts", "score"] and answer["ts"].equals(tables["arrow"]["ts"])
    assert np.array_equal(answer["score"].to_numpy(), want, equal_nan=True)


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_a_model_fitted_on_a_table_knows_its_columns(table, library):
    values, tables = table
    fitted = model().fit(tables[library])
    assert fitted.feature_names_in_.tolist() == ["flow", "power"] and fitted.n_features_in_ == 2
    other = tables["pandas"].rename(columns={"power": "heat"})
    with pytest.raises(ValueError, match="feature names"):
        fitted.score(other)
    with pytest.warns(UserWarning, match="feature names"):
        fitted.score(values)


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow"])
def test_a_time_index_that_does_not_rise_is_refused(table, library):
    values, tables = table
    order = np.arange(len(values))
    order[[3, 4]] = order[[4, 3]]
    frame = tables[library]
    mixed = {
        "pandas": lambda: frame.iloc[order],
        "polars": lambda: frame[order],
        "arrow": lambda: frame.take(order),
    }
    with pytest.raises(SeriesError, match="does not rise"):
        model().fit(mixed[library]())


def test_missing_values_of_a_table_are_missing(wave):
    values = pl.Series(wave).to_list()
    values[20:30] = [None] * 10
    fitted = model().fit(wave)
    want = np.isnan(fitted.score(np.array([np.nan if v is None else v for v in values])))
    assert want[22]
    tables = (
        pd.DataFrame({"a": pd.array(values, dtype="Float64")}),
        pd.Series(values, dtype="Float64"),
        pl.DataFrame({"a": values}),
        pa.table({"a": values}),
    )
    for table in tables:
        assert np.array_equal(np.isnan(np.asarray(fitted.score(table), dtype=float)), want)

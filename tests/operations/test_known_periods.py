"""Known periods and verdicts at work: what is muted keeps its score, what is left out cuts patches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.work.known_periods import leave_out, mute_rows
from paano.series import read_series
from storage.history.reader import Reading
from storage.tables.scores import SCORE_SCHEMA
from storage.window import Window

START = datetime(2026, 11, 2, tzinfo=UTC)
STEP = timedelta(minutes=10)


def at(row: int) -> datetime:
    return START + row * STEP


def score_rows(*statuses: str, sensor: str = "a") -> pl.DataFrame:
    rows = [
        {
            "sensor": sensor, "ts": at(n), "score": None if status == "no_data" else 5.0, "threshold": 1.0,
            "anomaly": status != "no_data", "status": status, "coverage": 1, "model_version": 1,
        }
        for n, status in enumerate(statuses)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=SCORE_SCHEMA, orient="row")


def test_a_muted_row_keeps_its_score_and_is_no_anomaly_and_one_that_is_not_final_stays_provisional():
    rows = score_rows("ok", "ok", "provisional", "no_data", "ok")
    muted = mute_rows(rows, {"a": [Window(at(1), at(4))]})
    assert muted["status"].to_list() == ["ok", "muted", "provisional", "no_data", "ok"]
    assert muted["anomaly"].to_list() == [True, False, False, False, True]
    assert muted["score"].to_list() == rows["score"].to_list()
    assert muted["threshold"].to_list() == [1.0, 1.0, None, 1.0, 1.0]


def test_only_the_sensors_of_a_period_are_muted():
    rows = pl.concat([score_rows("ok"), score_rows("ok", sensor="b")])
    assert mute_rows(rows, {"b": [Window(at(0), at(1))]})["status"].to_list() == ["ok", "muted"]


@given(
    first=st.integers(0, 39),
    length=st.integers(1, 40),
    max_gap=st.integers(0, 12),
    holes=st.sets(st.integers(0, 39), max_size=8),
)
def test_no_row_that_is_left_out_is_bridged_whatever_lies_beside_it(first, length, max_gap, holes):
    values = np.arange(40.0)[:, None]
    values[sorted(holes)] = np.nan
    reading = Reading("a", START, STEP, values, ["c"])
    cut = leave_out(reading, [Window(at(first), at(first + length))], max_gap)
    series = read_series(cut.values, max_gap)
    assert not series.usable[first : first + length].any()
    assert np.isnan(cut.values).sum() <= np.isnan(values).sum() + max(length, max_gap + 1)


def test_a_reading_without_known_periods_is_left_as_it_is():
    reading = Reading("a", START, STEP, np.zeros((4, 1)), ["c"])
    assert leave_out(reading, [], 3) is reading


@pytest.mark.parametrize("part", [Window(at(-5), at(-1)), Window(at(90), at(99))])
def test_a_period_outside_the_reading_leaves_nothing_out(part):
    reading = Reading("a", START, STEP, np.zeros((4, 1)), ["c"])
    assert not np.isnan(leave_out(reading, [part], 3).values).any()

"""Rescores and worse rows: one model per day, nothing good is lost, nothing is left provisional."""

from __future__ import annotations

import shutil
from datetime import timedelta

import fleets
import numpy as np
import polars as pl
import pytest
import test_flows_any_order as orders
from test_flows_any_order import FIRST, LAST, assert_same, contents, day, faulty, fresh, grow, run, trained

from flows.run.days import day_window, missed_nights
from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from flows.work.model.training import retrain_sensor
from flows.work.night.days import missed_days
from flows.work.night.night import score_days
from paano.errors import ConfigError, RegistryUnavailable
from storage.window import Window

__all__ = ["trained"]  # a fixture


def rows_of(fleet, number, sensor="s00"):
    return fleet.scores.read(sensor, fleets.window_of(number))


@pytest.fixture
def fleet(trained, tmp_path):
    """A copy of the trained fleet that a test may write to, history and registry included."""
    return fleets.copy(trained, tmp_path / "fleet")


def new_champion(fleet, sensor="s00"):
    """A second version for `sensor`, made champion."""
    outcome = retrain_sensor(fleet, sensor, orders.TRAINED_TO - timedelta(hours=6), None, "another")
    fleet.registry.set_champion(sensor, outcome.figures["version"])
    return outcome.figures["version"]


def test_a_rescore_after_a_new_champion_leaves_one_model_in_each_day(fleet, tmp_path):
    run(fleet, *range(FIRST, LAST + 1))
    number = new_champion(fleet)
    assert number == 2
    run(fleet, 6, 7, rescore=True)
    assert set(rows_of(fleet, 6)["model_version"]) == set(rows_of(fleet, 7)["model_version"]) == {2}
    assert set(rows_of(fleet, 5)["model_version"]) == set(rows_of(fleet, 8)["model_version"]) == {1}
    expected = fresh(fleet, tmp_path / "one")
    run(expected, 6, 7)
    whole = day_window(fleet.settings, day(6), day(7))
    assert fleet.scores.read_many(None, whole).equals(expected.scores.read_many(None, whole))


def test_a_rescore_after_changed_history_gives_what_a_fresh_store_would_hold(fleet, tmp_path):
    run(fleet, *range(FIRST, LAST + 1))
    values = faulty(0)
    values[7 * 48 : 8 * 48] += 15.0
    fleets.write_sensor(fleet.settings, "s00", values)
    run(fleet, 7, rescore=True)
    expected = fresh(fleet, tmp_path / "one")
    run(expected, *range(FIRST, LAST + 1))
    assert_same(fleet, expected)


def test_the_14th_then_the_17th_then_a_backfill_leave_nothing_provisional(trained, tmp_path):
    history = tmp_path / "live" / "history"
    fleet = fresh(trained, tmp_path / "stores", history)
    for number in (FIRST, FIRST + 3):
        grow(trained, history, fleets.START + timedelta(days=number + 1))
        run(fleet, number)
    grow(trained, history, fleets.START + timedelta(days=fleets.DAYS))
    run(fleet, *range(FIRST, FIRST + 4))
    expected = fresh(trained, tmp_path / "one")
    run(expected, *range(FIRST, FIRST + 4))
    assert "provisional" not in set(contents(fleet)[0]["status"])
    assert_same(fleet, expected)


def test_a_night_after_a_new_champion_lets_the_former_finish_its_own_rows(trained, tmp_path):
    shutil.copytree(trained.settings.folder, tmp_path / "live")
    live = fleets.copy(trained, tmp_path / "copy")
    history = tmp_path / "live" / "history"
    fleet = fresh(live, tmp_path / "stores", history)
    grow(live, history, fleets.START + timedelta(days=FIRST + 1))
    run(fleet, FIRST)
    assert "provisional" in set(rows_of(fleet, FIRST)["status"])
    new_champion(live)
    grow(live, history, fleets.START + timedelta(days=FIRST + 2))
    run(fleet, FIRST + 1)
    rows = rows_of(fleet, FIRST)
    assert set(rows["status"]) == {"ok"}
    assert set(rows["model_version"]) == {1}, "two models never share a day"
    assert set(rows_of(fleet, FIRST + 1)["model_version"]) == {2}


def test_without_the_registry_a_rerun_keeps_the_scores_that_are_there(fleet, monkeypatch):
    run(fleet, 6)
    before = contents(fleet)

    def away(*_args, **_options):
        raise RegistryUnavailable("the registry does not answer")

    monkeypatch.setattr(fleet.registry, "register", away)
    outcomes = score_days(fleet, [day(6)], orders.SENSORS, {})
    for mine, was in zip(contents(fleet), before, strict=True):
        assert mine.equals(was)
    assert all("kept" in outcome.reason and outcome.state == "skipped" for outcome in outcomes)


def test_history_that_is_gone_takes_no_score_away_unless_a_rescore_is_asked_for(fleet):
    run(fleet, 6)
    before = rows_of(fleet, 6)
    values = faulty(0)
    values[6 * 48 : 6 * 48 + 24] = np.nan
    fleets.write_sensor(fleet.settings, "s00", values)
    outcome = run(fleet, 6)["s00"]
    kept = rows_of(fleet, 6)
    assert outcome.figures["missing"] == kept.filter(pl.col("status") == "no_data").height
    assert outcome.figures["anomalies"] == kept["anomaly"].sum(), "the table says what the store holds"
    scored = before.filter(pl.col("score").is_not_null()).height
    assert kept.filter(pl.col("score").is_not_null()).height == scored
    run(fleet, 6, rescore=True)
    assert (rows_of(fleet, 6)["status"] == "no_data").sum() >= 24


def test_a_rerun_by_another_champion_replaces_a_whole_day_or_none_of_it(fleet):
    run(fleet, 6)
    new_champion(fleet)
    values = faulty(0)
    values[6 * 48 : 6 * 48 + 24] = np.nan
    fleets.write_sensor(fleet.settings, "s00", values)
    run(fleet, 6)
    assert set(rows_of(fleet, 6)["model_version"]) == {1}, "some rows would have become worse"
    fleets.write_sensor(fleet.settings, "s00", faulty(0))
    run(fleet, 6)
    assert set(rows_of(fleet, 6)["model_version"]) == {2}


def test_missed_nights_are_found_and_a_new_sensor_missed_none(fleet):
    run(fleet, FIRST, FIRST + 1)
    run(fleet, FIRST + 3)
    dates = fleet.scores.dates()
    assert missed_nights(fleet, dates) == [day(FIRST + 2)]
    missed = missed_days(fleet, day(FIRST + 4), [*orders.SENSORS, "new"], dates)
    assert missed == {name: [day(FIRST + 2)] for name in [*orders.SENSORS, "new"]}
    run(fleet, FIRST + 2)
    assert missed_nights(fleet, fleet.scores.dates()) == []
    assert missed_days(fleet, day(FIRST + 4), [*orders.SENSORS, "new"], fleet.scores.dates()) == {}


def test_a_sensor_that_failed_one_night_is_scored_by_the_next(fleet):
    run(fleet, FIRST)
    score_days(fleet, [day(FIRST + 1)], ["s01", "s02"], dict(fleet.registry.champions()))
    found = run(fleet, FIRST + 2, dates=fleet.scores.dates())
    assert rows_of(fleet, FIRST + 1).height == 48
    assert found["s00"].text == f"ok: with {day(FIRST + 1)}, missed before"
    assert found["s00"].figures["rows"] == 2 * 48
    assert found["s01"].text == "ok" and found["s01"].figures["rows"] == 48


def test_a_day_after_the_newest_data_is_refused(fleet):
    from flows.work.night.days import refuse_after_the_data

    champions = dict(fleet.registry.champions())
    refuse_after_the_data(fleet, orders.SENSORS, day(LAST), champions)
    with pytest.raises(ConfigError, match=r"no sensor of 3 has data on.*--day"):
        refuse_after_the_data(fleet, orders.SENSORS, day(LAST + 1), champions)
    assert Window(fleets.START, fleets.START + timedelta(days=1)).days() == [day(0)]


def test_a_silent_or_a_damaged_sensor_asked_for_alone_is_told_as_such(fleet):
    """Its day is not after the newest data of the fleet: the run says what is wrong with the sensor."""
    from flows.work.night.days import refuse_after_the_data

    values = faulty(0)
    values[7 * 48 :] = np.nan
    fleets.write_sensor(fleet.settings, "s00", values)
    for path in (fleet.settings.folder / "history" / "s01").rglob("*.parquet"):
        path.write_bytes(b"not parquet")
    champions = dict(fleet.registry.champions())
    for sensor in ("s00", "s01"):
        refuse_after_the_data(fleet, [sensor], day(LAST), champions)
        with pytest.raises(ConfigError, match="has data on"):
            refuse_after_the_data(fleet, [sensor], day(LAST + 1), champions)
    found = run(fleet, LAST)
    assert found["s00"].text.startswith("skipped: silent: no data")
    assert found["s01"].text.startswith("failed: ") and "damaged" in found["s01"].reason


def test_a_sensor_that_sends_half_as_often_is_told_with_a_remedy_that_helps(fleet):
    values = faulty(0)
    values[7 * 48 + 1 :: 2] = np.nan
    fleets.write_sensor(fleet.settings, "s00", values)
    found = run(fleet, 7)
    assert found["s00"].text.startswith("skipped: interval changed: a point every 1h")
    assert """interval = "1h" in [sensors."s00"], then `paano retrain s00`""" in found["s00"].reason
    assert found["s01"].text == "ok"
    told = open_fleet(Settings.from_dict(fleet.settings.to_dict() | {"sensors": {"s00": {"interval": "1h"}}}))
    made = retrain_sensor(told, "s00", orders.TRAINED_TO + timedelta(days=3), None, "asked for")
    told.registry.set_champion("s00", made.figures["version"])
    again = run(told, 7, rescore=True)["s00"]
    assert again.state == "ok" and again.figures["missing"] == 0
    assert rows_of(told, 7).height == 24, "a row for each hour"

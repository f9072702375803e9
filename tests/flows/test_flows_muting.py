"""Nights with a calendar: muted rows keep their scores and make no event; silence is one."""

from __future__ import annotations

import shutil
from datetime import date, timedelta

import fleets
import numpy as np
import polars as pl
import pytest

from flows.processes.servers import free_port
from flows.run.after import after_nights
from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from flows.work.model.training import retrain_sensor
from flows.work.night.night import score_days
from paano.errors import ConfigError
from storage.window import Window

TRAINED_TO = fleets.START + timedelta(days=6)
DAYS = [date.fromisoformat(fleets.night(number)) for number in range(6, 10)]
FAULT = fleets.START + timedelta(days=7, hours=10)  # lasts four hours


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two sensors with a fault on the eighth day; the second says nothing from the ninth day's noon on."""
    fleet = fleets.make(tmp_path_factory.mktemp("fleet"), sensors=2)
    for number in (0, 1):
        values = fleets.signal(number, 480)
        values[7 * 48 + 20 : 7 * 48 + 28] += 60
        sensor = f"s{number:02d}"
        shutil.rmtree(fleet.settings.folder / "history" / sensor)
        fleets.write_sensor(fleet.settings, sensor, values[: 8 * 48 + 24] if number else values)
    fleet = open_fleet(fleet.settings)
    for name in ("s00", "s01"):
        retrain_sensor(fleet, name, TRAINED_TO, None, "a test")
    return fleet


@pytest.fixture
def fleet(made, tmp_path):
    return fleets.copy(made, tmp_path / "fleet")


def mute(fleet, start, end, sensor="s*"):
    place = fleet.settings.folder / "calendar.csv"
    place.write_text(f"sensor,start,end,what\n{sensor},{start.isoformat()},{end.isoformat()},mute\n")
    return open_fleet(fleet.settings)


def run(fleet, days=DAYS, one_by_one=True, rescore=False):
    versions = fleet.registry.champions()
    names = ["s00", "s01"]
    if not one_by_one:
        return score_days(fleet, days, names, versions, rescore=rescore)
    return [score_days(fleet, [day], names, versions, rescore=rescore) for day in days][-1]


def events(fleet):
    rows = fleet.events.read_many(None, fleets.window_of(6).widen(after=timedelta(days=3)))
    return [(row["sensor"], row["start"], row["end"], row["cause"]) for row in rows.iter_rows(named=True)]


def scores(fleet):
    return fleet.scores.read_many(None, fleets.window_of(6).widen(after=timedelta(days=3)))


def of_scores(fleet):
    return [one for one in events(fleet) if one[3] != "silent"]


def test_a_muted_fault_keeps_its_scores_and_makes_no_event(fleet):
    run(fleet)
    before = scores(fleet)
    assert {one[0] for one in of_scores(fleet)} == {"s00", "s01"}
    muted = mute(fleet, FAULT - timedelta(hours=10), FAULT + timedelta(hours=13), "s00")
    fault_only = [one for one in of_scores(fleet) if one[0] == "s00" and one[1].date() != DAYS[1]]
    outcome = score_days(muted, [DAYS[1]], ["s00", "s01"], muted.registry.champions())[0]
    assert "rows are muted by the calendar" in outcome.reason and outcome.figures["anomalies"] == 0
    after = scores(muted)
    assert [one for one in of_scores(muted) if one[0] == "s00"] == fault_only
    assert "s01" in {one[0] for one in of_scores(muted)}
    assert after["score"].equals(before["score"])
    changed = after.filter(after["status"] != before["status"])
    assert set(changed["status"]) == {"muted"} and set(changed["sensor"]) == {"s00"}
    assert changed["ts"].min() >= FAULT - timedelta(hours=10)
    assert changed["ts"].max() < FAULT + timedelta(hours=13)


def test_a_period_that_is_taken_back_brings_the_events_back_exactly(fleet):
    run(fleet)
    before = fleets.objects(fleet)
    run(mute(fleet, FAULT - timedelta(hours=12), FAULT + timedelta(hours=20)), DAYS[1:3])
    assert fleets.objects(fleet) != before
    (fleet.settings.folder / "calendar.csv").unlink()
    run(open_fleet(fleet.settings), DAYS[1:3])
    assert fleets.objects(fleet) == before


def test_a_calendar_changes_only_the_days_that_are_run(fleet):
    run(fleet)
    before = scores(fleet)
    muted = mute(fleet, FAULT - timedelta(days=2), FAULT + timedelta(days=3))
    run(muted, [DAYS[1]])
    after = scores(muted)
    outside = after["ts"].dt.date() != DAYS[1]
    assert after.filter(outside).equals(before.filter(outside))


def test_nights_equal_a_backfill_with_a_calendar_and_a_rerun_changes_nothing(fleet, tmp_path):
    other = fleets.copy(fleet, tmp_path / "other")
    period = (FAULT - timedelta(hours=3), FAULT + timedelta(hours=15))  # over midnight
    nights, backfill = mute(fleet, *period), mute(other, *period)
    run(nights)
    run(backfill, one_by_one=False)
    assert fleets.objects(nights) == fleets.objects(backfill)
    run(open_fleet(nights.settings))
    assert fleets.objects(nights) == fleets.objects(backfill)


def test_a_muted_row_that_is_not_final_does_not_alarm_either(fleet):
    end_of_day = fleets.START + timedelta(days=8)
    values = fleets.signal(0, 480)[: 8 * 48]
    values[-6:] += 60  # a fault in the last rows of the data
    fleets.write_sensor(fleet.settings, "s00", values)
    for path in (fleet.settings.folder / "history" / "s00").rglob("*"):
        if path.is_file() and path.parent.name > f"date={DAYS[1]}":
            path.unlink()
    muted = mute(fleet, end_of_day - timedelta(hours=14), end_of_day + timedelta(hours=8), "s00")
    score_days(muted, DAYS[:2], ["s00"], muted.registry.champions())
    rows = scores(muted).filter(pl.col("sensor") == "s00")
    assert (rows["status"] == "provisional").any()
    assert not rows["anomaly"].any() and of_scores(muted) == []


def test_a_damaged_calendar_mutes_nothing(fleet):
    run(fleet)
    before = fleets.objects(fleet)
    (fleet.settings.folder / "calendar.csv").write_text("sensor,start,end\ns*,2026-03-09,2026-03-10\nx,?,?\n")
    damaged = open_fleet(fleet.settings)
    run(damaged)
    assert fleets.objects(damaged) == before
    assert "row 2" in damaged.known.problem


def test_a_sensor_that_stops_is_one_silent_event_that_grows(fleet):
    run(fleet, DAYS[:3])
    (first,) = [one for one in events(fleet) if one[3] == "silent"]
    run(fleet, DAYS[3:])
    (second,) = [one for one in events(fleet) if one[3] == "silent"]
    since = fleets.START + timedelta(days=8, hours=12)
    assert first[:2] == second[:2] == ("s01", since)
    assert first[2] < second[2] == fleets.START + timedelta(days=10) - fleets.STEP


def test_a_muted_silence_is_no_event_and_a_short_one_is_none(fleet):
    muted = mute(fleet, fleets.START + timedelta(days=8), fleets.START + timedelta(days=11), "s01")
    run(muted)
    assert [one for one in events(muted) if one[3] == "silent"] == []


def test_silence_can_be_turned_off(fleet):
    from flows.settings.fleet_file import Settings

    values = fleet.settings.to_dict()
    values["alarms"]["silent"] = "0s"
    run(open_fleet(Settings.from_dict(values)))
    assert [one for one in events(fleet) if one[3] == "silent"] == []


def test_silent_events_stay_when_the_events_of_scores_are_found_anew(fleet):
    run(fleet)
    before = events(fleet)
    run(fleet, [DAYS[2], DAYS[1]])
    assert events(fleet) == before and np.isin("silent", [one[3] for one in before])


def test_a_calendar_whose_store_does_not_answer_alarms_rather_than_hides_and_says_so(fleet, tmp_path):
    """The night is that of a fleet without a calendar; when the store is back, a rerun mutes."""
    without = fleets.copy(fleet, tmp_path / "without")
    run(without)
    muted = Window(FAULT - timedelta(hours=3), FAULT + timedelta(hours=7))
    here = mute(fleet, muted.start, muted.end).settings

    def alarms():
        rows = scores(fleet).filter(pl.col("ts").is_between(muted.start, muted.end, closed="left"))
        return int(rows["anomaly"].sum())

    values = here.to_dict() | {
        "storage": {"endpoint": f"http://127.0.0.1:{free_port()}", "region": "us-east-1"},
        "operations": {**here.to_dict()["operations"], "calendar": "s3://plant/calendar.csv"},
        "notify": {"prefect": False},
    }
    away = open_fleet(Settings.from_dict(values))
    outcomes = score_days(away, DAYS[:2], ["s00", "s01"], away.registry.champions())
    assert [one.state for one in outcomes] == ["ok", "ok"]
    assert all("nothing was muted" in one.reason for one in outcomes)
    score_days(away, DAYS[2:], ["s00", "s01"], away.registry.champions())
    assert fleets.objects(away) == fleets.objects(without) and alarms() > 0
    [note] = [note for note in after_nights(away, fleets.window_of(7), DAYS[1]) if "muted" in note]
    assert "s3://plant/calendar.csv" in note and f"paano score --day {DAYS[1]}" in note
    with pytest.raises(ConfigError, match=r"s00.*nothing is learned while the calendar cannot be read"):
        retrain_sensor(away, "s00", TRAINED_TO, None, "a test")
    run(open_fleet(here))
    assert alarms() == 0

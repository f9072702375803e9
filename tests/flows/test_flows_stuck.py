"""A sensor that repeats one value far longer than in its training is stuck; nights and a backfill agree."""

from __future__ import annotations

import shutil
from datetime import date, timedelta

import fleets
import numpy as np
import pytest

from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from flows.work.model.training import open_model, retrain_sensor
from flows.work.night.incidents import open_incidents, update_incidents
from flows.work.night.night import score_days
from storage.window import Window

DAYS = [date.fromisoformat(fleets.night(number)) for number in range(6, 10)]
STUCK = fleets.START + timedelta(days=7, hours=4)  # the first row that repeats; it lasts two days
STUCK_ROWS = 96


def values_of():
    values = fleets.signal(0, 480)
    values[2 * 48 : 2 * 48 + 4] = values[2 * 48]  # in training it repeated itself three times
    first = 7 * 48 + 7
    values[first : first + STUCK_ROWS + 1] = 21.5
    return values


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    fleet = fleets.make(tmp_path_factory.mktemp("fleet"), sensors=1, alarms={"stuck": 3.0})
    fleets.write_sensor(fleet.settings, "s00", values_of())
    fleet = open_fleet(fleet.settings)
    retrain_sensor(fleet, "s00", fleets.START + timedelta(days=6), None, "a test")
    return fleet


@pytest.fixture
def fleet(made, tmp_path):
    return fleets.copy(made, tmp_path / "fleet")


def place(fleet, number):
    return fleet.settings.folder / "history" / "s00" / f"date={fleets.night(number)}"


def run(fleet, days=DAYS, one_by_one=True):
    versions = fleet.registry.champions()
    for some in [[day] for day in days] if one_by_one else [days]:
        score_days(open_fleet(fleet.settings), some, ["s00"], versions)


def stuck(fleet):
    rows = fleet.events.read_many(None, Window(fleets.START, fleets.START + timedelta(days=12)))
    return [(r["start"], r["end"], r["length"]) for r in rows.to_dicts() if r["cause"] == "stuck"]


def test_a_model_keeps_how_long_its_sensor_repeated_itself(made):
    assert open_model(made, made.registry.champions()["s00"]).facts.longest_repeats == (3,)


def test_a_stuck_sensor_is_one_event_that_grows_and_nights_equal_a_backfill(fleet, made, tmp_path):
    for number in (8, 9):  # not there yet when the first nights are scored
        shutil.move(place(fleet, number), tmp_path / str(number))
    run(fleet, DAYS[:2])
    (first,) = stuck(fleet)
    for number in (8, 9):
        shutil.move(tmp_path / str(number), place(fleet, number))
    run(fleet, DAYS[2:])
    (whole,) = stuck(fleet)
    assert first[0] == whole[0] == STUCK and first[1] == fleets.START + timedelta(days=8) - fleets.STEP
    assert whole[1:] == (STUCK + (STUCK_ROWS - 1) * fleets.STEP, STUCK_ROWS)
    backfill = fleets.copy(made, tmp_path / "backfill")
    run(backfill, one_by_one=False)
    assert fleets.objects(backfill) == fleets.objects(fleet)
    run(fleet, [DAYS[2], DAYS[0]])
    assert fleets.objects(backfill) == fleets.objects(fleet)
    update_incidents(fleet, Window(fleets.START, fleets.START + timedelta(days=12)))
    rows = open_incidents(fleet).read_many(None, Window(fleets.START, fleets.START + timedelta(days=12)))
    assert rows["incident_id"].is_unique().all() and (rows["cause"] == "stuck").sum() == 1


def test_data_that_comes_late_and_differs_takes_the_event_back(fleet):
    run(fleet)
    fleets.write_sensor(fleet.settings, "s00", fleets.signal(0, 480))
    run(fleet, DAYS[1:])
    assert stuck(fleet) == []


def test_a_muted_stretch_is_not_stuck(fleet):
    end = STUCK + timedelta(days=3)
    (fleet.settings.folder / "calendar.csv").write_text(
        f"sensor,start,end,what\ns00,{STUCK.isoformat()},{end.isoformat()},mute\n"
    )
    run(fleet)
    assert stuck(fleet) == []


@pytest.mark.parametrize("factor", [0.0, 40.0])
def test_the_rule_is_off_by_default_and_asks_for_far_longer_than_in_training(fleet, factor):
    assert Settings.from_dict({"folder": fleet.settings.folder}).alarms.stuck == 0
    values = fleet.settings.to_dict()
    values["alarms"]["stuck"] = factor
    run(open_fleet(Settings.from_dict(values)))
    assert stuck(fleet) == []


# -- several channels ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Channel c1 is stuck for two days, c0 never; c2 is a setpoint that stood still in training already."""
    fleet = fleets.make(tmp_path_factory.mktemp("many"), sensors=1, alarms={"stuck": 3.0})
    values = np.hstack([fleets.signal(0, 480, 2), np.full((480, 1), 5.0)])
    values[:, 1] = values_of()[:, 0]
    values[::120, 2] = 6.0  # every 60 hours
    shutil.rmtree(fleet.settings.folder / "history" / "s00")
    fleets.write_sensor(fleet.settings, "s00", values)
    fleet = open_fleet(fleet.settings)
    retrain_sensor(fleet, "s00", fleets.START + timedelta(days=6), None, "a test")
    return fleet


def named(fleet):
    rows = fleet.events.read_many(None, Window(fleets.START, fleets.START + timedelta(days=12)))
    return [(r["channels"], r["start"], r["length"]) for r in rows.to_dicts() if r["cause"] == "stuck"]


def test_one_stuck_channel_is_an_event_that_names_it_and_nights_equal_a_backfill(many, tmp_path):
    fleet, backfill = (fleets.copy(many, tmp_path / name) for name in ("nights", "backfill"))
    assert open_model(many, many.registry.champions()["s00"]).facts.longest_repeats == (0, 3, 118)
    for number in (8, 9):
        shutil.move(place(fleet, number), tmp_path / str(number))
    run(fleet, DAYS[:2])
    ((channels, start, length),) = named(fleet)
    assert (channels, start) == (["c1"], STUCK) and length < STUCK_ROWS
    for number in (8, 9):
        shutil.move(tmp_path / str(number), place(fleet, number))
    run(fleet, DAYS[2:])
    assert named(fleet) == [(["c1"], STUCK, STUCK_ROWS)]
    run(backfill, one_by_one=False)
    assert fleets.objects(backfill) == fleets.objects(fleet)
    run(fleet, [DAYS[2], DAYS[0]])
    assert fleets.objects(backfill) == fleets.objects(fleet)


def test_two_stuck_channels_are_two_events_of_one_incident_and_one_can_be_taken_back(many, tmp_path):
    fleet = fleets.copy(many, tmp_path / "fleet")
    history = fleet.history.read("s00", Window(fleets.START, fleets.START + timedelta(days=10)), fleets.STEP)
    values = history.values.copy()
    first = 7 * 48 + 7
    values[first : first + STUCK_ROWS + 1, 0] = 19.5
    fleets.write_sensor(fleet.settings, "s00", values)
    run(fleet)
    assert sorted(named(fleet)) == [(["c0"], STUCK, STUCK_ROWS), (["c1"], STUCK, STUCK_ROWS)]
    wide = Window(fleets.START, fleets.START + timedelta(days=12))
    update_incidents(fleet, wide)
    assert (open_incidents(fleet).read_many(None, wide)["cause"] == "stuck").sum() == 1
    fleets.write_sensor(fleet.settings, "s00", history.values)  # what was late differs in c0 alone
    run(fleet, DAYS[1:])
    assert named(fleet) == [(["c1"], STUCK, STUCK_ROWS)]

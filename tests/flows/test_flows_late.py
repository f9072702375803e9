"""Late data heals itself: exactly the sensors and days that changed are scored again, once."""

from __future__ import annotations

import shutil
from datetime import date, timedelta

import fleets
import numpy as np
import pytest

from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from flows.work.model.training import retrain_sensor
from flows.work.night.late_data import changed_days
from flows.work.night.night import score_days

DAYS = [date.fromisoformat(fleets.night(number)) for number in range(6, 10)]
NAMES = ["s00", "s01"]
BEFORE = DAYS[-1] + timedelta(days=1)


def values_of(number):
    values = fleets.signal(number, 480)
    values[7 * 48 + 20 : 7 * 48 + 28] += 60  # a fault on the eighth day
    return values


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    fleet = fleets.make(tmp_path_factory.mktemp("fleet"), sensors=2)
    for number, name in enumerate(NAMES):
        fleets.write_sensor(fleet.settings, name, values_of(number))
    fleet = open_fleet(fleet.settings)
    for name in NAMES:
        retrain_sensor(fleet, name, fleets.START + timedelta(days=6), None, "a test")
    return fleet


@pytest.fixture
def fleet(made, tmp_path):
    return fleets.copy(made, tmp_path / "fleet")


def place(fleet, sensor, number):
    (found,) = (fleet.settings.folder / "history" / sensor).glob(f"date={fleets.night(number)}")
    return found


def run(fleet, days=DAYS, names=NAMES):
    versions = fleet.registry.champions()
    for day in days:
        score_days(open_fleet(fleet.settings), [day], names, versions)


def heal(fleet):
    changed = changed_days(open_fleet(fleet.settings), BEFORE, NAMES)
    for day, names in sorted(changed.items()):
        run(fleet, [day], names)
    return changed


def test_a_day_that_came_late_is_found_and_then_equals_a_run_that_had_it_in_time(fleet, made, tmp_path):
    in_time = fleets.copy(made, tmp_path / "in-time")
    run(in_time)
    late = place(fleet, "s00", 7)
    shutil.move(late, tmp_path / "held")
    run(fleet)
    assert fleets.objects(fleet) != fleets.objects(in_time)
    assert heal(fleet) == {}
    shutil.move(tmp_path / "held", late)
    assert heal(fleet) == {DAYS[1]: ["s00"]}
    assert fleets.objects(fleet) == fleets.objects(in_time)
    assert heal(fleet) == {}  # once


def test_days_that_failed_are_scored_when_their_history_is_mended_and_then_equal_a_run_in_time(
    fleet, made, tmp_path
):
    """The damaged day is the context of those after it, whose own objects never change."""
    in_time = fleets.copy(made, tmp_path / "in-time")
    run(in_time)
    (broken,) = place(fleet, "s00", 7).glob("*.parquet")
    whole = broken.read_bytes()
    broken.write_bytes(b"damaged")
    versions = fleet.registry.champions()
    states = {
        day: {o.sensor: o.state for o in score_days(open_fleet(fleet.settings), [day], NAMES, versions)}
        for day in DAYS
    }
    failed = [day for day in DAYS if states[day]["s00"] == "failed"]
    assert set(DAYS[1:3]) <= set(failed) and all(states[day]["s01"] == "ok" for day in DAYS)
    assert heal(fleet) == {}  # nothing changed: it is not tried night after night
    broken.write_bytes(b"damaged again")
    assert heal(fleet) == {day: ["s00"] for day in failed}
    assert heal(fleet) == {}  # tried once for each change
    broken.write_bytes(whole)
    assert heal(fleet) == {day: ["s00"] for day in failed}
    assert fleets.objects(fleet) == fleets.objects(in_time)
    assert heal(fleet) == {}


def test_a_day_that_was_scored_and_then_failed_is_tried_until_its_scores_are_those_of_its_history(fleet):
    run(fleet)
    before = fleets.objects(fleet)
    (broken,) = place(fleet, "s00", 9).glob("*.parquet")
    whole = broken.read_bytes()
    broken.write_bytes(b"damaged")
    assert heal(fleet) == heal(fleet) == {DAYS[3]: ["s00"]}
    broken.write_bytes(whole)
    assert heal(fleet) == {} and fleets.objects(fleet) == before


@pytest.mark.usefixtures("prefect")
def test_the_flow_scores_the_days_that_changed_and_says_which(fleet, tmp_path):
    from flows.heal import heal as heal_flow

    late = place(fleet, "s00", 7)
    shutil.move(late, tmp_path / "held")
    run(fleet)
    shutil.move(tmp_path / "held", late)
    file, last = fleets.write_fleet_file(fleet.settings), DAYS[-1].isoformat()
    report = heal_flow(file, day=last)
    assert report.facts["days"] == [DAYS[1].isoformat()]
    assert {outcome.sensor: outcome.text for outcome in report.outcomes} == {
        "s00": "ok",
        "s01": "skipped: its history has not changed",
    }
    assert heal_flow(file, day=last).facts["days"] == []


def test_an_object_written_again_with_the_same_rows_is_read_once_and_scored_never(fleet):
    run(fleet)
    fleets.write_sensor(fleet.settings, "s01", values_of(1))
    before = fleets.objects(fleet)
    assert heal(fleet) == {} and fleets.objects(fleet) == before
    rows = [path.read_bytes() for path in sorted((fleet.settings.folder / "reads").rglob("*.parquet"))]
    assert heal(fleet) == {}
    assert rows == [p.read_bytes() for p in sorted((fleet.settings.folder / "reads").rglob("*.parquet"))]


def test_a_day_that_did_not_change_costs_a_listing_and_no_read(fleet, monkeypatch):
    run(fleet)
    again = open_fleet(fleet.settings)

    def refuse(*_args, **_more):
        raise AssertionError("a day that did not change was read")

    monkeypatch.setattr(again.history.store, "get", refuse)
    monkeypatch.setattr(type(again.history), "read_many", refuse)
    assert changed_days(again, BEFORE, NAMES) == {}


def test_one_growing_object_per_sensor_rescores_only_the_day_that_changed(fleet, made, tmp_path):
    for sensor, number in (("s00", 0), ("s01", 1)):
        folder = fleet.settings.folder / "history" / sensor
        shutil.rmtree(folder)
        _whole(fleet, sensor, values_of(number))
    run(fleet)
    changed = values_of(0)
    changed[7 * 48 + 5] += 1.0
    _whole(fleet, "s00", changed)
    assert heal(fleet) == {DAYS[1]: ["s00"]}


def _whole(fleet, sensor, values):
    import polars as pl

    stamps = np.datetime64(fleets.START.replace(tzinfo=None), "us") + np.arange(len(values)) * np.timedelta64(
        fleets.STEP
    )
    folder = fleet.settings.folder / "history" / sensor
    folder.mkdir(exist_ok=True)
    pl.DataFrame({"ts": stamps, "c0": values[:, 0]}).write_parquet(folder / "all.parquet")


def test_what_lies_beyond_the_look_back_is_left_alone_and_none_looks_at_nothing(fleet, tmp_path):
    run(fleet)
    shutil.rmtree(place(fleet, "s00", 7))
    values = fleet.settings.to_dict()
    for length, found in (("1d", {}), ("0s", {}), ("4d", {DAYS[1]: ["s00"]})):
        values["run"]["look_back"] = length
        other = open_fleet(Settings.from_dict(values))
        assert changed_days(other, BEFORE, NAMES) == found

"""The same night again: quiet sensors whose inputs are the same are not computed, and any change is seen."""

from __future__ import annotations

import dataclasses
import shutil
from datetime import date, timedelta
from typing import ClassVar

import fleets
import polars as pl
import pytest

from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from flows.work.model.training import retrain_sensor
from flows.work.night import compute
from flows.work.night.late_data import open_reads
from flows.work.night.night import score_days
from storage.tables.reads import ReadStore

NIGHT = 8
DAY = date.fromisoformat(fleets.night(NIGHT))
NAMES = ["s00", "s01", "s02"]


def values_of(name):
    number = NAMES.index(name)
    values = fleets.signal(number, 480, 3 if number == 2 else 1)
    if name == "s01":
        values[NIGHT * 48 + 20 : NIGHT * 48 + 28] += 60  # a fault in the night that is scored
    return values


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A fleet whose night was scored once; s01 has a fault in it."""
    fleet = fleets.make(tmp_path_factory.mktemp("fleet"), sensors=3, alarms={"budget": 1.0})
    for name in NAMES:
        fleets.write_sensor(fleet.settings, name, values_of(name))
    fleet = open_fleet(fleet.settings)
    for name in NAMES:
        retrain_sensor(fleet, name, fleets.START + timedelta(days=7), None, "a test")
    run(fleet)
    return fleet


@pytest.fixture
def fleet(scored, tmp_path):
    copied = fleets.copy(scored, tmp_path / "fleet")
    run(copied)  # the objects of a copy have tags of their own
    return copied


@pytest.fixture
def computed(monkeypatch):
    """The sensors that were scored since."""
    names = []
    score = compute.score_sensor

    def noted(fleet, days, champion, reading, champions):
        names.append(reading.sensor)
        return score(fleet, days, champion, reading, champions)

    monkeypatch.setattr(compute, "score_sensor", noted)
    return names


def run(fleet, **asked):
    opened = open_fleet(fleet.settings)
    return score_days(opened, [DAY], NAMES, opened.registry.champions(), **asked)


def changed(fleet, **sections):
    values = fleet.settings.to_dict()
    for section, keys in sections.items():
        values[section] = {**values.get(section, {}), **keys}
    return dataclasses.replace(fleet, settings=Settings.from_dict(values))


def object_of(fleet, name, number):
    (found,) = (fleet.settings.folder / "history" / name / f"date={fleets.night(number)}").glob("*")
    return found


def test_only_the_sensor_with_an_event_is_computed_again_and_the_answer_is_the_same(fleet, computed):
    first = run(fleet, rescore=True)
    assert computed == NAMES
    before = fleets.objects(fleet, "scores", "events", "reads")
    computed.clear()
    again = run(fleet)
    assert computed == ["s01"]
    assert [outcome.to_dict() for outcome in again] == [outcome.to_dict() for outcome in first]
    assert fleets.objects(fleet, "scores", "events", "reads") == before
    assert {outcome.sensor: outcome.figures["events"] for outcome in again} == {"s00": 0, "s01": 1, "s02": 0}


@pytest.mark.parametrize("near", [NIGHT - 1, NIGHT, NIGHT + 1])
def test_a_value_that_changed_within_reach_is_seen(fleet, computed, near, tmp_path):
    path = object_of(fleet, "s00", near)
    rows = pl.read_parquet(path)
    value = rows["c0"].to_numpy().copy()
    value[-1 if near < NIGHT else 0] += 1
    rows.with_columns(c0=value).write_parquet(path)
    run(fleet)
    assert computed == ["s00", "s01"]
    in_time = fleets.copy(fleet, tmp_path / "in-time")
    shutil.rmtree(in_time.settings.folder / "scores")
    shutil.rmtree(in_time.settings.folder / "events")
    run(in_time, rescore=True)
    assert fleets.objects(fleet) == fleets.objects(in_time)


def test_a_day_out_of_reach_does_not_matter(fleet, computed):
    object_of(fleet, "s00", NIGHT - 4).touch()
    run(fleet)
    assert computed == ["s01"]


def test_an_object_that_came_or_went_counts_within_reach_only(fleet, computed):
    fleets.write_sensor(fleet.settings, "s00", values_of("s00")[:48], fleets.START + timedelta(days=10))
    run(fleet)
    assert computed == ["s01"]  # two days later: out of reach
    object_of(fleet, "s00", NIGHT + 1).unlink()
    run(fleet)
    assert computed == ["s01", "s00", "s01"]


def test_another_champion_is_seen(fleet, computed):
    retrain_sensor(open_fleet(fleet.settings), "s02", fleets.START + timedelta(days=8), None, "a test")
    outcomes = run(fleet)
    assert computed == ["s01", "s02"]
    assert {o.sensor: o.figures["version"] for o in outcomes}["s02"] == 2


@pytest.mark.parametrize(
    "sections",
    [
        {"alarms": {"budget": 30.0}},
        {"alarms": {"thresholds": {"s00": 0.001}}},
        {"history": {"tolerance": 0.25}},
    ],
    ids=["budget", "threshold", "tolerance"],
)
def test_another_setting_is_seen(fleet, computed, sections):
    run(changed(fleet, **sections))
    assert computed == NAMES


def test_a_calendar_that_changed_is_seen(fleet, computed):
    line = f"sensor,start,end,what,reason\ns00,{DAY}T03:00Z,{DAY}T05:00Z,mute,work\n"
    (fleet.settings.folder / "calendar.csv").write_text(line)
    outcomes = {outcome.sensor: outcome for outcome in run(fleet)}
    assert computed == ["s00", "s01"] and "muted" in outcomes["s00"].reason
    (fleet.settings.folder / "calendar.csv").unlink()
    run(fleet)
    stored = open_fleet(fleet.settings).scores.read("s00", fleets.window_of(NIGHT))
    assert "muted" not in stored["status"].to_list()


def test_with_a_damaged_calendar_everything_is_computed(fleet, computed):
    (fleet.settings.folder / "calendar.csv").write_text("sensor,start\n?\n")
    run(fleet)
    assert computed == NAMES


def test_scores_that_were_removed_come_back(fleet, computed):
    before = fleets.objects(fleet)
    shutil.rmtree(fleet.settings.folder / "scores" / f"date={DAY}")
    run(fleet)
    assert computed == NAMES and fleets.objects(fleet) == before


def test_a_sensor_with_a_hole_is_looked_at_again(fleet, computed):
    path = object_of(fleet, "s00", NIGHT)
    pl.read_parquet(path)[:-10].write_parquet(path)
    run(fleet, rescore=True)  # otherwise the scores of before stay: they are better than none
    computed.clear()
    run(fleet)
    assert computed == ["s00", "s01"]


def test_stuck_values_are_followed_every_time(fleet, computed):
    following = changed(fleet, alarms={"stuck": 3.0})
    run(following)
    computed.clear()
    run(following)
    assert computed == NAMES


def test_what_a_night_of_the_form_before_remembered_is_read_and_scored_again(fleet, computed):
    class Former(ReadStore):
        schema: ClassVar = {
            name: kind for name, kind in ReadStore.schema.items() if name not in ReadStore.later
        }

    table = open_reads(fleet)
    kept = table.read_many(None, fleets.window_of(NIGHT))
    assert kept["inputs"].is_not_null().to_list() == [True, False, True]
    shutil.rmtree(fleet.settings.folder / "reads")
    Former(table.store).update(kept.select(list(Former.schema)), fleets.window_of(NIGHT))
    former = open_reads(fleet).read_many(None, fleets.window_of(NIGHT))
    assert former["inputs"].null_count() == 3
    assert former["objects"].equals(kept["objects"])
    run(fleet)
    assert computed == NAMES
    assert open_reads(fleet).read_many(None, fleets.window_of(NIGHT)).equals(kept)

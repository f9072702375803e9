"""Nights: final when the next one is in, the same however often and in whichever order they are run."""

from __future__ import annotations

import shutil
from datetime import date, timedelta

import fleets
import numpy as np
import polars as pl
import pytest

from flows.run.fleet import fix_shards
from flows.work.model.training import retrain_sensor
from flows.work.night.night import score_days
from storage.window import Window

TRAINED_TO = fleets.START + timedelta(days=6)


def shards_of(fleet):
    """The sensors of the fleet, a list per shard."""
    names = fleet.history.sensors().sensors
    shards = fix_shards(fleet, len(names))
    members: dict[int, list[str]] = {}
    for name in names:
        members.setdefault(fleet.scores.shard_of(name), []).append(name)
    assert shards == fleet.scores.shards
    return list(members.values())


def train(fleet):
    """Models for all sensors on the first six days; the champions."""
    for name in fleet.history.sensors().sensors:
        retrain_sensor(fleet, name, TRAINED_TO, None, "a test")
    return fleet.registry.champions()


def score(fleet, *days):
    """Outcomes of the nights `days`, run one after the other as nightly runs do."""
    outcomes = []
    for number in days:
        versions = dict(fleet.registry.champions())
        for members in shards_of(fleet):
            outcomes += score_days(fleet, [date.fromisoformat(fleets.night(number))], members, versions)
    return outcomes


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Four sensors with champions; one of them breaks on the last day but one, over midnight."""
    fleet = fleets.make(tmp_path_factory.mktemp("trained") / "fleet")
    broken = fleets.signal(1, fleets.DAYS * 48)
    broken[8 * 48 + 40 : 9 * 48 + 10] += np.linspace(0, 60, 18)[:, None]
    fleets.write_sensor(fleet.settings, "s01", broken)
    assert len(train(fleet)) == 4
    return fleet


@pytest.fixture
def fleet(trained, tmp_path):
    """A copy of the trained fleet that a test may write to."""
    return fleets.copy(trained, tmp_path / "fleet")


def whole(fleet):
    return Window(fleets.START, fleets.START + timedelta(days=fleets.DAYS))


def test_every_time_step_of_the_night_has_a_row(fleet):
    outcomes = score(fleet, 7)
    assert {outcome.state for outcome in outcomes} == {"ok"}
    rows = fleet.scores.read_many(None, whole(fleet))
    assert rows.height == 4 * 48
    assert set(rows["status"]) == {"ok"}, "the history goes on after this night"
    assert rows["score"].null_count() == 0


def end_history(fleet, day):
    """Take away all history from the `day`-th day on: it has not come yet."""
    for path in (fleet.settings.folder / "history").rglob("*.parquet"):
        if path.parent.name.removeprefix("date=") >= fleets.night(day):
            path.unlink()


def test_the_end_of_a_night_is_provisional_and_the_next_night_finishes_it(fleet, trained):
    end_history(fleet, 8)
    score(fleet, 7)
    rows = fleet.scores.read("s00", whole(fleet))
    assert (rows["status"] == "provisional").sum() == fleets.PATCH - 1
    before = rows.filter(pl.col("status") == "ok")
    shutil.copytree(
        trained.settings.folder / "history", fleet.settings.folder / "history", dirs_exist_ok=True
    )
    score(fleet, 8)
    rows = fleet.scores.read("s00", Window.day(date.fromisoformat(fleets.night(7))))
    assert set(rows["status"]) == {"ok"}
    assert rows["coverage"].max() == fleets.PATCH
    assert rows.head(before.height).equals(before), "final rows are not touched again"


def test_finished_rows_equal_those_of_one_long_look(fleet):
    score(fleet, 7, 8, 9)
    model_of = fleet.registry.champions(["s00"])["s00"]
    from flows.work.model.training import open_model

    reading = fleet.history.read("s00", whole(fleet))
    expected = open_model(fleet, model_of).score(reading.values)[7 * 48 :]
    found = fleet.scores.read("s00", whole(fleet))["score"].to_numpy()
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_second_run_of_a_night_changes_no_object(fleet):
    score(fleet, 7, 8)
    before = fleets.objects(fleet)
    score(fleet, 8)
    assert fleets.objects(fleet) == before


def test_an_old_night_run_again_changes_no_object(fleet):
    score(fleet, 7, 8, 9)
    before = fleets.objects(fleet)
    assert any(name.startswith("events/date=2") for name in before), "the broken sensor has an event"
    score(fleet, 7)
    score(fleet, 8)
    assert fleets.objects(fleet) == before


def test_nights_and_one_backfill_give_the_same_objects(fleet, trained, tmp_path):
    score(fleet, 7, 8, 9)
    other = fleets.copy(trained, tmp_path / "other")
    days = [date.fromisoformat(fleets.night(number)) for number in (7, 8, 9)]
    versions = dict(other.registry.champions())
    for members in shards_of(other):
        score_days(other, days, members, versions)
    assert fleets.objects(other) == fleets.objects(fleet)


def test_a_backfill_goes_on_where_it_stopped(fleet):
    days = [date.fromisoformat(fleets.night(number)) for number in (7, 8, 9)]
    versions = dict(fleet.registry.champions())
    score(fleet, 7, 8)
    for members in shards_of(fleet):
        outcomes = score_days(fleet, days, members, versions, resume=True)
        assert all(outcome.figures["rows"] == 48 for outcome in outcomes), "two nights were done"
    after = fleets.objects(fleet)
    for members in shards_of(fleet):
        outcomes = score_days(fleet, days, members, versions, resume=True)
        assert all(outcome.reason == "every night was scored already" for outcome in outcomes)
    assert fleets.objects(fleet) == after


def test_an_event_over_midnight_is_one_event_under_its_first_date(fleet):
    score(fleet, 7, 8)
    early = fleet.events.read("s01", whole(fleet))
    score(fleet, 9)
    events = fleet.events.read("s01", whole(fleet))
    crossing = [
        row
        for row in events.iter_rows(named=True)
        if row["start"].date() != row["end"].date() and row["end"] >= fleets.START + timedelta(days=9)
    ]
    assert len(crossing) == 1
    assert crossing[0]["start"].date() == date.fromisoformat(fleets.night(8))
    assert crossing[0]["channels"] == ["c0"]
    assert crossing[0]["model_version"] == 1
    assert early.height >= 1, "it was reported in its first night already"


def test_a_missing_day_is_no_data_and_never_alarms(fleet):
    values = fleets.signal(0, fleets.DAYS * 48)
    values[7 * 48 : 8 * 48] = np.nan
    fleets.write_sensor(fleet.settings, "s00", values)
    outcome = next(outcome for outcome in score(fleet, 7) if outcome.sensor == "s00")
    assert outcome.text.startswith(f"skipped: silent: no data since {fleets.night(7)} 00:00 UTC")
    rows = fleet.scores.read("s00", whole(fleet))
    assert rows.height == 48
    assert set(rows["status"]) == {"no_data"}
    assert rows["score"].null_count() == 48
    assert not rows["anomaly"].any()


def test_history_that_came_late_is_scored_when_the_night_is_run_again(fleet):
    values = fleets.signal(0, fleets.DAYS * 48)
    late = values.copy()
    late[7 * 48 + 20 : 8 * 48] = np.nan
    fleets.write_sensor(fleet.settings, "s00", late)
    score(fleet, 7)
    assert fleet.scores.read("s00", whole(fleet))["score"].null_count() == 28
    fleets.write_sensor(fleet.settings, "s00", values)
    score(fleet, 7, 8)
    rows = fleet.scores.read("s00", Window.day(date.fromisoformat(fleets.night(7))))
    assert set(rows["status"]) == {"ok"}


def test_a_threshold_can_be_set_by_hand(fleet):
    from flows.run.fleet import open_fleet
    from flows.settings.fleet_file import Settings

    values = fleet.settings.to_dict() | {"alarms": {"thresholds": {"s00": 0.0}}}
    fleet = open_fleet(Settings.from_dict(values))
    score(fleet, 7)
    assert fleet.scores.read("s00", whole(fleet))["anomaly"].all()
    assert not fleet.scores.read("s02", whole(fleet))["anomaly"].all()


def test_a_patch_longer_than_a_day_is_finished_over_several_nights(tmp_path):
    fleet = fleets.make(
        tmp_path,
        sensors=1,
        model={"patch": 60, "iterations": 0},
        retrain={"enough": 200, "holdout": "2d", "floor": 0.0},
        history={"lookback": "7d"},
    )
    score(fleet, 6, 7, 8, 9)  # the first night makes an untrained model
    rows = fleet.scores.read("s00", whole(fleet))
    final = rows.filter(pl.col("status") == "ok").height
    assert rows.height == 4 * 48
    assert final == 4 * 48 - 59
    assert rows.head(final)["status"].unique().to_list() == ["ok"]


def test_a_new_sensor_is_scored_on_its_first_night_by_an_untrained_model(fleet):
    fleets.write_sensor(fleet.settings, "new", fleets.signal(9, 4 * 48), fleets.START + timedelta(days=5))
    outcome = next(outcome for outcome in score(fleet, 7) if outcome.sensor == "new")
    assert "untrained" in outcome.reason
    version = fleet.registry.champions(["new"])["new"]
    assert version.tags["paano.kind"] == "untrained"
    assert version.tags["paano.window_end"].startswith(fleets.night(7)), "the night itself is not learnt"
    before = fleets.objects(fleet)
    score(fleet, 7)
    assert fleets.objects(fleet) == before
    assert len(fleet.registry.versions("new")) == 1


def test_a_sensor_with_too_little_history_says_when_it_will_have_enough(fleet):
    start = fleets.START + timedelta(days=7)
    fleets.write_sensor(fleet.settings, "young", fleets.signal(9, 48), start)
    outcome = next(outcome for outcome in score(fleet, 7) if outcome.sensor == "young")
    assert outcome.state == "skipped"
    assert outcome.reason.startswith("no_model: 48 of 80 points, enough on 2026-03-10")
    rows = fleet.scores.read("young", whole(fleet))
    assert rows.height == 48
    assert set(rows["status"]) == {"no_model"}
    assert rows["model_version"].null_count() == 48
    assert "young" not in fleet.registry.champions(["young"])


def test_with_the_registry_away_known_sensors_are_scored_and_new_ones_wait(fleet, monkeypatch):
    from paano.errors import RegistryUnavailable

    def away(*_args, **_options):
        raise RegistryUnavailable("the registry does not answer")

    fleets.write_sensor(fleet.settings, "new", fleets.signal(9, 4 * 48), fleets.START + timedelta(days=5))
    versions = dict(fleet.registry.champions())
    monkeypatch.setattr(fleet.registry, "register", away)
    day = date.fromisoformat(fleets.night(7))
    said = {}
    for members in shards_of(fleet):
        said |= {outcome.sensor: outcome.text for outcome in score_days(fleet, [day], members, versions)}
    assert said.pop("new").startswith("skipped: no_model: its first model cannot be registered")
    assert set(said.values()) == {"ok"}


def test_lost_channels_are_a_clear_failure_and_new_ones_are_not_read(fleet):
    rows = fleets.DAYS * 48
    fleets.write_sensor(fleet.settings, "s02", fleets.signal(2, rows, channels=2))
    fleets.write_sensor(fleet.settings, "s00", fleets.signal(0, rows, channels=2))
    outcomes = {outcome.sensor: outcome for outcome in score(fleet, 7)}
    assert outcomes["s02"].state == "failed"
    assert "paano retrain s02" in outcomes["s02"].reason
    assert outcomes["s00"].state == "ok"


def test_the_number_of_workers_does_not_change_a_bit(trained, tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    def score_with(workers):
        fleet = fleets.copy(trained, tmp_path / f"with-{workers}")
        versions = dict(fleet.registry.champions())
        day = date.fromisoformat(fleets.night(7))
        with ThreadPoolExecutor(workers) as pool:
            list(
                pool.map(lambda members: score_days(fleet, [day], members, dict(versions)), shards_of(fleet))
            )
        return fleets.objects(fleet)

    assert score_with(1) == score_with(4)

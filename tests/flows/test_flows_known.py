"""What people know and said, in training: planned stretches are not learned, verdicts hold new models."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import fleets
import numpy as np
import pytest

from flows.run.fleet import open_fleet
from flows.work.known_periods import taught
from flows.work.model.training import open_model, prepare_training, refresh_sensor, retrain_sensor
from flows.work.model.verdict_test import rings
from flows.work.operations import open_verdicts
from paano.errors import ConfigError, StorageError
from storage.operations.verdicts import GivenVerdict, Verdict
from storage.window import Window

AS_OF = fleets.START + timedelta(days=10)
BUMP = fleets.START + timedelta(days=4)  # a stretch that looks like nothing else
BUMP_END = BUMP + 11 * fleets.STEP
NOW = datetime(2026, 3, 12, tzinfo=UTC)


@pytest.fixture
def fleet(tmp_path):
    fleet = fleets.make(tmp_path, sensors=1, history={"lookback": "10d"})
    values = fleets.signal(0, 480)
    values[4 * 48 : 4 * 48 + 12] = 80 + 9 * np.random.default_rng(5).standard_normal((12, 1))
    fleets.write_sensor(fleet.settings, "s00", values)
    return open_fleet(fleet.settings)


def say(fleet, verdict: Verdict, start=BUMP, end=BUMP_END):
    store = open_verdicts(fleet.settings)
    at = NOW + timedelta(minutes=store.read().height)
    store.append([GivenVerdict("s00", start, end, verdict, at, "e1", by="Ada")])
    return open_fleet(fleet.settings)


def test_a_planned_stretch_is_a_hole_for_training_and_makes_another_recipe(fleet):
    before = prepare_training(fleet, "s00", AS_OF, None, "test")
    (fleet.settings.folder / "calendar.csv").write_text(
        f"sensor,start,end,what\ns*,{BUMP.isoformat()},{BUMP_END.isoformat()},no_training\n"
    )
    after = prepare_training(open_fleet(fleet.settings), "s00", AS_OF, None, "test")
    held = np.isnan(after.past.values[:, 0])
    assert held.sum() == 11 and held[4 * 48 : 4 * 48 + 11].all()
    assert after.recipe != before.recipe


def test_a_damaged_calendar_refuses_training_by_name(fleet):
    (fleet.settings.folder / "calendar.csv").write_text("sensor,start,end\ns*,yesterday,today\n")
    with pytest.raises(ConfigError, match=r"s00: nothing is learned.*row 1, column start"):
        prepare_training(open_fleet(fleet.settings), "s00", AS_OF, None, "test")


def test_a_damaged_verdict_refuses_training_by_name(fleet):
    place = fleet.settings.folder / "verdicts" / "date=2026-03-12"
    place.mkdir(parents=True)
    (place / "x.parquet").write_bytes(b"no table")
    with pytest.raises(StorageError, match=r"x\.parquet"):
        prepare_training(open_fleet(fleet.settings), "s00", AS_OF, None, "test")


def test_a_dismissed_stretch_is_quiet_in_the_next_model_and_a_confirmed_one_is_found_and_not_learned(fleet):
    quiet = say(fleet, Verdict.DISMISSED)
    retrain_sensor(quiet, "s00", AS_OF, None, "test")
    model = open_model(quiet, quiet.registry.champions()["s00"])
    whole = quiet.history.read("s00", Window(fleets.START, AS_OF), fleets.STEP)
    part = Window(BUMP, BUMP_END + fleets.STEP)
    assert rings(model, whole, part, quiet.settings) is False

    loud = say(fleet, Verdict.CONFIRMED)  # a later word counts instead
    outcome = retrain_sensor(loud, "s00", AS_OF, quiet.registry.champions()["s00"], "test")
    model = open_model(loud, loud.registry.champions()["s00"])
    assert rings(model, whole, part, loud.settings) is True
    assert "is champion" in outcome.reason


def test_a_model_that_misses_a_confirmed_fault_is_not_recommended(fleet):
    calm = fleets.START + timedelta(days=2)
    told = say(fleet, Verdict.CONFIRMED, calm, calm + 4 * fleets.STEP)
    outcome = retrain_sensor(told, "s00", AS_OF, None, "test")
    assert "contradicts what people said: misses the fault of 2026-03-04 00:00" in outcome.reason
    assert "s00" not in told.registry.champions()


def test_a_refresh_takes_in_what_was_expected_though_its_bank_is_up_to_date(fleet):
    told = say(fleet, Verdict.CONFIRMED)
    retrain_sensor(told, "s00", AS_OF, None, "test")
    champion = told.registry.champions()["s00"]
    whole = told.history.read("s00", Window(fleets.START, AS_OF), fleets.STEP)
    part = Window(BUMP, BUMP_END + fleets.STEP)
    assert "already holds" in refresh_sensor(told, "s00", AS_OF, champion).reason
    normal = say(fleet, Verdict.EXPECTED)
    outcome = refresh_sensor(normal, "s00", AS_OF, champion)
    model = open_model(normal, normal.registry.version("s00", outcome.figures["version"]))
    assert rings(model, whole, part, normal.settings) is False
    again = refresh_sensor(open_fleet(normal.settings), "s00", AS_OF, normal.registry.champions()["s00"])
    assert again.state == "skipped"


def test_what_was_said_of_one_sensor_is_not_said_of_another(fleet):
    window = Window(fleets.START, AS_OF)
    assert taught(say(fleet, Verdict.DISMISSED), "s01", window, fleets.STEP).normal == []

"""New versions: trained, reviewed, promoted by policy, and the same again for the same history."""

from __future__ import annotations

from datetime import timedelta

import fleets
import numpy as np
import pytest

from flows.work.model.decisions import approve, open_reviews, reject, roll_back
from flows.work.model.due import check_shard, days_over_budget
from flows.work.model.review_test import ReviewTest, recommend
from flows.work.model.training import open_model, refresh_sensor, retrain_sensor
from paano.errors import RegistryError
from storage.registry.registry import Registry

AS_OF = fleets.START + timedelta(days=6)
LATER = fleets.START + timedelta(days=9)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Two sensors; s00 has a first champion. Tests go on from each other's versions of other sensors only."""
    fleet = fleets.make(tmp_path_factory.mktemp("training") / "fleet", sensors=6)
    return fleet


def manual(fleet):
    from flows.run.fleet import open_fleet
    from flows.settings.fleet_file import Settings

    values = fleet.settings.to_dict()
    values["retrain"]["policy"] = "manual"
    return open_fleet(Settings.from_dict(values))


def champion(fleet, sensor):
    return fleet.registry.champions([sensor]).get(sensor)


def test_a_first_model_that_passes_is_champion_with_figures_and_pictures(fleet):
    outcome = retrain_sensor(fleet, "s00", AS_OF, None, "no model")
    assert outcome.state == "ok"
    version = champion(fleet, "s00")
    assert version.version == outcome.figures["version"] == 1
    tags = version.tags
    assert tags["paano.kind"] == "trained"
    assert tags["paano.recommendation"] == "passed"
    assert tags["paano.window_end"] < AS_OF.isoformat(), "the newest history is kept for the review"
    assert 0 <= float(tags["paano.vus_pr"]) <= 1
    assert "paano.vus_pr.spike" in tags
    assert "| VUS-PR, mean |" in version.description
    pictures = sorted(p.name for p in fleet.settings.folder.glob("mlflow/artifacts/**/review/*.png"))
    assert pictures == ["faults.png", "scores.png"]
    assert not fleet.registry.challengers(["s00"])


def test_a_first_model_that_passes_has_never_been_challenger_and_a_later_one_has(tmp_path, monkeypatch):
    fleet = fleets.make(tmp_path / "fleet", sensors=1)
    aliases, set_alias = [], Registry._set_alias

    def note(registry, version, alias):
        aliases.append((version.version, alias))
        set_alias(registry, version, alias)

    monkeypatch.setattr(Registry, "_set_alias", note)
    retrain_sensor(fleet, "s00", AS_OF, None, "no model")
    assert aliases == [(1, "champion")]
    retrain_sensor(fleet, "s00", LATER, champion(fleet, "s00"), "asked for")
    assert aliases[1] == (2, "challenger")


def test_the_same_history_and_settings_give_no_new_version(fleet):
    retrain_sensor(fleet, "s01", AS_OF, None, "no model")
    again = retrain_sensor(fleet, "s01", AS_OF, champion(fleet, "s01"), "asked for")
    assert again.state == "skipped"
    assert "same history and settings" in again.reason
    assert len(fleet.registry.versions("s01")) == 1


def test_a_run_that_was_cut_before_the_promotion_is_finished_by_the_next(fleet):
    by_hand = manual(fleet)
    retrain_sensor(by_hand, "s03", AS_OF, None, "no model")  # registered, not promoted
    assert champion(fleet, "s03") is None
    retrain_sensor(fleet, "s03", AS_OF, None, "no model")
    assert champion(fleet, "s03").version == 1
    assert len(fleet.registry.versions("s03")) == 1


def test_a_run_that_was_cut_before_an_alias_was_set_or_moved_is_finished_by_the_next(tmp_path):
    fleet = fleets.make(tmp_path / "fleet", sensors=1)
    registry, by_hand = fleet.registry, manual(fleet)
    retrain_sensor(by_hand, "s00", AS_OF, None, "no model")
    registry.clear_challenger("s00")  # as if killed before the alias was set
    retrain_sensor(by_hand, "s00", AS_OF, None, "no model")
    assert registry.challengers(["s00"])["s00"].version == 1
    retrain_sensor(fleet, "s00", AS_OF, None, "no model")
    registry.set_challenger("s00", 1)  # as if killed within the promotion
    retrain_sensor(fleet, "s00", AS_OF, champion(fleet, "s00"), "no model")
    assert list(registry.challengers(["s00"])) == [] and champion(fleet, "s00").version == 1


def test_the_same_training_does_not_bring_back_what_was_rejected(tmp_path):
    fleet = fleets.make(tmp_path / "fleet", sensors=1)
    retrain_sensor(manual(fleet), "s00", AS_OF, None, "no model")
    reject(fleet, "s00", "noisy")
    again = retrain_sensor(fleet, "s00", AS_OF, None, "no model")
    assert "rejected" in again.reason and champion(fleet, "s00") is None


def test_with_manual_policy_a_reviewer_decides_and_can_go_back(fleet):
    fleet = manual(fleet)
    retrain_sensor(fleet, "s04", AS_OF, None, "no model")
    assert champion(fleet, "s04") is None
    waiting = open_reviews(fleet, ["s04"])
    assert [row["version"] for row in waiting] == [1]
    approve(fleet, "s04")
    assert champion(fleet, "s04").version == 1

    outcome = retrain_sensor(fleet, "s04", LATER, champion(fleet, "s04"), "asked for")
    assert "waits for a reviewer" in outcome.reason
    assert champion(fleet, "s04").version == 1
    approve(fleet, "s04")
    assert champion(fleet, "s04").version == 2
    roll_back(fleet, "s04")
    assert champion(fleet, "s04").version == 1
    with pytest.raises(RegistryError, match="first champion"):
        roll_back(fleet, "s04")
    with pytest.raises(RegistryError, match="no challenger"):
        reject(fleet, "s04")


def test_a_rejected_challenger_stays_as_a_version_and_loses_the_alias(fleet):
    fleet = manual(fleet)
    retrain_sensor(fleet, "s05", AS_OF, None, "no model")
    reject(fleet, "s05", "looks odd")
    assert open_reviews(fleet, ["s05"]) == []
    assert fleet.registry.versions("s05")[0].tags["paano.review"] == "rejected: looks odd"


def test_a_refresh_is_a_new_version_with_the_same_encoder_and_a_newer_bank(fleet):
    retrain_sensor(fleet, "s02", AS_OF, None, "no model")
    first = champion(fleet, "s02")
    outcome = refresh_sensor(fleet, "s02", LATER, first)
    assert outcome.state == "ok"
    newest = fleet.registry.versions("s02")[0]
    assert newest.version == 2
    assert newest.tags["paano.kind"] == "refreshed"
    old, new = open_model(fleet, first), open_model(fleet, newest)
    assert old.config == new.config
    assert not np.array_equal(old.bank.vectors, new.bank.vectors)
    again = refresh_sensor(fleet, "s02", LATER, champion(fleet, "s02"))
    assert again.state == "skipped" or again.figures["version"] == 2
    assert len(fleet.registry.versions("s02")) == 2


@pytest.mark.parametrize(
    ("challenger", "against", "passed", "says"),
    [
        (ReviewTest({}, 0.30, 0, 3.0), ReviewTest({}, 0.31, 0, 3.0), True, "not worse"),
        (ReviewTest({}, 0.20, 0, 3.0), ReviewTest({}, 0.31, 0, 3.0), False, "finds injected faults worse"),
        (ReviewTest({}, 0.90, 5, 3.0), ReviewTest({}, 0.31, 1, 3.0), False, "alarms more often"),
        (ReviewTest({}, 0.90, 1, 3.0), ReviewTest({}, 0.31, 0, 3.0), True, "not worse"),
        (ReviewTest({}, 0.05, 0, 3.0), None, False, "a first model needs 0.1"),
        (ReviewTest({}, 0.15, 9, 3.0), None, True, "a first model needs 0.1"),
        (ReviewTest(), None, False, "too short"),
    ],
)
def test_a_challenger_is_judged_by_faults_and_alarms(tmp_path, challenger, against, passed, says):
    settings = fleets.settings_of(tmp_path, retrain={"floor": 0.1}, alarms={"budget": 1.0})
    recommendation = recommend(challenger, against, settings)
    assert recommendation.passed is passed
    assert says in recommendation.reason


# -- who is due ----------------------------------------------------------------------------------------------


def score_nights_of(fleet, sensor, first, last):
    from datetime import date

    from flows.run.fleet import fix_shards
    from flows.work.night.night import score_days

    fix_shards(fleet, 6)
    days = [date.fromisoformat(fleets.night(number)) for number in range(first, last)]
    score_days(fleet, days, [sensor], dict(fleet.registry.champions([sensor])))


def test_sensors_without_a_model_untrained_or_old_are_due(fleet):
    retrain_sensor(fleet, "s00", AS_OF, champion(fleet, "s00"), "test")
    versions = dict(fleet.registry.champions(["s00"]))
    soon, late = (check_shard(fleet, ["s00", "none"], versions, AS_OF + timedelta(days=n)) for n in (1, 60))
    assert [check.reasons for check in soon] == [[], ["no model"]]
    assert "62 days old" in late[0].why
    assert soon[0].figures["age_days"] == 3.0
    asked = check_shard(fleet, ["s00"], versions, AS_OF + timedelta(days=1), asked=True)
    assert asked[0].why == "asked for"


def test_a_sensor_stuck_in_alarm_after_a_shift_is_offered_a_refresh(fleet, tmp_path):
    fleet = fleets.copy(fleet, tmp_path / "shifted")
    retrain_sensor(fleet, "s00", AS_OF, champion(fleet, "s00"), "test")
    values = fleets.signal(0, fleets.DAYS * 48)
    values[6 * 48 :] = 20 + 8 * np.random.default_rng(0).standard_normal((4 * 48, 1))
    fleets.write_sensor(fleet.settings, "s00", values)
    score_nights_of(fleet, "s00", 6, 10)
    versions = dict(fleet.registry.champions(["s00"]))
    check = check_shard(fleet, ["s00"], versions, fleets.START + timedelta(days=10))[0]
    assert check.due
    assert "over the alarm budget" in check.why
    assert "scores have shifted: KS" in check.why
    assert check.advice == "refresh or retrain"
    rows = fleet.scores.read("s00", fleets_window())
    model = open_model(fleet, versions["s00"])
    assert len(days_over_budget(fleet.settings, "s00", model, rows)) == 4


def fleets_window():
    from storage.window import Window

    return Window(fleets.START, fleets.START + timedelta(days=fleets.DAYS))


def test_tags_edited_in_the_registry_stop_neither_the_due_check_nor_the_lists(fleet):
    retrain_sensor(manual(fleet), "s05", LATER, None, "no model")
    waiting = fleet.registry.challengers(["s05"])["s05"]
    wrong = {"window_end": "soon", "interval_seconds": "1e400", "vus_pr": "good", "previous": "x"}
    fleet.registry.set_tags(waiting, {f"paano.{name}": value for name, value in wrong.items()})
    edited = fleet.registry.challengers(["s05"])["s05"]
    [check] = check_shard(fleet, ["s05"], {"s05": edited}, LATER)
    assert "paano.window_end" in check.figures["note"]
    [row] = open_reviews(fleet, ["s05"])
    assert row["vus_pr"] is None and row["trained_to"] == ""
    outcome = retrain_sensor(fleet, "s05", LATER, None, "no model")
    assert outcome.state == "ok" and "vus_pr" not in outcome.figures

"""New versions: trained, reviewed, promoted by policy, and the same again for the same history."""

from __future__ import annotations

from datetime import timedelta

import fleets
import numpy as np
import pytest

from flows.due import check_shard, days_over_budget
from flows.reviewing import approve, open_reviews, reject, roll_back
from flows.training import refresh_sensor, retrain_sensor
from flows.trial import Trial, judge
from paano.errors import RegistryError

AS_OF = fleets.START + timedelta(days=6)
LATER = fleets.START + timedelta(days=9)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Two sensors; s00 has a first champion. Tests go on from each other's versions of other sensors only."""
    parts = fleets.make(tmp_path_factory.mktemp("training") / "fleet", sensors=6)
    return parts


def manual(parts):
    from flows.parts import open_parts
    from flows.settings import Settings

    values = parts.settings.to_dict()
    values["retrain"]["policy"] = "manual"
    return open_parts(Settings.from_dict(values))


def champion(parts, sensor):
    return parts.registry.champions([sensor]).get(sensor)


def test_a_first_model_that_passes_is_champion_with_figures_and_pictures(fleet):
    outcome = retrain_sensor(fleet, "s00", AS_OF, None, "no model")
    assert outcome.state == "ok"
    version = champion(fleet, "s00")
    assert version.version == outcome.figures["version"] == 1
    tags = version.tags
    assert tags["paano.kind"] == "trained"
    assert tags["paano.verdict"] == "passed"
    assert tags["paano.window_end"] < AS_OF.isoformat(), "the newest history is kept for the review"
    assert 0 <= float(tags["paano.vus_pr"]) <= 1
    assert "paano.vus_pr.spike" in tags
    assert "| VUS-PR, mean |" in version.description
    pictures = sorted(p.name for p in fleet.settings.folder.glob("mlflow/artifacts/**/review/*.png"))
    assert pictures == ["faults.png", "scores.png"]
    assert not fleet.registry.challengers(["s00"])


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


def test_with_manual_policy_a_reviewer_decides_and_can_go_back(fleet):
    parts = manual(fleet)
    retrain_sensor(parts, "s04", AS_OF, None, "no model")
    assert champion(parts, "s04") is None
    waiting = open_reviews(parts, ["s04"])
    assert [row["version"] for row in waiting] == [1]
    approve(parts, "s04")
    assert champion(parts, "s04").version == 1

    outcome = retrain_sensor(parts, "s04", LATER, champion(parts, "s04"), "asked for")
    assert "waits for a reviewer" in outcome.reason
    assert champion(parts, "s04").version == 1
    approve(parts, "s04")
    assert champion(parts, "s04").version == 2
    roll_back(parts, "s04")
    assert champion(parts, "s04").version == 1
    with pytest.raises(RegistryError, match="first champion"):
        roll_back(parts, "s04")
    with pytest.raises(RegistryError, match="no challenger"):
        reject(parts, "s04")


def test_a_rejected_challenger_stays_as_a_version_and_loses_the_alias(fleet):
    parts = manual(fleet)
    retrain_sensor(parts, "s05", AS_OF, None, "no model")
    reject(parts, "s05", "looks odd")
    assert open_reviews(parts, ["s05"]) == []
    assert parts.registry.versions("s05")[0].tags["paano.review"] == "rejected: looks odd"


def test_a_refresh_is_a_new_version_with_the_same_encoder_and_a_newer_bank(fleet):
    from flows.training import open_model

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
        (Trial({}, 0.30, 0, 3.0), Trial({}, 0.31, 0, 3.0), True, "not worse"),
        (Trial({}, 0.20, 0, 3.0), Trial({}, 0.31, 0, 3.0), False, "finds injected faults worse"),
        (Trial({}, 0.90, 5, 3.0), Trial({}, 0.31, 1, 3.0), False, "alarms more often"),
        (Trial({}, 0.90, 1, 3.0), Trial({}, 0.31, 0, 3.0), True, "not worse"),
        (Trial({}, 0.05, 0, 3.0), None, False, "a first model needs 0.1"),
        (Trial({}, 0.15, 9, 3.0), None, True, "a first model needs 0.1"),
        (Trial(), None, False, "too short"),
    ],
)
def test_a_challenger_is_judged_by_faults_and_alarms(tmp_path, challenger, against, passed, says):
    settings = fleets.settings_of(tmp_path, retrain={"floor": 0.1}, alarms={"budget": 1.0})
    verdict = judge(challenger, against, settings)
    assert verdict.passed is passed
    assert says in verdict.reason


# -- who is due ----------------------------------------------------------------------------------------------


def score_nights_of(parts, sensor, first, last):
    from datetime import date

    from flows.parts import fix_shards
    from flows.scoring import score_nights

    fix_shards(parts, 6)
    days = [date.fromisoformat(fleets.night(number)) for number in range(first, last)]
    score_nights(parts, days, [sensor], dict(parts.registry.champions([sensor])))


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
    parts = fleets.copy(fleet, tmp_path / "shifted")
    retrain_sensor(parts, "s00", AS_OF, champion(parts, "s00"), "test")
    values = fleets.signal(0, fleets.DAYS * 48)
    values[6 * 48 :] = 20 + 8 * np.random.default_rng(0).standard_normal((4 * 48, 1))
    fleets.write_sensor(parts.settings, "s00", values)
    score_nights_of(parts, "s00", 6, 10)
    versions = dict(parts.registry.champions(["s00"]))
    check = check_shard(parts, ["s00"], versions, fleets.START + timedelta(days=10))[0]
    assert check.due
    assert "over the alarm budget" in check.why
    assert "scores have shifted: KS" in check.why
    assert check.advice == "refresh or retrain"
    rows = parts.scores.read("s00", fleets_window())
    assert len(days_over_budget(parts.settings, versions["s00"], rows)) == 4


def fleets_window():
    from storage.window import Window

    return Window(fleets.START, fleets.START + timedelta(days=fleets.DAYS))

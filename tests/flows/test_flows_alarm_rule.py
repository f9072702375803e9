"""One rule says what an alarm is: scoring, the review test and the check who is due agree on it."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import fleets
import pytest

from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from flows.work.alarm_rule import alarm_rule
from flows.work.model.due import check_shard, days_over_budget
from flows.work.model.review_test import run_review_test
from flows.work.model.training import open_model, retrain_sensor, settle_version
from flows.work.night.load import open_champion
from flows.work.night.night import score_days

AS_OF = fleets.START + timedelta(days=6)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    fleet = fleets.make(tmp_path_factory.mktemp("alarms") / "fleet", sensors=1)
    retrain_sensor(fleet, "s00", AS_OF, None, "no model")
    return fleet


def with_alarms(fleet, **alarms):
    values = fleet.settings.to_dict()
    values["alarms"] = {**values["alarms"], **alarms}
    return open_fleet(Settings.from_dict(values))


@pytest.mark.parametrize(
    "alarms",
    [
        {"thresholds": {"s00": 0.75}},
        {"thresholds": {"another": 0.75}, "merge": "3h"},
        {"longest": "1d", "merge": "0s"},
    ],
)
def test_scoring_judges_by_the_rule_of_the_settings(fleet, alarms):
    fleet = with_alarms(fleet, **alarms)
    version = fleet.registry.champions(["s00"])["s00"]
    champion = open_champion(fleet, version, fleet.registry.fetch(version))
    rule = alarm_rule(fleet.settings, "s00", champion.model.calibration, fleets.STEP)
    assert champion.rule == rule
    if "s00" in alarms.get("thresholds", {}):
        assert rule.threshold == 0.75
    if alarms.get("merge") == "3h":
        assert rule.merge == 6


def test_the_review_test_counts_the_alarms_that_people_get(fleet):
    """A threshold below every score makes one long event, which `alarms.longest` cuts into days."""
    low = with_alarms(fleet, thresholds={"s00": 0.0}, longest="1d")
    version = low.registry.champions(["s00"])["s00"]
    model = open_model(low, version)
    newest = low.history.read("s00", fleets.window_of(6).widen(after=timedelta(days=2)), fleets.STEP)
    counted = run_review_test(model, newest, low.settings, seed=1).events
    days = [fleets.window_of(number).start.date() for number in (6, 7, 8)]
    from flows.run.fleet import fix_shards

    fix_shards(low, 1)
    score_days(low, days, ["s00"], {"s00": version})
    stored = low.events.read("s00", fleets.window_of(6).widen(after=timedelta(days=2)))
    assert counted == stored.height >= 3
    high = with_alarms(fleet, thresholds={"s00": 1e9})
    assert run_review_test(model, newest, high.settings, seed=1).events == 0


def test_days_over_budget_follow_a_threshold_that_was_set_later(fleet):
    version = fleet.registry.champions(["s00"])["s00"]
    model = open_model(fleet, version)
    rows = fleet.scores.read("s00", fleets.window_of(6).widen(after=timedelta(days=2)))
    low, high = (with_alarms(fleet, thresholds={"s00": value}) for value in (0.0, 1e9))
    assert len(days_over_budget(low.settings, "s00", model, rows)) == 3
    assert days_over_budget(high.settings, "s00", model, rows) == []


def test_tags_that_somebody_edited_stop_neither_the_check_nor_a_promotion(fleet):
    version = fleet.registry.champions(["s00"])["s00"]
    spoilt = {"paano.window_end": "soon", "paano.interval_seconds": "fast", "paano.vus_pr": "good"}
    edited = dataclasses.replace(version, tags={**version.tags, **spoilt})
    [check] = check_shard(fleet, ["s00"], {"s00": edited}, AS_OF + timedelta(days=1))
    assert check.figures["age_days"] == 3.0
    outcome = settle_version(fleet, edited, None, "test")
    assert "vus_pr" not in outcome.figures


def test_the_recommendation_of_a_version_made_by_the_release_before_is_read(fleet):
    version = fleet.registry.champions(["s00"])["s00"]
    tags = {key: value for key, value in version.tags.items() if key != "paano.recommendation"}
    former = dataclasses.replace(version, tags={**tags, "paano.verdict": "not passed"})
    assert former.parsed.recommendation == "not passed"
    assert version.parsed.recommendation == "passed"


def test_a_group_may_have_so_many_incidents_and_its_sensors_share_them(tmp_path):
    (tmp_path / "catalog.csv").write_text("sensor,group\na,g\nb,g\nc,g\nd,g\ne,h\n")
    values = {"history": {"catalog": "catalog.csv"}, "sensors": {"group:g": {"incidents": 2.0}}}
    fleet = open_fleet(Settings.from_dict({**values, "folder": tmp_path}))
    assert [fleet.settings_for(name).alarms.budget for name in "ade"] == [0.5, 0.5, 1.0]

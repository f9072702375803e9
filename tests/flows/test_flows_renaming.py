"""A sensor gets another id: the model goes with it, what was written stays."""

from __future__ import annotations

import json
from datetime import date, timedelta

import fleets
import polars as pl
import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from flows.run.fleet import fix_shards, open_fleet
from flows.work.model.decisions import roll_back
from flows.work.model.renaming import rename_sensor
from flows.work.model.training import open_model, retrain_sensor
from flows.work.night.night import score_days
from flows.work.operations import change_calendar
from paano.errors import ConfigError, RegistryError
from storage.operations.calendar import Calendar
from storage.registry.registration import without_links
from storage.window import Window

NIGHT = date.fromisoformat(fleets.night(9))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One trained sensor, s00, scored for a night."""
    fleet = fleets.make(tmp_path_factory.mktemp("rename") / "fleet", sensors=1)
    retrain_sensor(fleet, "s00", fleets.START + timedelta(days=6), None, "a test")
    fix_shards(fleet, 2)
    score_days(fleet, [NIGHT], ["s00"], dict(fleet.registry.champions(["s00"])))
    return fleet


@pytest.fixture
def fleet(trained, tmp_path):
    """A copy in which the history of s00 is also there under the id hall-s00."""
    copied = fleets.copy(trained, tmp_path / "fleet")
    fleets.write_sensor(copied.settings, "hall-s00", fleets.signal(0, fleets.DAYS * 48))
    return open_fleet(copied.settings)


def test_the_new_id_scores_as_the_old_one_did_with_the_model_that_was_carried_over(fleet):
    done = rename_sensor(fleet, "s00", "hall-s00")
    champion = fleet.registry.champions(["hall-s00"])["hall-s00"]
    assert (done.from_version, done.version) == (1, champion.version)
    score_days(fleet, [NIGHT], ["hall-s00"], {"hall-s00": champion})
    old, new = (
        fleet.scores.read_many([name], Window.day(NIGHT)).drop("sensor", "model_version")
        for name in ("s00", "hall-s00")
    )
    assert old.height == 48 and old.equals(new)


def test_the_new_version_says_where_it_comes_from_and_the_old_one_where_it_went(fleet):
    before = fleet.registry.champions(["s00"])["s00"]
    rename_sensor(fleet, "s00", "hall-s00")
    champions = fleet.registry.champions(["s00", "hall-s00"])
    old, new = champions["s00"], champions["hall-s00"]
    assert (old.version, old.digest) == (before.version, before.digest)
    assert old.tags["paano.renamed_to"] == "hall-s00"
    assert new.tags["paano.renamed_from"] == "s00" and new.parsed.kind == "renamed"
    assert new.parsed.sensor == "hall-s00" and new.parsed.why == "renamed from s00, version 1"
    assert new.parsed.vus_pr == old.parsed.vus_pr and new.parsed.window_end == old.parsed.window_end
    assert new.description.startswith("Carried over from sensor `s00`, version 1")
    assert without_links(old.description) in new.description
    facts = open_model(fleet, new).facts
    assert facts.sensor == "hall-s00" and facts["renamed_from"] == "s00"
    assert fleet.registry.attached(new) == fleet.registry.attached(old) != {}


def test_renaming_again_changes_nothing(fleet):
    first = rename_sensor(fleet, "s00", "hall-s00")
    assert rename_sensor(fleet, "s00", "hall-s00") == first
    assert len(fleet.registry.versions("hall-s00")) == 1


def test_the_untrained_model_of_a_first_night_gives_way_and_can_come_back(fleet):
    score_days(fleet, [NIGHT], ["hall-s00"], {})
    assert fleet.registry.champions(["hall-s00"])["hall-s00"].parsed.kind == "untrained"
    assert rename_sensor(fleet, "s00", "hall-s00").version == 2
    assert roll_back(fleet, "hall-s00").version == 1


def test_a_trained_champion_of_the_new_id_is_never_replaced(fleet):
    retrain_sensor(fleet, "hall-s00", fleets.START + timedelta(days=6), None, "a test")
    with pytest.raises(ConfigError, match="keeps it; to begin with it, rename with --fresh"):
        rename_sensor(fleet, "s00", "hall-s00")
    assert [version.version for version in fleet.registry.versions("hall-s00")] == [1]
    assert rename_sensor(fleet, "s00", "hall-s00", fresh=True).version is None


def test_fresh_carries_nothing_over_and_keeps_the_old_model(fleet):
    done = rename_sensor(fleet, "s00", "hall-s00", fresh=True)
    assert done.version is None and fleet.registry.versions("hall-s00") == []
    assert fleet.registry.champions(["s00"])["s00"].tags["paano.renamed_to"] == "hall-s00"


def test_what_names_the_old_id_elsewhere_is_said(fleet):
    values = fleet.settings.to_dict()
    values["alarms"]["thresholds"] = {"s00": 2.0}
    values["sensors"] = {"s00": {"budget": 2.0}}
    told = open_fleet(type(fleet.settings).from_dict(values))
    row = {"sensor": "s00", "group": "", "start": "2026-12-01", "end": "2026-12-02", "what": "both"}
    [period] = Calendar.from_frame(pl.DataFrame([{**row, "reason": "", "repeat": ""}]), "x", "UTC").periods
    change_calendar(told.settings, lambda known: known.add(period))
    said = "\n".join(rename_sensor(told, "s00", "later").notes)
    for part in ("no history of later yet", "s00 is still in the history", "alarms.thresholds", period.id):
        assert part in said
    assert '[sensors."s00"]' in said and "stay under s00" in said


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("s00", "s00", ConfigError),
        ("s00", "", ConfigError),
        ("s77", "s78", RegistryError),
    ],
)
def test_what_cannot_be_renamed_is_refused_and_nothing_changes(fleet, old, new, error):
    with pytest.raises(error):
        rename_sensor(fleet, old, new)
    assert "paano.renamed_to" not in fleet.registry.champions(["s00"])["s00"].tags


def test_the_command_renames_and_still_lists(fleet):
    file = fleets.write_fleet_file(fleet.settings)

    def call(*words):
        result = CliRunner().invoke(app, ["sensors", *words, "-f", file])
        assert result.exit_code == 0, result.output
        return result.stdout

    done = json.loads(call("rename", "s00", "hall-s00", "--json"))
    assert (done["old"], done["new"], done["version"]) == ("s00", "hall-s00", 1)
    assert {row["sensor"] for row in json.loads(call("--json"))} == {"s00", "hall-s00"}
    assert "carried over from s00" in call("rename", "s00", "hall-s00")

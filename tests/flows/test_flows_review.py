"""The reviewer's work through the flows and the command: compare, refresh, approve in bulk, reject."""

from __future__ import annotations

import json
from datetime import timedelta

import fleets
import pytest
from mlflow import MlflowClient
from typer.testing import CliRunner

from flows.cli.app import app
from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from flows.work.model.training import retrain_group, retrain_sensor
from paano.errors import UnknownSensor

pytestmark = pytest.mark.usefixtures("prefect")

AS_OF = fleets.START + timedelta(days=6)
LATER = (fleets.START + timedelta(days=9)).isoformat()


@pytest.fixture
def fleet(tmp_path):
    """Three sensors, each with a champion and a challenger that waits."""
    fleet = fleets.make(tmp_path / "fleet", sensors=3, retrain={"policy": "manual"})
    file = fleets.write_fleet_file(fleet.settings)
    names = ["s00", "s01", "s02"]
    run(file, "review", "--help")  # before the work: a broken command is found at once
    automatic = open_fleet(Settings.from_dict(changed(fleet.settings, "auto")))
    for sensor in names:
        retrain_sensor(automatic, sensor, AS_OF, None, "no model")
    champions = fleet.registry.champions(names)
    for sensor in names:
        retrain_sensor(fleet, sensor, AS_OF + timedelta(days=2), champions[sensor], "asked for")
    return fleet, file


def changed(settings, policy):
    values = settings.to_dict()
    values["retrain"]["policy"] = policy
    return values


def run(file, *arguments, code=0):
    result = CliRunner().invoke(app, [*arguments], env={"PAANO_FLEET_FILE": file})
    assert result.exit_code == code, result.output + str(result.exception)
    return result


def tag(fleet, sensor):
    client = MlflowClient(fleet.registry.tracking_uri)
    return client.get_registered_model(f"tiny.{sensor}").tags.get("paano.waiting")


def test_a_reviewer_compares_approves_what_passed_and_rejects_the_rest(fleet):
    from flows.review import review

    fleet, file = fleet
    assert tag(fleet, "s00").startswith("version 2, ")
    report = review(fleet_file=file, as_of=LATER)
    assert report.counts == {"ok": 3, "skipped": 0, "failed": 0}
    figures = report.outcomes[0].figures
    assert (figures["version"], figures["champion"]) == (2, 1)
    assert 0 <= figures["vus_pr"] <= 1 and 0 <= figures["champion_vus_pr"] <= 1

    passed = {
        row["sensor"]
        for row in json.loads(run(file, "review", "list", "--json").stdout)
        if row["recommendation"] == "passed"
    }
    run(file, "review", "approve", "--passed")
    champions = {name: version.version for name, version in fleet.registry.champions().items()}
    assert champions == {name: 2 if name in passed else 1 for name in ("s00", "s01", "s02")}
    for sensor in {"s00", "s01", "s02"} - passed:
        run(file, "review", "reject", sensor, "--why", "not better")
    assert run(file, "review", "list").stdout.strip() == "no challenger is waiting"
    assert {tag(fleet, sensor) for sensor in champions} == {None}
    assert review(fleet_file=file, as_of=LATER).notes == ["no challenger is waiting"]


def test_approve_takes_a_pattern_and_names_one_that_fits_nothing(fleet):
    fleet, file = fleet
    run(file, "review", "approve", "s0[01]")
    champions = {name: version.version for name, version in fleet.registry.champions().items()}
    assert champions == {"s00": 2, "s01": 2, "s02": 1}
    assert "pump-*: there is no challenger" in run(file, "review", "approve", "pump-*", code=1).stderr
    assert "--passed" in run(file, "review", "approve", code=2).stderr


def test_reject_has_the_option_that_its_error_names(fleet):
    fleet, file = fleet
    run(file, "review", "reject", "s00")
    assert "--version" in run(file, "review", "reject", "s00", code=1).stderr
    run(file, "review", "reject", "s00", "--version", "2", "--why", "again")
    assert fleet.registry.version("s00", 2).parsed.review == "rejected: again"
    assert "rollback" in run(file, "review", "reject", "s00", "--version", "1", code=1).stderr


def test_comparing_a_sensor_without_a_challenger_says_so_and_an_unknown_one_is_an_error(fleet):
    from flows.review import review

    fleet, file = fleet
    run(file, "review", "reject", "s01")
    [outcome] = review(fleet_file=file, as_of=LATER, sensors=["s01"]).outcomes
    assert outcome.text == "skipped: no challenger to review"
    assert outcome.figures["champion"] == 1
    with pytest.raises(UnknownSensor, match="nosuch"):
        review(fleet_file=file, as_of=LATER, sensors=["nosuch"])


def test_what_retrain_can_review_compare_can_too(tmp_path):
    """A hold-out of hours is shorter than the review test needs: both widen it."""
    from flows.review import review

    fleet = fleets.make(tmp_path / "fleet", sensors=1, retrain={"holdout": "4h", "policy": "manual"})
    retrained = retrain_sensor(fleet, "s00", AS_OF, None, "no model")
    assert retrained.figures["vus_pr"] is not None
    report = review(fleet_file=fleets.write_fleet_file(fleet.settings), as_of=AS_OF.isoformat())
    [outcome] = report.outcomes
    assert outcome.state == "ok"
    assert outcome.figures["vus_pr"] == pytest.approx(retrained.figures["vus_pr"], abs=1e-4)


def test_refresh_through_its_flow_makes_a_version_of_every_sensor_with_a_model(tmp_path):
    from flows.refresh import refresh

    fleet = fleets.make(tmp_path / "fleet", sensors=3)
    for sensor in ("s00", "s02"):
        retrain_sensor(fleet, sensor, AS_OF, None, "no model")
    report = refresh(fleet_file=fleets.write_fleet_file(fleet.settings), as_of=LATER)
    assert [outcome.state for outcome in report.outcomes] == ["ok", "skipped", "ok"]
    assert "no model to refresh" in report.outcomes[1].reason
    for sensor in ("s00", "s02"):
        assert fleet.registry.versions(sensor)[0].parsed.kind == "refreshed"


def test_a_group_trained_at_once_gives_the_versions_of_one_by_one_and_names_who_failed(tmp_path):
    fleet = fleets.make(tmp_path / "fleet", sensors=3)
    alone = fleets.copy(fleet, tmp_path / "alone")
    fleets.write_sensor(fleet.settings, "young", fleets.signal(1, 20), start=AS_OF - timedelta(hours=10))
    names = ["s00", "s01", "s02", "young", "nosuch"]
    outcomes = retrain_group(fleet, names, AS_OF, {}, dict.fromkeys(names, "test"), batch=3)
    found = {outcome.sensor: outcome for outcome in outcomes}
    assert [found[name].state for name in names] == ["ok", "ok", "ok", "skipped", "failed"]
    assert {outcome.batch for outcome in outcomes} == {3}
    for name in ("s00", "s01", "s02"):
        retrain_sensor(alone, name, AS_OF, None, "test")
        assert fleet.registry.champions([name])[name].digest == alone.registry.champions([name])[name].digest


def test_a_fleet_in_the_long_layout_is_trained_scored_refreshed_and_reviewed(tmp_path):
    """The same rows as from one folder per sensor."""
    import polars as pl

    from flows.refresh import refresh
    from flows.retrain import retrain
    from flows.review import review
    from flows.score import score

    split = fleets.make(tmp_path / "split", sensors=2)
    rows = pl.concat(
        pl.scan_parquet(f"{split.settings.folder}/history/{name}/**/*.parquet")
        .with_columns(sensor=pl.lit(name))
        .collect()
        .drop("date", strict=False)
        for name in ("s00", "s01")
    )
    settings = fleets.settings_of(tmp_path / "long", history={"layout": "long", "lookback": "8d"})
    fleets.new_registry(settings)
    for (day,), part in rows.group_by(pl.col("ts").dt.date()):
        folder = settings.folder / "history" / f"date={day}"
        folder.mkdir(parents=True)
        part.write_parquet(folder / "all.parquet")
    long = open_fleet(settings)
    for fleet in (split, long):
        file = fleets.write_fleet_file(fleet.settings)
        assert retrain(fleet_file=file, as_of=AS_OF.isoformat()).counts["ok"] == 2
        assert score(fleet_file=file, day=fleets.night(7)).counts["ok"] == 2
        assert refresh(fleet_file=file, as_of=LATER).counts["failed"] == 0
        assert review(fleet_file=file, as_of=LATER).counts["failed"] == 0
    assert fleets.objects(split) == fleets.objects(long)

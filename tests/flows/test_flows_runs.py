"""Flows on a real Prefect server: fan out, try again, report, fail when too much failed."""

from __future__ import annotations

import json
import re
import shutil
import time
from datetime import date, timedelta

import fleets
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prefect import flow
from prefect.client.orchestration import get_client
from typer.testing import CliRunner

from flows.cli.app import app
from flows.run import fanout
from flows.run.fanout import batch_task, fan_out, watching
from flows.run.fleet import open_fleet
from flows.run.names import artifact_key
from flows.run.outcome import Outcome, ok
from flows.run.plan import plan_sensors
from paano.errors import ConfigError, RegistryUnavailable, RunFailed, StorageUnavailable
from tests.storage import old_store

pytestmark = pytest.mark.usefixtures("prefect")


@pytest.fixture
def fleet(tmp_path):
    """Three sensors, and a fleet file."""
    made = fleets.make(tmp_path / "fleet", sensors=3)
    return made, fleets.write_fleet_file(made.settings)


def artifacts(key):
    with get_client(sync_client=True) as client:
        asked = {"artifacts": {"key": {"any_": [key]}}, "sort": "CREATED_DESC"}
        return client.request("POST", "/artifacts/filter", json=asked).json()[::-1]


def test_a_fleet_is_trained_and_scored_through_the_flows_and_a_rerun_changes_nothing(fleet):
    from flows.retrain import retrain
    from flows.score import score

    made, file = fleet
    as_of = (fleets.START + timedelta(days=6)).isoformat()
    asked = retrain(fleet_file=file, as_of=as_of, dry_run=True)
    assert {outcome.text for outcome in asked.outcomes} == {"skipped: due: no model; would help: retrain"}
    first = retrain(fleet_file=file, as_of=as_of)
    assert first.counts == {"ok": 3, "skipped": 0, "failed": 0}
    report = score(fleet_file=file, day=fleets.night(7))
    assert report.counts == {"ok": 3, "skipped": 0, "failed": 0}
    assert report.figure("rows") == 3 * 48

    before = fleets.objects(made, "scores", "events", "mlflow/artifacts")
    assert retrain(fleet_file=file, as_of=as_of).counts["skipped"] == 3
    assert score(fleet_file=file, day=fleets.night(7)).counts["ok"] == 3
    assert fleets.objects(made, "scores", "events", "mlflow/artifacts") == before
    assert all(len(made.registry.versions(name)) == 1 for name in ("s00", "s01", "s02"))

    assert "3 sensors: 3 ok" in artifacts("paano-tiny-score-summary")[-1]["data"]
    assert "s00" in artifacts("paano-tiny-score-outcomes")[-1]["data"]
    assert any(float(found["data"]) == 100.0 for found in artifacts("paano-tiny-score-progress"))
    with get_client(sync_client=True) as client:
        names = {run.name for run in client.read_flow_runs(limit=20)}
    assert f"tiny: score {fleets.night(7)}" in names, "two fleets on one server are told apart"


@given(name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", fullmatch=True))
def test_an_artifact_key_has_only_letters_that_prefect_allows_and_is_of_one_fleet(name):
    key = artifact_key(name, "score", "summary")
    assert re.fullmatch(r"[a-z0-9-]+", key)
    other = name.swapcase().replace("_", "-")
    assert other == name or artifact_key(other, "score", "summary") != key


def test_a_run_fails_above_the_tolerated_share_and_says_which_sensors(fleet):
    from flows.score import score

    made, file = fleet
    bad = next((made.settings.folder / "history" / "s01").rglob("*.parquet"))
    for path in bad.parent.parent.rglob("*.parquet"):
        path.write_bytes(b"not parquet")
    with pytest.raises(RunFailed, match=r"1 of 3 sensors failed.*s01"):
        score(fleet_file=file, day=fleets.night(7))
    rows = made.scores.read_many(None, fleets.window_of(7))
    assert set(rows["sensor"]) == {"s00", "s02"}, "the others were scored all the same"


def test_a_run_that_survived_a_failed_sensor_says_so_in_the_end_and_keeps_all_figures_in_its_table(
    tmp_path, monkeypatch
):
    from flows.score import score

    made = fleets.make(tmp_path / "fleet", sensors=3, run={"tolerated_failures": 0.5})
    for path in (made.settings.folder / "history" / "s01").rglob("*.parquet"):
        path.write_bytes(b"not parquet")
    said = []
    monkeypatch.setattr("flows.run.report.log_end", lambda *words: said.append(words))
    score(fleet_file=fleets.write_fleet_file(made.settings), day=fleets.night(7))
    [(counts, broken, notes)] = said
    assert counts.endswith("3 sensors: 2 ok, 0 skipped, 1 failed")
    assert [outcome.sensor for outcome in broken] == ["s01"] and "the report of" in notes[-1]
    rows = json.loads(artifacts("paano-tiny-score-outcomes")[-1]["data"])
    assert rows[0]["sensor"] == "s01" and {"rows", "version"} <= set(rows[0]), "Prefect shows these columns"
    assert rows[0]["outcome"].startswith("failed: ") and "s01: " not in rows[0]["outcome"]
    assert all(set(row) == set(rows[0]) for row in rows)


def test_a_failed_run_prints_what_became_of_every_sensor_and_then_the_error(fleet):
    made, file = fleet
    for path in (made.settings.folder / "history" / "s01").rglob("*.parquet"):
        path.write_bytes(b"not parquet")
    words = ["score", "--day", fleets.night(7), "-f", file]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1 and "Traceback" not in done.output
    said = done.stderr
    assert said.index("s00") < said.index("error score"), "the table comes before the error"
    assert "2 ok, 1 failed" in said and "1 of 3 sensors failed" in " ".join(said.split())
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 1
    found = {row["sensor"]: row["outcome"] for row in json.loads(done.stdout)["outcomes"]}
    assert set(found) == {"s00", "s01", "s02"} and found["s01"].startswith("failed: ")


def test_a_sensor_whose_history_is_gone_is_named_by_the_night_and_by_status(fleet):
    from flows.pages.views import status
    from flows.score import score

    made, file = fleet
    score(fleet_file=file, day=fleets.night(7))
    shutil.rmtree(made.settings.folder / "history" / "s01")
    report = score(fleet_file=file, day=fleets.night(8))
    said = {outcome.sensor: outcome.text for outcome in report.outcomes}
    assert list(said) == ["s00", "s01", "s02"] and said["s01"].startswith("skipped: no history is found")
    [note] = [note for note in report.notes if "no history is found" in note]
    assert "s01" in note and "history.catalog" in note
    assert status(open_fleet(made.settings))["absent"] == ["s01"]
    assert "with a model and no history: s01" in CliRunner().invoke(app, ["status", "-f", file]).stdout


def test_an_unknown_sensor_is_an_error_before_anything_runs(fleet):
    from flows.score import score
    from paano.errors import UnknownSensor

    _, file = fleet
    with pytest.raises(UnknownSensor, match="s00"):
        score(fleet_file=file, day=fleets.night(7), sensors=["s0O"])


@batch_task("shaky", "shaky {batch.name}")
def shaky(batch, settings, versions, folder):
    """Fails once with what is transient, always with what is not, else succeeds."""
    from pathlib import Path

    name = batch.sensors[0]
    tries = Path(folder) / name
    tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
    if name == "away" and len(tries.read_text()) < 2:
        raise StorageUnavailable("503")
    if name == "broken":
        raise ConfigError("no use in trying again")
    return [ok(name)]


def test_only_what_is_transient_is_tried_again_and_a_lost_batch_loses_only_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(fanout, "BACK_OFF", [0.01])
    settings = fleets.settings_of(tmp_path)
    seen = []

    @flow
    def run():
        batches = plan_sensors(["away", "broken", "fine"], 10)
        with watching(lambda what, done, total: seen.append((what, done, total))):
            return fan_out("shaky", shaky, batches, settings, {"versions": {}}, folder=str(tmp_path))

    outcomes = {outcome.sensor: outcome for outcome in run()}
    assert [outcomes[name].state for name in ("away", "broken", "fine")] == ["ok", "failed", "ok"]
    assert outcomes["broken"].reason == "no use in trying again"
    assert (tmp_path / "away").read_text() == "xx"
    assert (tmp_path / "broken").read_text() == "x"
    assert seen[0] == ("shaky", 0, 3)
    assert seen[-1] == ("shaky", 3, 3)


@batch_task("stuck", "stuck {batch.name}")
def stuck(batch, settings, versions):
    import time

    for _ in range(2000):
        time.sleep(0.01)


def test_a_batch_that_takes_too_long_is_given_up(tmp_path):
    settings = fleets.settings_of(tmp_path, run={"time_limit": "1s"})

    @flow
    def run():
        return fan_out("stuck", stuck, plan_sensors(["slow"], 1), settings, {"versions": {}})

    (outcome,) = run()
    assert outcome == Outcome(
        "slow", "failed", "batch 1 of 1 took longer than run.time_limit and was given up", 1
    )


def test_a_backfill_through_the_flow_equals_nights_through_the_flow(fleet, tmp_path):
    from flows.backfill import backfill
    from flows.score import score

    made, file = fleet
    other = fleets.copy(made, tmp_path / "other")
    for number in (6, 7, 8):
        score(fleet_file=file, day=fleets.night(number))
    report = backfill(
        fleet_file=fleets.write_fleet_file(other.settings), first=fleets.night(6), last=fleets.night(8)
    )
    assert report.figure("rows") == 3 * 3 * 48
    assert fleets.objects(other) == fleets.objects(made)


def test_housekeeping_joins_closed_days_and_rows_stay_the_same(fleet):
    from flows.housekeeping import housekeeping
    from flows.score import score

    made, file = fleet
    score(fleet_file=file, day=fleets.night(7))
    before = made.scores.read_many(None, fleets.window_of(7))
    made.scores.store.delete([info.key for info in made.scores.store.list()])
    old_store.begin(made.scores, 8)  # only version 0.1 wrote objects small enough to be joined
    old_store.write(made.scores, date.fromisoformat(fleets.night(7)), 8, before)
    today = (fleets.START + timedelta(days=40)).date().isoformat()
    done = housekeeping(fleet_file=file, today=today)
    assert done["scores_objects_after"] == 1 < done["scores_objects_before"]
    assert open_fleet(made.settings).scores.read_many(None, fleets.window_of(7)).equals(before)


def test_scoring_one_sensor_again_keeps_the_outcomes_of_the_whole_night(fleet):
    from flows.pages.views import last_outcomes
    from flows.score import score

    made, file = fleet
    day = date.fromisoformat(fleets.night(7))
    whole = score(fleet_file=file, day=day.isoformat())
    assert sum(last_outcomes(made.settings, day).values()) == 3
    score(fleet_file=file, day=day.isoformat(), sensors=["s01"])
    assert last_outcomes(made.settings, day) == {k: v for k, v in whole.counts.items() if v}


def test_outcomes_kept_by_the_version_before_still_count_until_a_sensor_is_run_again(fleet):
    import polars as pl

    from flows.run.report import last_outcomes
    from flows.score import score

    made, file = fleet
    day = date.fromisoformat(fleets.night(7))
    old = made.settings.folder / "runs" / "score" / f"{day}.parquet"
    old.parent.mkdir(parents=True)
    outcomes = ["failed: no history", "failed: no history", "skipped: no_model: few points"]
    pl.DataFrame({"sensor": ["s00", "s01", "s02"], "outcome": outcomes, "batch": 1}).write_parquet(old)
    assert last_outcomes(made.settings, day) == {"failed": 2, "skipped": 1}
    score(fleet_file=file, day=day.isoformat(), sensors=["s01"])
    assert last_outcomes(made.settings, day) == {"failed": 1, "skipped": 1, "ok": 1}


def test_housekeeping_is_tried_again_as_often_as_the_fleet_file_says(tmp_path, monkeypatch):
    from flows.housekeeping import housekeeping

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    away = {"tracking_uri": "http://127.0.0.1:9"}
    settings = fleets.settings_of(tmp_path, registry=away, run={"retries": 0})
    began = time.monotonic()
    with pytest.raises(RegistryUnavailable):
        housekeeping(fleet_file=fleets.write_fleet_file(settings), compact=False)
    assert time.monotonic() - began < 30, "it waited for another try"

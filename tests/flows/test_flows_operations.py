"""`paano calendar` and `paano event`, as a person types them, on a fleet with stored events."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from typer.testing import CliRunner

from flows.cli.app import app
from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from storage.tables.events import EVENT_SCHEMA
from storage.window import Window

START = datetime(2026, 11, 16, 3, tzinfo=UTC)


@pytest.fixture
def fleet_file(tmp_path):
    path = tmp_path / "fleet.toml"
    (tmp_path / "catalog.csv").write_text("sensor\npump-1\npump-2\npump-9\n")
    path.write_text('[schedule]\ntimezone = "Europe/Rome"\n[history]\ncatalog = "catalog.csv"\n')
    fleet = open_fleet(Settings.load(path))
    rows = [
        {
            "event_id": f"id-{n}", "sensor": f"pump-{n}", "start": START, "end": START + timedelta(hours=n),
            "peak": START, "score": 2.0, "severity": 3.0, "length": 10, "channels": [], "cause": "level",
            "model_version": 1,
        }
        for n in (1, 2)
    ]  # fmt: skip
    fleet.events.update(pl.DataFrame(rows, schema=EVENT_SCHEMA), Window.day(START.date()))
    return str(path)


def paano(*words: str, file: str):
    return CliRunner().invoke(app, [*words, "--file", file])


def test_a_period_is_added_listed_and_removed(fleet_file):
    words = ("--from", "2026-12-01", "--to", "2026-12-03", "--mute", "--reason", "overhaul", "--json")
    added = json.loads(paano("calendar", "add", "pump-7", *words, file=fleet_file).stdout)
    listed = json.loads(paano("calendar", "list", "--json", file=fleet_file).stdout)
    assert listed == [added]
    assert (added["sensor"], added["what"], added["reason"]) == ("pump-7", "mute", "overhaul")
    assert paano("calendar", "remove", added["id"], file=fleet_file).exit_code == 0
    assert json.loads(paano("calendar", "list", "--json", file=fleet_file).stdout) == []
    assert paano("calendar", "remove", added["id"], file=fleet_file).exit_code == 2


def test_a_period_that_cannot_be_is_refused_and_nothing_is_written(fleet_file, tmp_path):
    wrong = paano("calendar", "add", "x", "--from", "2026-12-03", "--to", "2026-12-01", file=fleet_file)
    assert wrong.exit_code == 2 and "before it starts" in wrong.output
    assert not (tmp_path / "calendar.csv").exists()


def test_verdicts_on_events_are_kept_and_give_the_precision(fleet_file):
    assert paano("event", "confirm", "id-1", "--by", "Ada", file=fleet_file).exit_code == 0
    said = json.loads(paano("event", "dismiss", "id-2", "--json", "--by", "Ada", file=fleet_file).stdout)
    assert said == [{"sensor": "pump-2", "event": "id-2", "verdict": "dismissed", "by": "Ada"}]
    rows = json.loads(paano("event", "list", "--json", file=fleet_file).stdout)
    assert [(row["sensor"], row["precision"]) for row in rows] == [("pump-2", 0.0), ("pump-1", 1.0)]


def test_an_unknown_event_refuses_the_whole_call(fleet_file):
    wrong = paano("event", "confirm", "id-1", "nosuch", file=fleet_file)
    assert wrong.exit_code == 2 and "paano events" in wrong.output
    assert json.loads(paano("event", "list", "--json", file=fleet_file).stdout) == []


def test_labels_of_another_service_are_imported(fleet_file, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text(
        "StartTime,EndTime,Rating,Equipment\n2026-11-01T10:00,2026-11-01T11:00,ANOMALY,pump-9\n"
    )
    assert paano("event", "import", str(labels), file=fleet_file).exit_code == 0
    assert json.loads(paano("event", "list", "--json", file=fleet_file).stdout)[0]["sensor"] == "pump-9"


def test_labels_are_not_read_from_what_is_no_file(fleet_file):
    wrong = paano("event", "import", "/dev/zero", file=fleet_file)
    assert wrong.exit_code == 2 and "is no file" in wrong.output


def test_labels_of_sensors_that_the_fleet_lacks_refuse_the_whole_file_unless_they_are_allowed(
    fleet_file, tmp_path
):
    labels = tmp_path / "labels.csv"
    row = "2026-11-01T10:00,2026-11-01T11:00,ANOMALY"
    labels.write_text(f"StartTime,EndTime,Rating,Equipment\n{row},pump-1\n{row},Pump-2\n{row},p3\n")
    wrong = paano("event", "import", str(labels), file=fleet_file)
    said = " ".join(wrong.output.split())
    assert wrong.exit_code == 2 and "'Pump-2', 'p3'" in said and "pump-1" not in said
    assert "--allow-unknown" in said and "paano sensors" in said
    assert json.loads(paano("event", "list", "--json", file=fleet_file).stdout) == []
    assert paano("event", "import", str(labels), "--allow-unknown", file=fleet_file).exit_code == 0
    rows = json.loads(paano("event", "list", "--json", file=fleet_file).stdout)
    assert sorted(row["sensor"] for row in rows) == ["Pump-2", "p3", "pump-1"]


def test_paano_events_shows_what_people_said_and_goes_on_without_a_damaged_verdict(fleet_file, tmp_path):
    paano("event", "confirm", "id-1", "--by", "Ada", file=fleet_file)
    words = ("events", "--since", "2026-11-16", "--until", "2026-11-16", "--json")
    rows = json.loads(paano(*words, file=fleet_file).stdout)
    assert {row["sensor"]: row["verdict"] for row in rows} == {"pump-1": "confirmed", "pump-2": None}
    for path in (tmp_path / "verdicts").rglob("*.parquet"):
        path.write_bytes(b"damaged")
    damaged = paano(*words, file=fleet_file)
    assert damaged.exit_code == 0 and len(json.loads(damaged.stdout)) == 2
    assert "verdicts are not shown" in damaged.stderr

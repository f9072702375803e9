"""The `paano` command: quick, with an example everywhere, errors in one paragraph, exit codes for scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import fleets
import pytest
import typer
from typer.testing import CliRunner

from flows.cli.app import app
from flows.work.model.training import retrain_sensor
from flows.work.night.night import score_days

ISSUED = {
    "init", "demo", "score", "retrain", "refresh", "backfill", "review", "status", "sensors", "events",
    "report", "ui", "show", "remove-day", "evaluate", "serve", "compact", "sweep", "doctor", "calendar",
    "event",
}  # fmt: skip


def walk(command, path=("paano",)):
    """(words, command) of every command that does something."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from walk(inner, (*path, name))
    else:
        yield path, command


COMMANDS = list(walk(typer.main.get_command(app)))


def call(*words, code=0):
    """The output of `paano WORDS…`, which must end with exit code `code`."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + str(result.exception)
    return result


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Two sensors, trained and scored for three nights; the path of the fleet file."""
    from datetime import date

    from flows.run.fleet import fix_shards

    made = fleets.make(
        tmp_path_factory.mktemp("cli") / "fleet", sensors=2, alarms={"thresholds": {"s01": 0.0}}
    )
    fix_shards(made, 2)
    for name in ("s00", "s01"):
        retrain_sensor(made, name, fleets.START + timedelta(days=6), None, "a test")
        nights = [date.fromisoformat(fleets.night(number)) for number in (7, 8, 9)]
        score_days(made, nights, [name], dict(made.registry.champions([name])))
    return fleets.write_fleet_file(made.settings)


def test_every_promised_command_is_there():
    assert {path[1] for path, _ in COMMANDS} >= ISSUED


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_every_command_has_help_with_an_example_that_parses(path, command):
    assert command.help
    assert "Example:" in (command.epilog or ""), path
    example = command.epilog.partition("[bold]")[2].partition("[/]")[0]
    assert example.startswith(" ".join(path))
    import shlex

    command.make_context(path[-1], shlex.split(example)[len(path) :])  # raises if an option is unknown


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_every_command_can_speak_json_unless_it_has_nothing_to_say(path, command):
    if path[1] not in ("init", "serve", "ui"):
        assert any("--json" in parameter.opts for parameter in command.params)


def test_help_does_not_wait_for_torch_mlflow_or_prefect():
    heavy = ("torch", "mlflow", "prefect", "polars")
    code = f"import sys, flows.cli.app; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_init_writes_a_fleet_file_once(tmp_path):
    call("init", tmp_path, "--name", "plant", "--history", "s3://plant/history")
    text = (tmp_path / "fleet.toml").read_text()
    assert 'name = "plant"' in text
    assert 'url = "s3://plant/history"' in text
    result = call("init", tmp_path, code=2)
    assert "--force" in result.stderr
    call("init", tmp_path, "--force")


def test_a_wrong_fleet_file_is_one_paragraph_and_exit_code_2(tmp_path):
    (tmp_path / "fleet.toml").write_text("[alarms]\nbudgte = 1\n")
    result = call("status", "-f", tmp_path / "fleet.toml", code=2)
    assert "budgte is unknown, did you mean budget?" in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr + result.stdout


def test_debug_shows_the_traceback(tmp_path, monkeypatch):
    from flows.cli import console

    monkeypatch.setitem(console._state, "debug", False)
    result = CliRunner().invoke(app, ["status", "-f", str(tmp_path / "none.toml"), "--debug"])
    assert result.exit_code != 0
    assert result.exception is not None and "paano init" in str(result.exception)


@pytest.mark.parametrize("words", [["score", "--day", "yesterday"], ["retrain", "--as-of", "soon"]])
def test_a_date_that_is_none_is_refused(fleet, words):
    assert "write YYYY-MM-DD" in " ".join(call(*words, "-f", fleet, code=2).stderr.split())


def test_a_prefect_that_is_not_installed_is_one_paragraph(fleet, monkeypatch):
    monkeypatch.setitem(sys.modules, "prefect", None)
    said = call("score", "-f", fleet, code=1).stderr
    assert "prefect" in said and "Traceback" not in said and len(said.splitlines()) < 6, said


def test_status_counts_the_fleet(fleet):
    facts = json.loads(call("status", "-f", fleet, "--json").stdout)
    assert facts["sensors"] == 2
    assert facts["trained_models"] == 2
    assert facts["without_model"] == 0
    assert facts["last_night"] == fleets.night(9)
    assert len(facts["events_by_day"]) == 7 and list(facts["events_by_day"])[-1] == fleets.night(9)
    assert facts["open_events"] >= 1
    text = call("status", "-f", fleet).stdout
    assert "2 trained, 0 without model" in text and "waiting for a decision" in text
    assert set(text) & set("▁▂▃▄▅▆▇█")
    assert len(text.splitlines()) < 40, "it fits a screen"


def test_a_series_is_drawn_from_its_least_to_its_greatest_value():
    import numpy as np

    from flows.cli.terminal import braille

    lines = braille(np.array([0.0, 1.0, 2.0, 3.0, np.nan, np.nan]), width=3, height=1)
    assert lines == [chr(0x2800 + 0x40 + 0x20) + chr(0x2800 + 0x02 + 0x08) + chr(0x2800)]
    assert [len(line) for line in braille(np.arange(1000.0), width=40, height=5)] == [40] * 5


def test_status_names_the_last_run_of_every_flow(fleet):
    from datetime import datetime

    from flows.run.report import run_store
    from flows.settings.fleet_file import Settings
    from storage.tables.runs import RunRow

    moment = datetime.fromisoformat(fleets.night(9))
    rows = [RunRow("s00", "ok"), RunRow("s01", "failed", "its history is damaged")]
    run_store(Settings.load(fleet), "refresh").keep(rows, moment, "a title", whole=True)
    facts = json.loads(call("status", "-f", fleet, "--json").stdout)
    row = next(row for row in facts["last_runs"] if row["flow"] == "refresh")
    assert (row["about"], row["ok"], row["failed"]) == ("a title", 1, 1)
    assert "a title" in call("status", "-f", fleet).stdout


def test_sensors_shows_model_and_last_night(fleet):
    rows = {row["sensor"]: row for row in json.loads(call("sensors", "-f", fleet, "--json").stdout)}
    assert rows["s00"]["version"] == 1
    assert rows["s01"]["anomalies"] == 48
    assert "s00" in call("sensors", "-f", fleet).stdout


def test_events_are_listed_the_worst_first(fleet):
    rows = json.loads(call("events", "s01", "-f", fleet, "--json").stdout)
    assert rows and rows[0]["sensor"] == "s01"
    assert [row["severity"] for row in rows] == sorted((row["severity"] for row in rows), reverse=True)
    assert "no events" in call("events", "--severity", "99", "-f", fleet).stdout


def test_show_draws_scores_and_writes_a_page(fleet, tmp_path):
    page = tmp_path / "page" / "s01.html"
    text = call("show", "s01", "-f", fleet, "--html", page).stdout
    assert fleets.night(7) in text and "highest score" in text and ", threshold " in text
    assert set(text) & set("▁▂▃▄▅▆▇█")
    assert any(0x2800 < ord(sign) < 0x2900 for sign in text), "the series is drawn too"
    assert 20_000 < page.stat().st_size < 300_000, "the page holds its own scripts, and stays small"
    found = json.loads(call("show", "s01", "-f", fleet, "--json").stdout)
    assert len(found["scores"]) == 3 * 48
    assert "s00" in call("show", "s0x", "-f", fleet, code=2).stderr


def test_show_writes_a_picture(fleet, tmp_path):
    picture = tmp_path / "pictures" / "s01.png"
    assert f"wrote {picture}" in call("show", "s01", "-f", fleet, "--png", picture).stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_unknown_sensor_is_a_usage_error_with_the_nearest_ids(fleet):
    for words in (["events", "s0x"], ["show", "s0x"], ["score", "s0x", "--day", fleets.night(9)]):
        assert "did you mean" in call(*words, "-f", fleet, code=2).stderr


@pytest.mark.parametrize("words", [["list"], ["approve"], ["reject"], ["rollback"]], ids=lambda w: w[0])
def test_a_reviewer_who_mistypes_a_sensor_is_told_so(fleet, words):
    assert "did you mean" in call("review", *words, "s0O", "-f", fleet, code=2).stderr


@pytest.mark.parametrize("words", [["events", "--since", "garbage"], ["show", "s01", "--until", "soon"]])
def test_a_range_that_is_none_is_a_usage_error(fleet, words):
    assert "write YYYY-MM-DD" in " ".join(call(*words, "-f", fleet, code=2).stderr.split())


@pytest.mark.parametrize(
    "words",
    [
        ["events", "--since", "0001-01-01"],
        ["show", "s01", "--until", "9999-12-31"],
        ["report", "--day", "9999-12-31"],
        ["remove-day", "0001-01-01"],
        ["score", "--day", "9999-12-31"],
        ["retrain", "--as-of", "9999-12-31T23:59:59"],
    ],
    ids=" ".join,
)
def test_a_day_at_an_end_of_the_calendar_is_a_usage_error(fleet, words):
    assert "of the years 1000 to 9000" in " ".join(call(*words, "-f", fleet, code=2).stderr.split())


def test_an_event_that_goes_on_is_listed_for_every_day_it_touches_and_marked_open(fleet):
    """The threshold of s01 is 0, so it alarms from the first night to the last."""
    rows = json.loads(call("events", "s01", "--since", fleets.night(9), "-f", fleet, "--json").stdout)
    assert rows[0]["start"] < fleets.night(8), "it began before the window"
    assert rows[0]["open"] is True
    assert rows[0]["peak"] >= rows[0]["start"]
    table = call("events", "s01", "--since", fleets.night(9), "-f", fleet).stdout
    assert "open" in table and "channels" in table
    assert f"from {fleets.night(9)} to {fleets.night(9)}, times in UTC" in table


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_a_table_cuts_nothing_however_narrow_the_screen_is(width, capsys):
    from flows.cli.console import Screen, table

    row = {
        "sensor": "line-1/pump-000017",
        "start": "2026-01-23 07:00",
        "severity": 12.0,
        "event": "71693e06d04c52ba",
    }
    row |= {"channels": "power, pressure, flow", "cause": "shape, level and next value", "note": None}
    table("events", [row, {**row, "event": "a85048643cb6e1d0"}], to=Screen(width=width))
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= width and "…" not in text
    for whole in ("line-1/pump-000017", "2026-01-23 07:00", "71693e06d04c52ba", "a85048643cb6e1d0"):
        assert whole in " ".join(text.split()), f"{whole} in one piece"


def test_an_event_that_ended_is_not_open(tmp_path):
    made = fleets.make(tmp_path / "fleet", sensors=1)
    from datetime import UTC, datetime

    import polars as pl

    from flows.pages.views import open_events
    from storage.tables.scores import SCORE_SCHEMA
    from storage.window import Window

    day = fleets.window_of(9)
    stamps = pl.datetime_range(day.start, day.end, fleets.STEP, closed="left", time_zone="UTC", eager=True)
    rows = pl.DataFrame({"ts": stamps}).select(
        sensor=pl.lit("s00"), ts="ts", score=pl.lit(1.0), threshold=pl.lit(2.0), anomaly=pl.lit(False),
        status=pl.lit("ok"), coverage=pl.lit(9), model_version=pl.lit(1),
    )  # fmt: skip
    made.scores.update(rows.cast(dict(SCORE_SCHEMA)), Window(day.start, day.end))
    last = stamps[-1]

    def ended(before: timedelta) -> dict:
        return {"event_id": "e", "sensor": "s00", "end": last - before}

    quiet = fleets.PATCH // 2 * fleets.STEP
    assert open_events(made, [ended(quiet)]) == {"e"}
    assert open_events(made, [ended(quiet + fleets.STEP)]) == set()
    assert open_events(made, [{**ended(quiet), "end": datetime(2026, 1, 1, tzinfo=UTC)}]) == set()

    silent = rows.with_columns(score=pl.lit(None), status=pl.lit("no_data"))
    made.scores.update(silent.cast(dict(SCORE_SCHEMA)), Window(day.start, day.end))
    assert open_events(made, [{**ended(timedelta(0)), "cause": "silent"}]) == {"e"}, (
        "nothing was scored at all"
    )
    assert open_events(made, [{**ended(quiet + fleets.STEP), "cause": "silent"}]) == set()


def test_a_day_can_be_taken_back(tmp_path):
    """A night scored by mistake: afterwards the night before is the last again."""
    from datetime import date

    from flows.run.fleet import fix_shards

    made = fleets.make(tmp_path / "fleet", sensors=2, alarms={"thresholds": {"s01": 0.0}})
    fix_shards(made, 2)
    for name in ("s00", "s01"):
        score_days(made, [date.fromisoformat(fleets.night(7))], [name], {})
    before = [key for key in fleets.objects(made) if "1970" not in key]
    champions = dict(made.registry.champions())
    for name in ("s00", "s01"):
        score_days(made, [date.fromisoformat(fleets.night(9))], [name], champions)
    file = fleets.write_fleet_file(made.settings)
    assert json.loads(call("status", "-f", file, "--json").stdout)["last_night"] == fleets.night(9)
    done = json.loads(call("remove-day", fleets.night(9), "--dry-run", "-f", file, "--json").stdout)
    assert done["scores"] == 96
    assert (
        f"removed 96 score rows and {done['events']} events"
        in call("remove-day", fleets.night(9), "-f", file).stdout
    )
    assert json.loads(call("status", "-f", file, "--json").stdout)["last_night"] == fleets.night(7)
    assert [key for key in fleets.objects(made) if "1970" not in key] == before
    assert "removed 0 score rows" in call("remove-day", fleets.night(9), "-f", file).stdout


def test_a_day_is_taken_back_with_all_that_was_kept_of_it_in_any_zone(tmp_path):
    """What was read, incidents and outcomes go too, and those of the day after stay."""
    from datetime import date

    from flows.run.outcome import ok
    from flows.run.report import Report, keep, night_outcomes
    from flows.work.night.incidents import open_incidents, update_incidents
    from flows.work.night.late_data import open_reads
    from flows.work.night.removal import remove_day
    from storage.window import Window

    fleet = fleets.make(
        tmp_path / "fleet",
        sensors=1,
        fleet={"name": "tiny", "timezone": "America/New_York"},
        model={"iterations": 0},
        history={"lookback": "5d"},
        alarms={"thresholds": {"s00": 0.0}, "longest": "12h"},
    )
    days = [date.fromisoformat(fleets.night(number)) for number in (7, 8)]
    score_days(fleet, days, ["s00"], {})
    for day in days:
        keep(Report("score", f"{day}", [ok("s00")], Window.day(day).start), fleet.settings)
    update_incidents(fleet, fleets.window_of(7).widen(after=timedelta(days=2)))
    done = remove_day(fleet, days[1])
    assert done["scores"] == 48 and done["events"] and done["reads"] == 1 and done["runs"] == 1
    assert night_outcomes(fleet.settings, days[0]) and not night_outcomes(fleet.settings, days[1])
    whole = fleets.window_of(7).widen(after=timedelta(days=3))
    assert open_reads(fleet).read_many(None, whole).height == 1
    known = set(fleet.events.read_many(None, whole)["event_id"])
    told = {event for row in open_incidents(fleet).read_many(None, whole)["events"] for event in row}
    assert known and told == known


HOSTILE = "<img src=x onerror=alert(1)>[/]\x1b[31m:smile: $x$ `b`|c"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A fleet whose one sensor has a name made to break terminals, pages and pictures."""
    from datetime import date

    from flows.run.fleet import fix_shards

    made = fleets.make(
        tmp_path_factory.mktemp("hostile") / "fleet", sensors=0, alarms={"thresholds": {HOSTILE: 0.0}}
    )
    fleets.write_sensor(made.settings, HOSTILE, fleets.signal(1, 10 * 48))
    fix_shards(made, 1)
    score_days(made, [date.fromisoformat(fleets.night(9))], [HOSTILE], {})
    return fleets.write_fleet_file(made.settings)


@pytest.mark.parametrize(
    "words", [["sensors"], ["events"], ["status"], ["show", HOSTILE], ["review", "list"]], ids=lambda w: w[0]
)
def test_a_hostile_name_is_shown_as_it_is_and_moves_no_cursor(hostile, words):
    text = call(*words, "-f", hostile).stdout
    assert "\x1b[31m" not in text
    if words[0] in ("sensors", "events"):
        assert "[/]\\x1b[31m:smile:" in text


def test_a_hostile_name_can_be_approved_and_drawn(hostile, tmp_path):
    assert "\x1b" not in call("review", "approve", HOSTILE, "--version", "1", "-f", hostile).stdout
    call("show", HOSTILE, "-f", hostile, "--png", tmp_path / "a.png", "--html", tmp_path / "a.html")
    assert "<img src=x" not in (tmp_path / "a.html").read_text()
    assert "\x1b" not in call("events", HOSTILE + "x", "-f", hostile, code=2).stderr


def test_a_reviewer_can_list_approve_and_roll_back(fleet):
    assert "no challenger" in call("review", "list", "-f", fleet).stdout
    result = call("review", "approve", "s00", "-f", fleet, code=1)
    assert "no challenger" in result.stderr
    assert json.loads(call("review", "approve", "s00", "--version", "1", "-f", fleet, "--json").stdout) == {
        "sensor": "s00", "version": 1, "now": "is champion now",
    }  # fmt: skip


def test_doctor_finds_a_healthy_fleet_healthy(fleet):
    findings = json.loads(call("doctor", "-f", fleet, "--json").stdout)
    assert {finding["check"] for finding in findings} == {
        "fleet file", "versions", "variables", "history", "scores", "events", "registry", "prefect", "device",
        "space", "packages",
    }  # fmt: skip
    assert [finding for finding in findings if finding["state"] == "bad"] == []
    folder = Path(fleet).parent
    assert not list(folder.rglob("doctor-*")), "it leaves nothing behind"


def test_doctor_says_when_what_mlflow_runs_was_changed(fleet):
    [first, *_] = sorted(Path(fleet).parent.rglob("scoring.py"))
    kept = first.read_bytes()
    first.write_bytes(kept + b"import os\n")
    try:
        findings = json.loads(call("doctor", "-f", fleet, "--json").stdout)
    finally:
        first.write_bytes(kept)
    [warned] = [f for f in findings if f["check"] == "registry" and f["state"] == "warn"]
    assert "was changed after it was registered" in warned["says"] and "paano retrain" in warned["remedy"]


def test_doctor_names_what_is_wrong_and_how_to_mend_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PAANO_ALARM__BUDGET", "1")
    settings = fleets.settings_of(tmp_path, registry={"tracking_uri": "http://127.0.0.1:9"})
    file = fleets.write_fleet_file(settings)
    monkeypatch.setenv("PREFECT_API_URL", "http://user:hush@127.0.0.1:9/api")
    result = call("doctor", "-f", file, "--json", code=1)
    findings = {(f["check"], f["state"]): f for f in json.loads(result.stdout)}
    assert findings["variables", "warn"]["remedy"] == "did you mean PAANO_ALARMS__BUDGET?"
    assert "history.url" in findings["history", "bad"]["remedy"]
    assert ("registry", "bad") in findings
    assert "PREFECT_API_URL" in findings["prefect", "bad"]["remedy"]
    assert all(finding["remedy"] for (_, state), finding in findings.items() if state != "ok")
    assert "hush" not in result.stdout


@pytest.mark.parametrize(
    ("package", "number", "effect"),
    [
        ("fastapi", "0.156.0", "does not import"),
        ("fastapi", "0.152.1", "HTTP 422"),
        ("sqlalchemy", "2.1.8", "never creates a scheduled run"),
    ],
)
def test_doctor_knows_the_combinations_that_do_not_work(package, number, effect):
    from importlib.metadata import version

    from flows.cli.doctor import versions

    found = list(versions(lambda name: number if name == package else version(name)))
    assert any(f.state == "bad" and effect in f.says and f"{package}<" in f.remedy for f in found)

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

from flows.cli import app
from flows.scoring import score_nights
from flows.training import retrain_sensor

ISSUED = {
    "init", "demo", "score", "retrain", "refresh", "backfill", "review", "status", "sensors", "events",
    "show", "evaluate", "serve", "compact", "sweep", "doctor",
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

    from flows.parts import fix_shards

    parts = fleets.make(
        tmp_path_factory.mktemp("cli") / "fleet", sensors=2, alarms={"thresholds": {"s01": 0.0}}
    )
    fix_shards(parts, 2)
    for name in ("s00", "s01"):
        retrain_sensor(parts, name, fleets.START + timedelta(days=6), None, "a test")
        nights = [date.fromisoformat(fleets.night(number)) for number in (7, 8, 9)]
        score_nights(parts, nights, [name], dict(parts.registry.champions([name])))
    return fleets.write_fleet_file(parts.settings)


def test_every_command_of_the_issue_is_there():
    assert {path[1] for path, _ in COMMANDS} == ISSUED


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
    if path[1] not in ("init", "serve"):
        assert any("--json" in parameter.opts for parameter in command.params)


def test_help_does_not_wait_for_torch_mlflow_or_prefect():
    heavy = ("torch", "mlflow", "prefect", "polars")
    code = f"import sys, flows.cli; print([name for name in {heavy} if name in sys.modules])"
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
    from flows import console

    monkeypatch.setitem(console._state, "debug", False)
    result = CliRunner().invoke(app, ["status", "-f", str(tmp_path / "none.toml"), "--debug"])
    assert result.exit_code != 0
    assert result.exception is not None and "paano init" in str(result.exception)


@pytest.mark.parametrize("words", [["score", "--day", "yesterday"], ["retrain", "--as-of", "soon"]])
def test_a_date_that_is_none_is_refused(fleet, words):
    assert "write YYYY-MM-DD" in " ".join(call(*words, "-f", fleet, code=2).stderr.split())


def test_status_counts_the_fleet(fleet):
    facts = json.loads(call("status", "-f", fleet, "--json").stdout)
    assert facts["sensors"] == 2
    assert facts["trained_models"] == 2
    assert facts["without_model"] == 0
    assert facts["last_night"] == fleets.night(9)
    assert "trained models" in call("status", "-f", fleet).stdout


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
    assert fleets.night(8) in text
    assert set(text) & set("▁▂▃▄▅▆▇█")
    assert page.stat().st_size > 100_000, "the page holds its own plotly"
    found = json.loads(call("show", "s01", "-f", fleet, "--json").stdout)
    assert len(found["scores"]) == 3 * 48
    assert "s00" in call("show", "s0x", "-f", fleet, code=1).stderr


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
        "space",
    }  # fmt: skip
    assert [finding for finding in findings if finding["state"] == "bad"] == []
    folder = Path(fleet).parent
    assert not list(folder.rglob("doctor-*")), "it leaves nothing behind"


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

    from flows.doctor import versions

    found = list(versions(lambda name: number if name == package else version(name)))
    assert any(f.state == "bad" and effect in f.says and f"{package}<" in f.remedy for f in found)

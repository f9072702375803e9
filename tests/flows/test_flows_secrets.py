"""Failing commands beside secrets: none is found on the screen, in a file that was written, or in Prefect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fleets
import pytest

from flows.run.report import version_link

PASSWORD = "hunter22%2Fsecret"
KEY = "wJalrXUtnFEMI/K7MDENG%bPxRfiCYEXAMPLEKEY"
COMMANDS = [
    ["doctor"],
    ["status"],
    ["sensors"],
    ["score", "--day", fleets.night(8)],
    ["retrain", "s00"],
    ["review", "list"],
    ["sweep"],
]
AWAY = {
    "HTTP": {"registry": {"tracking_uri": f"http://ada:{PASSWORD}@127.0.0.1:9"}},
    "PostgreSQL": {"registry": {"tracking_uri": f"postgresql://ada:{PASSWORD}@127.0.0.1:9/mlflow"}},
    "another database": {"registry": {"tracking_uri": f"oracle://ada:{PASSWORD}@127.0.0.1:9/mlflow"}},
    "S3": {"scores": {"url": "s3://bucket/scores"}, "storage": {"endpoint": "http://127.0.0.1:9"}},
    "store with a password": {"scores": {"url": f"ftp://ada:{PASSWORD}@127.0.0.1:9/scores"}},
    "a malformed credentials file": {"storage": {"credentials": "credentials"}},
}


def run(folder: Path, command: list[str]) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"AWS_SECRET_ACCESS_KEY": KEY, "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE"}
    environment |= {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "PAANO_RUN__RETRIES": "0"}
    where = ["-f", str(folder / "fleet.toml")]
    main = [sys.executable, "-c", "from flows.cli.app import main; main()"]
    return subprocess.run([*main, *command, *where], capture_output=True, env=environment, timeout=300)


def leaks(folder: Path, done: subprocess.CompletedProcess[bytes]) -> list[str]:
    """Where a secret was found; the fleet file and the credentials file hold theirs by right."""
    places = {"stdout": done.stdout, "stderr": done.stderr}
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("fleet.toml", "credentials") and "history" not in path.parts:
            places[str(path.relative_to(folder))] = path.read_bytes()
    secrets = (b"hunter22", KEY.encode(), KEY.encode()[:20])
    return [name for name, data in places.items() if any(secret in data for secret in secrets)]


def check(tmp_path: Path, changes: dict[str, dict[str, str]], command: list[str]) -> None:
    folder = tmp_path / "fleet"
    settings = fleets.settings_of(folder, **changes)
    for number in range(2):
        fleets.write_sensor(settings, f"s{number:02d}", fleets.signal(number, 480))
    fleets.write_fleet_file(settings)
    (folder / "credentials").write_text(f"[default\naws_secret_access_key {KEY}\n")
    for debug in ([], ["--debug"]):
        done = run(folder, [*command, *debug])
        assert leaks(folder, done) == [], (done.stdout[-2000:], done.stderr[-2000:])
        if not debug:
            assert b"Traceback" not in done.stderr, done.stderr.decode()[-2000:]


@pytest.mark.parametrize("what", ["PostgreSQL", "a malformed credentials file"])
def test_a_failing_command_shows_no_secret(tmp_path, what):
    check(tmp_path, AWAY[what], ["status"])


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("what", AWAY)
def test_no_failing_command_shows_a_secret(tmp_path, what, command):
    check(tmp_path, AWAY[what], command)


def test_links_to_the_registry_hold_no_password(tmp_path):
    settings = fleets.settings_of(tmp_path, registry={"tracking_uri": f"http://ada:{PASSWORD}@mlflow:5000"})
    assert version_link(settings, "s00", 3) == "[version 3](http://mlflow:5000/#/models/tiny.s00/versions/3)"

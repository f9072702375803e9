"""Events for Prefect's automations, read back from a real Prefect server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from flows.messages.message import About, Message
from flows.messages.send import deliver_waiting, offer
from flows.settings.fleet_file import Settings

MOMENT = datetime.now(UTC).replace(microsecond=0)


def message(subject: str, group: str = "line-1") -> Message:
    return Message(
        f"incident/{subject}/8",
        About.INCIDENT,
        "plant: line-1, severity 4.2",
        ("First to move: pump-3",),
        severity=4.2,
        group=group,
        cause="level",
        start=MOMENT,
        facts={"fleet": "plant", "subject": subject, "sensors": "pump-3 pump-4"},
    )


def fleet(folder: Path) -> Settings:
    (folder / "fleet.toml").write_text('[fleet]\nname = "plant"\n')
    return Settings.load(folder / "fleet.toml")


def arrived(subject: str, seconds: float = 60) -> list[dict]:
    """The fleet's events about `subject` that the server has, as soon as there is one."""
    asked = {
        "filter": {
            "resource": {"id": ["paano.fleet.plant"]},
            "occurred": {"since": (MOMENT - timedelta(hours=1)).isoformat()},
        }
    }
    deadline = time.monotonic() + seconds
    while True:
        request = urllib.request.Request(
            f"{PREFECT_API_URL.value()}/events/filter",
            json.dumps(asked).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            events = json.load(answer)["events"]
        found = [event for event in events if event["resource"]["paano.subject"] == subject]
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


@pytest.mark.usefixtures("prefect")
def test_an_incident_arrives_at_the_server_once_with_all_that_an_automation_needs(tmp_path):
    settings = fleet(tmp_path)
    assert offer(settings, message("first"), MOMENT, 8) == 1
    assert deliver_waiting(settings, MOMENT) == (1, [])
    (event,) = arrived("first")
    assert event["event"] == "paano.incident"
    assert event["resource"]["prefect.resource.id"] == "paano.fleet.plant"
    payload = event["payload"]
    assert (payload["severity"], payload["group"], payload["cause"]) == (4.2, "line-1", "level")
    assert payload["text"] == "First to move: pump-3" and payload["facts"]["sensors"] == "pump-3 pump-4"
    # said again, it is no second event; a later one shows that the server has had the time
    assert offer(settings, message("first"), MOMENT, 8) == 0
    offer(settings, message("second", "line-2"), MOMENT, 8)
    assert deliver_waiting(settings, MOMENT) == (1, [])
    assert len(arrived("second")) == len(arrived("first")) == 1


@pytest.mark.usefixtures("prefect")
def test_an_event_of_a_command_that_ends_at_once_arrives_too(tmp_path):
    offer(fleet(tmp_path), message("of a command"), MOMENT, 8)
    done = subprocess.run(
        [str(Path(sys.executable).parent / "paano"), "notify", "send", "-f", str(tmp_path / "fleet.toml")],
        env={**os.environ, "PREFECT_API_URL": PREFECT_API_URL.value()},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "sent 1" in done.stdout, done.stdout + done.stderr
    assert len(arrived("of a command")) == 1

"""A small fleet with events, a hostile sensor, one without data and one without a model; a browser."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "flows"))

import fleets  # (the path comes first)
from hostile import HOSTILE


@pytest.fixture(scope="session")
def fleet(tmp_path_factory):
    """Scored for three nights by untrained models; `HOSTILE` and s00 alarm all the time."""
    from flows.run.fleet import fix_shards
    from flows.work.night.night import score_days

    made = fleets.make(
        tmp_path_factory.mktemp("pages") / "fleet",
        sensors=3,
        alarms={"thresholds": {HOSTILE: 0.0, "s00": 0.0}},
        fleet={"timezone": "Europe/Rome"},
        model={"level": "tail"},
    )
    fleets.write_sensor(made.settings, HOSTILE, fleets.signal(7, 10 * 48))
    silent = fleets.signal(8, 10 * 48)
    silent[8 * 48 :] = np.nan
    fleets.write_sensor(made.settings, "silent", silent)
    fleets.write_sensor(made.settings, "young", fleets.signal(9, 20), start=fleets.START.replace(day=11))
    fleets.write_fleet_file(made.settings)
    from flows.run.fleet import open_fleet
    from flows.settings.fleet_file import Settings

    made = open_fleet(Settings.load(made.settings.folder / "fleet.toml"))
    names = made.history.sensors().sensors
    fix_shards(made, len(names))
    nights = [date.fromisoformat(fleets.night(number)) for number in (7, 8, 9)]
    versions: dict = {}
    for name in names:
        score_days(made, nights, [name], versions)
    return made


@pytest.fixture(scope="session")
def last_night() -> date:
    return date.fromisoformat(fleets.night(9))


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """Chromium, one for all tests: it takes seconds to start."""
    from chromium import chromium, why_not

    if reason := why_not():
        pytest.skip(reason)
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="session")
def live_view(fleet):
    """The address of `paano ui`, served by a process of its own."""
    import os
    import re
    import subprocess

    words = [sys.executable, "-m", "flows.cli.app", "ui", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*words, "-f", str(fleet.settings.folder / "fleet.toml")],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        yield re.search(r"http://127\.0\.0\.1:\d+", line)[0]
    finally:
        process.terminate()
        process.wait(timeout=30)

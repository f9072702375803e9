"""`paano serve` with a schedule a minute ahead, on a Prefect server that it starts itself."""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fleets
import pytest

from flows.parts import open_parts
from flows.servers import running
from storage.window import Window


def test_a_schedule_really_runs_the_nightly_flow(tmp_path):
    """The history ends now, as the flow's own clock decides which night is scored."""
    yesterday = (datetime.now(UTC) - timedelta(days=1)).date()
    start = Window.day(yesterday).start - timedelta(days=4)
    folder = tmp_path / "fleet"
    settings = fleets.settings_of(
        folder,
        schedule={"score": "* * * * *", "retrain": "", "housekeeping": ""},
        model={"iterations": 0},
        history={"lookback": "4d"},
    )
    fleets.new_registry(settings)
    for number in range(2):
        fleets.write_sensor(settings, f"s{number:02d}", fleets.signal(number, 6 * 48), start)
    file = fleets.write_fleet_file(settings)
    environment = {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_LOGGING_LEVEL": "INFO"}
    command = [str(Path(sys.executable).parent / "paano"), "serve", "-f", file]
    os.environ.pop("PREFECT_API_URL", None)
    parts = open_parts(settings)
    with running("paano serve", command, tmp_path / "serve.log", environment) as ended:
        deadline = time.monotonic() + 420
        while time.monotonic() < deadline:
            assert not ended(), ended()
            rows = parts.scores.read_many(["s00", "s01"], Window.day(yesterday))
            if rows.height == 2 * 48:
                break
            time.sleep(1)
        else:
            pytest.fail((tmp_path / "serve.log").read_text()[-3000:])
    assert set(rows["status"]) <= {"ok", "provisional"}

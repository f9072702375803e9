"""Run the fleet's schedule on this machine: `paano serve`. On work pools `deploy/prefect.yaml` does it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from flows.console import screen
from flows.servers import leave_on_sigterm, prefect_server
from flows.settings import Settings
from paano.errors import ConfigError


def serve_fleet(settings: Settings, fleet_file: str) -> None:
    """Serve the flows until interrupted; a Prefect server is started for it unless there is one."""
    leave_on_sigterm()
    with contextlib.ExitStack() as stack:
        if not os.environ.get("PREFECT_API_URL"):
            screen.print("starting a Prefect server …")
            address = stack.enter_context(prefect_server(Path(os.environ["PREFECT_HOME"])))
            os.environ["PREFECT_API_URL"] = address
        screen.print(f"Prefect: {os.environ['PREFECT_API_URL'].removesuffix('/api')}")
        _serve(settings, str(Path(fleet_file).resolve()))


def _serve(settings: Settings, fleet_file: str) -> None:
    from prefect import serve
    from prefect.schedules import Cron

    from flows.housekeeping import housekeeping
    from flows.refresh import refresh
    from flows.retrain import retrain
    from flows.score import score

    lines = settings.schedule
    jobs = [
        flow.to_deployment(
            name=f"{settings.fleet.name}-{flow.name}",
            schedule=Cron(cron, timezone=lines.timezone),
            parameters={"fleet_file": fleet_file},
            tags=["paano", settings.fleet.name],
            paused=False,  # Prefect pauses them when `serve` ends
        )
        for flow, cron in (
            (score, lines.score),
            (retrain, lines.retrain),
            (refresh, lines.refresh),
            (housekeeping, lines.housekeeping),
        )
        if cron
    ]
    if not jobs:
        raise ConfigError("[schedule] has no line: set schedule.score, for example")
    # One run at a time: runs of one fleet on one machine would only take each other's cores.
    serve(*jobs, limit=1, print_starting_message=True)

"""The paper's online update: recent normal data into the banks, new versions without training."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from prefect import flow, task

from flows.fanout import fan_out, open_fleet, run_name
from flows.outcome import Outcome, attempt
from flows.parts import choose_sensors, open_parts, parts_for
from flows.plan import Batch, plan_sensors
from flows.report import Report, finish
from flows.retrain import moment_of
from flows.training import refresh_sensor
from storage.registry import Version


@task(name="refresh batch", task_run_name="refresh {batch.name}")
def refresh_batch(
    batch: Batch, settings: dict[str, Any], versions: dict[str, Version], as_of: str
) -> list[Outcome]:
    """A refreshed version for each sensor of the batch that has a model."""
    parts, moment = parts_for(settings), datetime.fromisoformat(as_of)

    def refresh_one(sensor: str) -> Outcome:
        return refresh_sensor(parts, sensor, moment, versions.get(sensor))

    return [attempt(refresh_one, sensor, batch.number) for sensor in batch.sensors]


@flow(name="refresh", flow_run_name=run_name)
def refresh(fleet_file: str = "", as_of: str = "", sensors: list[str] | None = None) -> Report:
    """Refresh the models of `sensors` (by default all) with the history before `as_of` (by default today)."""
    settings = open_fleet(fleet_file)
    moment = moment_of(as_of)
    parts = open_parts(settings)
    names = choose_sensors(parts, sensors)
    champions = parts.registry.champions(names)
    batches = plan_sensors(names, settings.run.max_tasks)
    outcomes = fan_out(
        "refresh", refresh_batch, batches, settings, {"versions": champions}, as_of=moment.isoformat()
    )
    return finish(Report("refresh", f"{moment:%Y-%m-%d %H%M}", outcomes), settings)

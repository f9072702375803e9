"""The paper's online update: recent normal data into the banks, new versions without training."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from prefect import flow, task

from flows.retrain import moment_of
from flows.run.after import tell_failure, tell_reviews
from flows.run.fanout import fan_out, load_settings, run_name
from flows.run.fleet import choose_sensors, fleet_for, open_fleet
from flows.run.outcome import Outcome, attempt
from flows.run.plan import Batch, plan_sensors
from flows.run.report import Report, finish
from flows.work.model.training import refresh_sensor
from storage.registry.registry import Version
from storage.secrets import without_secrets


@task(name="refresh batch", task_run_name="refresh {batch.name}")
@without_secrets
def refresh_batch(
    batch: Batch, settings: dict[str, Any], versions: dict[str, Version], as_of: str
) -> list[Outcome]:
    """A refreshed version for each sensor of the batch that has a model."""
    fleet, moment = fleet_for(settings), datetime.fromisoformat(as_of)

    def refresh_one(sensor: str) -> Outcome:
        return refresh_sensor(fleet, sensor, moment, versions.get(sensor))

    return [attempt(refresh_one, sensor, batch.number) for sensor in batch.sensors]


@flow(name="refresh", flow_run_name=run_name, on_failure=[tell_failure], on_crashed=[tell_failure])
@without_secrets
def refresh(fleet_file: str = "", as_of: str = "", sensors: list[str] | None = None) -> Report:
    """Refresh the models of `sensors` (by default all) with the history before `as_of` (by default today)."""
    settings = load_settings(fleet_file)
    moment = moment_of(as_of, settings)
    fleet = open_fleet(settings)
    names = choose_sensors(fleet, sensors)
    champions = fleet.registry.champions(names)
    batches = plan_sensors(names, settings.run.max_tasks)
    outcomes = fan_out(
        "refresh", refresh_batch, batches, settings, {"versions": champions}, as_of=moment.isoformat()
    )
    notes = tell_reviews(settings, outcomes)
    title = f"{moment:%Y-%m-%d %H%M}"
    return finish(Report("refresh", title, outcomes, moment, bool(sensors), notes), settings)

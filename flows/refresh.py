"""The paper's online update: recent normal data into the banks, new versions without training."""

from __future__ import annotations

from prefect import flow

from flows.retrain import moment_of
from flows.run.after import tell_failure, tell_reviews
from flows.run.fanout import batch_task, fan_out, load_settings, run_name
from flows.run.fleet import choose_sensors, open_fleet
from flows.run.plan import plan_sensors
from flows.run.report import Report, finish
from flows.work.model.batches import refresh_sensors
from storage.secrets import without_secrets

refresh_batch = batch_task("refresh batch", "refresh {batch.name}")(refresh_sensors)


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
    outcomes = fan_out("refresh", refresh_batch, batches, settings, {"versions": champions}, as_of=moment)
    notes = tell_reviews(settings, outcomes)
    title = f"{moment:%Y-%m-%d %H%M}"
    return finish(Report("refresh", title, outcomes, moment, bool(sensors), notes), settings)

"""Train what is due: look at every sensor, then fit, review, register and promote those that need it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from prefect import flow
from prefect.runtime import flow_run

from flows.run.after import tell_failure, tell_reviews
from flows.run.days import day_before_now, day_window
from flows.run.fanout import batch_task, fan_out, load_settings, run_name
from flows.run.fleet import choose_sensors, fix_shards, open_fleet
from flows.run.outcome import Outcome, skipped
from flows.run.plan import plan_sensors, plan_shards
from flows.run.report import Report, finish
from flows.run.workers import FOR_TRAINING, TRAINING, get_ready, worker_processes
from flows.settings.fleet_file import Settings
from flows.work.model.batches import check_sensors, train_sensors
from flows.work.model.due import Check
from paano.network.together import GROUP
from storage.secrets import without_secrets

NIGHTS = 25  # of a sensor, which take no longer than its training

check_batch = batch_task("check batch", "check {batch.name}")(check_sensors)
train_batch = batch_task("train batch", "train {batch.name}")(train_sensors)


@flow(name="retrain", flow_run_name=run_name, on_failure=[tell_failure], on_crashed=[tell_failure])
@without_secrets
def retrain(
    fleet_file: str = "", as_of: str = "", sensors: list[str] | None = None, dry_run: bool = False
) -> Report:
    """Retrain what is due, or `sensors` in any case, on the history before `as_of` (by default today)."""
    settings = load_settings(fleet_file)
    moment = moment_of(as_of, settings)
    fleet = open_fleet(settings)
    names = choose_sensors(fleet, sensors)
    get_ready(settings, NIGHTS * len(names), FOR_TRAINING)
    shards = fix_shards(fleet, len(names))
    champions = fleet.registry.champions(names)
    half = max(1, settings.run.max_tasks // 2)  # two rounds share the limit of task runs

    batches = plan_shards(names, shards, half)
    known: dict[str, Mapping[str, Any]] = {"versions": champions}
    found = fan_out("check", check_batch, batches, settings, known, as_of=moment, asked=bool(sensors))
    checks = [check for check in found if isinstance(check, Check)]
    outcomes = [outcome for outcome in found if isinstance(outcome, Outcome)]  # of batches that were lost
    outcomes += [skipped(check.sensor, "not due", **check.figures) for check in checks if not check.due]

    due = {check.sensor: check.why for check in checks if check.due and not dry_run}
    if dry_run:
        waiting = [check for check in checks if check.due]
        outcomes += [skipped(c.sensor, f"due: {c.why}; would help: {c.advice}", **c.figures) for c in waiting]
    # On a GPU several sensors are trained at once, so a batch holds several.
    together = GROUP if settings.run.device == "cuda" else 1
    batches = plan_sensors(due, min(half, max(1, -(-len(due) // together))))
    known["why"] = due
    share = gpu_share(settings)
    with worker_processes(settings, NIGHTS * len(due), flow_run.id or "", TRAINING):
        outcomes += fan_out("train", train_batch, batches, settings, known, gpus=share, as_of=moment)
    title, facts = f"{moment:%Y-%m-%d %H%M}", {"due": len(due)}
    notes = tell_reviews(settings, outcomes)
    return finish(Report("retrain", title, outcomes, moment, bool(sensors), notes, facts), settings)


def moment_of(as_of: str, settings: Settings) -> datetime:
    """The given moment in UTC; by default the end of the fleet's day before now."""
    if not as_of:
        return day_window(settings, day_before_now(settings)).end
    moment = datetime.fromisoformat(as_of)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def gpu_share(settings: Settings) -> float:
    """How much of a GPU a training batch takes: nothing where models compute on the CPU."""
    return settings.run.gpus if settings.run.device == "cuda" and settings.run.engine != "local" else 0.0

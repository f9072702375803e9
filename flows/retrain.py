"""Train what is due: look at every sensor, then fit, review, register and promote those that need it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from prefect import flow, task

from flows.run.after import tell_failure, tell_reviews
from flows.run.days import day_before_now, day_window
from flows.run.engine import gpu_slot
from flows.run.fanout import fan_out, load_settings, run_name
from flows.run.fleet import choose_sensors, fix_shards, fleet_for, open_fleet
from flows.run.outcome import Outcome, attempt, skipped
from flows.run.plan import Batch, plan_sensors, plan_shards, shard_members
from flows.run.report import Report, finish
from flows.settings.fleet_file import Settings
from flows.work.model.due import Check, check_shard
from flows.work.model.training import retrain_group, retrain_sensor
from paano.device import pick_device
from paano.network.together import GROUP
from storage.registry.registry import Version
from storage.secrets import without_secrets


@task(name="check batch", task_run_name="check {batch.name}")
@without_secrets
def check_batch(
    batch: Batch, settings: dict[str, Any], versions: dict[str, Version], as_of: str, asked: bool
) -> list[Check]:
    """Which sensors of the batch need a new model."""
    fleet, moment = fleet_for(settings), datetime.fromisoformat(as_of)
    return [
        check
        for members in shard_members(batch, fleet.scores.shards)
        for check in check_shard(fleet, members, versions, moment, asked)
    ]


@task(name="train batch", task_run_name="train {batch.name}")
@without_secrets
def train_batch(
    batch: Batch, settings: dict[str, Any], versions: dict[str, Version], as_of: str, why: dict[str, str]
) -> list[Outcome]:
    """A new version for each sensor of the batch."""
    fleet, moment = fleet_for(settings), datetime.fromisoformat(as_of)
    run = fleet.settings.run
    device = str(pick_device(run.device))
    if device.startswith("cuda"):
        with gpu_slot(device, run.engine):
            return retrain_group(fleet, batch.sensors, moment, versions, why, batch.number)

    def train_one(sensor: str) -> Outcome:
        return retrain_sensor(fleet, sensor, moment, versions.get(sensor), why[sensor])

    return [attempt(train_one, sensor, batch.number) for sensor in batch.sensors]


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
    shards = fix_shards(fleet, len(names))
    champions = fleet.registry.champions(names)
    half = max(1, settings.run.max_tasks // 2)  # two rounds share the limit of task runs

    batches = plan_shards(names, shards, half)
    when = moment.isoformat()
    known: dict[str, Mapping[str, Any]] = {"versions": champions}
    found = fan_out("check", check_batch, batches, settings, known, as_of=when, asked=bool(sensors))
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
    outcomes += fan_out("train", train_batch, batches, settings, known, gpus=gpu_share(settings), as_of=when)
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

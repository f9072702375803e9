"""Train what is due: look at every sensor, then fit, review, register and promote those that need it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect import flow, task

from flows.due import Check, check_shard
from flows.engine import gpu_slot
from flows.fanout import day_before_now, fan_out, open_fleet, run_name
from flows.outcome import Outcome, attempt, skipped
from flows.parts import choose_sensors, fix_shards, open_parts, parts_for
from flows.plan import Batch, plan_sensors, plan_shards, shard_members
from flows.report import Report, finish
from flows.settings import Settings
from flows.together import GROUP
from flows.training import retrain_group, retrain_sensor
from paano.device import pick_device
from storage.registry import Version
from storage.window import Window


@task(name="check batch", task_run_name="check {batch.name}")
def check_batch(
    batch: Batch, settings: dict[str, Any], versions: dict[str, Version], as_of: str, asked: bool
) -> list[Check]:
    """Which sensors of the batch need a new model."""
    parts, moment = parts_for(settings), datetime.fromisoformat(as_of)
    return [
        check
        for members in shard_members(batch, parts.scores.shards)
        for check in check_shard(parts, members, versions, moment, asked)
    ]


@task(name="train batch", task_run_name="train {batch.name}")
def train_batch(
    batch: Batch, settings: dict[str, Any], versions: dict[str, Version], as_of: str, why: dict[str, str]
) -> list[Outcome]:
    """A new version for each sensor of the batch."""
    parts, moment = parts_for(settings), datetime.fromisoformat(as_of)
    run = parts.settings.run
    device = str(pick_device(run.device))
    if device.startswith("cuda"):
        with gpu_slot(device, run.engine):
            return retrain_group(parts, batch.sensors, moment, versions, why, batch.number)

    def train_one(sensor: str) -> Outcome:
        return retrain_sensor(parts, sensor, moment, versions.get(sensor), why[sensor])

    return [attempt(train_one, sensor, batch.number) for sensor in batch.sensors]


@flow(name="retrain", flow_run_name=run_name)
def retrain(
    fleet_file: str = "", as_of: str = "", sensors: list[str] | None = None, dry_run: bool = False
) -> Report:
    """Retrain what is due, or `sensors` in any case, on the history before `as_of` (by default today)."""
    settings = open_fleet(fleet_file)
    moment = moment_of(as_of)
    parts = open_parts(settings)
    names = choose_sensors(parts, sensors)
    shards = fix_shards(parts, len(names))
    champions = parts.registry.champions(names)
    half = max(1, settings.run.max_tasks // 2)  # two rounds share the limit of task runs

    batches = plan_shards(names, shards, half)
    known, when = {"versions": champions}, moment.isoformat()
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
    return finish(Report("retrain", f"{moment:%Y-%m-%d %H%M}", outcomes, facts={"due": len(due)}), settings)


def moment_of(as_of: str) -> datetime:
    """The given moment in UTC; by default the end of the day before now."""
    if not as_of:
        return Window.day(day_before_now()).end
    moment = datetime.fromisoformat(as_of)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def gpu_share(settings: Settings) -> float:
    """How much of a GPU a training batch takes: nothing where models compute on the CPU."""
    return settings.run.gpus if settings.run.device == "cuda" and settings.run.engine != "local" else 0.0

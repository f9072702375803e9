"""What a task about models does for its batch, in whichever process: an outcome for each sensor."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from flows.run.fleet import fleet_for
from flows.run.outcome import Outcome, attempt, skipped
from flows.run.plan import Batch, shard_members
from flows.work.model.comparison import compare
from flows.work.model.due import Check, check_shard
from flows.work.model.training import refresh_sensor, retrain_group, retrain_sensor
from paano.device import pick_device
from storage.registry.registry import Version

Versions = dict[str, Version]


def check_sensors(
    batch: Batch, settings: dict[str, Any], versions: Versions, as_of: datetime, asked: bool
) -> list[Check]:
    """Which sensors of the batch need a new model."""
    fleet = fleet_for(settings)
    return [
        check
        for members in shard_members(batch, fleet.scores.shards)
        for check in check_shard(fleet, members, versions, as_of, asked)
    ]


def train_sensors(
    batch: Batch, settings: dict[str, Any], versions: Versions, as_of: datetime, why: Mapping[str, str]
) -> list[Outcome]:
    """A new version for each sensor of the batch."""
    fleet = fleet_for(settings)
    run = fleet.settings.run
    device = str(pick_device(run.device))
    if device.startswith("cuda"):
        from flows.run.engine import gpu_slot  # here: a worker process does without Prefect

        with gpu_slot(device, run.engine):
            return retrain_group(fleet, batch.sensors, as_of, versions, why, batch.number)

    def train_one(sensor: str) -> Outcome:
        return retrain_sensor(fleet, sensor, as_of, versions.get(sensor), why[sensor])

    return [attempt(train_one, sensor, batch.number) for sensor in batch.sensors]


def refresh_sensors(
    batch: Batch, settings: dict[str, Any], versions: Versions, as_of: datetime
) -> list[Outcome]:
    """A refreshed version for each sensor of the batch that has a model."""
    fleet = fleet_for(settings)

    def refresh_one(sensor: str) -> Outcome:
        return refresh_sensor(fleet, sensor, as_of, versions.get(sensor))

    return [attempt(refresh_one, sensor, batch.number) for sensor in batch.sensors]


def compare_sensors(
    batch: Batch, settings: dict[str, Any], versions: Versions, challengers: Versions, as_of: datetime
) -> list[Outcome]:
    """Champion against challenger, for each sensor of the batch."""
    fleet = fleet_for(settings)

    def compare_one(sensor: str) -> Outcome:
        champion = versions.get(sensor)
        if sensor not in challengers:
            number = champion.version if champion else None
            return skipped(sensor, "no challenger to review", champion=number)
        return compare(fleet, sensor, as_of, challengers[sensor], champion)

    return [attempt(compare_one, sensor, batch.number) for sensor in batch.sensors]

"""The sizing formulas: from a fleet's shape and the cost of a unit of work to cores, memory, requests, bytes.

deploy/README.md explains each line; `python -m benchmarks.scale` measures the costs and checks the formulas
against a real run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flows.run.plan import choose_shards
from paano.config import PaAnoConfig

EVENT_REQUESTS = 4  # of a shard at most: events of two days read and written; most nights have none
EVENT_DAY = 1  # of a shard at most: rows of one more day, where an event reaches into it
LIST_SECONDS = 11e-6  # of a core, for each object in a listing
LISTED = 120  # objects of a sensor that are listed at most: older dates are left out
PAGE = 1000  # items in one answer of a listing or of the registry
TASK_SECONDS = {"local": 0.025, "dask": 0.25, "ray": 0.25}  # what Prefect takes for a task run


@dataclass(frozen=True)
class Shape:
    """A fleet, as far as its cost goes."""

    sensors: int
    points: int  # per sensor and night
    shards: int = 0  # 0: as the planner chooses
    channels: int = 1
    patch: int = 96
    max_gap: int = 3
    kept: int = 365  # days of history in the store, an object each
    later: int = 0  # of them after the night

    @property
    def used_shards(self) -> int:
        """Shards that hold a sensor, on average over all hashes."""
        shards = self.shards or choose_shards(self.sensors)
        return round(shards * (1 - (1 - 1 / shards) ** self.sensors))

    @property
    def context(self) -> int:
        return self.patch + self.max_gap

    @property
    def around(self) -> int:
        """Points before the day that a night reads, and after it where there are some."""
        return 2 * self.context

    @property
    def patches(self) -> int:
        """Per sensor and night: the day and two contexts before it."""
        return self.points + 2 * self.context - self.patch + 1

    @property
    def days_read(self) -> int:
        """Daily files that hold a night and what it reads around it."""
        reach = math.ceil(self.around / self.points)
        return 1 + reach + min(reach, self.later)


@dataclass(frozen=True)
class Costs:
    """Measured: what one unit of work takes."""

    seconds_per_1000_patches: float  # one core, default preset
    seconds_per_sensor: float  # the rest of a night: read, load, rows, write
    list_requests_per_sensor: float  # of history
    model_requests_per_sensor: float  # with an empty cache
    model_bytes_per_sensor: float
    history_bytes_per_point: float
    score_requests_per_shard: float
    score_bytes_per_object: float
    score_bytes_per_row: float
    train_seconds: float  # one sensor, one core, default preset: the iterations
    train_seconds_per_1000_points: float  # and the bank and the calibration
    register_calls: float
    register_requests: float
    worker_bytes: float  # peak memory of the process that measured all this


def night(
    shape: Shape, costs: Costs, hours: float = 4.0, engine: str = "local", max_tasks: int = 500
) -> dict[str, float]:
    """What one night of scoring takes. deploy/README.md explains each line."""
    sensors, shards = shape.sensors, shape.used_shards
    tasks = min(max_tasks, shards)
    core_seconds = (
        sensors * shape.patches / 1000 * costs.seconds_per_1000_patches
        + sensors * costs.seconds_per_sensor
        + tasks * TASK_SECONDS[engine]
        + sensors * min(shape.kept, LISTED) * LIST_SECONDS
    )
    rows = 2 * sensors * shape.points
    per_shard = math.ceil(sensors / shards)
    values = per_shard * (shape.points + 2 * shape.around) * shape.channels * 8
    return {
        "task_runs": tasks,
        "core_seconds": core_seconds,
        "cores": math.ceil(core_seconds / (hours * 3600)),
        "worker_memory": costs.worker_bytes + 4 * values + per_shard * 2 * costs.model_bytes_per_sensor,
        "history_requests": sensors * (costs.list_requests_per_sensor + shape.days_read)
        + (math.ceil(sensors * shape.kept / PAGE) if shape.kept <= LISTED else sensors)
        + math.ceil(sensors / PAGE),
        "score_requests": shards * (costs.score_requests_per_shard + EVENT_DAY),
        "event_requests": shards * EVENT_REQUESTS,
        "model_requests": sensors * costs.model_requests_per_sensor,  # only with an empty cache
        "registry_calls": math.ceil(sensors / PAGE),
        "history_bytes": sensors
        * shape.points
        * shape.days_read
        * shape.channels
        * costs.history_bytes_per_point,
        "score_bytes": 2 * shards * costs.score_bytes_per_object + rows * costs.score_bytes_per_row,
        "model_bytes": sensors * costs.model_bytes_per_sensor,
    }


def week(
    shape: Shape,
    costs: Costs,
    hours: float = 24.0,
    max_age_days: float = 30.0,
    lookback_days: float = 28.0,
    gpu: float = 1e13,
) -> dict[str, float]:
    """What a week's retraining takes: a sensor is due every `max_age_days`.

    `gpu` is what one GPU does in multiply-adds a second with this small network; it is assumed, not measured.
    """
    config = PaAnoConfig.preset("default")
    due = math.ceil(shape.sensors * 7 / max_age_days)
    points = shape.points * lookback_days
    core_seconds = due * (costs.train_seconds + points / 1000 * costs.train_seconds_per_1000_points)
    # 27.6 M multiply-adds a patch at full width and w = 96; they grow as the width's square and the length.
    patch = 27.6e6 * config.width**2 * config.patch / 96
    training = 3 * config.iterations * 2 * config.minibatch * patch  # anchors and positives, both ways
    gpu_seconds = due * (training + 2 * points * patch) / gpu  # and every patch for bank and calibration
    return {
        "due": due,
        "core_hours": core_seconds / 3600,
        "cores": math.ceil(core_seconds / (hours * 3600)),
        "gpus": math.ceil(gpu_seconds / (hours * 3600)),
        "registry_calls": due * costs.register_calls,
        "requests": due * costs.register_requests,
    }

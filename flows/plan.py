"""Which task does what: batches of sensors, made without looking at any data.

Three wishes pull against each other: one sensor per task while a fleet is small, at most about 500 task runs
in a flow run however large it is, and one writer and one PUT per (date, shard) object. They agree when a
scoring batch is one or more **whole shards**: the task that owns a shard is its only writer in the run. The
shard count is fixed at the first write of a store, so it is chosen with room to grow: twice the sensors, at
least 64 (most sensors of a small fleet then have a shard, and so a task, of their own) and at most 500 (a
fleet of 100,000 has 200 sensors per shard and task). Batches hold ids only; workers pull and push the data.

Training writes no shared object, so training batches simply cut the list of sensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from storage.keys import shard_of

FEWEST_SHARDS, MOST_SHARDS = 64, 500


@dataclass(frozen=True)
class Batch:
    """The sensors of one task. `shards` are the shards it owns; a training batch owns none."""

    number: int  # from 1
    of: int
    sensors: list[str]
    shards: list[int]

    @property
    def name(self) -> str:
        return f"batch {self.number} of {self.of}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def choose_shards(sensors: int) -> int:
    """The shard count of a new store for a fleet of this size."""
    return min(MOST_SHARDS, max(FEWEST_SHARDS, 2 * sensors))


def plan_shards(sensors: Iterable[str], shards: int, max_tasks: int) -> list[Batch]:
    """Whole shards per batch, at most `max_tasks` batches, about the same number of sensors in each."""
    members: dict[int, list[str]] = {}
    for sensor in sorted(set(sensors)):
        members.setdefault(shard_of(sensor, shards), []).append(sensor)
    return _batches([(shard, members[shard]) for shard in sorted(members)], max_tasks)


def plan_sensors(sensors: Iterable[str], max_tasks: int) -> list[Batch]:
    """One sensor per batch, or as many as keep the number of batches at `max_tasks`."""
    return _batches([(None, [sensor]) for sensor in sorted(set(sensors))], max_tasks)


def _batches(items: Sequence[tuple[int | None, list[str]]], most: int) -> list[Batch]:
    groups = _even(items, most)
    return [
        Batch(
            number,
            len(groups),
            [sensor for _, members in group for sensor in members],
            [shard for shard, _ in group if shard is not None],
        )
        for number, group in enumerate(groups, 1)
    ]


def _even(items: Sequence[tuple[Any, list[str]]], most: int) -> list[list[tuple[Any, list[str]]]]:
    """`items` in order, in at most `most` runs that hold about the same number of sensors."""
    if len(items) <= most:
        return [[item] for item in items]
    total = sum(len(members) for _, members in items)
    groups: list[list[tuple[Any, list[str]]]] = [[] for _ in range(most)]
    before = 0
    for item in items:
        middle = before + len(item[1]) / 2
        groups[min(most - 1, int(middle * most / total))].append(item)
        before += len(item[1])
    return [group for group in groups if group]


def sensor_seed(seed: int, sensor: str) -> int:
    """A seed for one sensor: the same wherever and with whomever it runs."""
    digest = hashlib.sha256(f"{seed}\0{sensor}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % 2**62


def shard_members(batch: Batch, shards: int) -> list[list[str]]:
    """The sensors of a batch, one list per shard."""
    members: dict[int, list[str]] = {}
    for sensor in batch.sensors:
        members.setdefault(shard_of(sensor, shards), []).append(sensor)
    return [members[shard] for shard in sorted(members)]

"""Which task does what: batches of sensors, made without looking at any data.

Three wishes pull against each other: one sensor per task while a fleet is small, at most about 500 task runs
in a flow run however large it is, and one writer and one PUT per (date, shard) object. So a scoring batch is
one or more **whole shards**, which its task computes and commits, while there are shards enough to keep all
workers busy. Where there are not, batches are smaller, down to one sensor, and only compute; what they
computed is joined and committed once for each shard. Batches hold ids only; workers pull and push the data.

Training writes no shared object, so training batches simply cut the list of sensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from storage.keys import shard_of
from storage.tables.layout import shards_for

ROUNDS = 4  # batches per worker that keep all of them busy to the end


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

    @property
    def title(self) -> str:
        """The sensor of a batch that has only one, else its name."""
        return self.sensors[0] if len(self.sensors) == 1 else self.name

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def choose_shards(sensors: int) -> int:
    """The shard count of a new date for a fleet of this size."""
    return shards_for(sensors)


def plan_shards(sensors: Iterable[str], shards: int, max_tasks: int) -> list[Batch]:
    """Whole shards per batch, at most `max_tasks` batches, about the same number of sensors in each."""
    members: dict[int, list[str]] = {}
    for sensor in sorted(set(sensors)):
        members.setdefault(shard_of(sensor, shards), []).append(sensor)
    return _batches([(shard, members[shard]) for shard in sorted(members)], max_tasks)


def plan_night(
    sensors: Iterable[str], shards: int, *, workers: int, per_sensor: int, max_tasks: int
) -> tuple[list[Batch], list[Batch]]:
    """Batches that score, and batches of whole shards that commit what the first ones computed.

    Where the second list is empty, the batches of the first are whole shards and commit themselves.

    Args:
        shards: of the date that is scored.
        workers: how many batches run at once.
        per_sensor: a fleet of at most so many sensors has a batch for each of them.
        max_tasks: most batches, of both lists together.
    """
    names = sorted(set(sensors))
    whole = plan_shards(names, shards, max_tasks)
    one_each = len(names) <= per_sensor and len(names) + len(whole) <= max_tasks
    if len(whole) == len(names) or (not one_each and len(whole) >= min(2 * workers, max_tasks)):
        return whole, []
    pieces = len(names) if one_each else min(max_tasks - len(whole), ROUNDS * workers)
    return (plan_sensors(names, pieces), whole) if pieces > len(whole) else (whole, [])


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

"""The plan: whole shards per batch, few task runs, quick for a large fleet."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.plan import choose_shards, plan_sensors, plan_shards, sensor_seed, shard_members
from storage.keys import shard_of


@given(st.sets(st.text(min_size=1, max_size=12), max_size=80), st.integers(1, 40), st.integers(1, 50))
def test_every_sensor_is_in_one_batch_and_every_shard_has_one_owner(sensors, shards, most):
    batches = plan_shards(sensors, shards, most)
    assert sorted(name for batch in batches for name in batch.sensors) == sorted(sensors)
    owned = [shard for batch in batches for shard in batch.shards]
    assert len(owned) == len(set(owned))
    assert len(batches) <= most
    for batch in batches:
        assert {shard_of(name, shards) for name in batch.sensors} == set(batch.shards)
        members = [name for shard in shard_members(batch, shards) for name in shard]
        assert sorted(members) == sorted(batch.sensors)


@given(st.sets(st.text(min_size=1, max_size=8), max_size=60), st.integers(1, 50))
def test_training_batches_hold_one_sensor_until_there_are_too_many(sensors, most):
    batches = plan_sensors(sensors, most)
    assert sorted(name for batch in batches for name in batch.sensors) == sorted(sensors)
    assert len(batches) == min(len(sensors), most)
    if len(sensors) <= most:
        assert all(len(batch.sensors) == 1 for batch in batches)
    elif batches:
        sizes = [len(batch.sensors) for batch in batches]
        assert max(sizes) - min(sizes) <= 1


def test_the_plan_does_not_depend_on_the_order_of_the_sensors():
    names = [f"s{n}" for n in range(300)]
    assert plan_shards(names, 64, 20) == plan_shards(reversed(names), 64, 20)


@pytest.mark.parametrize(("sensors", "shards"), [(1, 64), (12, 64), (100, 200), (1000, 500), (100_000, 500)])
def test_shards_are_chosen_with_room_to_grow(sensors, shards):
    assert choose_shards(sensors) == shards


def test_a_hundred_thousand_sensors_are_planned_in_seconds():
    names = [f"plant/line-{n % 50}/sensor-{n}" for n in range(100_000)]
    began = time.process_time()
    batches = plan_shards(names, choose_shards(len(names)), 500)
    assert time.process_time() - began < 10
    sizes = [len(batch.sensors) for batch in batches]
    assert len(batches) <= 500
    assert sum(sizes) == 100_000
    assert max(sizes) < 2 * sum(sizes) / len(sizes)


def test_a_seed_depends_on_the_sensor_and_on_nothing_else():
    assert sensor_seed(0, "a") == sensor_seed(0, "a")
    assert len({sensor_seed(seed, name) for seed in range(5) for name in "abcde"}) == 25

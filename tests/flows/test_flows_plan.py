"""The plan: whole shards per batch, few task runs, quick for a large fleet."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.run.plan import choose_shards, plan_night, plan_sensors, plan_shards, sensor_seed, shard_members
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


@pytest.mark.parametrize(("sensors", "shards"), [(1, 1), (64, 1), (65, 2), (500, 8), (100_000, 2048)])
def test_an_object_holds_about_sixty_four_sensors(sensors, shards):
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


@given(
    st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=90),
    st.integers(1, 16),
    st.integers(1, 8),
    st.integers(0, 70),
    st.integers(2, 100),
)
def test_a_night_is_computed_by_sensor_or_batch_and_each_shard_is_committed_once(
    sensors, shards, workers, per_sensor, most
):
    batches, commits = plan_night(sensors, shards, workers=workers, per_sensor=per_sensor, max_tasks=most)
    assert sorted(name for batch in batches for name in batch.sensors) == sorted(sensors)
    assert len(batches) + len(commits) <= most
    owners = commits or batches  # who writes
    assert sorted(name for batch in owners for name in batch.sensors) == sorted(sensors)
    owned = [shard for batch in owners for shard in batch.shards]
    assert sorted(owned) == sorted({shard_of(name, shards) for name in sensors})
    if len(sensors) <= per_sensor and 2 * len(sensors) <= most:
        assert all(len(batch.sensors) == 1 for batch in batches) or not commits


def test_a_small_fleet_has_a_task_for_each_sensor_and_a_large_one_whole_shards():
    small = [f"s{n}" for n in range(50)]
    batches, commits = plan_night(small, 1, workers=2, per_sensor=64, max_tasks=500)
    assert (len(batches), len(commits)) == (50, 1)
    assert batches[0].title == batches[0].sensors[0]
    large = [f"s{n}" for n in range(500)]
    batches, commits = plan_night(large, 8, workers=2, per_sensor=64, max_tasks=500)
    assert (len(batches), len(commits)) == (8, 0)
    batches, commits = plan_night(large, 8, workers=16, per_sensor=64, max_tasks=500)
    assert (len(batches), len(commits)) == (64, 8), "few shards do not leave workers idle"

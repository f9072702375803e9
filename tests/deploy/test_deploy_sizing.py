"""The planner on 100,000 sensors, and the formulas that deploy/README.md gives."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.sizing import Costs, Shape, night, week
from flows.run.plan import plan_shards
from tests.deploy.composition import DEPLOY, ROOT

COSTS = Costs(*[1.0] * len(Costs.__dataclass_fields__))


def test_a_hundred_thousand_sensors_are_planned_within_seconds_and_a_gigabyte():
    command = [sys.executable, "-m", "benchmarks.scale", "--plan-only", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads(done.stdout)["plan"]
    assert plan["sensors"] == 100_000
    assert plan["task_runs"] <= 500 and plan["training_task_runs"] <= 500
    assert plan["seconds"]["total"] < 10 and plan["peak_memory_bytes"] < 1e9
    assert plan["task_bytes_largest"] < 512_000  # what Prefect takes as parameters of a run


@pytest.mark.parametrize(("sensors", "shards"), [(1, 1), (30, 1), (200, 4), (5_000, 128)])
def test_the_formula_knows_how_many_shards_a_fleet_uses(sensors, shards):
    used = len(plan_shards([f"sensor-{n}" for n in range(sensors)], shards, 10_000))
    assert Shape(sensors, 288).used_shards == pytest.approx(used, abs=0.05 * shards)


def test_twice_the_sensors_take_twice_the_work_and_no_more_tasks():
    small, large = night(Shape(50_000, 288), COSTS), night(Shape(100_000, 288), COSTS)
    for what in ("history_requests", "model_requests", "registry_calls", "history_bytes"):
        assert large[what] == pytest.approx(2 * small[what])
    assert large["core_seconds"] == pytest.approx(2 * small["core_seconds"], rel=1e-3)
    assert large["task_runs"] == small["task_runs"] == 500


def test_a_sensor_is_retrained_once_in_its_age():
    assert week(Shape(3_000, 288), COSTS, max_age_days=30)["due"] == 700


def test_the_readme_is_finished():
    assert "MEASURED" not in (DEPLOY / "README.md").read_text()

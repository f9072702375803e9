"""The nightly flow: a score for every time step of a day, and the events in them."""

from __future__ import annotations

from datetime import date
from typing import Any

from prefect import flow, task

from flows.fanout import day_before_now, fan_out, open_fleet, run_name
from flows.outcome import Outcome
from flows.parts import choose_sensors, fix_shards, open_parts, parts_for
from flows.plan import Batch, plan_shards, shard_members
from flows.report import Report, finish
from flows.scoring import score_nights
from storage.registry import Version


@task(name="score batch", task_run_name="score {batch.name}")
def score_batch(
    batch: Batch,
    settings: dict[str, Any],
    versions: dict[str, Version],
    days: list[str],
    resume: bool = False,
) -> list[Outcome]:
    """Score the whole shards of `batch`, one after another, for `days` in order."""
    parts = parts_for(settings)
    nights = [date.fromisoformat(day) for day in days]
    return [
        outcome
        for members in shard_members(batch, parts.scores.shards)
        for outcome in score_nights(parts, nights, members, versions, batch.number, resume)
    ]


@flow(name="score", flow_run_name=run_name)
def score(fleet_file: str = "", day: str = "", sensors: list[str] | None = None) -> Report:
    """Score the night of `day` (by default the day before now, in UTC) for the fleet or for `sensors`."""
    settings = open_fleet(fleet_file)
    night = date.fromisoformat(day) if day else day_before_now()
    parts = open_parts(settings)
    names = choose_sensors(parts, sensors)
    shards = fix_shards(parts, len(names))
    champions = parts.registry.champions(names)
    batches = plan_shards(names, shards, settings.run.max_tasks)
    outcomes = fan_out(
        "score", score_batch, batches, settings, {"versions": champions}, days=[night.isoformat()]
    )
    notes = [f"the registry was away, models are as of {champions.seen}"] if champions.stale else []
    return finish(Report("score", f"{night}", outcomes, notes, {"day": night.isoformat()}), settings)

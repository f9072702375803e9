"""Days of a fleet through the engine: the tasks of `score` and `backfill`, and how they are put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from prefect import task

from flows.run.days import day_window, scored_before
from flows.run.engine import night_workers
from flows.run.fanout import fan_out
from flows.run.fleet import Fleet, fix_shards, fleet_for
from flows.run.history import fleet_of_batch, list_history, scattered
from flows.run.outcome import Outcome, skipped
from flows.run.plan import Batch, plan_night, shard_members
from flows.work.night.compute import Scored
from flows.work.night.days import days_at_once, days_by_sensors, stretches
from flows.work.night.night import DONE, add, caught_up, commit, compute, score_days
from storage.history.reader import Piece
from storage.registry.registry import Version
from storage.secrets import without_secrets


@task(name="score batch", task_run_name="score {batch.name}")
@without_secrets
def score_batch(
    batch: Batch,
    settings: dict[str, Any],
    versions: dict[str, Version],
    days: list[str],
    shards: int,
    dates: list[str],
    rescore: bool = False,
    resume: bool = False,
    pieces: dict[str, Piece] | None = None,
) -> list[Outcome]:
    """Score the whole shards of `batch`, one after another, for `days` in order, and commit them."""
    asked = [date.fromisoformat(day) for day in days]
    fleet = fleet_of_batch(settings, pieces, batch, versions, asked)
    known = [date.fromisoformat(day) for day in dates]
    outcomes = []
    for members in shard_members(batch, shards):
        outcomes += score_days(
            fleet, asked, members, versions, batch=batch.number, rescore=rescore, resume=resume, dates=known
        )
    return outcomes


@task(name="compute batch", task_run_name="score {batch.title}")
@without_secrets
def compute_batch(
    batch: Batch,
    settings: dict[str, Any],
    versions: dict[str, Version],
    days: list[str],
    rescore: bool = False,
    pieces: dict[str, Piece] | None = None,
) -> list[Scored]:
    """Compute the rows of `batch` for `days`, which follow each other; `commit_batch` stores them."""
    asked = [date.fromisoformat(day) for day in days]
    fleet = fleet_of_batch(settings, pieces, batch, versions, asked)
    windows = [day_window(fleet.settings, day) for day in asked]
    scored = compute(fleet, windows, batch.sensors, versions, batch=batch.number, rescore=rescore)
    return scored if fleet.settings.run.engine == "local" else [one.carried() for one in scored]


@task(name="commit batch", task_run_name="commit {batch.name}")
@without_secrets
def commit_batch(
    batch: Batch,
    settings: dict[str, Any],
    scored: dict[str, Scored],
    days: list[str],
    rescore: bool = False,
) -> list[Outcome]:
    """Store what was computed for the shards of `batch`: one PUT for each object."""
    fleet = fleet_for(settings)
    windows = [day_window(fleet.settings, date.fromisoformat(day)) for day in days]
    return commit(fleet, windows, [scored[name] for name in batch.sensors if name in scored], rescore=rescore)


def score_fleet(
    what: str,
    fleet: Fleet,
    sensors: Sequence[str],
    champions: dict[str, Version],
    days: Sequence[date],
    *,
    rescore: bool = False,
    resume: bool = False,
    catch_up: bool = False,
) -> list[Outcome]:
    """Scores and events of `sensors` for `days` through the engine; an outcome for each sensor.

    Args:
        what: the name of the run, for its progress.
        champions: the versions to score with.
        rescore: replace these days, also where a row becomes worse.
        resume: leave out what the same champions have scored already.
        catch_up: also score days that were missed within run.catch_up before the first of `days`.
    """
    settings = fleet.settings
    if settings.run.engine == "local":  # its tasks share this fleet; on a cluster each has its own
        list_history(fleet, sensors, champions, days)
    dates = scored_before(fleet, days[0], settings.run.catch_up) if catch_up else []
    shards = fix_shards(fleet, len(sensors), day_window(settings, days[0], days[-1]).days())
    batches, commits = plan(fleet, sensors, shards)
    if not commits:
        with scattered(fleet, batches, champions, days) as pieces:
            return fan_out(
                what,
                score_batch,
                batches,
                settings,
                {"versions": champions, "pieces": pieces},
                workers=night_workers(settings.run),
                days=[day.isoformat() for day in days],
                shards=shards,
                dates=[day.isoformat() for day in dates],
                rescore=rescore,
                resume=resume,
            )
    known, total = dict(champions), dict[str, Outcome]()
    done_by = champions if resume else None
    for group, some in days_by_sensors(fleet, days, sensors, dates=dates, done_by=done_by):
        for stretch in stretches(group, days_at_once(champions, len(some))):
            found = score_stretch(what, fleet, some, known, stretch, shards, rescore)
            total |= {name: add(total.get(name), found[name]) for name in some}
        total |= {name: caught_up(total[name], group, days) for name in some}
    return [total.get(name) or skipped(name, DONE) for name in sensors]


def plan(fleet: Fleet, sensors: Sequence[str], shards: int) -> tuple[list[Batch], list[Batch]]:
    """The batches of a run that scores `sensors`, as `plan_night` gives them for this fleet."""
    run = fleet.settings.run
    workers = night_workers(run)
    return plan_night(sensors, shards, workers=workers, per_sensor=run.sensor_tasks, max_tasks=run.max_tasks)


def score_stretch(
    what: str,
    fleet: Fleet,
    sensors: Sequence[str],
    champions: dict[str, Version],
    days: Sequence[date],
    shards: int,
    rescore: bool,
) -> dict[str, Outcome]:
    """Compute in small batches, then commit each shard; a sensor's first champion is added to `champions`."""
    settings, asked = fleet.settings, [day.isoformat() for day in days]
    batches, commits = plan(fleet, sensors, shards)
    with scattered(fleet, batches, champions, days) as pieces:
        by_sensor: dict[str, Mapping[str, Any]] = {"versions": champions, "pieces": pieces}
        computed = fan_out(
            what,
            compute_batch,
            batches,
            settings,
            by_sensor,
            workers=night_workers(settings.run),
            days=asked,
            rescore=rescore,
        )
    scored = {one.sensor: one for one in computed if isinstance(one, Scored)}
    outcomes = {lost.sensor: lost for lost in computed if isinstance(lost, Outcome)}
    champions |= {one.sensor: one.version for one in scored.values() if one.version}
    found = fan_out(
        f"{what}-commit",
        commit_batch,
        commits or batches,
        settings,
        {"scored": scored},
        days=asked,
        rescore=rescore,
    )
    return outcomes | {outcome.sensor: outcome for outcome in found if outcome.sensor in scored}

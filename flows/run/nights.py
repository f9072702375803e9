"""Days of a fleet through the engine: the tasks of `score` and `backfill`, and how they are put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

from prefect.runtime import flow_run

from flows.run.days import day_window, scored_before
from flows.run.engine import night_workers
from flows.run.fanout import batch_task, fan_out
from flows.run.fleet import Fleet, fix_shards
from flows.run.history import list_history, scattered
from flows.run.outcome import Outcome, skipped
from flows.run.plan import Batch, plan_night
from flows.run.workers import SCORING, has_processes, worker_processes
from flows.work.night.batches import commit_rows, compute_rows, score_shards
from flows.work.night.compute import Scored
from flows.work.night.days import days_at_once, days_by_sensors, stretches
from flows.work.night.night import DONE, add, caught_up
from storage.registry.registry import Version

score_batch = batch_task("score batch", "score {batch.name}")(score_shards)
compute_batch = batch_task("compute batch", "score {batch.title}")(compute_rows)
commit_batch = batch_task("commit batch", "commit {batch.name}")(commit_rows)


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
    if settings.run.engine == "local":  # its tasks share what is listed; on a cluster each lists for itself
        list_history(fleet, sensors, champions, days)
    dates = scored_before(fleet, days[0], settings.run.catch_up) if catch_up else []
    shards = fix_shards(fleet, len(sensors), day_window(settings, days[0], days[-1]).days())
    with worker_processes(settings, len(sensors), flow_run.id or "", SCORING):
        return _score_fleet(what, fleet, sensors, champions, days, shards, dates, rescore, resume)


def _score_fleet(
    what: str,
    fleet: Fleet,
    sensors: Sequence[str],
    champions: dict[str, Version],
    days: Sequence[date],
    shards: int,
    dates: Sequence[date],
    rescore: bool,
    resume: bool,
) -> list[Outcome]:
    """The same, with what is known by now."""
    settings = fleet.settings
    batches, commits = plan(fleet, sensors, shards)
    if not commits:
        with given_to(fleet, batches, champions, days) as by_sensor:
            return fan_out(
                what,
                score_batch,
                batches,
                settings,
                by_sensor,
                workers=night_workers(settings, len(sensors)),
                days=days,
                shards=shards,
                dates=dates,
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
    run, workers = fleet.settings.run, night_workers(fleet.settings, len(sensors))
    return plan_night(sensors, shards, workers=workers, per_sensor=run.sensor_tasks, max_tasks=run.max_tasks)


@contextmanager
def given_to(
    fleet: Fleet, batches: Sequence[Batch], champions: Mapping[str, Version], days: Sequence[date]
) -> Iterator[dict[str, Mapping[str, Any]]]:
    """What the batches are given by sensor: champions, pieces of long tables, what was listed."""
    listed = fleet.history.listing.kept() if has_processes() else {}
    with scattered(fleet, batches, champions, days) as pieces:
        yield {"versions": champions, "pieces": pieces, "listed": listed}


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
    settings = fleet.settings
    batches, commits = plan(fleet, sensors, shards)
    with given_to(fleet, batches, champions, days) as by_sensor:
        computed = fan_out(
            what,
            compute_batch,
            batches,
            settings,
            by_sensor,
            workers=night_workers(settings, len(sensors)),
            days=days,
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
        days=days,
        rescore=rescore,
    )
    return outcomes | {outcome.sensor: outcome for outcome in found if outcome.sensor in scored}

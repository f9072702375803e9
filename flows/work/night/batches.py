"""What a task of a night does for its batch, in whichever process: open the fleet, compute, commit.

All that it gets and gives is plain, so that any engine can carry it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from flows.run.days import day_window
from flows.run.fleet import fleet_for
from flows.run.history import fleet_of_batch
from flows.run.outcome import Outcome
from flows.run.plan import Batch, shard_members
from flows.run.workers import run_of_worker
from flows.work.night.compute import Scored
from flows.work.night.night import commit, compute, score_days
from storage.history.listing import Listed
from storage.history.reader import Piece
from storage.registry.registry import Version

NOTHING: Mapping[str, Any] = {}


def score_shards(
    batch: Batch,
    settings: dict[str, Any],
    versions: Mapping[str, Version],
    days: Sequence[date],
    shards: int,
    dates: Sequence[date],
    rescore: bool = False,
    resume: bool = False,
    pieces: Mapping[str, Piece] = NOTHING,
    listed: Mapping[str, Listed] = NOTHING,
) -> list[Outcome]:
    """Score the whole shards of `batch`, one after another, for `days` in order, and commit them.

    Args:
        versions: the champions.
        shards: of the last of `days`.
        dates: days that have rows (`score_days`).
        pieces: of long tables, made for this batch.
        listed: what the history was found to have, where that is not known in this process.
    """
    fleet = fleet_of_batch(settings, pieces, listed, batch, versions, days)
    outcomes = []
    for members in shard_members(batch, shards):
        outcomes += score_days(
            fleet, days, members, versions, batch=batch.number, rescore=rescore, resume=resume, dates=dates
        )
    return outcomes


def compute_rows(
    batch: Batch,
    settings: dict[str, Any],
    versions: Mapping[str, Version],
    days: Sequence[date],
    rescore: bool = False,
    pieces: Mapping[str, Piece] = NOTHING,
    listed: Mapping[str, Listed] = NOTHING,
) -> list[Scored]:
    """Compute the rows of `batch` for `days`, which follow each other; `commit_rows` stores them."""
    fleet = fleet_of_batch(settings, pieces, listed, batch, versions, days)
    windows = [day_window(fleet.settings, day) for day in days]
    scored = compute(fleet, windows, batch.sensors, versions, batch=batch.number, rescore=rescore)
    here = fleet.settings.run.engine == "local" and not run_of_worker()
    return scored if here else [one.carried() for one in scored]


def commit_rows(
    batch: Batch,
    settings: dict[str, Any],
    scored: Mapping[str, Scored],
    days: Sequence[date],
    rescore: bool = False,
) -> list[Outcome]:
    """Store what was computed for the shards of `batch`: one PUT for each object."""
    fleet = fleet_for(settings)
    windows = [day_window(fleet.settings, day) for day in days]
    return commit(fleet, windows, [scored[name] for name in batch.sensors if name in scored], rescore=rescore)

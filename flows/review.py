"""Champion against challenger: compare them anew. Decisions are in `flows.work.model.decisions`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from prefect import flow, task

from flows.retrain import moment_of
from flows.run.fanout import fan_out, load_settings, run_name
from flows.run.fleet import choose_sensors, fleet_for, open_fleet
from flows.run.outcome import Outcome, attempt, skipped
from flows.run.plan import Batch, plan_sensors
from flows.run.report import Report, finish
from flows.work.model.comparison import compare
from storage.registry.registry import Version
from storage.secrets import without_secrets


@task(name="review batch", task_run_name="review {batch.name}")
@without_secrets
def review_batch(
    batch: Batch,
    settings: dict[str, Any],
    versions: dict[str, Version],
    challengers: dict[str, Version],
    as_of: str,
) -> list[Outcome]:
    """The comparison of each sensor of the batch."""
    fleet, moment = fleet_for(settings), datetime.fromisoformat(as_of)

    def compare_one(sensor: str) -> Outcome:
        champion = versions.get(sensor)
        if sensor not in challengers:
            number = champion.version if champion else None
            return skipped(sensor, "no challenger to review", champion=number)
        return compare(fleet, sensor, moment, challengers[sensor], champion)

    return [attempt(compare_one, sensor, batch.number) for sensor in batch.sensors]


@flow(name="review", flow_run_name=run_name)
@without_secrets
def review(fleet_file: str = "", as_of: str = "", sensors: list[str] | None = None) -> Report:
    """Compare champion and challenger of `sensors` (by default all with a challenger) before `as_of`."""
    settings = load_settings(fleet_file)
    moment = moment_of(as_of, settings)
    fleet = open_fleet(settings)
    names = choose_sensors(fleet, sensors) if sensors else None
    challengers = fleet.registry.challengers(names)
    names = names or sorted(challengers)
    champions = fleet.registry.champions(names)
    batches = plan_sensors(names, settings.run.max_tasks)
    outcomes = fan_out(
        "review",
        review_batch,
        batches,
        settings,
        {"versions": champions, "challengers": challengers},
        as_of=moment.isoformat(),
    )
    title, notes = f"{moment:%Y-%m-%d %H%M}", [] if names else ["no challenger is waiting"]
    return finish(Report("review", title, outcomes, moment, bool(sensors), notes), settings)

"""Champion against challenger: compare them anew, approve, reject, roll back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from prefect import flow, task

from flows.fanout import fan_out, open_fleet, run_name
from flows.outcome import Outcome, attempt, ok, skipped
from flows.parts import Parts, open_parts, parts_for
from flows.plan import Batch, plan_sensors, sensor_seed
from flows.report import Report, finish
from flows.retrain import moment_of
from flows.reviewing import version_figures
from flows.training import open_model
from flows.trial import judge, try_model
from paano.device import torch_threads
from storage.registry import Version
from storage.window import Window


def compare(
    parts: Parts, sensor: str, as_of: datetime, challenger: Version, champion: Version | None
) -> Outcome:
    """The review test of both on the newest history before `as_of`."""
    settings = parts.settings
    model = open_model(parts, challenger)
    step = timedelta(seconds=model.facts["interval_seconds"])
    before = settings.retrain.holdout + model.config.context * step
    newest = parts.history.read(sensor, Window(as_of - before, as_of), step)
    seed = sensor_seed(settings.fleet.seed, sensor)
    with torch_threads(settings.run.threads):
        trial = try_model(model, newest, settings, seed)
        against = try_model(open_model(parts, champion), newest, settings, seed) if champion else None
    verdict = judge(trial, against, settings)
    return ok(
        sensor,
        f"version {challenger.version} {'passes' if verdict.passed else 'does not pass'}: {verdict.reason}",
        version=challenger.version,
        champion=champion.version if champion else None,
        vus_pr=round(trial.vus_pr, 4),
        champion_vus_pr=round(against.vus_pr, 4) if against else None,
        alarms=round(trial.alarms, 2),
        champion_alarms=round(against.alarms, 2) if against else None,
    )


@task(name="review batch", task_run_name="review {batch.name}")
def review_batch(
    batch: Batch,
    settings: dict[str, Any],
    versions: dict[str, Version],
    challengers: dict[str, Version],
    as_of: str,
) -> list[Outcome]:
    """The comparison of each sensor of the batch."""
    parts, moment = parts_for(settings), datetime.fromisoformat(as_of)

    def compare_one(sensor: str) -> Outcome:
        if sensor not in challengers:
            return skipped(sensor, "no challenger to review", **version_figures(versions.get(sensor)))
        return compare(parts, sensor, moment, challengers[sensor], versions.get(sensor))

    return [attempt(compare_one, sensor, batch.number) for sensor in batch.sensors]


@flow(name="review", flow_run_name=run_name)
def review(fleet_file: str = "", as_of: str = "", sensors: list[str] | None = None) -> Report:
    """Compare champion and challenger of `sensors` (by default all with a challenger) before `as_of`."""
    settings = open_fleet(fleet_file)
    moment = moment_of(as_of)
    parts = open_parts(settings)
    challengers = parts.registry.challengers(sensors)
    names = sensors or sorted(challengers)
    champions = parts.registry.champions(names)
    batches = plan_sensors(names, settings.run.max_tasks)
    outcomes = fan_out(
        "review",
        review_batch,
        batches,
        settings,
        {"versions": champions, "challengers": challengers},
        as_of=moment.isoformat(),
    )
    return finish(Report("review", f"{moment:%Y-%m-%d %H%M}", outcomes), settings)

"""Champion against challenger: compare them anew. Decisions are in `flows.work.model.decisions`."""

from __future__ import annotations

from prefect import flow

from flows.retrain import moment_of
from flows.run.fanout import batch_task, fan_out, load_settings, run_name
from flows.run.fleet import choose_sensors, open_fleet
from flows.run.plan import plan_sensors
from flows.run.report import Report, finish
from flows.work.model.batches import compare_sensors
from storage.secrets import without_secrets

review_batch = batch_task("review batch", "review {batch.name}")(compare_sensors)


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
        as_of=moment,
    )
    title, notes = f"{moment:%Y-%m-%d %H%M}", [] if names else ["no challenger is waiting"]
    return finish(Report("review", title, outcomes, moment, bool(sensors), notes), settings)

"""Many nights, oldest first: the same rows as if each had been scored in its night."""

from __future__ import annotations

from datetime import date

from prefect import flow

from flows.fanout import fan_out, open_fleet
from flows.parts import choose_sensors, fix_shards, open_parts
from flows.plan import plan_shards
from flows.report import Report, finish
from flows.score import score_batch
from paano.errors import ConfigError
from storage.window import Window


@flow(name="backfill", flow_run_name="backfill {first} to {last}")
def backfill(
    fleet_file: str = "",
    first: str = "",
    last: str = "",
    sensors: list[str] | None = None,
    again: bool = False,
) -> Report:
    """Score the nights from `first` to `last`, both included. Begun again, it goes on where it stopped.

    A task takes its shards through all nights, so that shards run side by side and nights in order. `again`
    scores also the nights that the present champions have scored already, for history that came late.
    """
    settings = open_fleet(fleet_file)
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    days = [day.isoformat() for day in Window(Window.day(begin).start, Window.day(end).end).days()]
    parts = open_parts(settings)
    names = choose_sensors(parts, sensors)
    shards = fix_shards(parts, len(names))
    champions = parts.registry.champions(names)
    if champions.stale:
        raise ConfigError("the registry is away; a backfill must not run on models that may be out of date")
    batches = plan_shards(names, shards, settings.run.max_tasks)
    outcomes = fan_out(
        "backfill", score_batch, batches, settings, {"versions": champions}, days=days, resume=not again
    )
    return finish(Report("backfill", f"{first} to {last}", outcomes, facts={"nights": len(days)}), settings)

"""Many nights at once: the same rows as if each had been scored in its night."""

from __future__ import annotations

from prefect import flow

from flows.run.after import after_nights, tell_failure
from flows.run.days import DAY, day_window, days_from
from flows.run.fanout import load_settings, run_name
from flows.run.fleet import choose_sensors, run_fleet
from flows.run.nights import score_fleet
from flows.run.report import Report, finish
from flows.work.night.days import refuse_after_the_data
from paano.errors import ConfigError
from storage.secrets import without_secrets
from storage.window import Window, read_day


@flow(name="backfill", flow_run_name=run_name, on_failure=[tell_failure], on_crashed=[tell_failure])
@without_secrets
def backfill(
    fleet_file: str = "",
    first: str = "",
    last: str = "",
    sensors: list[str] | None = None,
    again: bool = False,
) -> Report:
    """Score the days from `first` to `last`, both included. Begun again, it goes on where it stopped.

    With `again` it is a rescore: every row of these days is replaced by what the present champions give for
    the present history, also where they were scored already.

    Raises:
        ConfigError: the registry is away, or the days lie after the newest data of the fleet.
        RunFailed: more sensors failed than run.tolerated_failures allows.
    """
    settings = load_settings(fleet_file)
    begin, end = read_day(first), read_day(last)
    if end < begin:
        raise ConfigError(f"the last day {end} is before the first, {begin}; exchange --first and --last")
    days = days_from(begin, end)
    fleet = run_fleet(settings)
    names = choose_sensors(fleet, sensors)
    champions = fleet.registry.champions(names)
    if champions.stale:
        raise ConfigError("the registry is away; a backfill must not run on models that may be out of date")
    refuse_after_the_data(fleet, names, end, champions)
    outcomes = score_fleet("backfill", fleet, names, champions, days, rescore=again, resume=not again)
    notes = after_nights(fleet, day_window(settings, begin, end).widen(before=DAY), end)
    about, facts = Window.day(end).start, {"nights": len(days)}
    report = Report("backfill", f"{first} to {last}", outcomes, about, bool(sensors), notes, facts)
    return finish(report, settings, end)

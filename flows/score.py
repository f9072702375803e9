"""The nightly flow: a score for every time step of a day, and the events in them."""

from __future__ import annotations

from prefect import flow
from prefect.runtime import flow_run

from flows.run.after import after_nights, tell_failure
from flows.run.days import DAY, day_before_now, day_window
from flows.run.fanout import load_settings, run_name
from flows.run.fleet import absent_note, absent_outcomes, absent_sensors, choose_sensors, run_fleet
from flows.run.heal_days import heal_days, healed_too
from flows.run.history import champions_and_history
from flows.run.nights import score_fleet
from flows.run.report import Report, finish
from flows.run.workers import SCORING, worker_processes
from flows.work.night.days import refuse_after_the_data
from storage.secrets import without_secrets
from storage.window import Window, read_day


@flow(name="score", flow_run_name=run_name, on_failure=[tell_failure], on_crashed=[tell_failure])
@without_secrets
def score(fleet_file: str = "", day: str = "", sensors: list[str] | None = None) -> Report:
    """Score `day` (by default the fleet's day before now) for the fleet or for `sensors`.

    Days that were missed within run.catch_up before it are scored too.

    Raises:
        ConfigError: no sensor has data on `day` or in the month after it.
        RunFailed: more sensors failed than run.tolerated_failures allows.
    """
    settings = load_settings(fleet_file)
    night = read_day(day) if day else day_before_now(settings)
    fleet = run_fleet(settings)
    names = choose_sensors(fleet, sensors)
    # They import what they need while champions and history are looked up; the report is made in them too.
    with worker_processes(settings, len(names), flow_run.id or "", SCORING):
        champions = champions_and_history(fleet, names, [night], every=not sensors)
        absent = absent_sensors(fleet, champions) if not sensors else []
        if day:
            refuse_after_the_data(fleet, names, night, champions)
        outcomes = score_fleet("score", fleet, names, champions, [night], catch_up=True)
        healed, late = heal_days(fleet, names, champions, night)
        outcomes = [healed_too(outcome, healed) for outcome in outcomes]
        outcomes += absent_outcomes(absent)
        outcomes.sort(key=lambda outcome: outcome.sensor)
        away = [f"the registry was away, models are as of {champions.seen}"] if champions.stale else []
        notes = [*late, *away, *([absent_note(absent)] if absent else [])]
        first = min([night, *healed])
        touched = day_window(settings, first, night).widen(before=settings.run.catch_up + DAY)
        notes += after_nights(fleet, touched, night)
        about, facts = Window.day(night).start, {"day": night.isoformat()}
        report = Report("score", f"{night}", outcomes, about, bool(sensors), notes, facts)
        return finish(report, settings, night, None if sensors else champions)

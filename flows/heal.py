"""Find past days whose history changed after they were scored, and score exactly these again."""

from __future__ import annotations

from prefect import flow

from flows.run.after import after_nights, tell_failure
from flows.run.days import DAY, day_before_now, day_window
from flows.run.fanout import load_settings, run_name
from flows.run.fleet import choose_sensors, run_fleet
from flows.run.heal_days import heal_days
from flows.run.outcome import Outcome, skipped
from flows.run.report import Report, finish
from flows.work.night.night import add
from paano.errors import ConfigError
from storage.secrets import without_secrets
from storage.window import Window, read_day


@flow(name="heal", flow_run_name=run_name, on_failure=[tell_failure], on_crashed=[tell_failure])
@without_secrets
def heal(fleet_file: str = "", day: str = "", sensors: list[str] | None = None) -> Report:
    """Score again the days within run.look_back up to `day` (by default the day before now) that changed.

    Raises:
        ConfigError: the registry is away.
        RunFailed: more sensors failed than run.tolerated_failures allows.
    """
    settings = load_settings(fleet_file)
    last = read_day(day) if day else day_before_now(settings)
    fleet = run_fleet(settings)
    names = choose_sensors(fleet, sensors)
    champions = fleet.registry.champions(names)
    if champions.stale:
        raise ConfigError("the registry is away; late data is scored when it is back")
    healed, notes = heal_days(fleet, names, champions, last + DAY)
    found: dict[str, Outcome] = {}
    for outcomes in healed.values():
        for name, outcome in outcomes.items():
            found[name] = add(found.get(name), outcome)
    if healed:
        notes += after_nights(fleet, day_window(settings, min(healed), last).widen(before=DAY), last)
    rows = [found.get(name) or skipped(name, "its history has not changed") for name in names]
    about, facts = Window.day(last).start, {"days": [day.isoformat() for day in healed]}
    return finish(Report("heal", f"{last}", rows, about, bool(sensors), notes, facts), settings)

"""Take a day back: its score rows, its events and incidents, what was read and the outcomes of its run."""

from __future__ import annotations

from datetime import date

from flows.run.days import day_window
from flows.run.fleet import Fleet
from flows.run.report import run_store
from flows.work.night.incidents import update_incidents
from flows.work.night.late_data import open_reads
from storage.keys import date_prefix
from storage.tables.day_table import DayTable
from storage.window import Window


def remove_day(fleet: Fleet, day: date, dry_run: bool = False) -> dict[str, int]:
    """Remove the rows of the fleet's day; how many there were of each kind.

    Events that began on an earlier day stay: a new run of the night before settles them.
    """
    window = day_window(fleet.settings, day)
    tables: dict[str, tuple[DayTable, Window]] = {
        "scores": (fleet.scores, window),
        "events": (fleet.events, window),
        "reads": (open_reads(fleet), window),  # else late data of this day would have it scored again
        "runs": (run_store(fleet.settings, "score"), Window.day(day)),  # kept by the date they are about
    }
    done = {name: remove_rows(table, span, dry_run) for name, (table, span) in tables.items()}
    if done["events"] and not dry_run:
        update_incidents(fleet, window)
    return done


def remove_rows(table: DayTable, window: Window, dry_run: bool = False) -> int:
    """Remove the rows of `table` within `window`, and the objects of a date that then has none."""
    rows = table.read_many(None, window, ["sensor"])
    if dry_run or not rows.height:
        return rows.height
    table.update(table.empty(), window, rows["sensor"].unique())
    for date_of_rows in window.days():
        if not table.read_many(None, Window.day(date_of_rows), ["sensor"]).height:
            table.store.delete([info.key for info in table.store.list(date_prefix(date_of_rows))])
    return rows.height

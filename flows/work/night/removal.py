"""Take a day back: its score rows, its events and the outcomes of its run."""

from __future__ import annotations

from datetime import date

from flows.run.days import day_window
from flows.run.fleet import Fleet
from flows.run.report import run_store
from storage.keys import date_prefix
from storage.tables.day_table import DayTable
from storage.window import Window


def remove_day(fleet: Fleet, day: date, dry_run: bool = False) -> dict[str, int]:
    """Remove the rows of the fleet's day; how many there were of each kind.

    Events that began on an earlier day stay: a new run of the night before settles them.
    """
    window = day_window(fleet.settings, day)
    tables: dict[str, DayTable] = {
        "scores": fleet.scores,
        "events": fleet.events,
        "runs": run_store(fleet.settings, "score"),
    }
    return {name: remove_rows(table, window, dry_run) for name, table in tables.items()}


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

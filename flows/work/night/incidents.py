"""Incidents kept true: found in the stored events after a run has written them.

Which events make an incident depends on the events alone; silent stretches are joined apart from faults. A
run that may have changed events of a window calls `update_incidents` once, after all its shards are written.
For each group it looks as far back and forth as events, or incidents stored so far, reach out of the window,
and replaces what is stored there. So nights and a backfill give the same incidents. An incident is followed
for `FARTHEST` at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

import polars as pl

from flows.run.fleet import Fleet, storage_options
from flows.work.night.events import BY_RULE
from paano.alarms.events import Event
from paano.alarms.incidents import Incident, find_incidents
from storage.objects.store import open_store
from storage.tables.day_table import DayTable
from storage.tables.incidents import INCIDENT_SCHEMA, IncidentStore
from storage.window import Window

FARTHEST = timedelta(days=92)
MICROSECOND = timedelta(microseconds=1)
COLUMNS = ["event_id", "sensor", "start", "end", "severity", "length", "cause"]


def open_incidents(fleet: Fleet) -> IncidentStore:
    """The incidents of the fleet."""
    settings = fleet.settings
    return IncidentStore(open_store(settings.place(settings.operations.incidents), storage_options(settings)))


def incidents_of(fleet: Fleet, window: Window) -> pl.DataFrame:
    """The incidents that touch `window`, as the table keeps them, by start."""
    reach = window.widen(before=FARTHEST)
    days = open_incidents(fleet)
    known = [day for day in days.dates() if reach.start.date() <= day <= window.end.date()]
    if not known:
        return pl.DataFrame(schema=INCIDENT_SCHEMA)
    span = Window(max(reach.start, Window.day(known[0]).start), window.end)
    rows = days.read_many(None, span)
    return rows.filter((pl.col("start") < window.end) & (pl.col("end") >= window.start)).sort("start")


def group_names(fleet: Fleet, sensors: Iterable[str]) -> dict[str, str]:
    """The group of each sensor; a sensor without one is a group of its own."""
    return {sensor: fleet.group_of(sensor) or sensor for sensor in sensors}


def update_incidents(fleet: Fleet, window: Window) -> int:
    """Make the stored incidents those of the events that are stored now, as far as `window` matters to them.

    Returns:
        How many incidents touch the window.
    """
    table = open_incidents(fleet)
    dates = sorted({*fleet.events.dates(), *table.dates()})
    if not dates:
        return 0
    longest = 2 * fleet.settings.alarms.longest  # an event lasts no longer
    events_by_day, stored_by_day = Days(fleet.events, dates, COLUMNS), Days(table, dates)
    first, last = window.start, window.end
    while True:
        span = Window(
            max(first - longest, window.start - FARTHEST), min(last, window.end + FARTHEST) + MICROSECOND
        )
        events, stored = events_by_day.within(span), stored_by_day.within(span)
        spans = _reach(fleet, window, events, stored)
        low = min([window.start, *(part.start for part in spans.values())])
        high = max([window.end, *(part.end for part in spans.values())])
        if (low, high) == (first, last):
            break
        first, last = min(low, first), max(high, last)
    found = [
        incident
        for group, members in _by_group(fleet, events).items()
        for incident in find_incidents(members, group.name)
        if _touches(spans.get(group, window), incident.start, incident.end)
    ]
    gone = [
        row["incident_id"]
        for row in stored.iter_rows(named=True)
        if _touches(spans.get(_family(row["group"], row["cause"]), window), row["start"], row["end"])
    ]
    kept = stored.filter(~pl.col("incident_id").is_in(gone))
    now = pl.concat([kept, _rows(found)]).sort(table.order)
    if not now.equals(stored.sort(table.order)):
        starts = [*stored["start"], *now["start"]]
        table.update(
            now, Window(min(starts), max(starts) + MICROSECOND), sorted({*stored["sensor"], *now["sensor"]})
        )
    return sum(1 for one in found if _touches(window, one.start, one.end))


class Days:
    """The rows of a table on the `dates` that exist; each is read once, however often it is asked for."""

    def __init__(self, table: DayTable, dates: Sequence[date], columns: list[str] | None = None) -> None:
        self.table, self.dates, self.columns = table, dates, columns
        self.known = table.empty().select(columns or pl.all())
        self.read: set[date] = set()

    def within(self, span: Window) -> pl.DataFrame:
        """The rows of `span`, in the order of the table."""
        wanted = [day for day in self.dates if span.start.date() <= day <= span.end.date()]
        new = [day for day in wanted if day not in self.read]
        if new:
            reach = Window(Window.day(new[0]).start, Window.day(new[-1]).end)
            rows = self.table.read_many(None, reach, self.columns)
            again = pl.col(self.table.time).dt.date().is_in(list(self.read))
            self.known = pl.concat([self.known, rows.filter(~again)]).sort(self.table.order)
            self.read |= set(new)
        time = pl.col(self.table.time)
        return self.known.filter((time >= span.start) & (time < span.end))


class Family(NamedTuple):
    """Events that are joined with each other: of scores, or silent stretches, of one group."""

    name: str  # of the group
    silent: bool


def _family(group: str, cause: str | None) -> Family:
    # A sensor can be silent for weeks: it must not join every fault of its group into one incident.
    return Family(group, cause in BY_RULE)


def _reach(fleet: Fleet, window: Window, events: pl.DataFrame, stored: pl.DataFrame) -> dict[Family, Window]:
    """For each family the time that must be decided anew: the window, and whatever is joined to it."""
    spans: dict[Family, Window] = {}
    old: dict[Family, list[tuple[datetime, datetime]]] = {}
    for row in stored.iter_rows(named=True):
        old.setdefault(_family(row["group"], row["cause"]), []).append((row["start"], row["end"]))
    for group, members in _by_group(fleet, events).items():
        old.setdefault(group, []).extend((i.start, i.end) for i in find_incidents(members, group.name))
    for group, parts in old.items():
        span, grown = window, True
        while grown:
            near = [(a, b) for a, b in parts if _touches(span, a, b)]
            wider = Window(
                min([span.start, *(a for a, _ in near)]),
                max([span.end, *(b + MICROSECOND for _, b in near)]),
            )
            span, grown = wider, wider != span
        spans[group] = span
    return spans


def _touches(span: Window, start: datetime, end: datetime) -> bool:
    return start < span.end and end >= span.start


def _by_group(fleet: Fleet, events: pl.DataFrame) -> dict[Family, list[Event]]:
    names = group_names(fleet, events["sensor"].unique())
    groups: dict[Family, list[Event]] = {}
    for row in events.iter_rows(named=True):
        event = Event(
            row["event_id"], row["sensor"], row["start"], row["end"], row["start"], 0.0,
            row["severity"] or 0.0, row["length"], cause=row["cause"] or "",
        )  # fmt: skip
        groups.setdefault(_family(names[row["sensor"]], row["cause"]), []).append(event)
    return groups


def _rows(found: list[Incident]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "incident_id": one.incident_id,
                "sensor": one.events[0].sensor,
                "group": one.group,
                "start": one.start,
                "end": one.end,
                "severity": one.severity,
                "cause": max(one.events, key=lambda event: event.severity).cause,
                "sensors": list(one.sensors),
                "events": [event.event_id for event in one.events],
            }
            for one in found
        ],
        schema=INCIDENT_SCHEMA,
        orient="row",
    )

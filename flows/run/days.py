"""The days of a fleet: from midnight to midnight in `fleet.timezone`, and which of them a run is about.

A day is named by its date in the fleet's zone and is a window in UTC: 23 or 25 hours long where the clocks
change. Neighbouring days share their boundary, so that no time step lies in two days or in none.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from flows.settings.fleet_file import Settings
from paano.errors import ConfigError
from storage.window import Window

if TYPE_CHECKING:
    from flows.run.fleet import Fleet

DAY = timedelta(days=1)
FEW = 16  # sensors whose rows tell whether a day was scored


def zone_of(settings: Settings) -> ZoneInfo:
    """The zone of the fleet's days: `fleet.timezone`, or that of the schedule where it is left out."""
    return ZoneInfo(settings.zone)


def day_window(settings: Settings, first: date, last: date | None = None) -> Window:
    """The day `first`, or all days from `first` to `last`, both included, as a window in UTC.

    Raises:
        ConfigError: `last` is before `first`, or the zone has no such day.
    """
    zone, last = zone_of(settings), last or first
    if last < first:
        raise ConfigError(f"the last day {last} is before the first, {first}")
    start, end = _midnight(first, zone), _midnight(last + DAY, zone)
    if end <= start:
        raise ConfigError(f"there is no {first} in the time zone {zone.key}")
    return Window(start, end)


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    """When `day` begins: the first of two midnights, or the moment that skips a missing one."""
    return datetime.combine(day, time(), zone).astimezone(UTC)


def days_from(first: date, last: date) -> list[date]:
    """Every day from `first` to `last`, both included."""
    return [first + n * DAY for n in range((last - first).days + 1)]


def day_of(settings: Settings, moment: datetime) -> date:
    """The fleet's day that `moment` lies in."""
    return moment.astimezone(zone_of(settings)).date()


def days_of(settings: Settings, window: Window) -> tuple[date, date]:
    """The fleet's first and last day that `window` touches."""
    return day_of(settings, window.start), day_of(settings, window.end - timedelta(microseconds=1))


def last_day_of(settings: Settings, dates: Collection[date]) -> date | None:
    """The last day of the fleet with rows under these dates of a table (tables are kept by UTC date)."""
    return day_of(settings, Window.day(max(dates)).start) if dates else None


def days_with_rows(fleet: Fleet, first: date, last: date, dates: Collection[date]) -> set[date]:
    """The fleet's days from `first` to `last` that have score rows; `dates` are those of the score table.

    Tables are kept by UTC date. Where the fleet's days are others, the days before and after leave rows under
    the dates of a day that was never scored: then the rows of a few sensors tell.
    """
    known, found = set(dates), set[date]()
    for day in days_from(first, last):
        window = day_window(fleet.settings, day)
        if known.isdisjoint(window.days()):
            continue
        some = fleet.history.sensors().sensors[:FEW] if window != Window.day(day) else []
        if not some or fleet.scores.read_many(some, window, ["ts"]).height:
            found.add(day)
    return found


def scored_before(fleet: Fleet, day: date, reach: timedelta) -> list[date]:
    """The days with rows within `reach` before `day`, and the oldest of all; empty if there is none."""
    dates = fleet.scores.dates()
    if not dates:
        return []
    oldest = _oldest(fleet.settings, dates)
    first = max(day - reach // DAY * DAY, oldest)
    found = days_with_rows(fleet, first, day - DAY, dates)
    return sorted(found if first == oldest else found | {oldest})


def missed_nights(fleet: Fleet, dates: Collection[date], last: int = 30) -> list[date]:
    """The days without rows in the `last` days before the newest that has some; `dates` are of the table."""
    newest = last_day_of(fleet.settings, dates)
    if newest is None:
        return []
    oldest = _oldest(fleet.settings, dates)
    first = max(newest - last * DAY, oldest)
    found = days_with_rows(fleet, first, newest, dates)
    begin = min(found, default=newest) if first == oldest else first
    return [day for day in days_from(begin, newest) if day not in found]


def _oldest(settings: Settings, dates: Collection[date]) -> date:
    """The first day that may have rows under these dates of a table."""
    return day_of(settings, Window.day(min(dates)).start)


def day_before_now(settings: Settings) -> date:
    """The day before a run was to start, in the fleet's zone: the default day, the only look at the clock.

    A scheduled run that starts late still scores the day it was meant for.
    """
    from prefect.runtime import flow_run  # slow to import, and most commands need no run

    return day_before(settings, flow_run.scheduled_start_time or datetime.now(UTC))


def day_before(settings: Settings, moment: datetime) -> date:
    """The last whole day of the fleet before `moment`."""
    return day_of(settings, moment) - DAY

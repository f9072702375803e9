"""A week or a month of a fleet, day by day; and some sensors side by side."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import polars as pl

from flows.pages.html import read_asset, render
from flows.pages.night_facts import LEVELS, level_of
from flows.pages.place import Place
from flows.pages.sensor_page import channel_order, event_data, score_data
from flows.pages.series import milliseconds, page_series
from flows.pages.views import EventRow, events
from flows.run.days import day_of, day_window, days_from, days_of, days_with_rows
from flows.run.fleet import Fleet
from flows.run.outcome import State
from flows.run.report import run_store
from paano.errors import ConfigError, PaanoError
from storage.window import Window

DAY = timedelta(days=1)
MOST_COMPARED = 12  # sensors side by side
LONGEST = 400  # days of an overview


def render_overview(fleet: Fleet, last: date, days: int, place: Place) -> str:
    """The page with a mark for every sensor and day."""
    if not 1 <= days <= LONGEST:
        raise ConfigError(f"{days} days are too many or too few; an overview has 1 to {LONGEST}")
    nights = days_from(last - (days - 1) * DAY, last)
    found = events(fleet, day_window(fleet.settings, nights[0], last))
    data = overview_data(fleet, nights, found)
    return render(
        "pages/overview.html",
        data,
        (read_asset("pages/draw.js"), read_asset("pages/overview.js")),
        live=place.live,
        fleet=fleet.settings.fleet.name,
        heading=f"{days} days to {last:%d %B %Y}",
        place=place,
        last=last,
        days=days,
        zone=fleet.settings.zone,
        current="week" if days <= 7 else "month",
        count=len(found),
        earlier=place.overview(days, last - days * DAY),
        later=place.overview(days, last + days * DAY),
    )


def overview_data(fleet: Fleet, days: Sequence[date], found: Sequence[EventRow]) -> dict[str, Any]:
    """What the scripts of the overview draw: a column for each of `days`, which are days of the fleet."""
    catalog, settings = fleet.history.sensors(), fleet.settings
    scored = days_with_rows(fleet, days[0], days[-1], fleet.scores.dates())
    blank = "".join("0" if day in scored else "p" for day in days)
    cells = {sensor: list(blank) for sensor in catalog.sensors}
    runs = run_store(settings, "score").read_many(
        None,
        Window(Window.day(days[0]).start, Window.day(days[-1]).end),  # a run is kept under its night's date
        ["sensor", "as_of", "state", "rows", "missing"],
    )
    for sensor, moment, state, rows, missing in runs.iter_rows():
        place = (moment.date() - days[0]).days
        if sensor in cells and 0 <= place < len(days):
            if state == State.SKIPPED:
                cells[sensor][place] = "m"
            elif rows and missing == rows:
                cells[sensor][place] = "x"
    nights = [[0] * len(LEVELS) for _ in days]
    worst: dict[str, float] = {}
    for event in sorted(found, key=lambda event: event.severity):
        level = level_of(event.severity)
        first = max(0, (day_of(settings, event.start) - days[0]).days)
        last = min(len(days) - 1, (day_of(settings, event.end) - days[0]).days)
        for place in range(first, last + 1):
            if event.sensor in cells:
                cells[event.sensor][place] = str(level)
            nights[place][level - 1] += 1
        worst[event.sensor] = max(worst.get(event.sensor, 0.0), event.severity)
    rows_of_map = [
        [sensor, catalog[sensor].group or "", "".join(marks), round(worst.get(sensor, 0.0), 2)]
        for sensor, marks in cells.items()
    ]
    return {
        "zone": settings.zone,
        "days": [str(day) for day in days],
        "nights": nights,
        "rows": sorted(rows_of_map, key=lambda row: (-row[3], row[0])),
    }


def render_group(fleet: Fleet, group: str, sensors: Sequence[str], window: Window, place: Place) -> str:
    """Sensors of a group, or those named, over the same time."""
    catalog = fleet.history.sensors()
    groups = sorted({group_of(fleet, sensor) for sensor in catalog.sensors} - {""})
    if group:
        chosen = [sensor for sensor in catalog.sensors if group_of(fleet, sensor) == group]
        if not chosen:
            raise ConfigError(f"there is no group {group!r}; groups: {', '.join(groups) or 'none'}")
    else:
        chosen = [catalog[sensor].sensor for sensor in sensors]
    found = events(fleet, window, chosen or None)
    if not chosen:  # nothing chosen: the sensors with the worst events
        chosen = list(dict.fromkeys(event.sensor for event in found)) or catalog.sensors
        chosen = chosen[:6]
    shown = chosen[:MOST_COMPARED]
    since, until = days_of(fleet.settings, window)
    width = until - since + DAY
    return render(
        "pages/group.html",
        compare_data(fleet, shown, window, found),
        (read_asset("pages/draw.js"), read_asset("pages/group.js")),
        live=place.live,
        fleet=fleet.settings.fleet.name,
        heading=f"Group {group}" if group else "Sensors side by side",
        place=place,
        group=group,
        groups=groups,
        sensors=shown,
        left_out=len(chosen) - len(shown),
        known=catalog.sensors[:2000],
        since=since,
        until=until,
        earlier=place.group(group, sensors, since - width, until - width),
        later=place.group(group, sensors, since + width, until + width),
        zone=fleet.settings.zone,
        current="group",
    )


def group_of(fleet: Fleet, sensor: str) -> str:
    """The group of a sensor, or nothing."""
    return fleet.history.sensors()[sensor].group or ""


def compare_data(
    fleet: Fleet, sensors: Sequence[str], window: Window, found: Sequence[EventRow]
) -> dict[str, Any]:
    """What the scripts of the comparison draw: the channel with the largest share, and the score."""
    readings = fleet.history.read_many(list(sensors), window) if sensors else {}
    scores = fleet.scores.read_many(
        list(sensors), window, ["sensor", "ts", "score", "threshold", "status", "anomaly"]
    )
    by_sensor = {key[0]: part.drop("sensor") for key, part in scores.group_by("sensor", maintain_order=True)}
    panels = []
    for sensor in sensors:
        reading = readings.get(sensor)
        series, channel = None, ""
        if reading is not None and not isinstance(reading, PaanoError) and len(reading):
            column = channel_order(reading.channels, [event for event in found if event.sensor == sensor])[0][
                1
            ]
            series = page_series(reading.start, reading.interval, reading.values[:, column], 600)
            channel = reading.channels[column]
        panels.append(
            {
                "sensor": sensor,
                "channel": channel,
                "series": series,
                "problem": str(reading) if isinstance(reading, PaanoError) else "",
                "score": score_data(by_sensor.get(sensor, pl.DataFrame()), 400),
                "events": [event_data(event) for event in found if event.sensor == sensor],
            }
        )
    return {
        "zone": fleet.settings.zone,
        "window": [milliseconds(window.start), milliseconds(window.end)],
        "panels": panels,
    }

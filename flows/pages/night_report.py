"""The night report: one page that holds everything it shows, written beside the scores of a fleet.

It stays small at thousands of sensors: a sensor is one line of marks, an event a few numbers, its picture a
text of two characters a point, drawn when it comes into sight, and only the worst events get one. Neither
pages nor pictures are written for quiet sensors; the live view has those.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from flows.pages.html import read_asset, render
from flows.pages.night_facts import FEWEST, USUAL, NightFacts, gather_night
from flows.pages.place import Place, file_name
from flows.pages.sensor_page import (
    SensorFacts,
    event_data,
    expected_normal,
    gather,
    render_sensor,
    shown,
)
from flows.pages.series import Expected, milliseconds, pack
from flows.pages.views import EventRow, events
from flows.run.days import day_window
from flows.run.fleet import Fleet, fleet_for, storage_options
from flows.run.outcome import State
from flows.run.workers import has_processes, side_by_side
from paano.device import compute_threads
from paano.errors import PaanoError
from paano.model import PaAno
from storage.history.reader import Reading
from storage.objects.store import open_store
from storage.registry.registry import Version
from storage.window import Window

BINS = 90  # of a small picture, two values each
BEFORE = timedelta(days=1)  # of history before the night, for the pictures
WORKERS = 2  # sensors that are looked at at once, where there are no processes to do it
LATEST = "latest.html"  # always the newest night

log = logging.getLogger("paano.pages")


@dataclass(frozen=True)
class Written:
    """Where a report lies."""

    address: str  # of the page
    link: str  # what a person opens: the live view where the settings name it, else the page itself
    sensors: int  # pages of sensors beside it
    bytes: int


@dataclass(frozen=True)
class Pictures:
    """What the pictures of events are drawn from, by sensor."""

    readings: Mapping[str, Reading]
    expected: Mapping[str, Expected] = field(default_factory=dict)


def write_report(
    fleet: Fleet,
    day: date,
    notes: Iterable[str] = (),
    out: str = "",
    champions: Mapping[str, Version] | None = None,
) -> Written:
    """Write the report of the night of `day`, and the pages of its worst sensors beside it.

    Args:
        fleet: the opened stores.
        day: the night.
        notes: of the run that just ended.
        out: folder or URL to write to instead of `report.url`, or a file that ends in `.html`.
        champions: of the whole fleet, if they are known; else the registry is asked.
    """
    settings = fleet.settings
    facts = gather_night(fleet, day, notes, champions)
    chosen = list(dict.fromkeys(event.sensor for event in facts.events))[: settings.report.sensors]
    found, pictures = look_closer(fleet, facts, chosen)
    pages = {sensor: page for sensor, page in found.items() if isinstance(page, SensorFacts)}
    problems = [
        *facts.notes,
        *(f"{name}: no page of its own: {why}" for name, why in found.items() if isinstance(why, PaanoError)),
    ]
    folder, name = split_place(out or settings.report.url, day)
    place = Place(base=settings.report.live.rstrip("/"), written=frozenset(pages), folder=name)
    facts = replace(facts, notes=problems)
    page = render_night(fleet, facts, place, pictures)

    # What is given on the command line starts where the person is, what is set starts at the fleet file.
    store = open_store(folder if out else settings.place(folder), storage_options(settings))

    def write(sensor: str) -> None:
        text = render_sensor(fleet, pages[sensor], Place.file(), back=f"../{name}.html")
        store.put(f"{name}/{file_name(sensor)}", text.encode())

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(write, pages))
    key, data = f"{name}.html", page.encode()
    store.put(key, data)
    if not out and all(item.key <= key for item in store.list("") if _is_report(item.key)):
        store.put(LATEST, data)
    address = store.url_of(key)
    opened = address if "://" in address else Path(address).resolve().as_uri()
    return Written(address, place.night(day) or opened, len(pages), len(data))


def look_closer(
    fleet: Fleet, facts: NightFacts, chosen: Sequence[str]
) -> tuple[dict[str, SensorFacts | PaanoError], Pictures]:
    """What the pages of the `chosen` sensors show, and what the pictures of the night do.

    All models that it takes are asked side by side.
    """
    week = facts.window.widen(before=timedelta(days=2))
    pictured = pictured_events(fleet, facts)
    readings = fleet.history.read_many(chosen, shown(week))  # together: in long tables they share objects
    others = read_around(fleet, facts.window, {event.sensor for event in pictured}.difference(chosen))
    known_fleet = fleet.settings.to_dict() if has_processes() else fleet
    sensors = [
        (
            known_fleet,
            sensor,
            week,
            facts.window,
            {sensor: facts.champions[sensor]} if sensor in facts.champions else {},
            [event for event in facts.recent if event.sensor == sensor],
            readings[sensor],
        )
        for sensor in chosen
    ]
    # The live view asks for them when a picture comes into sight.
    normals = {} if fleet.settings.report.live else asked_normals(fleet, others, pictured, facts.champions)
    asked = [*((facts_of, *one) for one in sensors), *((expected_at, *one) for one in normals.values())]
    answers = side_by_side(asked, WORKERS)
    pages = dict(zip(chosen, answers[: len(chosen)], strict=True))
    expected = dict(zip(normals, answers[len(chosen) :], strict=True))
    for sensor, page in pages.items():
        reading = readings[sensor]
        if isinstance(reading, Reading):
            others[sensor] = reading.cut(facts.window.widen(before=BEFORE))
        if isinstance(page, SensorFacts):
            expected[sensor] = page.expected
    return pages, Pictures(others, {sensor: its for sensor, its in expected.items() if its is not None})


def facts_of(
    known_fleet: Fleet | dict[str, Any],
    sensor: str,
    week: Window,
    night: Window,
    champions: Mapping[str, Version],
    events: Sequence[EventRow],
    reading: Reading | PaanoError,
) -> SensorFacts | PaanoError:
    """What the page of a sensor shows; `known_fleet` is the fleet, for another process its settings."""
    if isinstance(reading, PaanoError):
        return reading
    fleet = fleet_for(known_fleet) if isinstance(known_fleet, dict) else known_fleet
    try:
        return gather(fleet, sensor, week, parts_in=night, champions=champions, known=events, reading=reading)
    except PaanoError as error:
        return error


def split_place(place: str, day: date) -> tuple[str, str]:
    """The folder or URL, and the name of the page in it without `.html`."""
    if not place.endswith(".html"):
        return place, str(day)
    folder, _, name = place.removesuffix(".html").rpartition("/")
    return folder or ".", name


def _is_report(key: str) -> bool:
    return key.endswith(".html") and "/" not in key and key != LATEST


def render_night(fleet: Fleet, facts: NightFacts, place: Place, pictures: Pictures | None = None) -> str:
    """The report as text. Without `pictures` the events have the readings alone, as in the live view."""
    if pictures is None:
        names = {event.sensor for event in pictured_events(fleet, facts)}
        pictures = Pictures(read_around(fleet, facts.window, names))
    settings = fleet.settings
    states = Counter(str(state) for state, _ in facts.outcomes.values())
    return render(
        "pages/night.html",
        night_data(fleet, facts, place, pictures),
        (read_asset("pages/draw.js"), read_asset("pages/night.js")),
        live=place.live,
        fleet=settings.fleet.name,
        heading=f"Night of {facts.day:%A, %d %B %Y}",
        facts=facts,
        place=place,
        zone=settings.zone,
        current="night",
        earlier=place.night(facts.day - timedelta(days=1)),
        later=place.night(facts.day + timedelta(days=1)),
        usual=USUAL,
        fewest=FEWEST,
        run_counts=", ".join(f"{count} {state}" for state, count in states.most_common())
        or "no outcome table is kept for this night",
        run_rows=sorted(
            (state, sensor, reason)
            for sensor, (state, reason) in facts.outcomes.items()
            if state != State.OK or reason
        ),
    )


def pictured_events(fleet: Fleet, facts: NightFacts) -> Sequence[EventRow]:
    """The events that get a picture: the most severe."""
    return facts.events[: fleet.settings.report.pictures]


def night_data(fleet: Fleet, facts: NightFacts, place: Place, pictures: Pictures) -> dict[str, Any]:
    """What the scripts of the page draw."""
    first, last = facts.day - timedelta(days=2), facts.day
    links = {
        sensor: link
        for sensor in (row.sensor for row in facts.rows)
        if (link := place.sensor(sensor, first, last))
    }
    rows, drawn = [], {event.event_id for event in pictured_events(fleet, facts)}
    for event in facts.events:
        row = event_data(event) | {"group": fleet.group_of(event.sensor) or ""}  # it may have left the fleet
        row["verdict"] = facts.verdicts.get(event.event_id, "")
        reading = pictures.readings.get(event.sensor)
        if reading is not None and event.event_id in drawn:
            row["picture"] = picture_of(event, reading, facts.window, pictures.expected.get(event.sensor))
        rows.append(row)
    return {
        "live": place.live,
        "zone": fleet.settings.zone,
        "day": str(facts.day),
        "window": [milliseconds(facts.window.start), milliseconds(facts.window.end)],
        "scored": any(row.cells.strip("p") for row in facts.rows),
        "events": rows,
        "rows": [[row.sensor, row.group, row.cells, row.worst] for row in facts.rows],
        "links": links,
    }


def read_around(fleet: Fleet, window: Window, sensors: Iterable[str]) -> dict[str, Reading]:
    """Readings of the night and the day before, by sensor; one that cannot be read has no picture."""
    names = sorted(set(sensors))
    if not names:
        return {}
    found = fleet.history.read_many(names, window.widen(before=BEFORE))
    return {sensor: reading for sensor, reading in found.items() if isinstance(reading, Reading)}


def asked_normals(
    fleet: Fleet,
    readings: Mapping[str, Reading],
    events: Sequence[EventRow],
    champions: Mapping[str, Version],
) -> dict[str, tuple[Path | PaanoError, Reading, list[EventRow], int]]:
    """What `expected_at` is to be asked, for each sensor that has a champion."""
    folders = fleet.registry.fetch_many(champions[name] for name in sorted(readings) if name in champions)
    threads = fleet.settings.run.threads
    return {
        sensor: (folder, readings[sensor], [event for event in events if event.sensor == sensor], threads)
        for sensor, folder in folders.items()
    }


def expected_at(
    folder: Path | PaanoError, reading: Reading, events: list[EventRow], threads: int
) -> Expected | None:
    """The expected normal of a sensor in place of `events`, by the model in `folder`; None if it has none."""
    try:
        if isinstance(folder, PaanoError):
            raise folder
        with compute_threads(threads):
            model = PaAno.load(folder, device="cpu")
            known = list(reading.channels) == model.facts.get("channel_names")
            return expected_normal(model, reading, events) if known else None
    except PaanoError as error:  # the picture is worth having without it
        log.warning("%s: no expected normal in the report: %s", reading.sensor, error)
        return None


def pictures_of(fleet: Fleet, sensor: str, day: date) -> dict[str, Any]:
    """The pictures of the events of a sensor in the night of `day`, with the expected normal, by event."""
    window = day_window(fleet.settings, day)
    its = events(fleet, window, [sensor])
    readings = read_around(fleet, window, [sensor])
    normals = asked_normals(fleet, readings, its, fleet.registry.champions([sensor]))
    expected = {name: expected_at(*asked) for name, asked in normals.items()}
    return {
        event.event_id: picture_of(event, reading, window, expected.get(sensor))
        for event in its
        for reading in readings.values()
    }


def picture_of(
    event: EventRow, reading: Reading, window: Window, expected: Expected | None
) -> dict[str, Any] | None:
    """The channel with the largest share of an event, small; None where there is nothing to see."""
    room = max((event.end - event.start) / 2, 24 * reading.interval)
    around = Window(
        max(event.start - room, reading.start), min(max(event.end + room, event.start + room), window.end)
    )
    cut = reading.cut(around)
    if not cut.rows:
        return None
    channel = next((name for name in event.channels if name in reading.channels), reading.channels[0])
    column = reading.channels.index(channel)
    if not np.isfinite(cut.values[:, column]).any():
        return None
    lines = {"v": small(cut.values[:, column])}
    if expected is not None and channel in expected.channels:
        place = list(expected.channels).index(channel)
        first = (cut.start - expected.start) // expected.interval
        stretch = slice(max(0, first), max(0, first + len(cut)))
        for name in ("low", "mid", "high"):
            values = getattr(expected, name)[stretch, place]
            if len(values) == len(cut) and np.isfinite(values).any():
                lines[name] = small(values)
    known = np.concatenate([values[np.isfinite(values)] for values in lines.values()])
    low, high = float(known.min()), float(known.max())
    return {
        "channel": channel,
        "from": milliseconds(cut.start),
        "to": milliseconds(cut.end),
        **{name: pack(values, low, high) for name, values in lines.items()},
    }


def small(values: np.ndarray) -> np.ndarray:
    """At most two values for each of BINS stretches, its least and its greatest in their order."""
    if len(values) <= 2 * BINS:
        return values
    out = np.full((BINS, 2), np.nan)
    for place, stretch in enumerate(np.array_split(values, BINS)):
        known = np.flatnonzero(np.isfinite(stretch))
        if len(known):
            ends = sorted((known[stretch[known].argmin()], known[stretch[known].argmax()]))
            out[place] = stretch[ends]
    return out.ravel()


def report_of_run(
    fleet: Fleet,
    day: date,
    notes: Iterable[str] = (),
    champions: Mapping[str, Version] | None = None,
) -> tuple[Written | None, str]:
    """The report at the end of a scoring run, and a note about it.

    A night that was scored stays scored when its report cannot be written: then the note says why.
    """
    if not fleet.settings.report.url:
        return None, ""
    try:
        written = write_report(fleet, day, notes, champions=champions)
    except PaanoError as error:
        return None, f"the report of {day} could not be written: {error}"
    return written, f"the report of {day}: {written.link}"

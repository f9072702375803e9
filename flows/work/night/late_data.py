"""Late data heals itself: days whose history changed after they were scored are found and scored again.

A night remembers what it read of each sensor and day (`storage.tables.reads`). Later a listing shows which
objects have changed since; only their sensors are read, for that day alone; and only where the values differ
is the day scored again. Its neighbours follow as far as the data reaches, as after any run.

Of a sensor that failed, the night remembers what was listed of the day and of the days around it, which its
patches reach into: when any of that changes, the day is tried again (within `run.catch_up` every night does).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from typing import Any

import polars as pl

from flows.run.days import DAY, day_of, day_window
from flows.run.fleet import Fleet, storage_options
from flows.run.outcome import Figures
from flows.work.night.compute import Scored
from paano.errors import HistoryError, PaanoError, StorageError, Transient
from storage.history.layout import Found
from storage.history.reader import History
from storage.objects.store import open_store
from storage.tables.reads import READ_SCHEMA, ReadStore
from storage.window import Window

UNREAD = ""  # the digest of a day that could not be scored

Marks = Mapping[tuple[str, Window], str]


def open_reads(fleet: Fleet) -> ReadStore:
    """What nights of the fleet read."""
    settings = fleet.settings
    return ReadStore(open_store(settings.place(settings.operations.reads), storage_options(settings)))


def marks_of(fleet: Fleet, windows: Mapping[str, Sequence[Window]]) -> dict[tuple[str, Window], str]:
    """What stands for the objects of each sensor in its windows now. Listings only; nothing is read."""
    if not fleet.settings.run.look_back:
        return {}
    history = fleet.history
    if history.layout.kind == "long":
        every = {window for some in windows.values() for window in some}
        same = {window: _mark(history, history.listing.objects(None, window)) for window in every}
        return {(sensor, window): same[window] for sensor, some in windows.items() for window in some}

    def one(sensor: str) -> dict[tuple[str, Window], str]:
        try:
            found = history.listing.by_window(sensor, windows[sensor])
            return {
                (sensor, window): _mark(history, some)
                for window, some in zip(windows[sensor], found, strict=True)
            }
        except (HistoryError, StorageError):  # the run that reads this sensor says what is wrong
            return {}

    with ThreadPoolExecutor(8) as pool:
        return {key: mark for part in pool.map(one, windows) for key, mark in part.items()}


def _mark(history: History, found: Iterable[Found]) -> str:
    digest = hashlib.sha256()
    for one in found:
        if one.modified is None:  # computed from the date, not listed
            info = history.store.head(one.key)
            if info is None:
                continue
            one = Found.of(info)
        digest.update(f"{one.key}\0{one.size}\0{one.tag or one.modified}\n".encode())
    return digest.hexdigest()[:32]


def remember(
    fleet: Fleet, days: Sequence[Window], scored: Mapping[str, Scored], quiet: Mapping[str, Figures]
) -> None:
    """Keep what was read for these days, as it was listed before it was read.

    `quiet` has the figures of sensors that need not be computed again while their inputs are the same.
    """
    rows = [
        _row(
            sensor,
            day,
            one.marks[day.start.isoformat()],
            one.digests[day.start.isoformat()],
            interval=one.interval,
            channels=list(one.channels),
            inputs=one.inputs if sensor in quiet else None,
            figures=json.dumps(quiet[sensor], sort_keys=True) if one.inputs and sensor in quiet else None,
        )
        for sensor, one in scored.items()
        for day in days
        if day.start.isoformat() in one.marks and day.start.isoformat() in one.digests
    ]
    if rows:
        frame = pl.DataFrame(rows, schema=READ_SCHEMA, orient="row")
        # a day at a time: days that were not scored keep what is remembered of them
        for day in days:
            some = frame.filter(pl.col("ts") == day.start)
            open_reads(fleet).update(some, Window(day.start, day.end), some["sensor"].to_list())


def _row(sensor: str, day: Window, objects: str, digest: str, **more: object) -> dict[str, object]:
    """A row of the table of reads; what is not given is null."""
    known = {"sensor": sensor, "ts": day.start, "end": day.end, "objects": objects, "digest": digest}
    return {**dict.fromkeys(READ_SCHEMA), **known, **more}


def remember_failed(fleet: Fleet, days: Sequence[Window], sensors: Sequence[str]) -> None:
    """Keep what is listed of days that could not be scored.

    What an earlier run read of such a day stays: its stored scores came from that.
    """
    if not sensors or not fleet.settings.run.look_back:
        return
    table = open_reads(fleet)
    wide = [_around(fleet, day) for day in days]
    marks = marks_of(fleet, dict.fromkeys(sensors, wide))
    for day, listed in zip(days, wide, strict=True):
        read = table.read_many(sensors, day, ["sensor", "digest"]).filter(pl.col("digest") != UNREAD)
        rows = [
            _row(sensor, day, marks.get((sensor, listed), ""), UNREAD, interval=timedelta(0), channels=[])
            for sensor in sorted({*sensors}.difference(read["sensor"]))
        ]
        if rows:
            frame = pl.DataFrame(rows, schema=READ_SCHEMA, orient="row")
            table.update(frame, day, frame["sensor"].to_list())


def _around(fleet: Fleet, day: Window) -> Window:
    """`day` with the days that its patches may reach into: more after it would change with every new day."""
    return day.widen(before=fleet.settings.run.look_back, after=DAY)


def with_reads(one: Scored, days: Sequence[Window], marks: Marks) -> Scored:
    """What was computed, with what was read for it; as it is where the reading is not at hand."""
    if one.reading is None or not marks:
        return one
    whole = [day for day in days if one.reading.start <= day.start and day.end <= one.reading.end]
    return dataclasses.replace(
        one,
        marks={day.start.isoformat(): mark for day in whole if (mark := marks.get((one.sensor, day)))},
        digests={day.start.isoformat(): one.reading.cut(day).digest for day in whole},
        channels=tuple(one.reading.channels),
    )


def changed_days(fleet: Fleet, before: date, sensors: Sequence[str]) -> dict[date, list[str]]:
    """The sensors of each day within run.look_back before `before` whose values are no longer what was read.

    Where only the objects changed and not the values of a sensor, that is remembered.
    """
    settings = fleet.settings
    span = timedelta(days=-(-settings.run.look_back // timedelta(days=1)))
    if not span:
        return {}
    reach = Window(day_window(settings, before - span).start, day_window(settings, before).start)
    table = open_reads(fleet)
    if not table.dates():
        return {}
    rows = table.read_many(sensors, reach)
    fleet.history.list_ahead(rows["sensor"].unique(maintain_order=True), reach)
    found: dict[date, list[str]] = {}
    remembered = [
        Window(start, end) for start, end in rows.select("ts", "end").unique().sort("ts").iter_rows()
    ]
    failed = rows.filter(pl.col("digest") == UNREAD)["sensor"].unique()
    around = {day: _around(fleet, day) for day in remembered}
    windows = dict.fromkeys(rows["sensor"].unique(maintain_order=True), remembered)
    now = marks_of(fleet, windows | {name: [*remembered, *around.values()] for name in failed})
    for (start, end), part in rows.group_by("ts", "end", maintain_order=True):
        day = Window(start, end)
        moved = []
        for row in part.iter_rows(named=True):
            listed = around[day] if row["digest"] == UNREAD else day
            if now.get((row["sensor"], listed), row["objects"]) != row["objects"]:
                moved.append(row)
        differ, same = _compare(fleet, day, moved)
        if same:
            frame = pl.DataFrame(
                [{**row, "objects": now[row["sensor"], day]} for row in same],
                schema=READ_SCHEMA,
                orient="row",
            )
            table.update(frame, Window(day.start, day.end), frame["sensor"].to_list())
        if differ:
            found[day_of(settings, day.start)] = sorted(differ)
    return found


def _compare(
    fleet: Fleet, day: Window, rows: Sequence[dict[str, Any]]
) -> tuple[list[str], list[dict[str, Any]]]:
    """Of sensors whose objects changed, those whose values did, and the rows of the others."""
    differ = [str(row["sensor"]) for row in rows if row["digest"] == UNREAD]
    same: list[dict[str, Any]] = []
    by_form: dict[tuple[timedelta, tuple[str, ...]], list[dict[str, Any]]] = {}
    for row in (row for row in rows if row["digest"] != UNREAD):
        by_form.setdefault((row["interval"], tuple(row["channels"])), []).append(row)
    for (interval, channels), members in by_form.items():
        names = [str(row["sensor"]) for row in members]
        readings = fleet.history.read_many(
            names, day, dict.fromkeys(names, interval), channels=dict.fromkeys(names, channels)
        )
        for row in members:
            reading = readings[str(row["sensor"])]
            if isinstance(reading, Transient):
                raise reading
            if isinstance(reading, PaanoError) or reading.digest != row["digest"]:
                differ.append(str(row["sensor"]))
            else:
                same.append(row)
    return differ, same

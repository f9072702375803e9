"""Which days are to be scored: what was missed, what is done, how many at once, and what lies too late."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, timedelta

import polars as pl

from flows.run.days import DAY, day_window, days_from
from flows.run.fleet import Fleet
from flows.work.night.rows import KEY
from paano.errors import ConfigError, HistoryError, StorageError, Transient
from paano.status import Status
from storage.history import paths
from storage.history.reader import Reading
from storage.registry.registry import Version
from storage.window import Window

MOST_DAYS, MOST_ROWS = 90, 2_000_000  # that are computed at once
SEEN = ["sensor", "ts", "status", "model_version"]
FIRST_LOOK = 8  # sensors that are asked first whether there is data
MICROSECOND = timedelta(microseconds=1)
LATER = timedelta(days=31)


def stretches(days: Sequence[date], longest: int) -> list[list[date]]:
    """`days` in runs that follow each other, each of at most `longest` days."""
    runs: list[list[date]] = []
    for day in sorted(set(days)):
        if runs and day - runs[-1][-1] == DAY and len(runs[-1]) < longest:
            runs[-1].append(day)
        else:
            runs.append([day])
    return runs


def days_at_once(versions: Mapping[str, Version], sensors: int) -> int:
    """How many days of so many sensors are computed at once: their rows are held in memory together."""
    intervals = [version.parsed.interval for version in versions.values()]
    shortest = min((step for step in intervals if step), default=timedelta(minutes=1))
    rows = max(1, sensors * int(DAY / shortest))
    return max(1, min(MOST_DAYS, MOST_ROWS // rows))


def days_by_sensors(
    fleet: Fleet,
    days: Sequence[date],
    sensors: Sequence[str],
    *,
    dates: Collection[date] = (),
    done_by: Mapping[str, Version] | None = None,
) -> list[tuple[list[date], list[str]]]:
    """Sensors that have the same days to score; those with none are left out.

    Args:
        dates: days of the fleet that have rows; with them, days that a sensor missed come before `days`.
        done_by: the champions; with them, days that they have scored already are left out.
    """
    missed = missed_days(fleet, days[0], sensors, dates) if dates else {}
    done = scored_days(fleet, days, sensors, done_by) if done_by is not None else {}
    groups: dict[tuple[date, ...], list[str]] = {}
    for sensor in sensors:
        left = [day for day in days if day not in done.get(sensor, ())]
        groups.setdefault((*missed.get(sensor, ()), *left), []).append(sensor)
    return [(list(asked), some) for asked, some in sorted(groups.items()) if asked]


def scored_days(
    fleet: Fleet, days: Sequence[date], sensors: Sequence[str], versions: Mapping[str, Version]
) -> dict[str, set[date]]:
    """The days of each sensor that its champion has scored and that are final; the last need not be."""
    numbers = {sensor: version.version for sensor, version in versions.items()}
    wanted = pl.col("sensor").replace_strict(numbers, default=None, return_dtype=pl.Int32)
    open_tail = (pl.col("status") == str(Status.PROVISIONAL)) & (pl.col("day") != days[-1])
    other = pl.col("model_version").ne_missing(wanted) | wanted.is_null()
    done: dict[str, set[date]] = {}
    for part in stretches(days, MOST_DAYS):
        rows = seen(fleet, part, sensors).with_columns(bad=other | open_tail)
        found = rows.group_by("sensor", "day").agg(pl.col("bad").any()).filter(~pl.col("bad"))
        for sensor, day in found.select("sensor", "day").iter_rows():
            done.setdefault(sensor, set()).add(day)
    return done


def missed_days(
    fleet: Fleet, day: date, sensors: Sequence[str], dates: Collection[date]
) -> dict[str, list[date]]:
    """The days within run.catch_up before `day` that a sensor has no rows of, or that were left unfinished.

    A day that the whole fleet has rows of but not this sensor counts only if the sensor has some before it:
    a new sensor missed nothing. What lies close before `day` is finished by the run of `day` itself.
    """
    first = max(day - int(fleet.settings.run.catch_up / DAY) * DAY, min(dates))
    if first >= day:
        return {}
    asked = days_from(first, day - DAY)
    near = day_window(fleet.settings, day).start
    rows = seen(fleet, asked, sensors)
    step = pl.col("ts").diff().over("sensor").min().over("sensor")
    left = pl.lit(near) - pl.col("ts") > fleet.settings.config().context * step
    state = (
        rows.with_columns(left=(left & (pl.col("status") == str(Status.PROVISIONAL))).fill_null(False))
        .group_by("sensor", "day")
        .agg(pl.col("left").any())
    )
    found = {(sensor, when): left for sensor, when, left in state.iter_rows()}
    empty = set(asked).difference(dates)
    missed: dict[str, list[date]] = {}
    for sensor in sensors:
        begun = False
        for each in asked:
            there = (sensor, each) in found
            if found.get((sensor, each), False) or (not there and (begun or each in empty)):
                missed.setdefault(sensor, []).append(each)
            begun = begun or there
    return missed


def seen(fleet: Fleet, days: Sequence[date], sensors: Sequence[str]) -> pl.DataFrame:
    """The stored rows of `days`, which follow each other, with the day that each lies in."""
    windows = [day_window(fleet.settings, day) for day in days]
    rows = fleet.scores.read_many(list(sensors), Window(windows[0].start, windows[-1].end), SEEN)
    starts = pl.DataFrame(
        {"start": [window.start for window in windows], "day": list(days)},
        schema={"start": pl.Datetime("us", "UTC"), "day": pl.Date},
    )
    return rows.sort("ts").join_asof(starts, left_on="ts", right_on="start").sort(KEY)


def has_object(fleet: Fleet, sensor: str, night: Window) -> bool:
    """Whether there is an object with the date of `night` in its name that holds rows of this sensor."""
    history, noon = fleet.history, night.start + night.length / 2
    name = None if history.layout.kind == "long" else sensor
    try:
        found = history.listing.objects(name, Window(noon, noon + MICROSECOND))
    except (HistoryError, StorageError):  # the run that reads this sensor says what is wrong
        return False
    return any(one.modified is not None and paths.day_of(one.key) for one in found)


def refuse_after_the_data(
    fleet: Fleet, sensors: Sequence[str], day: date, versions: Mapping[str, Version]
) -> None:
    """ConfigError if no sensor of the fleet has any data on `day` or in the month after it.

    A usual day costs a listing: an object of that date is data. Where names hold no dates, the first sensors
    that have a value end the search. It looks beyond the `sensors` asked for: what is wrong with one that is
    silent or damaged is said by the run.
    """
    night = day_window(fleet.settings, day)
    every = list(dict.fromkeys([*sensors, *fleet.history.sensors().sensors]))
    if any(has_object(fleet, sensor, night) for sensor in every[:FIRST_LOOK]):
        return
    readable = False
    for window in (night, Window(night.end, night.end + LATER)):
        for part in (every[:FIRST_LOOK], every[FIRST_LOOK:]):
            known = {name: versions[name].parsed.interval for name in part if name in versions}
            intervals = {name: step for name, step in known.items() if step}
            for reading in fleet.history.read_many(part, window, intervals).values():
                if isinstance(reading, Transient):
                    raise reading
                if isinstance(reading, Reading) and reading.rows:
                    return
                readable = readable or not isinstance(reading, HistoryError)
    if readable:
        raise ConfigError(
            f"no sensor of {len(every)} has data on {day} or in the month after it; --day and --last take "
            "days with data"
        )

"""Where the rows of a sensor are: keys computed from the window, or the listing of as little as possible."""

from __future__ import annotations

import itertools
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from paano.errors import ConfigError, HistoryError
from storage.history import paths
from storage.history.paths import is_parquet
from storage.objects.store import ObjectInfo, Store
from storage.window import Window, time_zones

KINDS = ("sensor", "long")
ORDERS = ("modified", "name")


@dataclass(frozen=True)
class Found:
    """An object that may hold rows. Size and age are None where the key was computed and not listed."""

    key: str
    size: int | None = None
    modified: datetime | None = None
    tag: str = ""  # as in `ObjectInfo`

    @classmethod
    def of(cls, info: ObjectInfo) -> Found:
        """An object that was listed."""
        return cls(info.key, info.size, info.modified, info.tag)


@dataclass(frozen=True)
class SensorColumns:
    """What one sensor has otherwise than the layout says. None: as the layout."""

    values: Mapping[str, str] | None = None  # {column in the files: channel}
    interval: timedelta | None = None


@dataclass(frozen=True)
class HistoryLayout:
    """Where the rows of a sensor are, and what the columns are called.

    `kind = "sensor"`: a prefix per sensor. `path` gives it: `{sensor}` alone means the Parquet in that folder
    and in its date partitions (`date=…`, `year=…/month=…/day=…`, `2026/01/02`), which are used to skip
    objects; Parquet any deeper is refused, as it may be another sensor's. With several levels,
    `{site}/{line}/{sensor}`, the id is the joined path. With `{date}` in it the objects are computed from the
    window and nothing is listed: `{sensor}/date={date}.parquet`.
    `kind = "long"`: tables with a sensor column; `path` is a folder per date (`date={date}`, the default) or
    an object per date (`{date}.parquet`). `{year}`, `{month}` and `{day}` are known too.

    A stamp with a time zone counts as it says; one without is taken as local time of `timezone`. Of rows with
    the same stamp the one in the newest object wins (last modified, then by name), in one object the last.
    """

    kind: str = "sensor"
    path: str = ""  # empty: `{sensor}` or `date={date}`
    time: str = "ts"
    sensor: str = "sensor"  # the sensor column of long tables
    values: Mapping[str, str] | None = None  # {column in the files: channel}; None: every column of numbers
    interval: timedelta | None = None  # None: inferred from the rows
    tolerance: float = 0.5  # a row goes to a grid point at most this share of the interval away
    phase: timedelta = timedelta(0)  # grid points are multiples of the interval since 1970 plus this
    slack: timedelta = timedelta(0)  # a date's objects may hold rows this far outside of it
    catalog: str | None = None  # address of a catalog (Parquet or CSV); None: discovered
    timezone: str = "UTC"  # of stamps that say none
    quality: str = ""  # column that says whether a value is good; `{column}_q`: one for each value column
    good: tuple[str, ...] = ("good", "192")  # what it says of a good one: texts, numbers, `192-255`
    largest: int = 512 * 2**20  # bytes that the rows of one sensor, or one part of a table, may take
    newest_by: str = "modified"  # "name" where the age of objects says nothing

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"history.layout = {self.kind!r} is not one of {', '.join(KINDS)}")
        if self.newest_by not in ORDERS:
            raise ConfigError(f"newest_by = {self.newest_by!r} is not one of {', '.join(ORDERS)}")
        if not self.path:
            object.__setattr__(self, "path", "{sensor}" if self.kind == "sensor" else "date={date}")
        levels = paths.levels(self.path)
        if self.kind == "sensor" and "sensor" not in levels:
            raise ConfigError(
                f"history.path = {self.path!r} must have {{sensor}} with history.layout = 'sensor'"
            )
        if self.kind == "long" and levels:
            raise ConfigError(
                f"history.path = {self.path!r} must not have {{{levels[0]}}} with history.layout = 'long'"
            )
        if self.interval is not None and self.interval <= timedelta(0):
            raise ConfigError(f"history.interval = {self.interval} must be above 0")
        if not 0 <= self.tolerance <= 0.5:
            raise ConfigError(f"history.tolerance = {self.tolerance} is outside 0 to 0.5")
        if self.values is not None and not self.values:
            raise ConfigError(
                "history.channels names no column; leave it out to take every column of numbers"
            )
        if self.timezone not in time_zones():
            raise ConfigError(f"history.timezone = {self.timezone!r} is not a time zone such as Europe/Rome")

    @property
    def dated(self) -> bool:
        return re.search(r"{(date|year|month|day)}", self.path) is not None

    @property
    def base(self) -> str:
        """The folder in which everything is."""
        return self.path.partition("{")[0].rpartition("/")[0]

    def places(self, sensor: str | None, window: Window) -> list[str]:
        """Objects (`….parquet`) and folders that can hold rows of `window`; computed, not listed."""
        path = self.path if sensor is None else paths.of_sensor(self.path, sensor)
        if not self.dated:
            return [path]
        return list(dict.fromkeys(paths.with_date(path, day) for day in self.days(window)))

    def days(self, window: Window) -> list[date]:
        """The dates whose objects can hold rows of `window`: in UTC and, if it differs, in `timezone`."""
        wide = window.widen(self.slack, self.slack)
        days = set(wide.days())
        if self.timezone != "UTC":
            zone = zoneinfo.ZoneInfo(self.timezone)
            local = Window(*(t.astimezone(zone).replace(tzinfo=None) for t in (wide.start, wide.end)))
            days.update(local.days())
        return sorted(days)

    def span(self, window: Window) -> Window:
        """The whole dates whose objects can hold rows of `window`."""
        days = self.days(window)
        return Window(Window.day(days[0]).start, Window.day(days[-1]).end)

    def objects(self, store: Store, sensor: str | None, window: Window) -> list[Found]:
        """The objects to read, by name. A computed object may not exist.

        HistoryError names a Parquet object that lies deeper below a sensor's folder than dates explain.
        """
        found: dict[str, Found] = {}
        wide = self.span(window)
        for place in self.places(sensor, window):
            if is_parquet(self.path):  # not `place`: a sensor may be called pump.parquet
                found[place] = Found(place)
                continue
            for info in store.list(place):
                if not is_parquet(info.key):
                    continue
                if sensor is not None:
                    self.check_depth(store, sensor, place, info.key)
                if paths.overlaps(info.key, wide):
                    found[info.key] = Found.of(info)
        return sorted(found.values(), key=lambda one: one.key)

    def check_depth(self, store: Store, sensor: str, place: str, key: str) -> None:
        """HistoryError if folders between `place` and the object `key` are no dates."""
        odd = paths.not_dates(key.removeprefix(place).strip("/").split("/")[:-1])
        if odd is not None:
            raise HistoryError(
                f"{sensor}: {store.url_of(key)} lies deeper than history.path = {self.path!r} says: the "
                f"folder {odd!r} is no date, it may be another sensor's. Write each level into history.path, "
                'such as "{site}/{line}/{sensor}"'
            )

    def folder(self, sensor: str) -> str | None:
        """The folder that is a sensor's alone, if the layout has one."""
        parts = self.path.split("/")
        last = max((n for n, part in enumerate(parts) if paths.levels(part)), default=-1)
        if self.kind != "sensor" or last < 0 or any(paths.DATED.search(part) for part in parts[: last + 1]):
            return None
        if is_parquet(parts[last]):
            return None
        return paths.of_sensor("/".join(parts[: last + 1]), sensor)

    def newest(self, store: Store, count: int) -> list[ObjectInfo]:
        """The objects of the `count` last folders, or the `count` last objects where each is a date, by name.

        Folders are looked into from the last one backwards: a long history costs no more than a short one.
        """
        *folders, last = self.path.removeprefix(self.base).lstrip("/").split("/")
        patterns = [paths.pattern(part) for part in ([*folders, last] if not is_parquet(last) else folders)]

        def below(folder: str, depth: int) -> list[list[ObjectInfo]]:
            if depth == len(patterns):
                found = [info for info in store.list(folder) if is_parquet(info.key)]
                return [[info] for info in reversed(found)] if is_parquet(last) else [found] if found else []
            groups: list[list[ObjectInfo]] = []
            inside: list[str] = store.folders(folder)
            for name in reversed(inside):
                if patterns[depth].match(name):
                    groups += below(f"{folder}/{name}".lstrip("/"), depth + 1)
                if len(groups) >= count:
                    break
            return groups

        return sorted((info for group in below(self.base, 0)[:count] for info in group), key=lambda i: i.key)

    def discover(self, store: Store) -> list[str]:
        """Sensor ids by the names of folders or objects. Only for a prefix per sensor."""
        parts = self.path.split("/")
        last = max(n for n, part in enumerate(parts) if paths.levels(part))
        if any(paths.DATED.search(part) for part in parts[: last + 1]):
            # A date comes first: only a whole listing shows the sensors.
            return paths.ids(self.path, (i.key for i in store.list(self.base) if is_parquet(i.key)))
        folders = [""]
        for depth in range(last):
            folders = [below for folder in folders for below in _matching(store, folder, parts[depth])]
        if is_parquet(parts[last]):
            return paths.ids(self.path, (i.key for folder in folders for i in store.list(folder)))
        names = (name for folder in folders for name in _matching(store, folder, parts[last]))
        return paths.ids("/".join(parts[: last + 1]), names)

    def misplaced(self, store: Store, most: int = 5, looked: int = 20_000) -> list[str]:
        """Parquet objects that this layout never reads, at most `most`, among the first `looked` by name."""
        whole = paths.pattern(self.path)
        odd: list[str] = []
        for info in itertools.islice(store.list(self.base), looked):
            if is_parquet(info.key) and len(odd) < most and store.url_of(info.key) != self.catalog:
                match = whole.match(info.key)
                below = info.key[match.end() :].strip("/").split("/")[:-1] if match else []
                if match is None or paths.not_dates(below) is not None:
                    odd.append(info.key)
        return odd


def _matching(store: Store, folder: str, part: str) -> list[str]:
    """The folders in `folder` that one component of a path describes."""
    prefix = f"{folder}/" if folder else ""
    if "{" not in part:
        return [prefix + part]
    fits = paths.pattern(part)
    names: list[str] = store.folders(folder)
    return [prefix + name for name in names if fits.match(name)]

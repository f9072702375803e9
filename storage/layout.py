"""Where the rows of a sensor are: keys computed from the window, or the listing of as little as possible."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from paano.errors import ConfigError, HistoryError
from storage.keys import decode_id, encode_id
from storage.objects import ObjectInfo, Store
from storage.window import Window

KINDS = ("sensor", "long")
_FIELDS = {"sensor", "date", "year", "month", "day"}
_DATE_PATTERNS = {"date": r"\d{4}-\d{2}-\d{2}", "year": r"\d{4}", "month": r"\d{2}", "day": r"\d{2}"}


@dataclass(frozen=True)
class HistoryLayout:
    """Where the rows of a sensor are, and what the columns are called.

    `kind = "sensor"`: a prefix per sensor. `path` gives it: `{sensor}` alone means any Parquet below that
    folder (hive partitions `date=…` or `year=…/month=…/day=…` are used to skip objects); with `{date}` in it
    the objects are computed from the window and nothing is listed: `{sensor}/date={date}.parquet`.
    `kind = "long"`: tables with a sensor column; `path` is a folder per date (`date={date}`, the default) or
    an object per date (`{date}.parquet`). Dates are UTC; `{year}`, `{month}` and `{day}` are known too.
    """

    kind: str = "sensor"
    path: str | None = None  # None: `{sensor}` or `date={date}`
    time: str = "ts"
    sensor: str = "sensor"  # the sensor column of long tables
    values: Mapping[str, str] | None = None  # {column in the files: channel}; None: every column of numbers
    interval: timedelta | None = None  # None: inferred from the rows
    tolerance: float = 0.5  # a row goes to a grid point at most this share of the interval away
    phase: timedelta = timedelta(0)  # grid points are multiples of the interval since 1970 plus this
    slack: timedelta = timedelta(0)  # a date's objects may hold rows this far outside of it
    catalog: str | None = None  # address of a catalogue (Parquet or CSV); None: discovered

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"history.kind = {self.kind!r} is not one of {', '.join(KINDS)}")
        if self.path is None:
            object.__setattr__(self, "path", "{sensor}" if self.kind == "sensor" else "date={date}")
        fields = set(re.findall(r"{(.*?)}", self.path))
        if fields - _FIELDS:
            raise ConfigError(
                f"history.path = {self.path!r}: unknown {{{min(fields - _FIELDS)}}}; "
                f"known: {', '.join(sorted(_FIELDS))}"
            )
        if (self.kind == "sensor") != ("sensor" in fields):
            must = "must" if self.kind == "sensor" else "must not"
            raise ConfigError(f"history.path = {self.path!r} {must} have {{sensor}} with kind {self.kind!r}")
        if self.interval is not None and self.interval <= timedelta(0):
            raise ConfigError(f"history.interval = {self.interval} must be above 0")
        if not 0 <= self.tolerance <= 0.5:
            raise ConfigError(f"history.tolerance = {self.tolerance} is outside 0 to 0.5")
        if self.values is not None and not self.values:
            raise ConfigError("history.values names no column; leave it out to take every column of numbers")

    @property
    def dated(self) -> bool:
        return re.search(r"{(date|year|month|day)}", self.path) is not None

    @property
    def base(self) -> str:
        """The folder in which everything is."""
        return self.path.partition("{")[0].rpartition("/")[0]

    def places(self, sensor: str | None, window: Window) -> list[str]:
        """Objects (`….parquet`) and folders that can hold rows of `window`; computed, not listed."""
        path = self.path if sensor is None else self.path.replace("{sensor}", folder_of(sensor))
        if not self.dated:
            return [path]
        days = window.widen(self.slack, self.slack).days()
        return list(dict.fromkeys(_with_date(path, day) for day in days))

    def objects(self, store: Store, sensor: str | None, window: Window) -> list[tuple[str, int | None]]:
        """(key, size if known) of the objects to read, by name. A computed object may not exist."""
        found: dict[str, int | None] = {}
        wide = window.widen(self.slack, self.slack)
        for place in self.places(sensor, window):
            if is_parquet(place):
                found[place] = None
            else:
                for info in store.list(place):
                    if is_parquet(info.key) and overlaps(info.key, wide):
                        found[info.key] = info.size
        return sorted(found.items())

    def folder(self, sensor: str) -> str | None:
        """The folder that is a sensor's alone, if the layout has one."""
        before, _, after = self.path.partition("{sensor}")
        if self.kind != "sensor" or "{" in before:
            return None
        return before + folder_of(sensor) + after.partition("/")[0] if "/" in after or not after else None

    def newest(self, store: Store, count: int) -> list[ObjectInfo]:
        """The objects of the `count` last folders, or the `count` last objects where each is a date, by name.

        Folders are looked into from the last one backwards: a long history costs no more than a short one.
        """
        *folders, last = self.path.removeprefix(self.base).lstrip("/").split("/")
        patterns = [_pattern(part) for part in ([*folders, last] if not is_parquet(last) else folders)]

        def below(folder: str, depth: int) -> list[list[ObjectInfo]]:
            if depth == len(patterns):
                found = [info for info in store.list(folder) if is_parquet(info.key)]
                return [[info] for info in reversed(found)] if is_parquet(last) else [found] if found else []
            groups: list[list[ObjectInfo]] = []
            for name in reversed(store.folders(folder)):
                if patterns[depth].match(name):
                    groups += below(f"{folder}/{name}".lstrip("/"), depth + 1)
                if len(groups) >= count:
                    break
            return groups

        return sorted((info for group in below(self.base, 0)[:count] for info in group), key=lambda i: i.key)

    def discover(self, store: Store) -> list[str]:
        """Sensor ids by the names of folders or objects. Only for a prefix per sensor."""
        before, _, after = self.path.partition("{sensor}")
        base = self.base
        if "{" in before:  # the date comes first: only a whole listing shows the sensors
            pattern, names = _pattern(self.path), [i.key for i in store.list(base) if is_parquet(i.key)]
        elif "/" in after or not is_parquet(self.path):
            pattern = _pattern(self.path.split("/")[base.count("/") + 1 if base else 0])
            names = store.folders(base)
        else:
            pattern = _pattern(self.path)
            names = [i.key for i in store.list(base)]
        found = {match["sensor"] for name in names if (match := pattern.match(name))}
        return sorted(sensor_of(name) for name in found)


def is_parquet(key: str) -> bool:
    name = key.rpartition("/")[2]
    return name.endswith((".parquet", ".pq")) and not name.startswith(("_", "."))


def folder_of(sensor: str) -> str:
    """The path component of a sensor: its id where that is harmless, else the encoded id."""
    if _harmless(sensor):
        return sensor
    try:
        return encode_id(sensor)
    except ConfigError as error:
        raise HistoryError(str(error)) from error


def sensor_of(folder: str) -> str:
    """The id behind a path component: the inverse of `folder_of`."""
    try:
        sensor = decode_id(folder)
    except ConfigError:
        return folder
    return sensor if folder_of(sensor) == folder else folder


def _harmless(sensor: object) -> bool:
    """Whether an id, as it is, is one path component and not the encoded form of another id."""
    if not isinstance(sensor, str) or not sensor.isprintable() or len(sensor.encode(errors="replace")) > 200:
        return False
    if sensor.startswith(".") or sensor.strip() != sensor or any(c in sensor for c in "/\\{}") or not sensor:
        return False
    try:
        return "~" not in sensor or decode_id(sensor) == sensor
    except ConfigError:
        return True


def overlaps(key: str, window: Window) -> bool:
    """Whether an object can hold rows of `window`, by the hive partitions in its key."""
    parts = dict(p.split("=", 1) for p in key.split("/")[:-1] if p.count("=") == 1)
    try:
        if "date" in parts or "dt" in parts:
            day = date.fromisoformat(parts.get("date") or parts["dt"])
            return window.common(Window.day(day)) is not None
        if "year" in parts:
            year, month, day = (int(parts[p]) if p in parts else None for p in ("year", "month", "day"))
            first = date(year, month or 1, day or 1 if month else 1)
            days = 1 if month and day else 31 if month else 366
            return window.common(Window.day(first, days)) is not None
    except ValueError:
        return True  # not a date after all
    return True


def _with_date(path: str, day: date) -> str:
    return (
        path.replace("{date}", day.isoformat())
        .replace("{year}", f"{day.year:04d}")
        .replace("{month}", f"{day.month:02d}")
        .replace("{day}", f"{day.day:02d}")
    )


def _pattern(template: str) -> re.Pattern[str]:
    """A pattern that finds the sensor in a name made by `template`."""
    pattern = re.escape(template).replace(re.escape("{sensor}"), "(?P<sensor>[^/]+?)", 1)
    pattern = pattern.replace(re.escape("{sensor}"), "(?P=sensor)")
    for field, digits in _DATE_PATTERNS.items():
        pattern = pattern.replace(re.escape(f"{{{field}}}"), digits)
    return re.compile(pattern + ("$" if is_parquet(template) else "(/|$)"))

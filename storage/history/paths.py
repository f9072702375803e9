"""Paths with fields: `{sensor}`, further levels such as `{site}`, and dates; ids from names and back.

One level: the id is the folder's name, decoded where it was encoded (`storage.keys`). Several levels: the id
is the names joined by `/`, so that `werk-a/line-1/pump-1` is one sensor of `{site}/{line}/{sensor}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date

from paano.errors import ConfigError, HistoryError
from storage.keys import decode_id, encode_id
from storage.window import Window

DATED = re.compile(r"{(date|year|month|day)}")
_DATE_PATTERNS = {"date": r"\d{4}-\d{2}-\d{2}", "year": r"\d{4}", "month": r"\d{2}", "day": r"\d{2}"}
_NOT_LEVELS = {"hour", "minute", "second", "week", "quarter", "time", "ts", ""}
_DATE_KEYS = re.compile(
    r"(\w*date|dt|ds|ymd|year|yyyy|month|mm|week|day|dd|hour|hh|minute)=[\d:T_.-]+Z?", re.I
)
IN_DATE = re.compile(r"date=\d{4}-\d{2}-\d{2}")  # a folder that has the rows of one date
_DATE_NAMES = re.compile(r"(19|20)\d\d([-_]?\d\d([-_]?\d\d)?)?")
_DATE_NUMBERS = re.compile(r"\d{1,2}")


def levels(path: str) -> list[str]:
    """The fields of `path` that make up a sensor's id, in order; ConfigError for one that cannot be."""
    found: list[str] = []
    for name in re.findall(r"{(.*?)}", path):
        if name in _NOT_LEVELS or not re.fullmatch(r"[a-z_]+", name):
            raise ConfigError(
                f"history.path = {path!r}: unknown {{{name}}}; known are {{sensor}}, levels of its id "
                "such as {site}, and {date}, {year}, {month}, {day}"
            )
        if name not in _DATE_PATTERNS and name not in found:
            found.append(name)
    return found


def is_parquet(key: str) -> bool:
    name = key.rpartition("/")[2]
    return name.endswith((".parquet", ".pq")) and not name.startswith(("_", "."))


def of_sensor(path: str, sensor: str) -> str:
    """`path` with the id in place of its levels; HistoryError if the id has another number of them."""
    names = levels(path)
    if len(names) == 1:
        return path.replace(f"{{{names[0]}}}", folder_of(sensor))
    parts = sensor.split("/") if isinstance(sensor, str) else []
    if len(parts) != len(names):
        wanted = "/".join(names)
        raise HistoryError(f"{sensor}: an id of history.path = {path!r} has the form {wanted}")
    for name, part in zip(names, parts, strict=True):
        path = path.replace(f"{{{name}}}", folder_of(part))
    return path


def ids(path: str, keys: Iterable[str]) -> list[str]:
    """The sorted ids of the keys that `path` describes."""
    names, fits = levels(path), pattern(path)
    found = {tuple(match[name] for name in names) for key in keys if (match := fits.match(key)) is not None}
    if len(names) == 1:
        return sorted(sensor_of(parts[0]) for parts in found)
    return sorted("/".join(_level_of(part) for part in parts) for parts in found)


def _level_of(folder: str) -> str:
    name = sensor_of(folder)
    return folder if "/" in name else name


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


def not_dates(folders: Iterable[str]) -> str | None:
    """The first of the nested `folders` that is no date partition; None if all are."""
    began = False  # `2026/01/02`: a plain number is a month or a day only below a year
    for name in folders:
        if _DATE_KEYS.fullmatch(name) or _DATE_NAMES.fullmatch(name):
            began = True
        elif not (began and _DATE_NUMBERS.fullmatch(name)):
            return name
    return None


def partition(key: str) -> tuple[date, int] | None:
    """The first day and the number of days that an object is about, by the hive partitions in its key."""
    parts = dict(p.split("=", 1) for p in key.split("/")[:-1] if p.count("=") == 1)
    try:
        if "date" in parts or "dt" in parts:
            return date.fromisoformat(parts.get("date") or parts["dt"]), 1
        if "year" in parts:
            year, month = int(parts["year"]), int(parts.get("month", 0))
            number = int(parts.get("day", 0)) if month else 0
            return date(year, month or 1, number or 1), 1 if number else 31 if month else 366
    except ValueError:
        return None  # not a date after all
    return None


def day_of(key: str) -> date | None:
    """The day that an object is about, where its key says a single one."""
    found = partition(key)
    return found[0] if found and found[1] == 1 else None


def span_of(key: str) -> Window | None:
    """The time that the rows of an object lie in, by its partitions; None where they do not say."""
    found = partition(key)
    try:
        return Window.day(*found) if found else None
    except OverflowError:  # the end of time
        return None


def overlaps(key: str, window: Window) -> bool:
    """Whether an object can hold rows of `window`, by its partitions."""
    span = span_of(key)
    return span is None or window.common(span) is not None


def with_date(path: str, day: date) -> str:
    return (
        path.replace("{date}", day.isoformat())
        .replace("{year}", f"{day.year:04d}")
        .replace("{month}", f"{day.month:02d}")
        .replace("{day}", f"{day.day:02d}")
    )


def pattern(template: str) -> re.Pattern[str]:
    """A pattern that finds the levels of an id in a name made by `template`."""
    made = re.escape(template)
    for name in levels(template):
        made = made.replace(re.escape(f"{{{name}}}"), f"(?P<{name}>[^/]+?)", 1)
        made = made.replace(re.escape(f"{{{name}}}"), f"(?P={name})")
    for field, digits in _DATE_PATTERNS.items():
        made = made.replace(re.escape(f"{{{field}}}"), digits)
    return re.compile(made + ("$" if is_parquet(template) else "(/|$)"))

"""Known periods of sensors: overhauls, shutdowns, tests. They make no event, or are not learned from.

A calendar is a table (Parquet or CSV) with the columns

    sensor   pattern of sensor ids, as in a shell (`pump-*`); empty with a group: every sensor of it
    group    pattern of groups of the catalog; empty: any
    start    first moment; without a time zone it is in the fleet's
    end      first moment after it
    what     mute, no_training, or both
    reason   for people
    repeat   empty, daily, weekly, or a recurrence rule of iCalendar (RFC 5545): FREQ=MONTHLY;BYDAY=1SU

A table with one wrong row is refused as a whole: a shutdown that is half known must alarm, not hide.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from zoneinfo import ZoneInfo

import polars as pl
from dateutil.rrule import rrule, rrulestr

from paano.errors import ConfigError, ObjectMissing
from storage.objects.store import StorageOptions, Store, open_store
from storage.retry import on_condition
from storage.window import Window

COLUMNS = ("sensor", "group", "start", "end", "what", "reason", "repeat")
LARGEST = 20_000_000  # bytes of a calendar; more is not one
MOST_REPEATS = 100_000  # of one period within one window
_UNTIL = re.compile(r"UNTIL=(\d{8}T\d{6})Z", re.IGNORECASE)
_STANDS = re.compile(r"INTERVAL=0*(;|\s|$)")
_PLAIN = {"daily": "FREQ=DAILY", "weekly": "FREQ=WEEKLY"}


class Effect(StrEnum):
    """What a period does."""

    MUTE = "mute"  # scores are kept, no event is made
    NO_TRAINING = "no_training"  # nothing is learned from it
    BOTH = "both"


@dataclass(frozen=True)
class Period:
    """One row of a calendar."""

    sensor: str  # pattern
    group: str  # pattern, or empty
    start: datetime  # in the zone it was written in: a weekly period keeps its local hour
    end: datetime
    what: Effect
    reason: str = ""
    repeat: str = ""

    @functools.cached_property
    def id(self) -> str:
        """Eight characters that stand for this row, for `paano calendar remove`."""
        return hashlib.sha256(json.dumps(self.to_row()).encode()).hexdigest()[:8]

    def to_row(self) -> dict[str, str]:
        """The row as a calendar file holds it."""
        return {
            "sensor": self.sensor,
            "group": self.group,
            "start": _written(self.start),
            "end": _written(self.end),
            "what": str(self.what),
            "reason": self.reason,
            "repeat": self.repeat,
        }

    def covers(self, sensor: str, group: str | None) -> bool:
        """Whether the period is about `sensor`, which belongs to `group`."""
        if self.group and not fnmatchcase(group or "", self.group):
            return False
        return sensor == self.sensor or fnmatchcase(sensor, self.sensor or "*")

    def within(self, window: Window) -> list[Window]:
        """The stretches of this period that touch `window`, cut to it, in order."""
        return list(_within(self, window))

    @property
    def length(self) -> timedelta:
        """Wall-clock length, so that a night shift ends at the same hour on both sides of a clock change."""
        return self.end.replace(tzinfo=None) - self.start.replace(tzinfo=None)

    def _starts(self, window: Window) -> Iterable[datetime]:
        if not self.repeat:
            return [self.start]
        zone = self.start.tzinfo or UTC
        low = (window.start - self.length - timedelta(days=1)).astimezone(zone).replace(tzinfo=None)
        high = (window.end + timedelta(days=1)).astimezone(zone).replace(tzinfo=None)
        local = _rule(self.repeat, self.start).xafter(low, count=MOST_REPEATS, inc=True)
        return _until(local, high, zone)


@functools.lru_cache(4096)  # a rule is followed from its first moment on: once for all sensors of a run
def _within(period: Period, window: Window) -> tuple[Window, ...]:
    found = []
    for start in period._starts(window):
        end = start + period.length if period.repeat else period.end
        if end.astimezone(UTC) > start.astimezone(UTC):
            common = window.common(Window(start, end))
            if common is not None:
                found.append(common)
    return tuple(found)


def _until(starts: Iterable[datetime], high: datetime, zone: object) -> Iterable[datetime]:
    for start in starts:
        if start > high:
            return
        yield start.replace(tzinfo=zone)  # type: ignore[arg-type]  # a tzinfo, as it came out of a datetime


def _rule(text: str, start: datetime) -> rrule:
    """The moments at which a period repeats, in its own zone; ValueError for what is no rule."""
    if start.year < 1970:
        raise ValueError("a period that repeats starts in 1970 or later")
    line = _UNTIL.sub(lambda found: _local_until(found[1], start), _PLAIN.get(text, text))
    rule = rrulestr(line, dtstart=start.replace(tzinfo=None))
    if not isinstance(rule, rrule):
        raise ValueError("one rule is expected, without dates beside it")
    return rule


def _local_until(text: str, start: datetime) -> str:
    """The end of a rule in UTC, as iCalendar writes it, in the zone of the period."""
    moment = datetime.strptime(text, "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    return f"UNTIL={moment.astimezone(start.tzinfo):%Y%m%dT%H%M%S}"


def _check_rule(text: str, start: datetime) -> None:
    """ValueError for what is no rule, never comes, or would take too long to follow."""
    words = text.upper()
    if any(word in words for word in ("SECONDLY", "MINUTELY", "HOURLY")):
        raise ValueError("a period repeats every day at most; FREQ=DAILY;BYHOUR=0,6,12,18 has hours")
    if _STANDS.search(words):
        raise ValueError("its INTERVAL is 0")
    rule = _rule(text, start)
    # A rule that never comes is followed to the year 9999. The calendar repeats every 400 years, so that can
    # be asked of the last of them.
    late = start.replace(tzinfo=None, year=start.year + (9_600 - start.year) // 400 * 400)
    if next(iter(rule.replace(dtstart=late, until=None, count=None)), None) is None:
        raise ValueError("it never comes")


def _written(moment: datetime) -> str:
    """A moment in the fleet's zone is written without it, so that it keeps its local hour all year."""
    return (moment.replace(tzinfo=None) if isinstance(moment.tzinfo, ZoneInfo) else moment).isoformat()


class Calendar:
    """The known periods of a fleet."""

    def __init__(self, periods: Sequence[Period] = ()) -> None:
        self.periods = tuple(periods)

    @classmethod
    def read(cls, url: str, options: StorageOptions | None = None, zone: str = "UTC") -> Calendar:
        """The calendar at `url`; an absent one is empty.

        Raises:
            ConfigError: it cannot be read, or a row is wrong; the message names the row and the column.
        """
        store, name = _place(url, options)
        return cls._decoded(_fetch(store, name)[0], url, zone)

    @classmethod
    def change(
        cls,
        url: str,
        change: Callable[[Calendar], Calendar],
        options: StorageOptions | None = None,
        zone: str = "UTC",
    ) -> Calendar:
        """Keep `change(calendar at url)` there, as CSV or Parquet by its name; what is there then.

        Nothing of another writer is lost: if one was first, `change` is called again with what it wrote.

        Raises:
            ConfigError: as `read`, or raised by `change`; nothing is written then.
        """
        store, name = _place(url, options)
        tried: list[bytes] = []

        def once() -> Calendar:
            data, etag = _fetch(store, name)
            known = cls._decoded(data, url, zone)
            if data is not None and data in tried:  # the answer to an earlier try was lost
                return known
            changed = change(known)
            if changed.periods != known.periods:
                tried.append(changed._encoded(name))
                store.put(name, tried[-1], if_match=etag, if_absent=etag is None)
            return changed

        return on_condition(once)

    @classmethod
    def _decoded(cls, data: bytes | None, url: str, zone: str) -> Calendar:
        if data is None:
            return cls()
        name = url.rpartition("/")[2]
        try:
            if name.endswith(".csv"):
                frame = pl.read_csv(io.BytesIO(data), infer_schema=False)
            else:
                frame = pl.read_parquet(io.BytesIO(data))
        except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{url}: this calendar cannot be read as {'CSV' if name.endswith('.csv') else 'Parquet'}: "
                f"{str(error).splitlines()[0]}"
            ) from error
        return cls.from_frame(frame, url, zone)

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, name: str = "calendar", zone: str = "UTC") -> Calendar:
        """The calendar in `frame`; columns that it lacks are empty, but `start` and `end` must be there."""
        for column in ("start", "end"):
            if column not in frame.columns:
                raise ConfigError(
                    f"{name}: the column {column!r} is missing; it has {', '.join(frame.columns)}"
                )
        return cls([_period(row, f"{name}, row {n}", zone) for n, row in enumerate(frame.to_dicts(), 1)])

    def to_frame(self) -> pl.DataFrame:
        """The calendar as a table of texts."""
        return pl.DataFrame([p.to_row() for p in self.periods], schema={name: pl.String for name in COLUMNS})

    def _encoded(self, name: str) -> bytes:
        out = io.BytesIO()
        frame = self.to_frame()
        frame.write_csv(out) if name.endswith(".csv") else frame.write_parquet(out)
        return out.getvalue()

    def add(self, period: Period) -> Calendar:
        """This calendar with one more period; the same one twice is once."""
        return self if period in self.periods else Calendar([*self.periods, period])

    def remove(self, id_: str) -> Calendar:
        """This calendar without the period of that id.

        Raises:
            ConfigError: there is none.
        """
        left = [p for p in self.periods if p.id != id_]
        if len(left) == len(self.periods):
            raise ConfigError(f"no period {id_!r}; `paano calendar list` shows the ids")
        return Calendar(left)

    def muted(self, sensor: str, group: str | None, window: Window) -> list[Window]:
        """Stretches of `window` in which `sensor` makes no event; in order, without overlap."""
        return self._stretches(sensor, group, window, Effect.MUTE)

    def not_learned(self, sensor: str, group: str | None, window: Window) -> list[Window]:
        """Stretches of `window` that `sensor` must not learn from; in order, without overlap."""
        return self._stretches(sensor, group, window, Effect.NO_TRAINING)

    def _stretches(self, sensor: str, group: str | None, window: Window, effect: Effect) -> list[Window]:
        return join(
            stretch
            for period in self.periods
            if period.what in (effect, Effect.BOTH) and period.covers(sensor, group)
            for stretch in period.within(window)
        )


def _place(url: str, options: StorageOptions | None) -> tuple[Store, str]:
    folder, _, name = url.rpartition("/")
    return open_store(folder or ".", options), name


def _fetch(store: Store, name: str) -> tuple[bytes | None, str | None]:
    """The bytes of a calendar and their etag; None twice where there is none."""
    info = store.head(name)
    if info is None:
        return None, None
    if info.size > LARGEST:
        raise ConfigError(
            f"{store.url_of(name)}: {info.size} bytes are too many for a calendar; the limit is {LARGEST}"
        )
    try:
        return store.get_with_etag(name)
    except ObjectMissing:  # removed in between
        return None, None


def join(stretches: Iterable[Window]) -> list[Window]:
    """The same time as stretches in order that neither overlap nor touch."""
    joined: list[Window] = []
    for stretch in sorted(stretches):
        if joined and stretch.start <= joined[-1].end:
            joined[-1] = Window(joined[-1].start, max(joined[-1].end, stretch.end))
        else:
            joined.append(stretch)
    return joined


def _period(row: dict[str, object], where: str, zone: str) -> Period:
    texts = {name: "" if row.get(name) is None else str(row[name]).strip() for name in COLUMNS}
    if not texts["sensor"] and not texts["group"]:
        raise ConfigError(
            f"{where}: neither sensor nor group is given; write * in sensor for the whole fleet"
        )
    start = _moment(row.get("start"), f"{where}, column start", zone)
    end = _moment(row.get("end"), f"{where}, column end", zone)
    if end <= start:
        raise ConfigError(f"{where}: it ends ({end.isoformat()}) before it starts ({start.isoformat()})")
    try:
        what = Effect(texts["what"] or Effect.BOTH)
    except ValueError:
        raise ConfigError(f"{where}: what = {texts['what']!r}; allowed: {', '.join(Effect)}") from None
    repeat = texts["repeat"]
    try:
        if repeat:
            _check_rule(repeat, start)
    except (ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
        raise ConfigError(
            f"{where}: repeat = {repeat!r} is not daily, weekly or a rule like FREQ=WEEKLY;BYDAY=SU ({error})"
        ) from None
    return Period(texts["sensor"], texts["group"], start, end, what, texts["reason"], repeat)


def _moment(value: object, where: str, zone: str) -> datetime:
    """A moment with a time zone: its own, or the fleet's."""
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
        moment = moment.replace(tzinfo=ZoneInfo(zone)) if moment.tzinfo is None else moment
        moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ConfigError(f"{where}: {value!r} is not a time; write 2026-11-20 or 2026-11-20T14:30") from None
    return moment

"""A window of time: half-open, in UTC. Everything that reads or computes is given one."""

from __future__ import annotations

import functools
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from paano.errors import ConfigError

YEARS = range(1000, 9001)  # beyond them there may be no day before or after a day


def read_day(text: str) -> date:
    """The day that a person wrote; ConfigError for anything else."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a day; write YYYY-MM-DD") from None
    if day.year not in YEARS:
        raise ConfigError(f"{text!r} is not a day of the years {YEARS[0]} to {YEARS[-1]}")
    return day


@dataclass(frozen=True, order=True)
class Window:
    """`start <= t < end`, both UTC. A naive time is taken as UTC, another zone is converted."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            value = getattr(self, name)
            if not isinstance(value, datetime):
                raise ConfigError(f"window.{name} = {value!r} is not a time")
            value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
            object.__setattr__(self, name, value)
        if self.end <= self.start:
            raise ConfigError(f"a window must end after it starts: {self}")

    @classmethod
    def day(cls, day: date, days: int = 1) -> Window:
        """`days` whole UTC days from `day` on."""
        start = datetime(day.year, day.month, day.day, tzinfo=UTC)
        return cls(start, start + timedelta(days=days))

    @property
    def length(self) -> timedelta:
        return self.end - self.start

    def days(self) -> list[date]:
        """Every UTC date that the window touches, in order."""
        first = self.start.date()
        last = (self.end - timedelta(microseconds=1)).date()
        return [first + timedelta(days=n) for n in range((last - first).days + 1)]

    def widen(self, before: timedelta = timedelta(0), after: timedelta = timedelta(0)) -> Window:
        return Window(self.start - before, self.end + after)

    def contains(self, time: datetime) -> bool:
        return self.start <= time < self.end

    def common(self, other: Window) -> Window | None:
        """The time in both, or None."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return Window(start, end) if start < end else None

    def to_dict(self) -> dict[str, str]:
        return {"start": self.start.isoformat(), "end": self.end.isoformat()}

    @classmethod
    def from_dict(cls, value: Mapping[str, str]) -> Window:
        return cls(datetime.fromisoformat(value["start"]), datetime.fromisoformat(value["end"]))

    def __str__(self) -> str:
        return f"{self.start:%Y-%m-%dT%H:%M:%SZ}/{self.end:%Y-%m-%dT%H:%M:%SZ}"


@functools.cache
def time_zones() -> frozenset[str]:
    """The names of all time zones; to find them reads hundreds of files."""
    return frozenset(zoneinfo.available_timezones())

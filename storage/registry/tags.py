"""What the tags of a version say, with types. Anybody can edit tags in the MLflow pages: nothing is trusted.

A tag that cannot be read counts as not there, and a note says so; it stops no run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

T = TypeVar("T")

PREFIX = "paano."
PASSED, NOT_PASSED = "passed", "not passed"
_LONGEST_INTERVAL = timedelta(days=366)
_SHOWN = 40  # characters of a wrong value in a note


@dataclass(frozen=True)
class VersionTags:
    """The `paano.…` tags of a version; None or empty where a tag is missing or cannot be read."""

    sensor: str = ""
    fleet: str = ""
    digest: str = ""  # of the artifact
    kind: str = ""  # untrained, trained, refreshed
    interval: timedelta | None = None
    window_start: datetime | None = None
    window_end: datetime | None = None
    data_digest: str = ""
    config_digest: str = ""
    recipe: str = ""
    recommendation: str = ""  # of the review test: passed, not passed, empty: it had none
    reason: str = ""
    why: str = ""
    vus_pr: float | None = None
    alarms: float | None = None  # per 30 days, in the review test
    faults: dict[str, float] = field(default_factory=dict)  # VUS-PR by kind of fault
    previous: int | None = None  # the champion that this version replaced
    review: str = ""  # what a reviewer decided
    notes: tuple[str, ...] = ()  # tags that could not be read

    @property
    def passed(self) -> bool:
        """Whether the review test recommends the version."""
        return self.recommendation == PASSED


def parse_tags(tags: Mapping[str, str]) -> VersionTags:
    """The tags of a version as MLflow holds them, with types; it never fails.

    `paano.verdict` is what `paano.recommendation` was called before 0.2.
    """
    notes: list[str] = []

    def text(name: str) -> str:
        value = tags.get(PREFIX + name)
        return value if isinstance(value, str) else ""

    def read(name: str, kind: Callable[[str], T]) -> T | None:
        raw = text(name).strip()
        if not raw:
            return None
        try:
            return kind(raw)
        except (ValueError, OverflowError) as error:
            notes.append(f"the tag {PREFIX}{name} = {raw[:_SHOWN]!r} cannot be used: {error}")
            return None

    faults = {}
    for key in sorted(tags):
        if key.startswith(f"{PREFIX}vus_pr."):
            value = read(key.removeprefix(PREFIX), _share)
            if value is not None:
                faults[key.removeprefix(f"{PREFIX}vus_pr.")] = value
    return VersionTags(
        sensor=text("sensor"),
        fleet=text("fleet"),
        digest=text("digest"),
        kind=text("kind"),
        interval=read("interval_seconds", _interval),
        window_start=read("window_start", _moment),
        window_end=read("window_end", _moment),
        data_digest=text("data_digest"),
        config_digest=text("config_digest"),
        recipe=text("recipe"),
        recommendation=read("recommendation", _recommendation) or read("verdict", _recommendation) or "",
        reason=text("reason"),
        why=text("why"),
        vus_pr=read("vus_pr", _share),
        alarms=read("alarms", _not_negative),
        faults=faults,
        previous=read("previous", _number),
        review=text("review"),
        notes=tuple(notes),
    )


def _moment(raw: str) -> datetime:
    moment = datetime.fromisoformat(raw)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _interval(raw: str) -> timedelta:
    seconds = float(raw)
    if not 0 < seconds <= _LONGEST_INTERVAL.total_seconds():
        raise ValueError("an interval has more than 0 and at most 31622400 seconds")
    return timedelta(seconds=seconds)


def _share(raw: str) -> float:
    value = float(raw)
    if not 0 <= value <= 1:
        raise ValueError("it is not between 0 and 1")
    return value


def _not_negative(raw: str) -> float:
    value = float(raw)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError("it is not a finite number of at least 0")
    return value


def _number(raw: str) -> int:
    if not (raw.isascii() and raw.isdigit() and len(raw) < 10 and int(raw) > 0):
        raise ValueError("it is not the number of a version")
    return int(raw)


def _recommendation(raw: str) -> str:
    if raw not in (PASSED, NOT_PASSED):
        raise ValueError(f"allowed: {PASSED}, {NOT_PASSED}")
    return raw

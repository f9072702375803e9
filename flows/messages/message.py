"""What a message says. It is plain text: the targets escape or wrap it as they must."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

LONGEST_LINE = 300  # characters; ids and notes come from outside


class About(StrEnum):
    """What a message is about; a target may ask for some of them only."""

    INCIDENT = "incident"
    FAILURE = "failure"  # of a run
    SILENCE = "silence"  # sensors that stopped reporting
    REVIEW = "review"  # models that wait for a person
    DIGEST = "digest"  # a whole night in one message


@dataclass(frozen=True)
class Message:
    """One message about one thing.

    `key` names the thing and the step it is in (an incident that began, that grew, that ended): whoever sends
    the same key to the same target twice says the same thing twice.
    """

    key: str
    about: About
    title: str
    lines: tuple[str, ...] = ()
    severity: float = 0.0
    group: str = ""
    cause: str = ""
    start: datetime | None = None
    end: datetime | None = None  # None: it goes on
    facts: Mapping[str, str] = field(default_factory=dict)  # for machines: ids, sensors, links

    @property
    def text(self) -> str:
        """The lines below the title."""
        return "\n".join(plain(line) for line in self.lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `Message.from_dict` takes them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {name: _iso(values[name]) for name in ("start", "end")}
        return {**values, "about": str(self.about), "lines": list(self.lines), "facts": dict(self.facts)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Message:
        """The message that `to_dict` gave."""
        times = {name: values[name] and datetime.fromisoformat(values[name]) for name in ("start", "end")}
        return cls(**{**values, **times, "about": About(values["about"]), "lines": tuple(values["lines"])})


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def plain(text: str) -> str:
    """One line without control characters, of bounded length."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"

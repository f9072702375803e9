"""Events of sensors that belong together, joined into incidents: what a person is told of once.

Events of one group that overlap in time, directly or through others, are one incident. It begins with the
first sensor that moved. Which events make an incident depends on the events alone, not on the order or the
night in which they were found; its id follows from the group and the event that began it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from paano.alarms.events import Event


@dataclass(frozen=True)
class Incident:
    """Events of one group that overlap in time."""

    group: str
    events: tuple[Event, ...]  # by start, then by sensor: the first to move is first

    @property
    def incident_id(self) -> str:
        """The same as long as no earlier event joins it."""
        first = self.events[0]
        text = f"{self.group}\0{first.sensor}\0{first.start.isoformat()}"
        if first.cause == "stuck":  # a fault of the same sensor may begin in the same row
            text += "\0stuck"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def start(self) -> datetime:
        """When the first sensor moved."""
        return self.events[0].start

    @property
    def end(self) -> datetime:
        """The last row of its last event."""
        return max(event.end for event in self.events)

    @property
    def severity(self) -> float:
        """The largest of its events."""
        return max(event.severity for event in self.events)

    @property
    def sensors(self) -> tuple[str, ...]:
        """Its members, the first to move first."""
        return tuple(dict.fromkeys(event.sensor for event in self.events))


def find_incidents(events: Iterable[Event], group: str, slack: timedelta = timedelta(0)) -> list[Incident]:
    """The incidents of one group, by start.

    An event that begins in the row after another of its sensor goes on with it: one that lasts very long is
    cut into several (`paano.alarms.events`), and is one incident still.

    Args:
        events: of all sensors of the group, in any order.
        group: the name of the group; a sensor without one is a group of its own.
        slack: events that are at most this far apart also belong together.
    """
    every = sorted(events, key=_by_start)
    after = {  # the row after each event
        (event.sensor, event.end + (event.end - event.start) / (event.length - 1))
        for event in every
        if event.length > 1
    }
    found: list[list[Event]] = []
    reach: datetime | None = None
    # Of those that begin at once, one that goes on comes first: the others overlap it.
    for event in sorted(every, key=lambda event: (event.start, (event.sensor, event.start) not in after)):
        goes_on = (event.sensor, event.start) in after
        if reach is None or (event.start > reach + slack and not goes_on):
            found.append([])
            reach = event.end
        found[-1].append(event)
        reach = max(reach, event.end)
    return [Incident(group, tuple(sorted(members, key=_by_start))) for members in found]


def _by_start(event: Event) -> tuple[datetime, str, str]:
    return event.start, event.sensor, event.event_id

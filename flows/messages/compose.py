"""What there is to say: of incidents, of a run that failed, of models that wait for a person."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import Any

import polars as pl

from flows.messages.message import About, Message
from flows.run.days import zone_of
from flows.run.outcome import Outcome
from flows.settings.fleet_file import Settings

MEMBERS = 12  # named in a message
SILENT = ("silent", "stuck")


def step_of(severity: float, ended: bool) -> int:
    """The step an incident is in: a message is sent again only for a later one. Odd: it has ended."""
    return 2 * max(0, math.floor(severity)) + ended


def incident_message(settings: Settings, row: dict[str, Any], ended: bool) -> Message:
    """The message about one incident (a row of the table)."""
    zone = zone_of(settings)
    start, end = (row[name].astimezone(zone) for name in ("start", "end"))
    severity, cause, sensors = row["severity"] or 0.0, row["cause"] or "", row["sensors"]
    about = About.SILENCE if cause in SILENT else About.INCIDENT
    what = f"{cause} since" if about is About.SILENCE else f"severity {severity:.1f},"
    subject = row["group"] if len(sensors) > 1 else sensors[0]
    more = len(sensors) - MEMBERS
    over = f"over at {end:%Y-%m-%d %H:%M}" if ended else "it goes on"
    lines = [
        f"Began {start:%Y-%m-%d %H:%M} ({zone.key}), {over}.",
        f"First to move: {sensors[0]}" + (f"; cause: {cause}." if cause else "."),
        f"Sensors ({len(sensors)}): {', '.join(sensors[:MEMBERS])}" + (f" and {more} more" * (more > 0)),
        f"What was it? paano event confirm|dismiss|expected {' '.join(row['events'][:MEMBERS])}",
    ]
    step = step_of(severity, ended)
    return Message(
        f"incident/{row['incident_id']}/{step}",
        about,
        f"{settings.fleet.name}: {subject}, {what} {start:%Y-%m-%d %H:%M}" + (" (over)" * ended),
        tuple(lines),
        severity,
        row["group"],
        cause,
        row["start"],
        row["end"] if ended else None,
        {
            "fleet": settings.fleet.name,
            "incident": row["incident_id"],
            "subject": row["incident_id"],
            "sensor": sensors[0],
            "sensors": " ".join(sensors),
            "events": " ".join(row["events"]),
            "state": "ended" if ended else "open",
        },
    )


def has_ended(row: dict[str, Any], known_until: datetime, ended_after: timedelta) -> bool:
    """Whether an incident was quiet for long enough, as far as scores are known."""
    return bool(row["end"] + ended_after <= known_until)


def failure_message(fleet: str, run: str, reason: str) -> Message:
    """A run that failed."""
    lines = tuple(reason.splitlines()[:20])
    return Message(
        f"failure/{run}", About.FAILURE, f"{run} failed", lines, facts={"fleet": fleet, "subject": run}
    )


def review_message(fleet: str, outcomes: Iterable[Outcome]) -> Message | None:
    """Models that wait for a person after a run; None if there are none."""
    waiting = [one for one in outcomes if " waits for a reviewer" in one.reason]
    if not waiting:
        return None
    names = ", ".join(one.sensor for one in waiting[:MEMBERS])
    more = len(waiting) - MEMBERS
    mark = "\n".join(f"{one.sensor} {one.figures.get('version')}" for one in waiting)
    number = hashlib.sha256(mark.encode()).hexdigest()[:16]
    return Message(
        f"review/{number}",
        About.REVIEW,
        f"{fleet}: {len(waiting)} model{'s' * (len(waiting) > 1)} wait for a reviewer",
        (f"Sensors: {names}" + (f" and {more} more" * (more > 0)), "paano review list; paano review approve"),
        facts={"fleet": fleet, "subject": f"review {number}"},
    )


def digest_message(settings: Settings, night: date, messages: Sequence[Message]) -> Message | None:
    """One message for a whole night; None for a night of which there is nothing to say."""
    if not messages:
        return None
    ordered = sorted(messages, key=lambda one: -one.severity)
    lines = [one.title.removeprefix(f"{settings.fleet.name}: ") for one in ordered]
    return Message(
        f"digest/{night}",
        About.DIGEST,
        f"{settings.fleet.name}: {len(messages)} incident{'s' * (len(messages) > 1)} on {night}",
        tuple(lines),
        ordered[0].severity,
        facts={"fleet": settings.fleet.name, "subject": f"digest {night}", "night": night.isoformat()},
    )


def night_messages(
    settings: Settings, incidents: pl.DataFrame, known_until: datetime, since: datetime
) -> list[tuple[Message, int]]:
    """Messages about incidents that were not over before `since`, each with its step."""
    found = []
    for row in incidents.filter(pl.col("end") >= since).iter_rows(named=True):
        ended = has_ended(row, known_until, settings.notify.ended_after)
        found.append((incident_message(settings, row, ended), step_of(row["severity"] or 0.0, ended)))
    return found

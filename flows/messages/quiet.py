"""Quiet hours: when messages wait, and when they end."""

from __future__ import annotations

from datetime import datetime

from flows.run.days import zone_of
from flows.settings.fleet_file import Settings


def is_quiet(settings: Settings, now: datetime) -> bool:
    """Whether `now` lies in the quiet hours of the fleet."""
    if not settings.notify.quiet:
        return False
    clock = now.astimezone(zone_of(settings)).strftime("%H:%M")
    begin, end = settings.notify.quiet.split("-")
    return begin <= clock < end if begin <= end else clock >= begin or clock < end


def end_of_quiet(settings: Settings) -> tuple[str, str] | None:
    """The end of the quiet hours as a cron line and its zone; None where nobody waits for it."""
    if not settings.notify.quiet or not settings.notify.targets:
        return None
    hour, minute = settings.notify.quiet.split("-")[1].split(":")
    return f"{int(minute)} {int(hour)} * * *", zone_of(settings).key

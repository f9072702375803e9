"""What follows when the scores and events of days are stored: incidents, then messages about them.

None of it fails a run: the scores are there, and what could not be done is in the notes and is done by the
next run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from flows.messages.compose import failure_message, night_messages, review_message
from flows.messages.send import Offers, deliver_waiting, offer
from flows.run.fleet import Fleet
from flows.run.outcome import Outcome
from flows.settings.fleet_file import Settings
from flows.work.night.incidents import incidents_of, update_incidents
from paano.errors import PaanoError, RunFailed
from storage.window import Window

log = logging.getLogger("paano.flows")


def after_nights(fleet: Fleet, window: Window, night: date, now: datetime | None = None) -> list[str]:
    """Incidents and messages of the days in `window`, of which `night` is the last; notes for the report.

    `now` decides what is too old to be told, and whether the hours are quiet.
    """
    notes = []
    if fleet.known.problem:
        notes.append(
            f"nothing was muted, because the calendar cannot be read: {fleet.known.problem}; when it can, "
            f"`paano score --day {night}` mutes what it should have"
        )
    try:
        update_incidents(fleet, window)
        notes += tell_incidents(fleet, window, night, now or datetime.now(UTC))
    except PaanoError as error:
        log.warning("incidents and messages of %s: %s", night, error)
        notes.append(f"incidents or messages are not up to date: {error}")
    return notes


def tell_incidents(fleet: Fleet, window: Window, night: date, now: datetime) -> list[str]:
    """Offer a message for every incident that is new, grew or ended, and send what waits."""
    settings = fleet.settings
    since = now - settings.notify.old_after
    offers = Offers(settings, now)
    found = night_messages(settings, incidents_of(fleet, window), window.end, since)
    for message, step in found:
        offers.offer(message, step)
    offers.offer_digests(found, night)
    return deliver_waiting(settings, now)[1]


def tell_reviews(settings: Settings, outcomes: Sequence[Outcome], now: datetime | None = None) -> list[str]:
    """Tell of models that wait for a person; notes about targets that are down."""
    message = review_message(settings.fleet.name, outcomes)
    moment = now or datetime.now(UTC)
    try:
        if message is not None:
            offer(settings, message, moment)
        return deliver_waiting(settings, moment)[1]
    except PaanoError as error:
        log.warning("messages: %s", error)
        return [f"messages were not sent: {error}"]


def tell_failure(flow: Any, flow_run: Any, state: Any) -> None:
    """A hook for flows: tell of a run that failed, once for each name of a run.

    A run that a person started sees its own error; it is told only when too many sensors failed.
    """
    from flows.run.fanout import load_settings

    if flow_run.deployment_id is None and RunFailed.__name__ not in str(state.message):
        return
    try:
        settings = load_settings((flow_run.parameters or {}).get("fleet_file") or "")
        message = failure_message(settings.fleet.name, flow_run.name, str(state.message or flow.name))
        offer(settings, message, datetime.now(UTC))
        deliver_waiting(settings, datetime.now(UTC))
    except PaanoError as error:  # the run has failed already; its own error must stay the one that is seen
        log.warning("nobody was told of the failed run: %s", error)

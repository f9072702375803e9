"""Messages to their targets: chosen by rules, kept until they are delivered, each sent once.

Nothing here fails a run. A target that is down is tried again in this run, then by every later run and by
`paano notify`; the notes of the run say so.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from flows.messages.compose import zone_of
from flows.messages.message import About, Message
from flows.messages.targets import Alertmanager, Apprise, NotDelivered, PrefectEvents, Target, Webhook
from flows.run.fleet import storage_options
from flows.settings.fleet_file import Settings
from flows.settings.notify import TargetSettings
from paano.errors import ConfigError, PaanoError, Transient
from storage.objects.store import open_store
from storage.operations.sent import OTHER, SentStore, Waiting
from storage.window import Window

log = logging.getLogger("paano.flows")

BACK_OFF = (1.0, 5.0, 15.0)  # seconds before each further try of a target; the last one repeats
PREFECT = "prefect"


def open_sent(settings: Settings) -> SentStore:
    """The messages of the fleet."""
    return SentStore(open_store(settings.place(settings.operations.sent), storage_options(settings)))


def target_names(settings: Settings) -> list[str]:
    """Every target of the fleet, Prefect's events among them."""
    return [*settings.notify.targets, *([PREFECT] if settings.notify.prefect else [])]


def open_target(settings: Settings, name: str) -> Target:
    """The target of that name.

    Raises:
        ConfigError: its address is not where the fleet file says, or none that can be.
    """
    if name == PREFECT:
        return PrefectEvents(name, settings.fleet.name)
    rule = settings.notify.targets[name]
    address = address_of(name, rule)
    if rule.kind == "webhook":
        return Webhook(name, address)
    if rule.kind == "alertmanager":
        return Alertmanager(name, address, settings.fleet.name)
    return Apprise(name, address)


def address_of(name: str, rule: TargetSettings) -> str:
    """Where a target is, from the variable or block that the fleet file names.

    Raises:
        ConfigError: there is no such variable or block; the message names it and never what is in it.
    """
    where, _, key = rule.address.partition(":")
    if where == "variable":
        if not (found := os.environ.get(key, "")):
            raise ConfigError(f"notify target {name!r}: the variable {key} is not set; it holds its address")
        return found
    if where == "block":
        from prefect.blocks.system import Secret

        try:
            return str(Secret.load(key).get())  # type: ignore[union-attr]  # a coroutine in async code only
        except ValueError as error:
            raise ConfigError(
                f"notify target {name!r}: there is no Secret block {key!r} in Prefect; make one in its pages"
            ) from error
    return rule.address


def wanted(rule: TargetSettings, message: Message) -> bool:
    """Whether the rules of a target let a message through."""
    if str(message.about) not in rule.about:
        return False
    if message.about not in (About.INCIDENT, About.SILENCE):
        return True
    return (
        (message.about is About.SILENCE or message.severity >= rule.severity)
        and any(fnmatchcase(message.group, pattern) for pattern in rule.groups)
        and any(
            fnmatchcase(cause, pattern)
            for pattern in rule.causes
            for cause in (message.cause, *message.cause.split(" and "))
        )
    )


def is_quiet(settings: Settings, now: datetime) -> bool:
    """Whether `now` lies in the quiet hours of the fleet."""
    if not settings.notify.quiet:
        return False
    clock = now.astimezone(zone_of(settings)).strftime("%H:%M")
    begin, end = settings.notify.quiet.split("-")
    return begin <= clock < end if begin <= end else clock >= begin or clock < end


def offer(settings: Settings, message: Message, now: datetime, step: int = 0) -> int:
    """Put a message among those that wait, for every target that wants it; for how many it was new."""
    sent = open_sent(settings)
    subject = (
        message.key.rpartition("/")[0] if message.about in (About.INCIDENT, About.SILENCE) else message.key
    )
    facts = {
        "about": str(message.about),
        "group": message.group,
        "start": message.start.isoformat() if message.start else "",
        "end": (message.end or message.start).isoformat() if message.start else "",
    }
    folder = message.start.date().isoformat() if message.start else OTHER
    offered = 0
    for name in target_names(settings):
        rule = settings.notify.targets.get(name)
        if rule is not None and message.about is not About.DIGEST:
            if not wanted(rule, message) or (rule.digest and message.start):
                continue
        elif message.about is About.DIGEST and not (rule and rule.digest):
            continue
        waiting = Waiting(name, subject, step, message.to_dict(), folder, facts)
        offered += sent.offer(_as_known(sent, waiting, message), now)
    return offered


def _as_known(sent: SentStore, waiting: Waiting, message: Message) -> Waiting:
    """The message under the subject that the same incident had before.

    The id of an incident changes when an earlier event joins it, or when its first row turns out to lie a few
    rows earlier or later. One of the same group that overlaps it is the same.
    """
    if message.start is None:
        return waiting
    first, last = message.start - timedelta(days=1), (message.end or message.start) + timedelta(days=1)
    for day in Window(first, last).days():
        for known in sent.records(waiting.target, day.isoformat()):
            if known.subject == waiting.subject:
                return waiting
            same = known.facts.get("group") == message.group and known.facts.get("about") == message.about
            if not same or not known.facts.get("start"):
                continue
            start, end = (datetime.fromisoformat(known.facts[name]) for name in ("start", "end"))
            if start <= (message.end or message.start) and end >= message.start:
                facts = {**waiting.facts, "start": min(start, message.start).isoformat()}
                return Waiting(
                    waiting.target, known.subject, waiting.step, waiting.message, day.isoformat(), facts
                )
    return waiting


def deliver_waiting(
    settings: Settings, now: datetime, sleep: Callable[[float], Any] = time.sleep
) -> tuple[int, list[str]]:
    """Send what waits; how many went out, and a note for each target that did not take its messages."""
    sent, delivered, notes = open_sent(settings), 0, []
    quiet = is_quiet(settings, now)
    for name in target_names(settings):
        try:
            waiting = [one for one in sent.waiting(name) if not quiet or _urgent(settings, name, one)]
            if waiting:
                delivered += _deliver(settings, sent, open_target(settings, name), waiting, now, sleep)
        except (NotDelivered, ConfigError) as error:
            notes.append(f"{error}; it waits for the next run or `paano notify`")
            log.warning("%s", error)
    return delivered, notes


def _urgent(settings: Settings, name: str, one: Waiting) -> bool:
    """Whether a message goes out in quiet hours too. Prefect's events disturb no person."""
    limit = settings.notify.urgent
    return name == PREFECT or (limit > 0 and float(one.message.get("severity") or 0.0) >= limit)


def _deliver(
    settings: Settings,
    sent: SentStore,
    target: Target,
    waiting: Iterable[Waiting],
    now: datetime,
    sleep: Callable[[float], Any],
) -> int:
    delivered = 0
    for one in waiting:
        if not sent.claim(one, now):
            continue
        try:
            _patiently(target, Message.from_dict(one.message), settings.notify.retries, sleep)
        except PaanoError:
            sent.give_back(one, now)
            raise
        sent.mark(one, now)
        delivered += 1
    return delivered


def _patiently(target: Target, message: Message, retries: int, sleep: Callable[[float], Any]) -> None:
    for number in range(retries + 1):
        try:
            target.deliver(message)
            return
        except Transient:
            if number == retries:
                raise
            sleep(BACK_OFF[min(number, len(BACK_OFF) - 1)])

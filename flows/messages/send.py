"""Messages to their targets: chosen by rules, kept until they are delivered, each sent once.

Nothing here fails a run. A target that is down is tried again in this run, then by every later run, at the
end of the quiet hours and by `paano notify send`; the notes of the run say so.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from flows.messages.compose import digest_message
from flows.messages.message import About, Message
from flows.messages.quiet import is_quiet
from flows.messages.targets import Alertmanager, Apprise, NotDelivered, PrefectEvents, Target, Webhook
from flows.run.fleet import storage_options
from flows.settings.fleet_file import Settings
from flows.settings.notify import TargetSettings
from paano.errors import ConfigError, PaanoError
from storage.objects.store import open_store
from storage.operations.sent import OTHER, Record, SentStore, Waiting
from storage.window import Window

log = logging.getLogger("paano.flows")

BACK_OFF = (1.0, 5.0, 15.0)  # seconds before each further try of a target; the last one repeats
PREFECT = "prefect"
DAY = timedelta(days=1)


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


def offer(settings: Settings, message: Message, now: datetime, step: int = 0) -> int:
    """Put a message among those that wait, for every target that wants it; for how many it was new."""
    return Offers(settings, now).offer(message, step)


class Offers:
    """What a run has to say. What is known of earlier messages is read once for all of them."""

    def __init__(self, settings: Settings, now: datetime) -> None:
        self.settings, self.now, self.sent = settings, now, open_sent(settings)
        self._known: dict[tuple[str, str], list[Record]] = {}

    def offer(self, message: Message, step: int = 0) -> int:
        """Put `message` among those that wait, for every target that wants it; for how many it was new.

        Targets with a digest are told of incidents in `offer_digests`.
        """
        offered = 0
        for name in target_names(self.settings):
            rule = self.settings.notify.targets.get(name)
            if rule is None or (wanted(rule, message) and not (rule.digest and message.start)):
                waiting = self._waiting(name, message, step)
                offered += waiting is not None and self.sent.offer(waiting, self.now)
        return offered

    def offer_digests(self, found: Sequence[tuple[Message, int]], night: date) -> None:
        """One message about all that is new to it, for each target with a digest.

        What is found after the digest of a night went out is in that of the next.
        """
        for name, rule in self.settings.notify.targets.items():
            if not rule.digest:
                continue
            mine = [(one, step) for one, step in found if wanted(rule, one)]
            new = [(one, part) for one, step in mine if (part := self._waiting(name, one, step))]
            digest = digest_message(self.settings, night, [one for one, _ in new])
            if digest is None:
                continue
            waiting = Waiting(name, digest.key, 0, digest.to_dict(), OTHER, _facts(digest))
            if self.sent.offer(waiting, self.now):
                for _, part in new:
                    self.sent.told(part, self.now)

    def _waiting(self, target: str, message: Message, step: int) -> Waiting | None:
        """`message` for `target`, under the subject that the same incident had before; None: nothing new.

        The id of an incident changes when an earlier event joins it, or when its first row turns out to lie a
        few rows earlier or later. One of the same group that overlaps it is the same.
        """
        if message.start is None:
            return Waiting(target, message.key, step, message.to_dict(), OTHER, _facts(message))
        subject, facts = message.key.rpartition("/")[0], _facts(message)
        folder = message.start.date().isoformat()
        last = message.end or message.start
        near = [
            (day, known)
            for day in Window(message.start - DAY, last + DAY).days()
            for known in self._records(target, day.isoformat())
        ]
        same = [(day, known) for day, known in near if known.subject == subject]
        for day, known in same or [(day, known) for day, known in near if _is_same(known, message)]:
            if message.end and known.step % 2 == 0:  # it ended: told even if it became less severe
                step = max(step, known.step + 1)
            if known.step >= step:
                return None
            subject, folder = known.subject, day.isoformat()
            if known.facts.get("start"):
                facts["start"] = min(known.facts["start"], facts["start"])
            break
        return Waiting(target, subject, step, message.to_dict(), folder, facts)

    def _records(self, target: str, folder: str) -> list[Record]:
        if (target, folder) not in self._known:
            self._known[target, folder] = self.sent.records(target, folder)
        return self._known[target, folder]


def _facts(message: Message) -> dict[str, str]:
    """What is kept of a message, to know its incident again."""
    start, end = message.start, message.end or message.start
    return {
        "about": str(message.about),
        "group": message.group,
        "start": start.astimezone(UTC).isoformat() if start else "",
        "end": end.astimezone(UTC).isoformat() if end else "",
    }


def _is_same(known: Record, message: Message) -> bool:
    """Whether a record is about an incident that overlaps the one of `message`, in the same group."""
    if message.start is None or not known.facts.get("start"):
        return False
    if known.facts.get("group") != message.group or known.facts.get("about") != message.about:
        return False
    start, end = (datetime.fromisoformat(known.facts[name]) for name in ("start", "end"))
    return start <= (message.end or message.start) and end >= message.start


def deliver_waiting(
    settings: Settings, now: datetime, sleep: Callable[[float], Any] = time.sleep
) -> tuple[int, list[str]]:
    """Send what waits; how many went out, and a note for each target that did not take its messages."""
    sent, delivered, notes = open_sent(settings), 0, []
    quiet = is_quiet(settings, now)
    for name in target_names(settings):
        problem: PaanoError | None = None
        try:
            waiting = [one for one in sent.waiting(name) if not quiet or _urgent(settings, name, one)]
            if waiting:
                target = open_target(settings, name)
                taken, problem = _deliver(settings, sent, target, waiting, now, sleep)
                delivered += taken
        except ConfigError as error:
            problem = error
        if problem is not None:
            notes.append(f"{problem}; it waits for the next run or `paano notify send`")
            log.warning("%s", problem)
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
) -> tuple[int, NotDelivered | None]:
    """How many `target` took, and why it did not take one. After one that it refused the others are tried."""
    delivered, began = 0, time.monotonic()
    problem: NotDelivered | None = None
    for one in sorted(waiting, key=lambda one: (one.facts.get("start", ""), one.subject)):
        # a slow target takes its time: a claim counts from when it is made
        moment = now + timedelta(seconds=time.monotonic() - began)
        if not sent.claim(one, moment):
            continue
        try:
            _patiently(target, Message.from_dict(one.message), settings.notify.retries, sleep)
        except NotDelivered as error:
            sent.give_back(one, moment)
            problem = error
            if error.refused:
                continue
            break
        sent.mark(one, moment)
        delivered += 1
    return delivered, problem


def _patiently(target: Target, message: Message, retries: int, sleep: Callable[[float], Any]) -> None:
    for number in range(retries + 1):
        try:
            target.deliver(message)
            return
        except NotDelivered as error:
            if number == retries or error.refused:
                raise
            sleep(BACK_OFF[min(number, len(BACK_OFF) - 1)])

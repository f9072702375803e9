"""Messages on their way and messages that went out, so that each goes out once.

A message is about a *subject* (an incident, a run) in a *step* of it: a later step is a new message, the same
or an earlier one is not. It is first put among the waiting ones, then recorded. Whoever sends what waits
claims it before, and marks it afterwards; a claim that is old was left by a sender that died. So a message is
neither lost nor sent twice; only a sender that dies between delivery and mark makes it twice.

    waiting/{target}/{digest of subject}.json      the newest message of a subject that was not delivered yet
    known/{target}/{folder}/{digest}.json          what was said of a subject, for ever
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from paano.errors import Conflict, ObjectMissing, StorageError
from storage.keys import encode_id
from storage.objects.store import Store

LEASE = timedelta(minutes=10)
OTHER = "other"


@dataclass(frozen=True)
class Waiting:
    """A message for one target."""

    target: str
    subject: str
    step: int  # a later step of the same subject is a new message
    message: dict[str, Any]  # plain, as the sender understands it
    folder: str = OTHER  # where its record lies: subjects that are looked for together share one
    facts: dict[str, str] = field(default_factory=dict)  # kept in the record


@dataclass(frozen=True)
class Record:
    """What is known of one subject at one target."""

    target: str
    subject: str
    state: str  # waiting, sending, sent
    step: int  # the last one that was put among the waiting
    delivered: int  # the last one that was delivered; -1: none
    at: str
    facts: dict[str, str] = field(default_factory=dict)


class SentStore:
    """The messages of a fleet."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def offer(self, waiting: Waiting, at: datetime) -> bool:
        """Put a message among the waiting ones, unless its step or a later one was there; whether it was put.

        A message of an earlier step that still waits is replaced.
        """
        known, etag = self._record(waiting)
        if known is not None and known.step >= waiting.step:
            return False
        self.store.put(_waiting_key(waiting), json.dumps(asdict(waiting), sort_keys=True).encode())
        delivered = known.delivered if known else -1
        record = Record(
            waiting.target, waiting.subject, "waiting", waiting.step, delivered, _text(at), waiting.facts
        )
        try:
            self._write(waiting, record, etag)
        except Conflict:  # another run said the same at the same time
            return False
        return True

    def waiting(self, target: str) -> list[Waiting]:
        """The messages that wait for `target`, in no special order."""
        found = []
        for info in self.store.list(f"waiting/{encode_id(target)}"):
            try:
                found.append(Waiting(**json.loads(self.store.get(info.key))))
            except ObjectMissing:  # sent by another run in between
                continue
            except (ValueError, TypeError) as error:
                raise StorageError(f"{self.store.url_of(info.key)}: it is no message; remove it") from error
        return found

    def claim(self, waiting: Waiting, at: datetime) -> bool:
        """Whether the caller is the one to send it now."""
        known, etag = self._record(waiting)
        if known is not None:
            if known.delivered >= waiting.step:
                self._remove(waiting)  # its sender died before it could
                return False
            if known.state == "sending" and at - datetime.fromisoformat(known.at) < LEASE:
                return False
        delivered = known.delivered if known else -1
        record = Record(
            waiting.target, waiting.subject, "sending", waiting.step, delivered, _text(at), waiting.facts
        )
        try:
            self._write(waiting, record, etag)
        except Conflict:  # another one took it
            return False
        return True

    def mark(self, waiting: Waiting, at: datetime) -> None:
        """It was delivered. A later step that came meanwhile waits on."""
        self._settle(waiting, at, delivered=True)
        try:
            newest = Waiting(**json.loads(self.store.get(_waiting_key(waiting))))
        except ObjectMissing:
            return
        if newest.step <= waiting.step:
            self._remove(waiting)

    def give_back(self, waiting: Waiting, at: datetime) -> None:
        """It was not delivered; it waits on."""
        self._settle(waiting, at, delivered=False)

    def told(self, waiting: Waiting, at: datetime) -> None:
        """It was part of another message, so it needs none of its own."""
        self._settle(waiting, at, delivered=True)

    def _settle(self, waiting: Waiting, at: datetime, delivered: bool) -> None:
        while True:
            known, etag = self._record(waiting)
            before = known.delivered if known else -1
            newest = max(waiting.step, known.step if known else -1)
            last = max(before, waiting.step) if delivered else before
            state = "sent" if last >= newest else "waiting"
            record = Record(waiting.target, waiting.subject, state, newest, last, _text(at), waiting.facts)
            try:
                self._write(waiting, record, etag)
            except Conflict:  # another run wrote in between: look again
                continue
            return

    def records(self, target: str, folder: str) -> list[Record]:
        """What is known of the subjects of a folder."""
        keys = [info.key for info in self.store.list(f"known/{encode_id(target)}/{folder}")]
        return [found for key in keys if (found := self._read(key)[0]) is not None]

    def _remove(self, waiting: Waiting) -> None:
        with contextlib.suppress(ObjectMissing):  # another run removed it
            self.store.delete(_waiting_key(waiting))

    def _record(self, waiting: Waiting) -> tuple[Record | None, str | None]:
        return self._read(_record_key(waiting))

    def _read(self, key: str) -> tuple[Record | None, str | None]:
        try:
            data, etag = self.store.get_with_etag(key)
        except ObjectMissing:
            return None, None
        try:
            return Record(**json.loads(data)), etag
        except (ValueError, TypeError) as error:
            raise StorageError(
                f"{self.store.url_of(key)}: it is no record of a message; remove it"
            ) from error

    def _write(self, waiting: Waiting, record: Record, etag: str | None) -> None:
        data = json.dumps(asdict(record), sort_keys=True).encode()
        self.store.put(_record_key(waiting), data, if_match=etag, if_absent=etag is None)


def _digest(subject: str) -> str:
    return hashlib.sha256(subject.encode()).hexdigest()[:32]


def _waiting_key(waiting: Waiting) -> str:
    return f"waiting/{encode_id(waiting.target)}/{_digest(waiting.subject)}.json"


def _record_key(waiting: Waiting) -> str:
    return f"known/{encode_id(waiting.target)}/{waiting.folder}/{_digest(waiting.subject)}.json"


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()

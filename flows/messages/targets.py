"""Where messages go: Apprise (mail, Slack, Teams, PagerDuty, …), a webhook with JSON, or Alertmanager.

A target either delivers or raises `NotDelivered`, which may work in a while. Addresses often hold secrets, so
an error names the target and never its address.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol
from urllib.parse import urlsplit

from flows.messages.message import Message
from paano.errors import ConfigError, Transient

PATIENCE = 20.0  # seconds that a target may take
PASSING = (401, 403, 404, 408, 429)  # answers of a server that is set up wrongly or asks to wait
ALERT_LASTS = timedelta(days=1)  # an alert that is not repeated resolves itself then


class NotDelivered(Transient):
    """A target did not take a message; it is tried again.

    With `refused` it answered and does not want this one: others may go through.
    """

    def __init__(self, text: str, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


class Target(Protocol):
    """Somewhere messages can go."""

    name: str

    def deliver(self, message: Message) -> None:
        """Hand `message` over.

        Raises:
            NotDelivered: the target did not take it.
        """


class Webhook:
    """POSTs a JSON object. The header `Idempotency-Key` lets the receiver drop what it has seen."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, _http(name, address)

    def deliver(self, message: Message) -> None:
        """As `Target.deliver`."""
        body = {
            "key": message.key,
            "about": str(message.about),
            "title": message.title,
            "text": message.text,
            "severity": round(message.severity, 2),
            "group": message.group,
            "cause": message.cause,
            "start": _iso(message.start),
            "end": _iso(message.end),
            **message.facts,
        }
        _post(self.name, self.address, body, {"Idempotency-Key": f"{self.name}/{message.key}"})


class Alertmanager:
    """POSTs alerts to Alertmanager's API. Equal labels are one alert there, however often it is sent."""

    def __init__(self, name: str, address: str, fleet: str) -> None:
        self.name, self.fleet = name, fleet
        self.address = _http(name, address).rstrip("/") + "/api/v2/alerts"

    def deliver(self, message: Message) -> None:
        """As `Target.deliver`."""
        now = datetime.now(UTC)
        labels = {
            "alertname": f"paano_{message.about}",
            "fleet": self.fleet,
            "group": message.group,
            "subject": message.facts.get("subject", message.key),
        }
        alert = {
            "labels": {key: value for key, value in labels.items() if value},
            "annotations": {"summary": message.title, "description": message.text, **message.facts},
            "startsAt": _iso(message.start or now),
            "endsAt": _iso(message.end or now + ALERT_LASTS),
        }
        _post(self.name, self.address, [alert], {})


class PrefectEvents:
    """Emits events that Prefect's automations can react to."""

    def __init__(self, name: str, fleet: str) -> None:
        self.name, self.fleet = name, fleet

    def deliver(self, message: Message) -> None:
        """As `Target.deliver`. Prefect keeps an event for later where its server is away."""
        from prefect.events import emit_event

        resource = {
            "prefect.resource.id": f"paano.fleet.{self.fleet}",
            "prefect.resource.name": self.fleet,
            "paano.subject": message.facts.get("subject", message.key),
        }
        payload = {**message.to_dict(), "text": message.text}
        emit_event(f"paano.{message.about}", resource=resource, payload=payload)


class Apprise:
    """Anything that Apprise can reach, by its URL: mail, chat, pagers."""

    def __init__(self, name: str, address: str) -> None:
        import apprise

        self.name = name
        self._apprise = apprise.Apprise()
        if not self._apprise.add(address):
            raise ConfigError(f"notify target {name!r}: its address is none that Apprise knows")

    def deliver(self, message: Message) -> None:
        """As `Target.deliver`."""
        with _captured("apprise") as said:
            taken = self._apprise.notify(title=message.title, body=message.text or message.title)
        if not taken:
            # Apprise logs addresses with their secrets left out; its first line is the cause.
            why = said.getvalue().strip().splitlines()
            raise NotDelivered(
                f"notify target {self.name!r} did not take it: {why[0] if why else 'no reason'}"
            )


@contextlib.contextmanager
def _captured(logger: str) -> Iterator[io.StringIO]:
    """What a logger says inside the block."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    log = logging.getLogger(logger)
    log.addHandler(handler)
    try:
        yield out
    finally:
        log.removeHandler(handler)


def _http(name: str, address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"notify target {name!r}: its address must begin with http:// or https://")
    return address


def _post(name: str, address: str, body: object, headers: dict[str, str]) -> None:
    request = urllib.request.Request(
        address,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **headers},
        method="POST",
    )
    try:
        urllib.request.urlopen(request, timeout=PATIENCE).close()
    except urllib.error.HTTPError as error:
        refused = 400 <= error.code < 500 and error.code not in PASSING
        raise NotDelivered(f"notify target {name!r} answered HTTP {error.code}", refused) from None
    except (OSError, ValueError) as error:
        raise NotDelivered(f"notify target {name!r} does not answer ({type(error).__name__})") from None


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")

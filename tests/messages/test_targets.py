"""A message reaches its target, or the error names the target that did not take it, without its secrets."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from flows.messages.message import About, Message, plain
from flows.messages.targets import Alertmanager, Apprise, NotDelivered, Webhook
from paano.errors import ConfigError
from tests.messages.receivers import http_receiver, smtp_receiver

START = datetime(2026, 11, 17, 3, tzinfo=UTC)
MESSAGE = Message(
    "i1/begins", About.INCIDENT, "plant: line-1, severity 4.2", ("pump-1 first", "pump-2"), 4.2, "line-1",
    "level", start=START, facts={"incident": "i1", "subject": "i1"},
)  # fmt: skip


def test_a_webhook_gets_one_json_object_with_its_idempotency_key():
    with http_receiver() as received:
        Webhook("hook", f"http://127.0.0.1:{received.port}/in").deliver(MESSAGE)
    (body,) = received.messages
    assert body["text"] == "pump-1 first\npump-2" and body["severity"] == 4.2
    assert body["start"] == "2026-11-17T03:00:00Z" and body["end"] is None
    assert received.headers[0]["Idempotency-Key"] == "hook/i1/begins"


def test_alertmanager_gets_an_alert_that_has_the_same_labels_while_it_goes_on_and_when_it_ends():
    with http_receiver() as received:
        target = Alertmanager("am", f"http://127.0.0.1:{received.port}", "plant")
        target.deliver(MESSAGE)
        target.deliver(Message("i1/ended", About.INCIDENT, "over", group="line-1", start=START, end=START,
                               facts={"incident": "i1", "subject": "i1"}))  # fmt: skip
    first, second = (alerts[0] for alerts in received.messages)
    assert received.paths == ["/api/v2/alerts"] * 2
    assert first["labels"] == second["labels"]
    assert second["endsAt"] == "2026-11-17T03:00:00Z" < first["endsAt"]


def test_a_mail_goes_out_through_apprise():
    with smtp_receiver() as received:
        address = (
            f"mailto://127.0.0.1:{received.port}?from=paano@plant.example&to=ops@plant.example&mode=insecure"
        )
        Apprise("mail", address).deliver(MESSAGE)
    assert len(received.messages) == 1
    assert "Subject: plant: line-1, severity 4.2" in received.messages[0]


@pytest.mark.parametrize("refuse", [True, False])
def test_a_target_that_does_not_take_a_message_is_named_without_its_address(refuse):
    with http_receiver() as received:
        received.refuse = refuse
        address = f"http://user:secret-word@127.0.0.1:{received.port}/token-word"
        if not refuse:
            address = "http://user:secret-word@127.0.0.1:9/token-word"  # nobody listens there
        with pytest.raises(NotDelivered, match="'hook'") as error:
            Webhook("hook", address).deliver(MESSAGE)
    assert "word" not in str(error.value)


def test_an_address_that_nobody_knows_is_refused_at_the_start():
    with pytest.raises(ConfigError, match="'x'"):
        Apprise("x", "nonsense")
    with pytest.raises(ConfigError, match="'x'"):
        Webhook("x", "file:///etc/passwd")


def test_a_line_of_a_message_has_no_control_characters_and_a_bounded_length():
    assert plain("a\x1b[31m\nb") == "a [31m b"
    assert len(plain("x" * 1000)) == 300

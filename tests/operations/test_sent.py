"""A message is sent once, whoever else tries at the same time; a sender that died is replaced."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from paano.errors import StorageError
from storage.objects.store import open_store
from storage.operations.sent import LEASE, SentStore, Waiting

NOW = datetime(2026, 11, 18, 6, tzinfo=UTC)


@pytest.fixture
def sent(tmp_path) -> SentStore:
    return SentStore(open_store(str(tmp_path)))


def about(subject: str, step: int = 0, target: str = "mail") -> Waiting:
    return Waiting(target, subject, step, {"title": f"{subject} {step}"}, "2026-11-17", {"group": "g"})


def deliver(sent: SentStore, at: datetime = NOW) -> list[str]:
    """Send all that waits for mail; the titles."""
    titles = []
    for one in sent.waiting("mail"):
        if sent.claim(one, at):
            titles.append(one.message["title"])
            sent.mark(one, at)
    return titles


def test_of_many_senders_one_may_send(sent):
    sent.offer(about("i1"), NOW)
    with ThreadPoolExecutor(8) as pool:
        mine = list(pool.map(lambda _: sent.claim(about("i1"), NOW), range(24)))
    assert mine.count(True) == 1


def test_what_was_sent_is_never_sent_again_and_a_later_step_is(sent):
    assert sent.offer(about("i1"), NOW) and deliver(sent) == ["i1 0"]
    assert not sent.offer(about("i1"), NOW + timedelta(days=400)) and deliver(sent) == []
    assert sent.offer(about("i1", 3), NOW) and deliver(sent) == ["i1 3"]
    assert not sent.offer(about("i1", 2), NOW) and deliver(sent) == []


def test_only_the_newest_step_of_what_waits_is_sent(sent):
    sent.offer(about("i1", 1), NOW)
    sent.offer(about("i1", 4), NOW)
    assert deliver(sent) == ["i1 4"]


def test_a_message_is_known_by_target_and_subject(sent):
    assert all(sent.offer(one, NOW) for one in (about("k"), about("k", target="hook"), about("k2")))


def test_a_sender_that_died_is_replaced_after_its_lease_and_not_before(sent):
    sent.offer(about("k"), NOW)
    assert sent.claim(about("k"), NOW)
    assert not sent.claim(about("k"), NOW + LEASE / 2)
    assert sent.claim(about("k"), NOW + 2 * LEASE)
    assert not sent.claim(about("k"), NOW + 2.5 * LEASE)


def test_a_message_that_was_not_delivered_waits_on(sent):
    sent.offer(about("k"), NOW)
    assert sent.claim(about("k"), NOW)
    sent.give_back(about("k"), NOW)
    assert deliver(sent) == ["k 0"]


@pytest.mark.parametrize("delivered", [True, False])
def test_a_later_step_that_came_while_an_earlier_one_was_sent_is_not_lost(sent, delivered):
    sent.offer(about("k", 1), NOW)
    (one,) = sent.waiting("mail")
    assert sent.claim(one, NOW)
    assert sent.offer(about("k", 4), NOW)  # by another run
    sent.mark(one, NOW) if delivered else sent.give_back(one, NOW)
    assert deliver(sent) == ["k 4"] and deliver(sent) == []
    assert not sent.offer(about("k", 4), NOW)


def test_a_sender_that_died_after_its_mark_leaves_nothing_to_send(sent):
    sent.offer(about("k"), NOW)
    (one,) = sent.waiting("mail")
    sent.mark(one, NOW)
    assert deliver(sent) == [] and not sent.claim(one, NOW + 3 * LEASE)


def test_records_of_a_folder_are_found_with_their_facts(sent):
    sent.offer(about("k"), NOW)
    (record,) = sent.records("mail", "2026-11-17")
    assert (record.subject, record.facts["group"], record.state) == ("k", "g", "waiting")


def test_a_damaged_record_is_named(sent):
    sent.store.put("waiting/mail/x.json", b"?")
    with pytest.raises(StorageError, match=r"x\.json"):
        sent.waiting("mail")

"""Incidents: events of one group that overlap in time, whoever found them in whichever order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from paano.alarms.events import Event
from paano.alarms.incidents import find_incidents

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def event(sensor: str, first: int, last: int, severity: float = 1.0) -> Event:
    start, end = START + first * HOUR, START + last * HOUR
    return Event(
        f"{sensor}-{first}",
        sensor,
        start,
        end,
        peak=start,
        score=1.0,
        severity=severity,
        length=last - first + 1,
    )


def test_overlapping_events_of_a_group_are_one_incident_with_the_first_to_move_first():
    (found,) = find_incidents([event("b", 3, 6, 4.0), event("a", 5, 9), event("c", 2, 3)], "line-1")
    assert found.sensors == ("c", "b", "a")
    assert (found.start, found.end, found.severity) == (START + 2 * HOUR, START + 9 * HOUR, 4.0)


def test_events_apart_are_two_incidents_unless_the_slack_joins_them():
    events = [event("a", 0, 2), event("b", 4, 5)]
    assert len(find_incidents(events, "g")) == 2
    assert len(find_incidents(events, "g", slack=2 * HOUR)) == 1


def test_a_long_event_holds_together_what_lies_within_it():
    (found,) = find_incidents([event("a", 0, 20), event("b", 1, 2), event("c", 15, 16)], "g")
    assert found.sensors == ("a", "b", "c")


def test_another_group_has_another_id():
    one, other = (find_incidents([event("a", 0, 1)], group)[0] for group in ("g", "h"))
    assert one.incident_id != other.incident_id


EVENTS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(0, 60), st.integers(0, 8)),
    max_size=15,
    unique_by=lambda e: e[:2],
)


@given(EVENTS, st.randoms())
def test_incidents_do_not_depend_on_the_order_of_events(spans, random):
    events = [event(sensor, first, first + length) for sensor, first, length in spans]
    expected = find_incidents(events, "g")
    random.shuffle(events)
    assert find_incidents(events, "g") == expected


def joined(a: Event, b: Event) -> bool:
    """They overlap, or one goes on in the row after the other."""
    if a.start <= b.end and b.start <= a.end:
        return True
    first, second = sorted([a, b], key=lambda e: e.start)
    return a.sensor == b.sensor and first.length > 1 and first.end + HOUR == second.start


@given(EVENTS)
def test_two_events_share_an_incident_when_a_chain_of_overlaps_joins_them(spans):
    """The slow twin: joins any two that overlap until nothing changes."""
    events = [event(sensor, first, first + length) for sensor, first, length in spans]
    sets = [{e.event_id} for e in events]
    by_id = {e.event_id: e for e in events}
    changed = True
    while changed:
        changed = False
        for one in sets:
            for other in sets:
                if one is not other and any(joined(by_id[a], by_id[b]) for a in one for b in other):
                    one |= other
                    sets.remove(other)
                    changed = True
                    break
            if changed:
                break
    found = find_incidents(events, "g")
    assert sorted(map(sorted, sets)) == sorted(sorted(e.event_id for e in i.events) for i in found)


def test_an_event_that_was_cut_goes_on_and_is_one_incident():
    (found,) = find_incidents([event("a", 0, 9), event("a", 10, 12), event("a", 13, 20)], "g")
    assert (found.start, found.end, len(found.events)) == (START, START + 20 * HOUR, 3)
    assert len(find_incidents([event("a", 0, 9), event("b", 10, 12)], "g")) == 2

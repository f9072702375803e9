"""A calendar says exactly which time is muted or not learned; a wrong one is refused by row and column."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paano.errors import ConfigError
from storage.operations.calendar import Calendar, Effect, Period, join
from storage.window import Window

START = datetime(2026, 11, 2, tzinfo=UTC)
WEEKS = Window(START, START + timedelta(days=28))


def calendar(*rows: dict[str, object], zone: str = "UTC") -> Calendar:
    return Calendar.from_frame(pl.DataFrame(list(rows), infer_schema_length=None), zone=zone)


def hours(windows: list[Window]) -> float:
    return sum(window.length / timedelta(hours=1) for window in windows)


def test_a_period_covers_the_sensors_of_its_pattern_and_no_other():
    known = calendar({"sensor": "pump-*", "start": "2026-11-03", "end": "2026-11-04", "what": "mute"})
    assert known.muted("pump-7", None, WEEKS) == [
        Window(START + timedelta(days=1), START + timedelta(days=2))
    ]
    assert known.muted("boiler", None, WEEKS) == []
    assert known.not_learned("pump-7", None, WEEKS) == []


def test_a_group_pattern_covers_the_sensors_of_the_group():
    known = calendar({"group": "line-1", "start": "2026-11-03", "end": "2026-11-04", "what": "both"})
    assert hours(known.muted("a", "line-1", WEEKS)) == hours(known.not_learned("a", "line-1", WEEKS)) == 24
    assert known.muted("a", "line-2", WEEKS) == known.muted("a", None, WEEKS) == []


def test_a_weekly_period_keeps_its_local_hour_over_a_change_of_the_clock():
    rome = calendar(
        {"sensor": "*", "start": "2026-10-03T22:00", "end": "2026-10-04T06:00", "repeat": "weekly"},
        zone="Europe/Rome",
    )
    october = Window(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 30, tzinfo=UTC))
    found = rome.muted("x", None, october)
    assert len(found) == 9
    assert found[0].start.hour == 20 and found[-1].start.hour == 21  # UTC: summer, winter
    # The night of the change, 25 October, has one hour more.
    assert [window.length for window in found].count(timedelta(hours=9)) == 1


def test_a_rule_of_icalendar_repeats_as_it_says():
    known = calendar(
        {
            "sensor": "*",
            "start": "2026-11-01",
            "end": "2026-11-02",
            "repeat": "FREQ=MONTHLY;BYDAY=1SU;COUNT=3",
        }
    )
    year = Window(datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 12, 1, tzinfo=UTC))
    assert [w.start.date().isoformat() for w in known.muted("x", None, year)] == [
        "2026-11-01",
        "2026-12-06",
        "2027-01-03",
    ]


def test_a_repeated_period_that_began_before_the_window_is_seen_in_it():
    known = calendar(
        {"sensor": "*", "start": "2026-11-01T23:00", "end": "2026-11-02T02:00", "repeat": "daily"}
    )
    day = Window.day(START.date() + timedelta(days=5))
    assert [(w.start.hour, w.end.hour) for w in known.muted("x", None, day)] == [(0, 2), (23, 0)]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"sensor": "x", "start": "soon", "end": "2026-11-02"}, "row 1, column start"),
        ({"sensor": "x", "start": "2026-11-02", "end": "2026-11-01"}, "before it starts"),
        (
            {"sensor": "x", "start": "2026-11-01", "end": "2026-11-02", "what": "hide"},
            "mute, no_training, both",
        ),
        ({"sensor": "x", "start": "2026-11-01", "end": "2026-11-02", "repeat": "often"}, "repeat"),
        ({"sensor": "x", "start": "2026-11-01", "end": "2026-11-02", "repeat": "FREQ=BAD"}, "repeat"),
        (
            {"sensor": "x", "start": "2026-11-01", "end": "2026-11-02", "repeat": "FREQ=SECONDLY"},
            "every day",
        ),
        (
            {"sensor": "x", "start": "2026-11-01", "end": "2026-11-02", "repeat": "FREQ=DAILY;INTERVAL=0"},
            "INTERVAL is 0",
        ),
        (
            {
                "sensor": "x",
                "start": "2026-11-01",
                "end": "2026-11-02",
                "repeat": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
            },
            "never comes",
        ),
        ({"sensor": "", "start": "2026-11-01", "end": "2026-11-02"}, "neither sensor nor group"),
        ({"sensor": "x", "start": None, "end": "2026-11-02"}, "column start"),
        ({"sensor": "x", "start": "9999-12-31", "end": "9999-12-31T23:59:59+00:00"}, ""),
        ({"sensor": "x", "begin": "2026-11-01", "end": "2026-11-02"}, "'start' is missing"),
    ],
)
def test_a_wrong_row_is_refused_with_its_place(row, says):
    if not says:
        assert calendar(row).muted("x", None, WEEKS) == []
        return
    with pytest.raises(ConfigError, match=says):
        calendar(row)


def test_a_rule_that_ends_at_a_moment_in_utc_ends_there():
    rule = "FREQ=DAILY;UNTIL=20261103T225900Z"  # in Rome a minute before midnight
    known = calendar(
        {"sensor": "x", "start": "2026-11-01T23:00", "end": "2026-11-02T01:00", "repeat": rule},
        zone="Europe/Rome",
    )
    assert [part.start.day for part in known.muted("x", None, WEEKS)] == [2, 3]


def test_a_sensor_whose_id_looks_like_a_pattern_is_covered_by_its_id():
    known = calendar({"sensor": "pump[1]", "start": "2026-11-03", "end": "2026-11-04"})
    assert known.muted("pump[1]", None, WEEKS)


def test_one_wrong_row_refuses_the_whole_calendar():
    good = {"sensor": "x", "start": "2026-11-03", "end": "2026-11-04"}
    with pytest.raises(ConfigError, match="row 2"):
        calendar(good, {"sensor": "x", "start": "2026-11-04", "end": "2026-11-03"})


@pytest.mark.parametrize("name", ["known.csv", "known.parquet"])
def test_a_calendar_is_kept_and_read_back(tmp_path, name):
    url = str(tmp_path / name)
    assert Calendar.read(url).periods == ()
    period = Period(
        "pump-*", "", START, START + timedelta(days=1), Effect.BOTH, 'overhaul, of "all"', "weekly"
    )
    Calendar.change(url, lambda known: known.add(period).add(period))
    read = Calendar.read(url)
    assert read.periods == (period,)
    assert read.remove(period.id).periods == ()
    with pytest.raises(ConfigError, match="paano calendar list"):
        read.remove("nothing")


def test_a_weekly_period_of_the_fleets_zone_keeps_its_hour_when_it_is_written_and_read(tmp_path):
    row = {"sensor": "*", "start": "2026-10-03T22:00", "end": "2026-10-04T06:00", "repeat": "weekly"}
    first = calendar(row, zone="Europe/Rome")
    Calendar.change(str(tmp_path / "known.csv"), lambda known: first)
    again = Calendar.read(str(tmp_path / "known.csv"), zone="Europe/Rome")
    year = Window(START, START + timedelta(days=365))
    assert again.muted("x", None, year) == first.muted("x", None, year)


@pytest.mark.parametrize("data", [b"", b"\x00\xff\xfe", b"PAR1 and no more", b"start,end\n\xff,\xff\n"])
@pytest.mark.parametrize("name", ["known.csv", "known.parquet"])
def test_a_damaged_calendar_is_a_named_error(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ConfigError, match=name):
        Calendar.read(str(tmp_path / name))


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 30)), max_size=12))
def test_joined_stretches_cover_the_same_hours_once(spans):
    windows = [Window(START + timedelta(hours=a), START + timedelta(hours=a + n)) for a, n in spans]
    joined = join(windows)
    inside = {h for a, n in spans for h in range(a, a + n)}
    assert hours(joined) == len(inside)
    assert all(a.end < b.start for a, b in itertools.pairwise(joined))

"""Incidents are the same by night and by backfill, whatever order the events come in."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.run.fleet import open_fleet
from flows.settings.fleet_file import Settings
from flows.work.night.incidents import incidents_of, open_incidents, update_incidents
from paano.alarms.events import event_id
from storage.tables.events import EVENT_SCHEMA
from storage.window import Window

START = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def make_fleet(folder):
    (folder / "catalog.csv").write_text("sensor,group\na,g\nb,g\nc,h\nd,\n")
    return open_fleet(Settings.from_dict({"history": {"catalog": "catalog.csv"}, "folder": folder}))


def store(fleet, events, day: date):
    """The events as they are known after the night of `day`."""
    rows = [
        {
            "event_id": event_id(sensor, START + a * HOUR), "sensor": sensor, "start": START + a * HOUR,
            "end": START + b * HOUR, "peak": START + a * HOUR, "score": 1.0, "severity": severity,
            "length": 1, "channels": [], "cause": "shape", "model_version": 1,
        }
        for sensor, a, b, severity in events
    ]  # fmt: skip
    frame = pl.DataFrame(rows, schema=EVENT_SCHEMA, orient="row")
    fleet.events.update(frame, Window(START, START + timedelta(days=10)), ["a", "b", "c", "d"])


def of(fleet):
    return open_incidents(fleet).read_many(None, Window(START, START + timedelta(days=10)))


@st.composite
def fleets_events(draw):
    found, ends = [], {}
    for _ in range(draw(st.integers(0, 10))):
        sensor = draw(st.sampled_from("abcd"))
        start = ends.get(sensor, -1) + draw(st.integers(1, 40))
        end = start + draw(st.integers(0, 60))
        if end >= 9 * 24:
            break
        ends[sensor] = end
        found.append((sensor, start, end, float(draw(st.integers(1, 9)))))
    return found


@settings(max_examples=25, deadline=None)
@given(events=fleets_events(), seed=st.integers(0, 99))
def test_nights_in_any_order_give_the_incidents_of_one_backfill(tmp_path_factory, events, seed):
    nights, backfill = (make_fleet(tmp_path_factory.mktemp("fleet")) for _ in range(2))
    days = [START.date() + timedelta(days=n) for n in range(10)]
    for number, day in enumerate(days):  # a night sees an event as far as it has come
        upto = 24 * (number + 1) - 1
        store(nights, [(s, a, min(b, upto), v) for s, a, b, v in events if a <= upto], day)
        update_incidents(nights, Window.day(day))
    store(backfill, events, days[-1])
    update_incidents(backfill, Window(START, START + timedelta(days=10)))
    assert of(nights).equals(of(backfill))
    random.Random(seed).shuffle(days)
    for day in days[:4]:
        update_incidents(nights, Window.day(day))
    assert of(nights).equals(of(backfill))


def test_an_incident_has_the_first_to_move_first_and_the_largest_severity(tmp_path):
    fleet = make_fleet(tmp_path)
    store(fleet, [("b", 5, 9, 2.0), ("a", 7, 8, 6.0), ("c", 6, 8, 3.0), ("d", 1, 2, 1.0)], START.date())
    assert update_incidents(fleet, Window.day(START.date())) == 3
    rows = incidents_of(fleet, Window.day(START.date())).to_dicts()
    assert [(row["group"], row["sensors"], row["severity"]) for row in rows] == [
        ("d", ["d"], 1.0), ("g", ["b", "a"], 6.0), ("h", ["c"], 3.0),
    ]  # fmt: skip


def test_an_event_that_goes_away_takes_apart_what_it_joined(tmp_path):
    fleet = make_fleet(tmp_path)
    store(fleet, [("a", 1, 3, 1.0), ("b", 3, 30, 2.0), ("a", 29, 31, 3.0)], START.date())
    update_incidents(fleet, Window.day(START.date()))
    assert len(of(fleet)) == 1
    store(fleet, [("a", 1, 3, 1.0), ("a", 29, 31, 3.0)], START.date())
    update_incidents(fleet, Window.day(START.date() + timedelta(days=1)))
    assert of(fleet)["events"].list.len().to_list() == [1, 1]


def test_a_silent_sensor_does_not_join_the_faults_of_its_group(tmp_path):
    fleet = make_fleet(tmp_path)
    store(fleet, [("a", 1, 99, 1.0), ("b", 3, 4, 5.0), ("b", 30, 31, 6.0)], START.date())
    rows = fleet.events.read_many(None, Window(START, START + timedelta(days=10)))
    silent = rows.with_columns(
        cause=pl.when(pl.col("sensor") == "a").then(pl.lit("silent")).otherwise("cause")
    )
    fleet.events.update(silent, Window(START, START + timedelta(days=10)), ["a", "b"])
    update_incidents(fleet, Window(START, START + timedelta(days=10)))
    assert of(fleet).sort("start")["sensors"].to_list() == [["a"], ["b"], ["b"]]


def test_a_rerun_writes_nothing(tmp_path):
    fleet = make_fleet(tmp_path)
    store(fleet, [("a", 1, 3, 1.0)], START.date())
    update_incidents(fleet, Window.day(START.date()))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "incidents").rglob("*.parquet")}
    update_incidents(fleet, Window.day(START.date()))
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "incidents").rglob("*.parquet")} == before


@pytest.mark.parametrize("damage", ["sensor\n\n", "no_column\nx\n"])
def test_a_poisoned_catalog_is_refused_by_name(tmp_path, damage):
    fleet = make_fleet(tmp_path)
    store(fleet, [("a", 1, 3, 1.0)], START.date())
    (tmp_path / "catalog.csv").write_text(damage)
    with pytest.raises(Exception, match=r"catalog\.csv"):
        update_incidents(open_fleet(fleet.settings), Window.day(START.date()))

"""Verdicts are appended and never rewritten; labels of another service come in whole or not at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from paano.errors import ConfigError, StorageError
from storage.objects.store import open_store
from storage.operations.verdicts import GivenVerdict, Verdict, VerdictStore, from_csv, precision, stretches

NOW = datetime(2026, 11, 18, 6, 30, tzinfo=UTC)
START = datetime(2026, 11, 17, 3, tzinfo=UTC)


def said(verdict: Verdict, minutes: int = 0, event: str = "e1", sensor: str = "pump-1") -> GivenVerdict:
    end = START + timedelta(hours=1)
    return GivenVerdict(sensor, START, end, verdict, NOW + timedelta(minutes=minutes), event, "note", "Ada")


@pytest.fixture
def store(tmp_path) -> VerdictStore:
    return VerdictStore(open_store(str(tmp_path)))


def test_the_newest_verdict_on_an_event_counts_and_all_are_kept(store):
    store.append([said(Verdict.CONFIRMED)])
    store.append([said(Verdict.DISMISSED, 5)])
    store.append([said(Verdict.EXPECTED, 1, "e2")])
    assert store.read()["verdict"].to_list() == ["confirmed", "expected", "dismissed"]
    assert dict(store.latest().select("event_id", "verdict").iter_rows()) == {
        "e1": "dismissed",
        "e2": "expected",
    }


def test_appending_changes_no_object_that_is_there(store, tmp_path):
    key = store.append([said(Verdict.CONFIRMED)])
    before = (tmp_path / key).read_bytes()
    assert store.append([said(Verdict.CONFIRMED)]) == key
    store.append([said(Verdict.DISMISSED)])
    assert (tmp_path / key).read_bytes() == before
    assert store.read().height == 2


def test_old_days_are_left_out_without_reading_them(store, tmp_path):
    old = GivenVerdict("x", START, START, Verdict.CONFIRMED, NOW - timedelta(days=200))
    key = store.append([old])
    (tmp_path / key).write_bytes(b"damaged")
    store.append([said(Verdict.CONFIRMED)])
    assert store.read(since=(NOW - timedelta(days=90)).date())["sensor"].to_list() == ["pump-1"]
    with pytest.raises(StorageError, match="move it away"):
        store.read()


def test_a_stretch_holds_its_last_row(store):
    store.append([said(Verdict.CONFIRMED)])
    (found,) = stretches(store.latest(), "pump-1", Verdict.CONFIRMED, timedelta(minutes=10))
    assert (found.start, found.end) == (START, START + timedelta(hours=1, minutes=10))
    assert stretches(store.latest(), "pump-1", Verdict.DISMISSED, timedelta(minutes=10)) == []


def test_labels_of_lookout_for_equipment_are_taken_with_rating_equipment_and_notes():
    text = (
        "StartTime,EndTime,Rating,FaultCode,Notes,Equipment\n"
        "2026-11-01T10:00:00,2026-11-01T12:00:00,ANOMALY,F7,bearing,pump-1\n"
        "2026-11-02T10:00:00,2026-11-02T12:00:00,NO_ANOMALY,,,pump-2\n"
        "2026-11-03T10:00:00,2026-11-03T12:00:00,NEUTRAL,,,pump-2\n"
    )
    first, second = from_csv(text.encode(), NOW, by="import")
    assert (first.sensor, first.verdict, first.note, first.by) == (
        "pump-1",
        "confirmed",
        "F7; bearing",
        "import",
    )
    assert (second.sensor, second.verdict) == ("pump-2", "dismissed")
    assert first.start == datetime(2026, 11, 1, 10, tzinfo=UTC)


def test_two_columns_without_a_header_are_confirmed_faults_of_the_given_sensor():
    text = b"2026-11-01T10:00:00.000000,2026-11-01T12:00:00.000000\n2026-11-05T10:00:00,2026-11-05T12:00:00\n"
    assert [one.verdict for one in from_csv(text, NOW, sensor="pump-1")] == ["confirmed", "confirmed"]
    with pytest.raises(ConfigError, match="--sensor"):
        from_csv(text, NOW)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"start,end,sensor\n2026-11-01,2026-11-02,a\nsoon,2026-11-02,a\n", "row 2, start"),
        (b"start,end,sensor,rating\n2026-11-01,2026-11-02,a,maybe\n", "'maybe' is not a verdict"),
        (b"start,end,sensor\n2026-11-03,2026-11-02,a\n", "ends before it starts"),
        (b"start,sensor\n2026-11-03,a\n", "row 1, end"),
        (b"1,2,3\n", "3 columns without a header"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_a_wrong_label_refuses_the_file(text, says):
    with pytest.raises(ConfigError, match=says):
        from_csv(text, NOW)


def test_precision_counts_confirmed_among_those_judged():
    assert precision([]) is None
    assert precision([Verdict.EXPECTED]) is None
    assert precision([Verdict.CONFIRMED, Verdict.DISMISSED, Verdict.CONFIRMED, Verdict.EXPECTED]) == 2 / 3

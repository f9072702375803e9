"""Tags of a version with types: anybody can edit them in the MLflow pages."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.registry.tags import parse_tags
from storage.registry.versions import Version

WHOLE = {
    "paano.sensor": "pump-17",
    "paano.kind": "trained",
    "paano.interval_seconds": "300.0",
    "paano.window_start": "2026-01-01T00:00:00+00:00",
    "paano.window_end": "2026-02-01T00:00:00+00:00",
    "paano.recommendation": "passed",
    "paano.reason": "not worse",
    "paano.vus_pr": "0.8123",
    "paano.vus_pr.spike": "0.9",
    "paano.alarms": "1.50",
    "paano.previous": "3",
}


def test_whole_tags_are_read_with_their_types():
    tags = parse_tags(WHOLE)
    assert tags.interval == timedelta(minutes=5) and tags.window_end == datetime(2026, 2, 1, tzinfo=UTC)
    assert (tags.vus_pr, tags.alarms, tags.previous, tags.passed) == (0.8123, 1.5, 3, True)
    assert tags.faults == {"spike": 0.9} and tags.notes == ()


def test_the_recommendation_of_versions_from_before_was_called_verdict():
    assert parse_tags({"paano.verdict": "passed"}).passed
    assert not parse_tags({"paano.verdict": "not passed"}).passed
    assert not parse_tags({"paano.recommendation": "not passed", "paano.verdict": "passed"}).passed


def test_a_version_without_tags_has_nothing_and_no_notes():
    tags = Version("a", "plant.a", 1, "", "").parsed
    assert (tags.interval, tags.window_end, tags.vus_pr, tags.previous) == (None, None, None, None)
    assert not tags.passed and tags.notes == ()


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        (name, field, value)
        for name, field, values in [
            ("interval_seconds", "interval", ["soon", "0", "-1", "nan", "Infinity", "1e300", "9" * 400]),
            (
                "window_end",
                "window_end",
                ["yesterday", "2026-13-01", "0", "9" * 30, "0001-01-01T00:00+14:00"],
            ),
            ("window_start", "window_start", ["2026-01-01T25:00", "\0"]),
            ("vus_pr", "vus_pr", ["good", "nan", "-0.1", "1.1", "inf"]),
            ("alarms", "alarms", ["many", "nan", "-1", "Infinity"]),
            ("previous", "previous", ["the first", "0", "-2", "1.5", "²", "9" * 30]),
        ]
        for value in values
    ],
)
def test_a_wrong_tag_counts_as_missing_and_is_named(name, field, value):
    tags = parse_tags({**WHOLE, f"paano.{name}": value})
    assert getattr(tags, field) is None
    assert len(tags.notes) == 1 and f"paano.{name}" in tags.notes[0] and len(tags.notes[0]) < 200


def test_a_time_without_a_zone_is_utc():
    assert parse_tags({"paano.window_end": "2026-02-01"}).window_end == datetime(2026, 2, 1, tzinfo=UTC)


def test_a_wrong_recommendation_is_not_passed():
    tags = parse_tags({"paano.recommendation": "PASSED!"})
    assert not tags.passed and len(tags.notes) == 1


@given(
    st.dictionaries(st.sampled_from([*WHOLE, "paano.vus_pr.", "paano.verdict", "x"]), st.text(max_size=40))
)
def test_no_text_in_a_tag_makes_reading_fail(tags):
    parsed = parse_tags(tags)
    now = datetime(2026, 3, 1, tzinfo=UTC)
    assert parsed.window_end is None or (now - parsed.window_end).days is not None
    assert parsed.interval is None or 96 * parsed.interval > timedelta(0)

"""Outcomes and reports: every sensor ends with a reason, nothing is swallowed."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import fleets
import pytest

from flows.run.outcome import Outcome, attempt, count, ok, skipped
from flows.run.report import Report, badness, summary, version_link
from flows.work.night.night import add, join
from paano.errors import HistoryError, SeriesTooShort, StorageUnavailable


def raising(error):
    def work(_sensor):
        raise error

    return work


def test_an_error_with_a_name_is_the_outcome_of_its_sensor():
    outcome = attempt(raising(HistoryError("pump: object x is damaged")), "pump", batch=3)
    assert outcome.text == "failed: object x is damaged", "its row names the sensor already"
    assert outcome.batch == 3


def test_an_unexpected_error_is_counted_and_logged_with_its_traceback(caplog):
    with caplog.at_level(logging.ERROR):
        outcome = attempt(raising(ZeroDivisionError("by zero")), "pump")
    assert outcome.text == "failed: unexpected ZeroDivisionError: by zero"
    assert "Traceback" in caplog.text
    assert "pump" in caplog.text


def test_what_is_transient_is_raised_for_the_batch_to_be_tried_again():
    with pytest.raises(StorageUnavailable):
        attempt(raising(StorageUnavailable("503")), "pump")


def test_a_young_sensor_is_skipped_and_not_failed():
    assert attempt(raising(SeriesTooShort("2 rows")), "pump").text == "skipped: no_model: 2 rows"


def test_interrupting_a_run_interrupts_it():
    with pytest.raises(KeyboardInterrupt):
        attempt(raising(KeyboardInterrupt()), "pump")


def test_failed_sensors_come_first_and_then_the_most_severe():
    outcomes = [
        ok("calm"),
        ok("loud", severity=3.0),
        skipped("young", "no_model"),
        Outcome("bad", "failed", "x"),
    ]
    assert [outcome.sensor for outcome in sorted(outcomes, key=badness)] == ["bad", "young", "loud", "calm"]
    assert count(outcomes) == {"ok": 2, "skipped": 1, "failed": 1}


def test_several_nights_of_a_sensor_add_up():
    first = ok("a", "first night", rows=48, anomalies=2, severity=3.0, highest=5.0, version=1)
    second = ok("a", rows=48, anomalies=1, severity=1.0, highest=None, version=2)
    both = add(first, second)
    assert both.figures == {"rows": 96, "anomalies": 3, "severity": 3.0, "highest": 5.0, "version": 2}
    assert add(first, Outcome("a", "failed", "x")).state == "failed"
    assert add(skipped("a", "done"), second).state == "ok"


def test_a_sensor_whose_events_fail_has_failed_but_keeps_its_figures():
    joined = join(ok("a", rows=48), Outcome("a", "failed", "events"))
    assert joined.text == "failed: events"
    assert joined.figures == {"rows": 48}


def test_the_summary_names_failures_and_links_the_worst_sensors_to_their_models(tmp_path):
    settings = fleets.settings_of(tmp_path, registry={"tracking_uri": "http://mlflow:5000"})
    report = Report(
        "score",
        "2026-03-09",
        [
            ok("pump/1", events=2, severity=4.0, version=7),
            Outcome("bad", "failed", "object x is damaged"),
            skipped("young", "no_model: 3 of 80 points"),
        ],
        datetime(2026, 3, 9, tzinfo=UTC),
        notes=["the registry was away"],
    )
    text = summary(report, settings)
    assert "3 sensors: 1 ok, 1 skipped, 1 failed" in text
    assert "- `bad`: object x is damaged" in text
    assert "the registry was away" in text
    assert "http://mlflow:5000/#/models/tiny.pump~2F1/versions/7" in text
    assert version_link(fleets.settings_of(tmp_path), "a", 3) == "version 3", "no pages, no link"

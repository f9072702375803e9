"""The figures of a run for Prometheus: OpenMetrics text in a file, or sent to a Pushgateway.

Every figure has the labels `fleet` and `flow`. A run replaces the figures of the run before; the file of a
flow is its own, so that runs of different flows do not disturb each other (a node exporter reads the folder).
Events, incidents and staleness are of days in the fleet's zone.
"""

from __future__ import annotations

import logging
import urllib.error
from collections import Counter
from datetime import UTC, datetime
from math import floor
from pathlib import Path

from prefect.context import FlowRunContext
from prometheus_client import CollectorRegistry, Gauge, push_to_gateway
from prometheus_client.openmetrics.exposition import generate_latest

from flows.run.days import day_window, last_day_of
from flows.run.fleet import Fleet, storage_options
from flows.run.outcome import State
from flows.run.report import Report
from flows.settings.fleet_file import Settings
from flows.work.night.incidents import open_incidents
from paano.errors import PaanoError
from storage.objects.store import open_store
from storage.tables.day_table import DayTable
from storage.window import Window

log = logging.getLogger("paano.flows")

LABELS = ("fleet", "flow")
MOST_SEVERE = 6  # events at least this severe are counted together
ABOUT_A_NIGHT = ("score", "backfill", "heal")  # flows whose reports are about a day of the fleet


def seconds_so_far() -> float:
    """How long the flow run around this has been running; 0 outside of one."""
    context = FlowRunContext.get()
    began = context.flow_run.start_time if context and context.flow_run else None
    return (datetime.now(UTC) - began).total_seconds() if began else 0.0


def publish(report: Report, fleet: Fleet, seconds: float, now: datetime | None = None) -> list[str]:
    """Write and send the figures of a run where the settings say; notes on what did not work.

    A run does not fail for it.
    """
    settings = fleet.settings
    if not settings.metrics.url and not settings.metrics.pushgateway:
        return []
    notes = []
    try:
        registry = figures(report, fleet, seconds, now or datetime.now(UTC))
        if settings.metrics.url:
            text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]  # it has no types
            write(settings, report.flow, text)
    except PaanoError as error:
        log.warning("metrics: %s", error)
        return [f"the figures for Prometheus were not written: {error}"]
    if settings.metrics.pushgateway:
        where = settings.metrics.pushgateway
        try:
            push_to_gateway(
                where, job=f"paano_{report.flow}", registry=registry,
                grouping_key={"fleet": settings.fleet.name}, timeout=10,
            )  # fmt: skip
        except (OSError, ValueError, urllib.error.URLError) as error:
            log.warning("metrics: %s", error)
            notes.append(f"the Pushgateway of metrics.pushgateway does not answer ({type(error).__name__})")
    return notes


def write(settings: Settings, flow: str, text: bytes) -> None:
    """The figures of the last run of a flow, as one object that is replaced whole."""
    store = open_store(settings.place(settings.metrics.url), storage_options(settings))
    if "://" not in settings.place(settings.metrics.url):
        Path(settings.place(settings.metrics.url)).mkdir(parents=True, exist_ok=True)
    store.put(f"paano-{settings.fleet.name}-{flow}.prom", text)


def figures(report: Report, fleet: Fleet, seconds: float, now: datetime) -> CollectorRegistry:
    """Sensors by outcome, events by severity, seconds, and how old the newest score is."""
    registry, values = CollectorRegistry(), (fleet.settings.fleet.name, report.flow)

    def gauge(name: str, text: str, *more: str) -> Gauge:
        return Gauge(f"paano_{name}", text, [*LABELS, *more], registry=registry)

    sensors = gauge("sensors", "Sensors of the last run by outcome.", "outcome")
    for state, number in report.counts.items():
        sensors.labels(*values, state).set(number)
    gauge("run_seconds", "How long the last run took.").labels(*values).set(round(seconds, 3))
    gauge("run_timestamp_seconds", "When the last run ended.").labels(*values).set(now.timestamp())
    # A run about a night is kept under its date, which is a day in the fleet's zone.
    day = day_window(fleet.settings, report.as_of.date()) if report.flow in ABOUT_A_NIGHT else None
    about = day.start if day else report.as_of
    gauge("run_about_timestamp_seconds", "The moment that the last run was about.").labels(*values).set(
        about.timestamp()
    )
    gauge("events_total_last_run", "Events that ended in the last run.").labels(*values).set(
        report.figure("events")
    )
    if day:
        began = "that began on the day of the last run"
        by_severity = gauge("events", f"Events {began}, by severity.", "severity")
        steps = Counter(map(_step, _severities(fleet.events, day)))
        for step in range(1, MOST_SEVERE + 1):
            label = f"{step}+" if step == MOST_SEVERE else f"{step}"
            by_severity.labels(*values, label).set(steps[step])
        found = _severities(open_incidents(fleet), day)
        gauge("incidents", f"Incidents {began}.").labels(*values).set(len(found))
    newest = last_day_of(fleet.settings, fleet.scores.dates())
    if newest is not None:
        stale = gauge("staleness_seconds", "Time since the end of the last day with scores.")
        end = day_window(fleet.settings, newest).end
        stale.labels(*values).set(max(0.0, (now - end).total_seconds()))
    failed = gauge("failed", "1 for each sensor that failed in the last run.", "sensor")
    for outcome in report.outcomes:
        if outcome.state is State.FAILED:
            failed.labels(*values, outcome.sensor).set(1)
    return registry


def _severities(table: DayTable, day: Window) -> list[float | None]:
    """The severities of what began on `day`."""
    if set(table.dates()).isdisjoint(day.days()):
        return []
    return table.read_many(None, day, ["severity"])["severity"].to_list()


def _step(severity: float | None) -> int:
    """The whole step of a severity. There is none below 1: what is rarer than the budget is an event."""
    return min(MOST_SEVERE, max(1, floor(severity or 0.0)))

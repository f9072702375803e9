"""The figures of a run for Prometheus: OpenMetrics text in a file, or sent to a Pushgateway.

Every figure has the labels `fleet` and `flow`. A run replaces the figures of the run before; the file of a
flow is its own, so that runs of different flows do not disturb each other (a node exporter reads the folder).
"""

from __future__ import annotations

import logging
import urllib.error
from datetime import UTC, datetime
from math import floor
from pathlib import Path

from prefect.context import FlowRunContext
from prometheus_client import CollectorRegistry, Gauge, push_to_gateway
from prometheus_client.openmetrics.exposition import generate_latest

from flows.run.fleet import Fleet, storage_options
from flows.run.outcome import Outcome, State
from flows.run.report import Report
from flows.settings.fleet_file import Settings
from flows.work.night.incidents import open_incidents
from paano.errors import PaanoError
from storage.objects.store import open_store
from storage.window import Window

log = logging.getLogger("paano.flows")

LABELS = ("fleet", "flow")
MOST_SEVERE = 6  # events at least this severe are counted together


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
    gauge("run_about_timestamp_seconds", "The moment that the last run was about.").labels(*values).set(
        report.as_of.timestamp()
    )
    by_severity = gauge("events", "Sensors of the last run by severity of their worst event.", "severity")
    for step in range(1, MOST_SEVERE + 1):
        by_severity.labels(*values, _step(step)).set(sum(1 for one in report.outcomes if _worst(one) == step))
    gauge("events_total_last_run", "Events that ended in the last run.").labels(*values).set(
        report.figure("events")
    )
    day = Window.day(report.as_of.date())
    table = open_incidents(fleet)
    found = table.read_many(None, day).height if day.start.date() in table.dates() else 0
    gauge("incidents", "Incidents that began on the day of the last run.").labels(*values).set(found)
    dates = fleet.scores.dates()
    if dates:
        newest = Window.day(dates[-1]).end
        stale = gauge("staleness_seconds", "Time since the end of the last day with scores.")
        stale.labels(*values).set(max(0.0, (now - newest).total_seconds()))
    failed = gauge("failed", "1 for each sensor that failed in the last run.", "sensor")
    for outcome in report.outcomes:
        if outcome.state is State.FAILED:
            failed.labels(*values, outcome.sensor).set(1)
    return registry


def _worst(outcome: Outcome) -> int:
    if not outcome.figures.get("events"):
        return 0
    return min(MOST_SEVERE, max(1, floor(outcome.figures.get("severity") or 0.0)))


def _step(step: int) -> str:
    return f"{step}+" if step == MOST_SEVERE else str(step)

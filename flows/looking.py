"""What there is to see of a fleet: plain rows for `status`, `sensors`, `events` and `show`."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import polars as pl

from flows.parts import Parts
from flows.report import last_outcomes
from flows.reviewing import version_figures
from storage.window import Window

RECENT = timedelta(days=7)


def last_day(parts: Parts) -> date | None:
    """The newest date with scores."""
    return max(parts.scores.dates(), default=None)


def status(parts: Parts) -> dict[str, Any]:
    """The fleet in a few numbers."""
    names = parts.history.sensors().sensors
    champions = parts.registry.champions(names)
    kinds = [version.tags.get("paano.kind", "?") for version in champions.values()]
    day = last_day(parts)
    facts: dict[str, Any] = {
        "fleet": parts.settings.fleet.name,
        "sensors": len(names),
        **{f"{kind}_models": kinds.count(kind) for kind in sorted(set(kinds))},
        "without_model": len(set(names) - set(champions)),
        "waiting_for_review": len(parts.registry.challengers(names)),
        "last_night": day,
    }
    if champions.stale:
        facts["registry"] = f"away, models as of {champions.seen}"
    if day is not None:
        week = Window(Window.day(day).end - RECENT, Window.day(day).end)
        facts["events_of_7_days"] = parts.events.read_many(None, week, ["sensor"]).height
        facts |= {f"sensors_{state}": number for state, number in last_outcomes(parts.settings, day).items()}
    return facts


def sensors(parts: Parts) -> list[dict[str, Any]]:
    """A row for each sensor: its model and its last night."""
    names = parts.history.sensors().sensors
    champions, challengers = parts.registry.champions(names), parts.registry.challengers(names)
    day = last_day(parts)
    night: dict[str, dict[str, Any]] = {}
    if day is not None:
        rows = parts.scores.read_many(names, Window.day(day), ["sensor", "score", "anomaly", "status"])
        summed = rows.group_by("sensor").agg(
            scored=pl.col("score").is_not_null().sum(),
            missing=pl.col("status").is_in(["no_data", "no_model"]).sum(),
            anomalies=pl.col("anomaly").sum(),
        )
        night = {row.pop("sensor"): row for row in summed.iter_rows(named=True)}
    table = []
    for name in names:
        figures = version_figures(champions.get(name))
        table.append(
            {
                "sensor": name,
                "model": figures.get("kind") or "none",
                "version": figures.get("version"),
                "trained_to": figures.get("trained_to"),
                "vus_pr": figures.get("vus_pr"),
                "challenger": challengers[name].version if name in challengers else None,
                **night.get(name, {"scored": None, "missing": None, "anomalies": None}),
            }
        )
    return table


def events(parts: Parts, window: Window, names: list[str] | None, least: float = 0.0) -> list[dict[str, Any]]:
    """Events that start in `window`, the most severe first."""
    rows = parts.events.read_many(names, window).filter(pl.col("severity").fill_null(0) >= least)
    return rows.sort(["severity", "start"], descending=[True, False]).to_dicts()


def sensor_page(parts: Parts, sensor: str, window: Window) -> dict[str, Any]:
    """Everything about one sensor: versions, scores and events of `window`."""
    parts.history.sensors()[sensor]  # UnknownSensor, with the nearest ids
    return {
        "sensor": sensor,
        "window": window.to_dict(),
        "versions": [version_figures(version) for version in parts.registry.versions(sensor)],
        "scores": parts.scores.read(sensor, window).drop("sensor").to_dicts(),
        "events": events(parts, window, [sensor]),
    }


def window_of(parts: Parts, since: str, until: str, days: int) -> Window:
    """The given days, or the last `days` that have scores."""
    end = date.fromisoformat(until) if until else last_day(parts)
    if end is None:
        end = date.fromisoformat(since) if since else datetime(1970, 1, 1).date()
    begin = date.fromisoformat(since) if since else end - timedelta(days=days - 1)
    return Window(Window.day(begin).start, Window.day(end).end)

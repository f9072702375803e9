"""The page of one sensor: its series, the expected normal, the score with its parts, events and versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flows.pages.html import read_asset, render
from flows.pages.place import Place
from flows.pages.series import Expected, milliseconds, page_series, runs_of
from flows.pages.views import EventRow, SensorView, sensor_view
from flows.run.days import days_of
from flows.run.fleet import Fleet
from flows.work.alarm_rule import alarm_rule
from paano.alarms.explain import channel_shares
from paano.device import compute_threads
from paano.errors import PaanoError
from paano.model import PaAno
from storage.history.reader import Reading
from storage.registry.registry import Version
from storage.window import Window

BEFORE = timedelta(days=2)  # of history shown before the scored window
MOST_KNOWN = 3000  # ids that the page of the live view offers
MOST_CHANNELS = 8  # drawn at once; those that made the events come first
MOST_SHARED = 20  # events whose channels get their shares
PARTS = ("shape", "level", "next_value")

Shares = dict[str, dict[str, float]]  # in the score of an event, by its id and by channel


@dataclass(frozen=True)
class SensorFacts:
    """What the page of a sensor shows."""

    view: SensorView
    reading: Reading
    parts: dict[str, np.ndarray]  # of the score, one value per row of `scored`
    scored: Reading | None  # the rows that the parts belong to
    expected: Expected | None
    notes: list[str]
    shares: Shares = field(default_factory=dict)


def gather(
    fleet: Fleet,
    sensor: str,
    window: Window,
    explain: bool = True,
    parts_in: Window | None = None,
    champions: Mapping[str, Version] | None = None,
    known: Sequence[EventRow] | None = None,
    reading: Reading | None = None,
) -> SensorFacts:
    """Read what the page shows.

    Args:
        explain: load the champion for the parts of the score.
        parts_in: where the parts are shown; they are computed anew, which costs as much as scoring. None: in
            the whole window.
        champions: where they are known; else the registry is asked.
        known: events that were read already.
        reading: the history of `shown(window)`, if it was read already.
    """
    view = sensor_view(fleet, sensor, window, known)
    reading = reading or fleet.history.read(sensor, shown(window))
    notes: list[str] = []
    parts: dict[str, np.ndarray] = {}
    scored: Reading | None = None
    expected: Expected | None = None
    shares: Shares = {}
    if explain and reading.rows:
        try:
            model = champion_of(fleet, sensor, champions)
            if model is not None and list(reading.channels) == model.facts.get("channel_names"):
                parts, scored, expected = explain_scores(fleet, model, reading, view, parts_in or window)
                shares = shares_of(model, reading, view.events)
        except PaanoError as error:  # the page is worth having without them; it says what is missing
            notes.append(f"The parts of the score are not shown: {error}")
    return SensorFacts(view, reading, parts, scored, expected, notes, shares)


def shown(window: Window) -> Window:
    """The history that a page about `window` shows."""
    return window.widen(before=BEFORE)


def champion_of(fleet: Fleet, sensor: str, champions: Mapping[str, Version] | None = None) -> PaAno | None:
    """The loaded champion of a sensor, or None without one."""
    known = fleet.registry.champions([sensor]) if champions is None else champions
    version = known.get(sensor)
    return PaAno.load(fleet.registry.fetch(version), device="cpu") if version else None


def explain_scores(
    fleet: Fleet, model: PaAno, reading: Reading, view: SensorView, window: Window
) -> tuple[dict[str, np.ndarray], Reading, Expected | None]:
    """The parts of the score of every row in `window`, the rows, and the expected normal if known."""
    context = model.config.context * reading.interval
    near = reading.cut(window.widen(context, context))
    with compute_threads(fleet.settings.run.threads):
        found = model.detect(near.values)
        expected = expected_normal(model, reading, view.events)
    threshold = alarm_rule(
        fleet.settings_for(view.sensor), view.sensor, model.calibration, reading.interval
    ).threshold
    whole = {name: np.asarray(getattr(found, name), float) for name in PARTS if hasattr(found, name)}
    parts = {name: values for name, values in whole.items() if np.isfinite(values).any()}
    if np.isfinite(parts.get("level", np.array([np.nan]))).any() and np.isfinite(threshold):
        return parts, near, expected
    return {}, near, expected


def expected_normal(model: PaAno, reading: Reading, events: list[EventRow]) -> Expected | None:
    """The normal that the model expects in place of the events, where the model can say it."""
    if model.kept is None or not events:  # a model of an earlier version keeps no history
        return None
    shape = reading.values.shape
    low, mid, high = (np.full(shape, np.nan) for _ in range(3))
    for event in events:
        first = max(0, (event.start - reading.start) // reading.interval)
        last = min(len(reading) - 1, (event.end - reading.start) // reading.interval)
        if first > last:
            continue
        answer = model.expected(reading.values, (first, last))
        rows = answer.rows
        low[rows], mid[rows], high[rows] = answer.low, answer.mid, answer.high
    if not np.isfinite(mid).any():
        return None
    return Expected(reading.start, reading.interval, reading.channels, low, mid, high)


def shares_of(model: PaAno, reading: Reading, events: Sequence[EventRow]) -> Shares:
    """The share of each channel in the score at the peak of an event, for the worst events."""
    if len(reading.channels) < 2:
        return {}
    shares: Shares = {}
    for event in events[:MOST_SHARED]:
        row = (event.peak - reading.start) // reading.interval
        if 0 <= row < len(reading):
            found = channel_shares(model, reading.values, row, MOST_CHANNELS)
            shares[event.event_id] = {reading.channels[column]: round(share, 3) for column, share in found}
    return shares


def page_data(fleet: Fleet, facts: SensorFacts, place: Place, stretches: int = 1_000) -> dict[str, Any]:
    """What the scripts of the page draw."""
    view, reading = facts.view, facts.reading
    order = channel_order(reading.channels, view.events)
    group = fleet.history.sensors()[view.sensor].group or ""
    channels = []
    for rank, column in order[:MOST_CHANNELS]:
        name = reading.channels[column]
        channels.append(
            {
                "name": name,
                "rank": rank,
                "series": page_series(reading.start, reading.interval, reading.values[:, column], stretches),
                "gaps": gaps_of(reading, column),
                "expected": facts.expected.of(name) if facts.expected else None,
            }
        )
    return {
        "sensor": view.sensor,
        "group": group,
        "zone": fleet.settings.zone,
        "window": [milliseconds(view.window.start), milliseconds(view.window.end)],
        "before": milliseconds(reading.start) if len(reading) else milliseconds(view.window.start),
        "channels": channels,
        "left_out": len(order) - len(channels),
        "score": score_data(view.scores, stretches),
        "parts": {
            name: page_series(facts.scored.start, facts.scored.interval, values, stretches)
            for name, values in facts.parts.items()
            if facts.scored is not None
        },
        "events": [event_data(event) for event in view.events],
        "shares": facts.shares,
        "versions": version_marks(view),
        "live": place.live,
    }


def score_data(scores: pl.DataFrame, stretches: int) -> dict[str, Any] | None:
    """Score, threshold and stretches without a score; None where nothing was scored."""
    if not scores.height:
        return None
    start, step = scores["ts"][0], grid_step(scores)
    rows = ((scores["ts"] - start) / step).round().cast(pl.Int64).to_numpy()
    values = np.full(int(rows[-1]) + 1, np.nan)
    limits = np.full(len(values), np.nan)
    values[rows] = scores["score"].fill_null(float("nan")).to_numpy()
    limits[rows] = scores["threshold"].fill_null(float("nan")).to_numpy()
    limits[~np.isfinite(limits)] = np.nan
    state = np.full(len(values), "absent", dtype=object)
    state[rows] = scores["status"].to_numpy()
    gaps = [
        [milliseconds(start + first * step), milliseconds(start + last * step)]
        for first, last in runs_of(~np.isfinite(values))
    ]
    return {
        "score": page_series(start, step, values, stretches),
        "threshold": page_series(start, step, limits, stretches),
        "gaps": gaps,
        "no_data": int((state == "no_data").sum()),
        "no_model": int((state == "no_model").sum()),
        "provisional": int((state == "provisional").sum()),
        "rows": scores.height,
        "anomalies": int(scores["anomaly"].sum()),
    }


def grid_step(scores: pl.DataFrame) -> timedelta:
    """The usual distance of score rows in time."""
    step = scores["ts"].diff().drop_nulls().median() if scores.height > 1 else None
    return step if isinstance(step, timedelta) and step else timedelta(minutes=1)


def channel_order(channels: list[str], events: list[EventRow]) -> list[tuple[int, int]]:
    """(rank, column) of every channel: those that made the worst event first; rank 0 made none."""
    named: list[str] = []
    for event in events:
        named += [name for name in event.channels if name not in named]
    ranked = [(named.index(name) + 1 if name in named else 0, column) for column, name in enumerate(channels)]
    return sorted(ranked, key=lambda each: (each[0] == 0, each[0], each[1]))


def gaps_of(reading: Reading, column: int) -> list[list[int]]:
    """Stretches of time in which a channel has no value."""
    return [
        [
            milliseconds(reading.start + first * reading.interval),
            milliseconds(reading.start + last * reading.interval),
        ]
        for first, last in runs_of(np.isnan(reading.values[:, column]))
    ]


def event_data(event: EventRow) -> dict[str, Any]:
    """An event as pages carry it."""
    return {
        "id": event.event_id,
        "sensor": event.sensor,
        "start": milliseconds(event.start),
        "end": milliseconds(event.end),
        "peak": milliseconds(event.peak),
        "severity": round(event.severity, 2),
        "channels": list(event.channels),
        "cause": event.cause,
        "open": event.open,
        "version": event.model_version,
    }


def version_marks(view: SensorView) -> list[dict[str, Any]]:
    """Where in the window a version began to score, with what the registry says of it."""
    known = {figures["version"]: figures for figures in view.versions}
    marks = []
    if view.scores.height:
        scored = view.scores.filter(pl.col("model_version").is_not_null())
        begun = scored.group_by("model_version", maintain_order=True).agg(pl.col("ts").min())
        for number, moment in begun.iter_rows():
            figures = known.get(number, {})
            marks.append({"version": number, "at": milliseconds(moment), "kind": figures.get("kind") or ""})
    return marks


def render_sensor(fleet: Fleet, facts: SensorFacts, place: Place, back: str = "") -> str:
    """The whole page as text."""
    view, catalog = facts.view, fleet.history.sensors()
    since, until = days_of(fleet.settings, view.window)
    width = until - since + timedelta(days=1)
    return render(
        "pages/sensor.html",
        page_data(fleet, facts, place),
        (read_asset("pages/draw.js"), read_asset("pages/sensor.js")),
        fleet=fleet.settings.fleet.name,
        heading=view.sensor,
        place=place,
        back=back,
        view=view,
        facts=facts,
        zone=fleet.settings.zone,
        live=place.live,
        known=catalog.sensors[:MOST_KNOWN] if place.live else [],
        group=catalog[view.sensor].group or "",
        since=since,
        until=until,
        earlier=place.sensor(view.sensor, since - width, until - width),
        later=place.sensor(view.sensor, since + width, until + width),
    )


def write_page(fleet: Fleet, view: SensorView, path: Path) -> None:
    """Write a self-contained HTML file about a sensor."""
    facts = gather(fleet, view.sensor, view.window)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_sensor(fleet, facts, Place.file()), encoding="utf-8")

"""Drawing in a terminal: a series, its score, and the state of a fleet on one screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
from rich.text import Text

from flows.cli.console import screen, table
from flows.pages.escape import one_line

if TYPE_CHECKING:
    from flows.pages.views import EventRow
    from storage.history.reader import Reading

BARS = "▁▂▃▄▅▆▇█"
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a Braille sign: left and right, top down
HEIGHT = 5  # lines of a series
MOST_CHANNELS = 3
MARGIN = 12  # columns for numbers at the left


def local(moment: datetime, zone: str, form: str = "%Y-%m-%d %H:%M") -> str:
    """A time in the fleet's zone."""
    return moment.astimezone(ZoneInfo(zone)).strftime(form)


def event_columns(event: EventRow, zone: str) -> dict[str, Any]:
    """An event as a row of a table; its end without the date where that is the date of its start."""
    start, end = local(event.start, zone), local(event.end, zone)
    return {
        "sensor": event.sensor,
        "start": start,
        "end": "open" if event.open else end.removeprefix(start[: len("2026-01-01 ")]),
        "severity": event.severity,
        "cause": event.cause,
        "channels": ", ".join(event.channels),
        "event": event.event_id,
    }


def draw_sensor(reading: Reading, scores: pl.DataFrame, events: Sequence[EventRow], zone: str) -> None:
    """The series channel by channel and the score below, over the same time; rows of events are red."""
    width = max(20, min(120, screen.width - MARGIN - 2))
    if not len(reading):
        screen.print("no history in this window")
        return
    red = columns_of(reading, events, width)
    named = [name for event in events for name in event.channels]
    order = sorted(
        range(len(reading.channels)),
        key=lambda n: named.index(reading.channels[n]) if reading.channels[n] in named else len(named),
    )
    for column in order[:MOST_CHANNELS]:
        values = reading.values[:, column]
        known = values[np.isfinite(values)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        screen.print(Text(one_line(reading.channels[column]), "bold"))
        for number, line in enumerate(braille(values, width, HEIGHT)):
            edge = f"{high:.4g}" if number == 0 else f"{low:.4g}" if number == HEIGHT - 1 else ""
            screen.print(painted(f"{edge:>{MARGIN - 1}} ", line, red))
    if len(order) > MOST_CHANNELS:
        screen.print(f"… and {len(order) - MOST_CHANNELS} further channels; --html shows them")
    draw_score(reading, scores, width)
    if any(red):  # also for eyes and pipes that see no red
        marks = "".join("━" if marked else " " for marked in red)
        screen.print(painted(f"{'events':>{MARGIN - 1}} ", marks, red))
    first, last = local(reading.start, zone), local(reading.end, zone)
    screen.print(" " * MARGIN + first + " " * max(1, width - len(first) - len(last)) + last)
    screen.print(f"{'':{MARGIN}}times in {zone}; red: events and scores over the threshold; ·: no score")


def draw_score(reading: Reading, scores: pl.DataFrame, width: int) -> None:
    """The score as one line of bars over the time of `reading`."""
    if not scores.height:
        screen.print("no scores in this window")
        return
    span = reading.end - reading.start
    cells: list[list[tuple[float | None, bool]]] = [[] for _ in range(width)]
    for moment, score, anomaly in scores.select("ts", "score", "anomaly").iter_rows():
        place = int((moment - reading.start) / span * width)
        if 0 <= place < width:
            cells[place].append((score, bool(anomaly)))
    top = max((score for score in scores["score"] if score is not None), default=0.0)
    line = Text(f"{'score':>{MARGIN - 1}} ", "bold")
    for cell in cells:
        known = [score for score, _ in cell if score is not None]
        mark = (BARS[round(max(known) / top * 7)] if top else BARS[0]) if known else "·" if cell else " "
        line.append(mark, "red" if any(over for _, over in cell) else "not bold")
    screen.print(line)
    limit = scores["threshold"].drop_nulls()
    over = f", threshold {limit[-1]:.3f}" if len(limit) else ""
    screen.print(f"{'':{MARGIN}}highest score {top:.3f}{over}")


def painted(head: str, line: str, red: Sequence[bool]) -> Text:
    """A line with the columns of events in red."""
    text = Text(head)
    for sign, marked in zip(line, red, strict=True):
        text.append(sign, "red" if marked else "")
    return text


def columns_of(reading: Reading, events: Sequence[EventRow], width: int) -> list[bool]:
    """Which columns an event touches."""
    span = reading.end - reading.start
    marked = [False] * width
    for event in events:
        first = int((event.start - reading.start) / span * width)
        last = int((event.end - reading.start) / span * width)
        for place in range(max(0, first), min(width - 1, last) + 1):
            marked[place] = True
    return marked


def braille(values: np.ndarray, width: int, height: int) -> list[str]:
    """Values as `height` lines of Braille signs: two columns of dots a sign, from least to greatest value."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    span = high - low or 1.0
    signs = np.zeros((height, width), dtype=int)
    rows = 4 * height
    for column, part in enumerate(np.array_split(values, 2 * width)):
        there = part[np.isfinite(part)]
        if not len(there):
            continue
        top = round((high - float(there.max())) / span * (rows - 1))
        bottom = round((high - float(there.min())) / span * (rows - 1))
        for row in range(top, bottom + 1):
            signs[row // 4, column // 2] |= DOTS[column % 2][row % 4]
    return ["".join(chr(0x2800 + sign) for sign in line) for line in signs]


def print_status(facts: Mapping[str, Any]) -> None:
    """The fleet on one screen."""
    models = [f"{facts[key]} {key.removesuffix('_models')}" for key in facts if key.endswith("_models")]
    states = {key.removeprefix("sensors_"): n for key, n in facts.items() if key.startswith("sensors_")}
    rows = [
        {"what": "fleet", "is": f"{facts['fleet']}: {facts['sensors']} sensors"},
        {"what": "models", "is": ", ".join([*models, f"{facts['without_model']} without model"])},
        {"what": "last night", "is": f"{facts['last_night'] or 'none is scored yet'}"},
        {
            "what": "its sensors",
            "is": ", ".join(f"{n} {state}" for state, n in states.items()) or "no run kept",
        },
    ]
    for name in ("missed_nights", "registry"):
        if name in facts:
            rows.append({"what": name.replace("_", " "), "is": facts[name]})
    if "absent" in facts:
        rows.append({"what": "absent", "is": f"with a model and no history: {', '.join(facts['absent'])}"})
    if "events_by_day" in facts:
        rows.append({"what": "events", "is": spark(facts["events_by_day"])})
        rows.append(
            {"what": "", "is": f"{facts['events_of_7_days']} in 7 days, {facts['open_events']} still open"}
        )
    rows.append({"what": "reviews", "is": f"{facts['waiting_for_review']} waiting for a decision"})
    due: list[str] = facts.get("due", [])
    shown = ", ".join(due[:6]) + (f" and {len(due) - 6} more" if len(due) > 6 else "")
    rows.append({"what": "due", "is": f"{len(due)} sensors{': ' + shown if due else ''}"})
    table("status", rows)
    if facts.get("last_runs"):
        table("last runs", facts["last_runs"])


def spark(counts: Mapping[str, int]) -> str:
    """Events by day: a bar, the date and the number of each."""
    top = max(counts.values(), default=0)
    bar = "".join(BARS[round(n / top * 7)] if top else BARS[0] for n in counts.values())
    return f"{bar}  " + "  ".join(f"{day[5:]}: {n}" for day, n in counts.items())

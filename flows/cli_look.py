"""`paano status`, `sensors`, `events` and `show`: look, change nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.console import Debug, File, Json, load, say_json, screen, table

BARS = "▁▂▃▄▅▆▇█"
Since = Annotated[str, typer.Option(help="First day, YYYY-MM-DD.")]
Until = Annotated[str, typer.Option(help="Last day, YYYY-MM-DD (default: the last scored).")]


def register(app: typer.Typer, example: Callable[[str], str]) -> None:
    """Add the commands to `app`."""

    @app.command(epilog=example("paano status --json"))
    def status(file: File = "", as_json: Json = False, debug: Debug = False) -> None:
        """The fleet in a few numbers."""
        from flows.looking import status as look

        facts = look(_parts(file))
        if as_json:
            say_json(facts)
        else:
            table("status", [{"what": key.replace("_", " "), "is": value} for key, value in facts.items()])

    @app.command(epilog=example("paano sensors"))
    def sensors(file: File = "", as_json: Json = False, debug: Debug = False) -> None:
        """Every sensor with its model and its last night."""
        from flows.looking import sensors as look

        rows = look(_parts(file))
        say_json(rows) if as_json else table(f"{len(rows)} sensors", rows)

    @app.command(epilog=example("paano events --since 2026-11-01 --severity 2"))
    def events(
        sensors: Annotated[list[str] | None, typer.Argument(help="Sensor ids; none means all.")] = None,
        since: Since = "",
        until: Until = "",
        severity: Annotated[float, typer.Option(help="Only events at least this severe.")] = 0.0,
        limit: Annotated[int, typer.Option(min=1, help="At most so many rows.")] = 50,
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """What was found, the most severe first."""
        from flows.looking import events as look
        from flows.looking import window_of

        parts = _parts(file)
        window = window_of(parts, since, until, days=7)
        rows = look(parts, window, sensors or None, severity)
        if as_json:
            say_json(rows[:limit])
        elif rows:
            table(f"events of {window}", [_event(row) for row in rows[:limit]])
        else:
            screen.print(f"no events in {window}")

    @app.command(epilog=example("paano show pump-17 --html pump-17.html"))
    def show(
        sensor: Annotated[str, typer.Argument(help="Sensor id.")],
        since: Since = "",
        until: Until = "",
        html: Annotated[Path | None, typer.Option(help="Also write a page with a plot.")] = None,
        png: Annotated[Path | None, typer.Option(help="Also write a picture.")] = None,
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """One sensor: its versions, scores and events."""
        from flows.looking import sensor_page, window_of

        parts = _parts(file)
        window = window_of(parts, since, until, days=3)
        page = sensor_page(parts, sensor, window)
        if html is not None:
            from flows.page import write_page

            write_page(parts, page, html)
        if png is not None:
            from flows.pictures import night

            png.parent.mkdir(parents=True, exist_ok=True)
            png.write_bytes(night(parts.history.read(sensor, window), page["scores"], page["events"]))
        if as_json:
            say_json(page)
            return
        if page["versions"]:
            table(f"{sensor}: versions", page["versions"])
        _plot(page["scores"])
        if page["events"]:
            table("events", [_event(row) for row in page["events"]])
        for path in (html, png):
            if path is not None:
                screen.print(f"wrote {path}")


def _parts(file: str) -> Any:
    settings = load(file)
    from flows.parts import open_parts

    return open_parts(settings)


def _event(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "sensor": row["sensor"],
        "start": f"{row['start']:%Y-%m-%d %H:%M}",
        "end": f"{row['end']:%Y-%m-%d %H:%M}",
        "severity": row["severity"],
        "points": row["length"],
        "channels": ", ".join(row["channels"] or []),
        "spoke": row["kind"] or "",
        "event": row["event_id"],
    }


def _plot(rows: list[dict[str, Any]]) -> None:
    """Scores as one line per day, a bar per stretch of time; alarms are red, missing data is a dot."""
    width = min(96, screen.width - 12)
    days: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        days.setdefault(f"{row['ts']:%Y-%m-%d}", []).append(row)
    top = max((row["score"] for row in rows if row["score"] is not None), default=0.0)
    if not rows:
        screen.print("no scores in this window")
    for day, steps in days.items():
        line = ""
        for n in range(min(width, len(steps))):
            part = steps[n * len(steps) // width : max(1, (n + 1) * len(steps) // width)] or steps[n : n + 1]
            scores = [row["score"] for row in part if row["score"] is not None]
            mark = BARS[round(max(scores) / top * 7)] if scores and top else "·"
            line += f"[red]{mark}[/]" if any(row["anomaly"] for row in part) else mark
        screen.print(f"{day} {line}", highlight=False)
    if rows:
        screen.print(f"a day per line, highest score {top:.3f}; red: over the threshold; ·: no score")

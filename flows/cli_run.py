"""Running flows from a command: in this process, with a progress bar, and their outcomes shown."""

from __future__ import annotations

import importlib
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from flows.console import load, progress, say_json, screen, table
from paano.errors import ConfigError

if TYPE_CHECKING:
    from flows.report import Report


def run_flow(name: str, file: str, as_json: bool, **arguments: Any) -> None:
    """Run a flow in this process with a progress bar and print its outcomes."""
    load(file)
    with progress(shown=not as_json):
        report = call_flow(name, file, **arguments)
    if as_json:
        say_json(report.to_dict())
    else:
        show_report(report)


def call_flow(name: str, file: str, **arguments: Any) -> Report:
    """The report of a flow run; RunFailed if too many sensors failed."""
    flow = getattr(importlib.import_module(f"flows.{name}"), name)
    given = {key: value for key, value in arguments.items() if value is not None}
    return flow(fleet_file=file or "fleet.toml", **given)


def show_report(report: Report) -> None:
    from flows.report import badness

    rows = [outcome.to_dict() for outcome in sorted(report.outcomes, key=badness)]
    shown = rows[:40]
    for row in shown:
        row.pop("batch", None)
    table(f"{report.flow} {report.title}", shown)
    if len(rows) > len(shown):
        screen.print(f"… and {len(rows) - len(shown)} more; --json gives all")
    for note in report.notes:
        screen.print(f"[yellow]note[/] {note}")
    counts = report.counts
    screen.print(", ".join(f"{number} {state}" for state, number in counts.items() if number) or "no sensors")


def run_housekeeping(file: str, as_json: bool, **arguments: Any) -> None:
    load(file)
    from flows.housekeeping import housekeeping

    done = housekeeping(fleet_file=file or "fleet.toml", **arguments)
    say_json(done) if as_json else table("housekeeping", [{"what": k, "number": v} for k, v in done.items()])


def a_day(text: str) -> str:
    """An ISO date as given, or empty; ConfigError for anything else."""
    try:
        return date.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        raise ConfigError(f"{text!r} is not a day; write YYYY-MM-DD") from None


def a_moment(text: str) -> str:
    """An ISO time as given, or empty; ConfigError for anything else."""
    try:
        return datetime.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        raise ConfigError(f"{text!r} is not a time; write YYYY-MM-DD or YYYY-MM-DDTHH:MM") from None

"""Running flows from a command: in this process, with a progress bar, and their outcomes shown."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.text import Text

from flows.cli.console import Screen, imports_done, load, print_json, progress, screen, table
from flows.pages.escape import plain
from paano.errors import RunFailed

if TYPE_CHECKING:
    from flows.run.report import Report

SHOWN = 40  # outcomes in the terminal; --json gives all


def run_flow(name: str, file: str, as_json: bool, **arguments: Any) -> None:
    """Run a flow in this process with a progress bar and print its outcomes."""
    load(file)
    try:
        with progress(shown=not as_json):
            report = call_flow(name, file, **arguments)
    except RunFailed as failed:
        if as_json and failed.report is not None:  # in the form that was asked for, and not as a table too
            print_json(cast("Report", failed.report).to_dict())
            failed.report = None
        raise
    if as_json:
        print_json(report.to_dict())
    else:
        print_report(report)


def call_flow(name: str, file: str, **arguments: Any) -> Report:
    """The report of a flow run; RunFailed if too many sensors failed."""
    return cast("Report", _call(name, file, **arguments))


def _call(name: str, file: str, **arguments: Any) -> Any:
    """What a flow gives back: every command runs its flow by this.

    The run carries the fleet's name. What a killed command left, on disk or as a run without end, is cleaned
    up before; what this one starts ends with it.
    """
    from flows.processes.leftovers import clean_leftovers, watch_children
    from flows.processes.prefect_runs import check_server, mark_crashed, run_tags
    from flows.settings.fleet_file import DEFAULT_FILE, Settings

    check_server()
    watch_children()
    settings = Settings.load(file or DEFAULT_FILE)
    clean_leftovers(Path(settings.place(settings.registry.cache)))
    flow = getattr(importlib.import_module(f"flows.{name}"), name)
    imports_done()
    given = {key: value for key, value in arguments.items() if value is not None}
    with run_tags(settings.fleet.name):
        mark_crashed(settings.fleet.name)
        return flow(fleet_file=file or DEFAULT_FILE, **given)


def print_report(report: Report, to: Screen | None = None) -> None:
    """The outcomes of a run, the worst first, its notes, and how many ended in which state."""
    from flows.run.report import badness

    out = to or screen
    rows = [outcome.to_dict() for outcome in sorted(report.outcomes, key=badness)]
    shown = rows[:SHOWN]
    for row in shown:
        row.pop("batch", None)
    table(f"{report.flow} {report.title}", shown, to=out)
    if len(rows) > len(shown):
        out.print(f"… and {len(rows) - len(shown)} more; --json gives all")
    for note in report.notes:
        out.print(Text.assemble(("note ", "yellow"), plain(note)))
    counts = report.counts
    out.print(", ".join(f"{number} {state}" for state, number in counts.items() if number) or "no sensors")


def run_housekeeping(file: str, as_json: bool, **arguments: Any) -> None:
    """Run the housekeeping flow and print what it did."""
    load(file)
    done = _call("housekeeping", file, **arguments)
    if as_json:
        print_json(done)
    else:
        table("housekeeping", [{"what": what, "number": number} for what, number in done.items()])

"""What all commands share: the options, tables for people, JSON for machines, errors in one paragraph."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from flows.pages.escape import json_line, one_line, plain
from paano.errors import ConfigError, PaanoError, RunFailed, UnknownSensor
from storage.secrets import clean
from storage.window import read_day

if TYPE_CHECKING:
    from rich.progress import TaskID

    from flows.run.fleet import Fleet
    from flows.settings.fleet_file import Settings

FAILED, USAGE = 1, 2  # exit codes; 0 is all well

PLAIN_WIDTH = 160  # of tables that do not go to a screen
UNBOUNDED = 100_000  # columns of a screen on which everything fits
PROSE = {
    "outcome",
    "reason",
    "says",
    "remedy",
    "channels",
    "cause",
    "detail",
    "is",
}  # columns that may take several lines
_state = {"debug": False}
_usual_thresholds = gc.get_threshold()


class Screen(Console):
    """A terminal that shows text as it is: no markup, no emoji names, no control characters from data."""

    def __init__(self, *, wide: int = PLAIN_WIDTH, **options: Any) -> None:
        stream = sys.stderr if options.get("stderr") else sys.stdout
        options.setdefault("width", None if stream.isatty() else wide)
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(plain(text), **options)


screen = Screen()
errors = Screen(stderr=True, soft_wrap=True)


def _debug(value: bool) -> None:
    _state["debug"] = _state["debug"] or value


File = Annotated[
    str,
    typer.Option(
        "--file", "-f", envvar="PAANO_FLEET_FILE", help="The fleet file.", show_default="fleet.toml"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]
Debug = Annotated[
    bool,
    typer.Option("--debug", callback=_debug, is_eager=True, help="Show where an error came from, and logs."),
]
Sensors = Annotated[list[str] | None, typer.Argument(help="Sensor ids; none means the whole fleet.")]


class Commands(TyperGroup):
    """Errors that a person can act on are one paragraph and an exit code, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PaanoError as error:
            if _state["debug"]:
                raise
            print_failed_run(error)
            print_error(str(error))
            raise typer.Exit(USAGE if isinstance(error, ConfigError | UnknownSensor) else FAILED) from None
        except (OSError, ImportError) as error:
            if _state["debug"]:
                raise
            print_error(f"{type(error).__name__}: {error} (--debug shows where)")
            raise typer.Exit(FAILED) from None


def sub_commands(help: str, epilog: str, alone: bool = False) -> typer.Typer:
    """An empty group of commands; with `alone` it also does something without a sub-command."""
    return typer.Typer(
        cls=Commands,
        help=help,
        epilog=epilog,
        no_args_is_help=not alone,
        invoke_without_command=alone,
        rich_markup_mode="rich",
    )


def print_error(text: str) -> None:
    """One paragraph on the error stream."""
    errors.print(Text.assemble(("error ", "bold red"), plain(clean(text))))


def print_failed_run(error: PaanoError) -> None:
    """What a failed run did all the same: its outcome table, before the error."""
    report = getattr(error, "report", None)
    if isinstance(error, RunFailed) and report is not None:
        from flows.cli.run import print_report

        print_report(report, to=errors)


def load(file: str) -> Settings:
    """The settings; Prefect and MLflow are pointed to where this fleet keeps their data."""
    from flows.settings.fleet_file import DEFAULT_FILE, Settings

    settings = Settings.load(file or DEFAULT_FILE)
    prepare(settings)
    return settings


def load_fleet(file: str) -> Fleet:
    """The opened stores of the fleet that `file` describes."""
    settings = load(file)
    from flows.run.fleet import open_fleet

    return open_fleet(settings)


def imports_done() -> None:
    """Collect garbage as usual from now on, without looking through what was imported."""
    gc.freeze()
    gc.set_threshold(*_usual_thresholds)


def prepare(settings: Settings) -> None:
    """Before Prefect is imported: its data beside the fleet file, quiet logs, no usage statistics sent."""
    quiet = {
        "PREFECT_HOME": str(settings.folder / "prefect"),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # Runs keep their logs on the server; the terminal shows them with --debug.
        "PREFECT_LOGGING_LEVEL": "INFO",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO" if _state["debug"] else "CRITICAL",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "paano",
        "PREFECT_CLI_PROMPT": "false",
        "MLFLOW_LOGGING_LEVEL": "DEBUG" if _state["debug"] else "WARNING",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
    }
    for name, value in quiet.items():
        os.environ.setdefault(name, value)


def print_json(value: Any) -> None:
    """One line of JSON on standard output."""
    sys.stdout.write(json_line(value) + "\n")


def table(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str] | None = None,
    to: Screen | None = None,
) -> None:
    """Rows as a table, by default of every column that occurs; where that is too wide, a paragraph each.

    Ids are never cut: people copy them into the next command.
    """
    from rich.padding import Padding
    from rich.table import Table

    out = to or screen
    names = list(columns or dict.fromkeys(name for row in rows for name in row))
    heading = {"title": one_line(title), "title_justify": "left", "title_style": "bold"}
    for form in ({}, {"box": None, "collapse_padding": True, "pad_edge": False}):
        view = Table(**heading, **form, header_style="bold")  # type: ignore[arg-type]
        for name in names:
            numeric = all(isinstance(row.get(name), int | float | None) for row in rows)
            justify: Literal["left", "right"] = "right" if numeric else "left"
            view.add_column(
                name.replace("_", " "), justify=justify, no_wrap=name not in PROSE, overflow="fold"
            )
        for row in rows:
            view.add_row(*(_cell(row.get(name)) for name in names))
        if out.measure(view, options=out.options.update(width=UNBOUNDED)).minimum <= out.width:
            out.print(view)
            return
    out.print(Text(one_line(title), "bold"))
    for row in rows:
        first, *rest = ((name, cell) for name in names if (cell := _cell(row.get(name))))
        words = ", ".join(f"{name.replace('_', ' ')} {cell}" for name, cell in rest)
        out.print(Padding(Text.assemble((first[1], "bold"), ": ", words), (0, 0, 0, 2)))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}"
    return one_line(value)


def parse_day(text: str) -> str:
    """An ISO date as given, or empty; ConfigError for anything else."""
    return read_day(text).isoformat() if text else ""


def parse_time(text: str) -> str:
    """An ISO time as given, or empty; ConfigError for anything else."""
    if not text:
        return ""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a time; write YYYY-MM-DD or YYYY-MM-DDTHH:MM") from None
    read_day(time.date().isoformat())
    return time.isoformat()


@contextmanager
def progress(shown: bool) -> Iterator[None]:
    """A bar with the time left for every round of batches, on the terminal's error stream."""
    if not shown:
        yield
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from flows.run.fanout import watching

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("sensors"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=errors) as bars:
        known: dict[str, TaskID] = {}

        def watch(what: str, done: int, total: int) -> None:
            if what not in known or done == 0:
                known[what] = bars.add_task(what, total=total)
            bars.update(known[what], completed=done)

        with watching(watch):
            yield

"""What all commands share: the options, tables for people, JSON for machines, errors in one paragraph."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from paano.errors import ConfigError, PaanoError

if TYPE_CHECKING:
    from flows.settings import Settings

FAILED, USAGE = 1, 2  # exit codes; 0 is all well

PLAIN_WIDTH = 160  # of tables that do not go to a screen
screen = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
errors = Console(stderr=True, soft_wrap=True)
PROSE = {"outcome", "reason", "says", "remedy", "channels", "is"}  # columns that may take several lines
_state = {"debug": False}


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
            _complain(str(error))
            raise typer.Exit(USAGE if isinstance(error, ConfigError) else FAILED) from None
        except (OSError, ImportError) as error:
            if _state["debug"]:
                raise
            _complain(f"{type(error).__name__}: {error} (--debug shows where)")
            raise typer.Exit(FAILED) from None


def _complain(text: str) -> None:
    errors.print(f"[bold red]error[/] {_plain(text)}", highlight=False)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def load(file: str) -> Settings:
    """The settings, with Prefect and MLflow told where this fleet keeps their data."""
    from flows.settings import DEFAULT_FILE, Settings

    settings = Settings.load(file or DEFAULT_FILE)
    prepare(settings)
    return settings


def prepare(settings: Settings) -> None:
    """Before Prefect is imported: its data beside the fleet file, quiet logs, nothing phones home."""
    quiet = {
        "PREFECT_HOME": str(settings.folder / "prefect"),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "INFO" if _state["debug"] else "CRITICAL",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "paano",
        "PREFECT_CLI_PROMPT": "false",
        "MLFLOW_LOGGING_LEVEL": "DEBUG" if _state["debug"] else "WARNING",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
    }
    for name, value in quiet.items():
        os.environ.setdefault(name, value)


def say_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, default=str, ensure_ascii=False) + "\n")


def table(title: str, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> None:
    """Rows as a table; by default every column that occurs."""
    from rich.table import Table

    names = list(columns or dict.fromkeys(name for row in rows for name in row))
    view = Table(title=title, title_justify="left", title_style="bold", header_style="bold", expand=False)
    for name in names:
        numeric = all(isinstance(row.get(name), int | float | None) for row in rows)
        view.add_column(
            name.replace("_", " "), justify="right" if numeric else "left", no_wrap=name not in PROSE
        )
    for row in rows:
        view.add_row(*(_cell(row.get(name)) for name in names))
    screen.print(view)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}"
    return _plain(str(value))


@contextmanager
def progress(shown: bool) -> Iterator[None]:
    """A bar with the time left for every round of batches, on the terminal's error stream."""
    if not shown:
        yield
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from flows.fanout import watching

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("sensors"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=errors) as bars:
        known: dict[str, Any] = {}

        def watch(what: str, done: int, total: int) -> None:
            if what not in known or done == 0:
                known[what] = bars.add_task(what, total=total)
            bars.update(known[what], completed=done)

        with watching(watch):
            yield

"""`paano review`: the reviewer's commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from flows.cli_run import a_moment, run_flow
from flows.console import Commands, Debug, File, Json, Sensors, load, say_json, screen, table

Sensor = Annotated[str, typer.Argument(help="Sensor id.")]
Number = Annotated[int | None, typer.Option("--version", min=1, help="A version, by its number.")]


def make(example: Callable[[str], str]) -> typer.Typer:
    """The sub-commands of `paano review`."""
    app = typer.Typer(
        cls=Commands,
        help="Champion against challenger: list, compare, approve, reject, roll back.",
        epilog=example("paano review list"),
        no_args_is_help=True,
        rich_markup_mode="rich",
    )

    @app.command("list", epilog=example("paano review list --json"))
    def list_open(
        sensors: Sensors = None, file: File = "", as_json: Json = False, debug: Debug = False
    ) -> None:
        """Versions that wait for a decision."""
        from flows.reviewing import open_reviews

        rows = open_reviews(_parts(file), sensors or None)
        if as_json:
            say_json(rows)
        elif rows:
            table("waiting for a decision", rows)
        else:
            screen.print("no challenger is waiting")

    @app.command(epilog=example("paano review compare pump-17"))
    def compare(
        sensors: Sensors = None,
        as_of: Annotated[str, typer.Option(help="On the newest history before this time, UTC.")] = "",
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Try champion and challenger again, on the newest history."""
        run_flow("review", file, as_json, as_of=a_moment(as_of), sensors=sensors or None)

    @app.command(epilog=example("paano review approve pump-17"))
    def approve(
        sensor: Sensor, version: Number = None, file: File = "", as_json: Json = False, debug: Debug = False
    ) -> None:
        """Make the challenger the champion."""
        from flows.reviewing import approve as act

        _tell(act(_parts(file), sensor, version), "is champion now", as_json)

    @app.command(epilog=example("paano review reject pump-17 --why 'misses slow drifts'"))
    def reject(
        sensor: Sensor,
        why: Annotated[str, typer.Option(help="Kept with the version.")] = "",
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Turn the challenger down; the champion stays."""
        from flows.reviewing import reject as act

        _tell(act(_parts(file), sensor, why), "was rejected", as_json)

    @app.command(epilog=example("paano review rollback pump-17"))
    def rollback(
        sensor: Sensor, version: Number = None, file: File = "", as_json: Json = False, debug: Debug = False
    ) -> None:
        """Make the former champion, or another version, champion again."""
        from flows.reviewing import roll_back as act

        _tell(act(_parts(file), sensor, version), "is champion again", as_json)

    return app


def _parts(file: str) -> Any:
    settings = load(file)
    from flows.parts import open_parts

    return open_parts(settings)


def _tell(version: Any, what: str, as_json: bool) -> None:
    if as_json:
        say_json({"sensor": version.sensor, "version": version.version, "now": what})
    else:
        screen.print(f"{version.sensor}: version {version.version} {what}; the next run follows")

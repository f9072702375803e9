"""`paano review`: the reviewer's commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.console import (
    Debug,
    File,
    Json,
    Sensors,
    load_fleet,
    parse_time,
    print_json,
    screen,
    sub_commands,
    table,
)
from flows.cli.run import run_flow
from paano.errors import ConfigError

if TYPE_CHECKING:
    from storage.registry.registry import Version

Sensor = Annotated[str, typer.Argument(help="Sensor id.")]
Number = Annotated[int | None, typer.Option("--version", min=1, help="A version, by its number.")]


def make(example: Callable[[str], str]) -> typer.Typer:
    """The sub-commands of `paano review`."""
    app = sub_commands(
        "What needs a look; champion against challenger: list, compare, approve, reject, roll back.",
        example("paano review"),
        alone=True,
    )

    @app.callback()
    def needing_a_look(
        context: typer.Context,
        quick: Annotated[
            bool, typer.Option("--quick", help="Without the drift test, which fetches models.")
        ] = False,
        limit: Annotated[int, typer.Option(min=1, help="At most so many rows.")] = 50,
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Models that need a look, the worst first: failed the test, alarms up, drifted, untrained, stale."""
        if context.invoked_subcommand is not None:
            return
        from flows.pages.review.needs_review import needs_review

        rows = [row.to_dict() for row in needs_review(load_fleet(file), drift=not quick)]
        if as_json:
            print_json(rows)
        elif rows:
            shown = [{key: value for key, value in row.items() if key != "weight"} for row in rows[:limit]]
            table(f"{len(rows)} reasons to look, the worst first", shown)
            screen.print("`paano review show SENSOR` writes the sheet of a version")
        else:
            screen.print("no model needs a look")

    @app.command(epilog=example("paano review show pump-17 --out pump-17-review.html"))
    def show(
        sensor: Sensor,
        version: Number = None,
        out: Annotated[Path | None, typer.Option(help="The file to write (default: in this folder).")] = None,
        browser: Annotated[bool, typer.Option("--open", help="Also open it in a browser.")] = False,
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Write the sheet of a version: review test, pictures, recommendation and why."""
        from flows.pages.place import file_name
        from flows.pages.review.sheet import chosen_version, read_sheet

        fleet = load_fleet(file)
        chosen = chosen_version(fleet, sensor, version)
        path = out or Path(f"review-{chosen.version}-{file_name(sensor)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(read_sheet(fleet, sensor, chosen.version), encoding="utf-8")
        if as_json:
            print_json({"sensor": sensor, "version": chosen.version, "file": str(path)})
        else:
            screen.print(f"wrote {path}: {sensor}, version {chosen.version}")
        if browser:
            import webbrowser

            webbrowser.open(path.resolve().as_uri())

    @app.command("list", epilog=example("paano review list --json"))
    def list_open(
        sensors: Sensors = None, file: File = "", as_json: Json = False, debug: Debug = False
    ) -> None:
        """Versions that wait for a decision."""
        from flows.work.model.decisions import open_reviews

        rows = open_reviews(load_fleet(file), sensors or None)
        if as_json:
            print_json(rows)
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
        run_flow("review", file, as_json, as_of=parse_time(as_of), sensors=sensors or None)

    @app.command(epilog=example("paano review approve 'pump-*' --passed"))
    def approve(
        sensors: Annotated[
            list[str] | None, typer.Argument(help="Sensor ids or patterns such as 'pump-*'.")
        ] = None,
        version: Number = None,
        passed: Annotated[
            bool, typer.Option("--passed", help="Only those that passed the review test; alone: all of them.")
        ] = False,
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Make the challenger the champion, for one sensor or for many."""
        from flows.work.model.decisions import approve as act
        from flows.work.model.decisions import choose_challengers

        if not sensors and not passed:
            raise ConfigError("name sensors, a pattern such as 'pump-*', or --passed for all that passed")
        if version and (len(sensors or []) != 1 or passed):
            raise ConfigError("--version names a version of one sensor: give one id and no --passed")
        fleet = load_fleet(file)
        if version and sensors:
            print_decisions([act(fleet, sensors[0], version)], "is champion now", as_json)
            return
        names = choose_challengers(fleet, sensors or [], passed)
        print_decisions([act(fleet, name) for name in names], "is champion now", as_json)

    @app.command(epilog=example("paano review reject pump-17 --why 'misses slow drifts'"))
    def reject(
        sensor: Sensor,
        version: Number = None,
        why: Annotated[str, typer.Option(help="Kept with the version.")] = "",
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Turn the challenger, or another version, down; the champion stays."""
        from flows.work.model.decisions import reject as act

        print_decisions([act(load_fleet(file), sensor, why, version)], "was rejected", as_json)

    @app.command(epilog=example("paano review rollback pump-17"))
    def rollback(
        sensor: Sensor, version: Number = None, file: File = "", as_json: Json = False, debug: Debug = False
    ) -> None:
        """Make the former champion, or another version, champion again."""
        from flows.work.model.decisions import roll_back as act

        print_decisions([act(load_fleet(file), sensor, version)], "is champion again", as_json)

    return app


def print_decisions(versions: list[Version], what: str, as_json: bool) -> None:
    """What became of the versions: one object, or a list of them for another number than one."""
    if as_json:
        rows = [{"sensor": v.sensor, "version": v.version, "now": what} for v in versions]
        print_json(rows[0] if len(rows) == 1 else rows)
        return
    for version in versions:
        screen.print(
            f"{version.sensor}: version {version.version} {what}; the next run follows", markup=False
        )
    if not versions:
        screen.print("no challenger passed its review test; `paano review list` shows those that wait")

"""`paano sensors`: the list of sensors, and their renaming."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from rich.text import Text

from flows.cli.console import Debug, File, Json, load_fleet, print_json, screen, sub_commands, table
from flows.pages.escape import plain


def make(example: Callable[[str], str]) -> typer.Typer:
    """`paano sensors` and its sub-command."""
    app = sub_commands(
        "Every sensor with its model and its last night; rename gives one another id.",
        example("paano sensors --json"),
        alone=True,
    )

    @app.callback()
    def sensors(context: typer.Context, file: File = "", as_json: Json = False, debug: Debug = False) -> None:
        """Every sensor with its model and its last night; `rename` gives one another id."""
        if context.invoked_subcommand is not None:
            return
        from flows.pages.views import sensors as look

        rows = look(load_fleet(file))
        if as_json:
            print_json(rows)
        else:
            table(f"{len(rows)} sensors", rows)

    @app.command(epilog=example("paano sensors rename pump-17 hall-2/pump-17"))
    def rename(
        old: Annotated[str, typer.Argument(help="The id whose model is carried over.")],
        new: Annotated[str, typer.Argument(help="The id that the history has, or will have.")],
        fresh: Annotated[
            bool, typer.Option("--fresh", help="Carry nothing over: the new id starts without a model.")
        ] = False,
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Carry a sensor's model over to another id. Everything under the old id is kept."""
        from flows.work.model.renaming import rename_sensor

        done = rename_sensor(load_fleet(file), old, new, fresh)
        if as_json:
            print_json(done.to_dict())
            return
        if done.version is None:
            screen.print(f"{new} starts without a model: its first night, or `paano retrain`, makes one")
        else:
            screen.print(f"{new}: version {done.version} is champion, carried over from {old}")
        screen.print(f"{old}: version {done.from_version} is kept and says what became of it")
        for note in done.notes:
            screen.print(Text.assemble(("note ", "yellow"), plain(note)))

    return app

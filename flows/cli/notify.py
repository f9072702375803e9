"""`paano notify`: send what waits, and try the targets."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

import typer

from flows.cli.console import FAILED, Debug, File, Json, load, print_json, screen, sub_commands


def make_notify(example: Callable[[str], str]) -> typer.Typer:
    """The sub-commands of `paano notify`."""
    app = sub_commands(
        "Messages: `send` sends what waits (after quiet hours, or for a target that was down).",
        example("paano notify test"),
    )

    @app.command(epilog=example("paano notify send"))
    def send(file: File = "", as_json: Json = False, debug: Debug = False) -> None:
        """Send the messages that wait."""
        from flows.messages.send import deliver_waiting

        count, notes = deliver_waiting(load(file), datetime.now(UTC))
        if as_json:
            print_json({"sent": count, "notes": notes})
        else:
            screen.print(f"sent {count}")
            for note in notes:
                screen.print(note, markup=False)
        if notes:
            raise typer.Exit(FAILED)

    @app.command(epilog=example("paano notify test mail"))
    def test(
        targets: Annotated[list[str] | None, typer.Argument(help="Names of targets (default: all).")] = None,
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Send a test message to each target."""
        from flows.messages.message import About, Message
        from flows.messages.send import open_target
        from flows.messages.targets import NotDelivered
        from paano.errors import ConfigError

        settings = load(file)
        names = targets or list(settings.notify.targets)
        unknown = [name for name in names if name not in settings.notify.targets]
        if unknown or not names:
            known = ", ".join(settings.notify.targets) or "none; add [notify.targets.NAME] to the fleet file"
            raise ConfigError(f"no notify target {unknown[0]!r}; there are: {known}" if unknown else known)
        moment = datetime.now(UTC)
        message = Message(
            f"test/{moment.isoformat()}",
            About.INCIDENT,
            f"{settings.fleet.name}: a test message of paano",
            ("If you read this, incidents will reach you.",),
            group="test",
            start=moment,
            end=moment,
            facts={"fleet": settings.fleet.name, "subject": "test"},
        )
        results = {}
        for name in names:
            try:
                open_target(settings, name).deliver(message)
                results[name] = "delivered"
            except (NotDelivered, ConfigError) as error:
                results[name] = str(error)
        if as_json:
            print_json(results)
        else:
            for name, result in results.items():
                screen.print(f"{name}: {result}", markup=False)
        if any(result != "delivered" for result in results.values()):
            raise typer.Exit(FAILED)

    return app

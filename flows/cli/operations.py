"""`paano calendar` and `paano event`: what people know and say about a fleet."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.console import Debug, File, Json, load, load_fleet, print_json, screen, sub_commands, table
from flows.pages.escape import one_line
from paano.errors import ConfigError

if TYPE_CHECKING:
    from storage.operations.verdicts import GivenVerdict


Ids = Annotated[list[str], typer.Argument(help="Ids of events, as `paano events` shows them.")]
Note = Annotated[str, typer.Option(help="Kept with the verdict.")]
By = Annotated[str, typer.Option(help="Who says it (default: the user of this machine).")]


def make_calendar(example: Callable[[str], str]) -> typer.Typer:
    """The sub-commands of `paano calendar`."""
    app = sub_commands(
        "Known periods: overhauls, shutdowns, tests. They make no event, or are not learned from.",
        example('paano calendar add pump-7 --from 2026-12-01 --to 2026-12-03 --reason "overhaul"'),
    )

    @app.command(
        epilog=example('paano calendar add "pump-*" --from 2026-12-01T22:00 --to 2026-12-02T06:00 --mute')
    )
    def add(
        sensor: Annotated[str, typer.Argument(help='Sensor id or pattern ("pump-*"); "" with --group.')] = "",
        start: Annotated[str, typer.Option("--from", help="Day or time; without a zone, the fleet's.")] = "",
        end: Annotated[str, typer.Option("--to", help="The first moment after it.")] = "",
        group: Annotated[str, typer.Option(help="Group, or a pattern of groups.")] = "",
        mute: Annotated[bool, typer.Option("--mute", help="Make no event (scores are kept).")] = False,
        no_training: Annotated[bool, typer.Option("--no-training", help="Do not learn from it.")] = False,
        reason: Annotated[str, typer.Option(help="For people.")] = "",
        repeat: Annotated[
            str, typer.Option(help="daily, weekly, or a rule of iCalendar (FREQ=MONTHLY;BYDAY=1SU).")
        ] = "",
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Add a known period. Neither --mute nor --no-training means both."""
        import polars as pl

        from flows.work.operations import change_calendar
        from storage.operations.calendar import Calendar, Effect

        settings = load(file)
        both = mute == no_training
        what = Effect.BOTH if both else Effect.MUTE if mute else Effect.NO_TRAINING
        row = {"sensor": sensor, "group": group, "start": start, "end": end, "what": str(what)}
        new = Calendar.from_frame(
            pl.DataFrame([{**row, "reason": reason, "repeat": repeat}]),
            "the period",
            settings.zone,
        )
        (period,) = new.periods
        change_calendar(settings, lambda known: known.add(period))
        if as_json:
            print_json({"id": period.id, **period.to_row()})
        else:
            screen.print(f"added {period.id}; the next run of those days follows")

    @app.command("list", epilog=example("paano calendar list --json"))
    def list_periods(file: File = "", as_json: Json = False, debug: Debug = False) -> None:
        """Every known period with its id."""
        from flows.work.operations import open_calendar

        rows = [{"id": period.id, **period.to_row()} for period in open_calendar(load(file)).periods]
        if as_json:
            print_json(rows)
        elif rows:
            table("known periods", rows)
        else:
            screen.print("no known periods; `paano calendar add` adds one")

    @app.command(epilog=example("paano calendar remove 1a2b3c4d"))
    def remove(
        period: Annotated[str, typer.Argument(help="Id, as `paano calendar list` shows it.")],
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Remove a known period."""
        from flows.work.operations import change_calendar

        change_calendar(load(file), lambda known: known.remove(period))
        if as_json:
            print_json({"removed": period})
        else:
            screen.print(f"removed {period}; the next run of those days follows")

    return app


def make_event(example: Callable[[str], str]) -> typer.Typer:
    """The sub-commands of `paano event`."""
    app = sub_commands(
        "Say what an event was: a fault, a false alarm, or the new normal. New models are held to it.",
        example("paano event dismiss 3f2a… --note 'sensor was cleaned'"),
    )

    def say(ids: list[str], word: str, note: str, by: str, file: str, as_json: bool) -> None:
        from flows.work.operations import judge_events
        from storage.operations.verdicts import Verdict

        said = judge_events(load_fleet(file), ids, Verdict(word), datetime.now(UTC), note, by or _user())
        _show(said, as_json)

    @app.command(epilog=example("paano event confirm 3f2a…"))
    def confirm(
        ids: Ids, note: Note = "", by: By = "", file: File = "", as_json: Json = False, debug: Debug = False
    ) -> None:
        """A fault: new models must find it, and none learns from it."""
        say(ids, "confirmed", note, by, file, as_json)

    @app.command(epilog=example("paano event dismiss 3f2a… --note 'sensor was cleaned'"))
    def dismiss(
        ids: Ids, note: Note = "", by: By = "", file: File = "", as_json: Json = False, debug: Debug = False
    ) -> None:
        """A false alarm: a new model must stay quiet there."""
        say(ids, "dismissed", note, by, file, as_json)

    @app.command(epilog=example("paano event expected 3f2a…"))
    def expected(
        ids: Ids, note: Note = "", by: By = "", file: File = "", as_json: Json = False, debug: Debug = False
    ) -> None:
        """Real, and normal from now on: a refresh takes it in."""
        say(ids, "expected", note, by, file, as_json)

    @app.command("import", epilog=example("paano event import labels.csv --sensor pump-7"))
    def import_labels(
        path: Annotated[Path, typer.Argument(help="CSV with the columns of Lookout for Equipment labels.")],
        sensor: Annotated[str, typer.Option(help="Sensor, where the file names none.")] = "",
        allow_unknown: Annotated[
            bool, typer.Option("--allow-unknown", help="Also keep verdicts on sensors that the fleet lacks.")
        ] = False,
        by: By = "",
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Verdicts in bulk: StartTime, EndTime, Rating, Equipment, FaultCode, Notes. All or none are kept."""
        from flows.work.operations import open_verdicts, refuse_unknown
        from storage.operations.verdicts import from_csv

        if path.exists() and not path.is_file():
            raise ConfigError(f"{path} is no file; give a CSV file")  # a device never ends
        fleet = load_fleet(file)
        said = from_csv(path.read_bytes(), datetime.now(UTC), sensor, by or _user(), str(path))
        if not allow_unknown:
            refuse_unknown(fleet, said, str(path))
        open_verdicts(fleet.settings).append(said)
        _show(said, as_json)

    @app.command("list", epilog=example("paano event list --json"))
    def list_verdicts(file: File = "", as_json: Json = False, debug: Debug = False) -> None:
        """Each sensor's verdicts of the last 90 days, the lowest precision first."""
        from dataclasses import asdict

        from flows.work.operations import judged, open_verdicts

        rows: list[dict[str, Any]] = [
            asdict(one) for one in judged(open_verdicts(load(file)), datetime.now(UTC).date())
        ]
        if as_json:
            print_json(rows)
        elif rows:
            table("verdicts of 90 days", rows)
        else:
            screen.print("no verdicts in 90 days")

    return app


def _user() -> str:
    try:
        return getpass.getuser()
    except OSError:  # a container without a user entry
        return ""


def _show(said: list[GivenVerdict], as_json: bool) -> None:
    if as_json:
        print_json(
            [{"sensor": s.sensor, "event": s.event_id, "verdict": s.verdict, "by": s.by} for s in said]
        )
    else:
        for one in said:
            screen.print(f"{one_line(one.sensor)} {one.start:%Y-%m-%d %H:%M}: {one.verdict}")

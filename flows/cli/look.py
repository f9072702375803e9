"""`paano status`, `events` and `show`: look, change nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.console import Debug, File, Json, load, load_fleet, print_json, screen, table
from flows.pages.escape import plain
from storage.window import read_day

if TYPE_CHECKING:
    from flows.run.fleet import Fleet

Since = Annotated[str, typer.Option(help="First day, YYYY-MM-DD.")]
Until = Annotated[str, typer.Option(help="Last day, YYYY-MM-DD (default: the last scored).")]


def register(app: typer.Typer, example: Callable[[str], str]) -> None:
    """Add the commands to `app`."""

    @app.command(epilog=example("paano status --json"))
    def status(file: File = "", as_json: Json = False, debug: Debug = False) -> None:
        """The fleet on one screen: last runs, models, events of the week, reviews, who is due."""
        from flows.pages.views import status as look

        facts = look(load_fleet(file))
        if as_json:
            print_json(facts)
        else:
            from flows.cli.terminal import print_status

            print_status(facts)

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
        from flows.pages.views import events as look
        from flows.pages.views import window_of
        from flows.run.days import days_of

        fleet = load_fleet(file)
        window = window_of(fleet, since, until, days=7)
        first, last = days_of(fleet.settings, window)
        days = f"from {first} to {last}"
        rows = look(fleet, window, sensors or None, severity)
        said = _verdicts(fleet)
        if as_json:
            print_json([{**row.to_dict(), "verdict": said.get(row.event_id)} for row in rows[:limit]])
        elif rows:
            from flows.cli.terminal import event_columns

            zone = fleet.settings.zone
            shown = [
                event_columns(row, zone) | ({"verdict": said.get(row.event_id, "")} if said else {})
                for row in rows[:limit]
            ]
            more = f", the worst {limit}" if len(rows) > limit else ""
            table(f"{len(rows)} events {days}{more}, times in {zone}", shown)
        else:
            screen.print(f"no events {days}")

    @app.command(epilog=example("paano report --day 2026-11-15 --out night.html"))
    def report(
        day: Annotated[str, typer.Option(help="The night, YYYY-MM-DD (default: the last scored).")] = "",
        out: Annotated[
            str, typer.Option(help="Folder, URL or .html file (default: report.url of the fleet file).")
        ] = "",
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Write the page about a night: events, the fleet hour by hour, what needs a look."""
        from flows.pages.night_report import write_report
        from flows.pages.views import last_day
        from paano.errors import ConfigError

        fleet = load_fleet(file)
        night = read_day(day) if day else last_day(fleet)
        if night is None:
            raise ConfigError("no night is scored yet; `paano score --day` scores one")
        written = write_report(fleet, night, out=out)
        if as_json:
            print_json(dataclasses.asdict(written))
        else:
            screen.print(
                f"wrote {written.address} ({written.bytes / 1024:.0f} kB) with the pages of "
                f"{written.sensors} sensors beside it; open it in a browser"
            )

    @app.command("remove-day", epilog=example("paano remove-day 2026-11-30"))
    def remove_day(
        day: Annotated[str, typer.Argument(help="The day, YYYY-MM-DD.")],
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
        file: File = "",
        as_json: Json = False,
        debug: Debug = False,
    ) -> None:
        """Remove the scores and events of a day, as if it had never been scored. History stays."""
        from flows.work.night.removal import remove_day as remove

        done = remove(load_fleet(file), read_day(day), dry_run)
        if as_json:
            print_json(done)
        else:
            did = "would remove" if dry_run else "removed"
            screen.print(f"{did} {done['scores']} score rows and {done['events']} events of {day}")

    @app.command(epilog=example("paano ui --port 8750"))
    def ui(
        host: Annotated[
            str, typer.Option(help="Address to serve; others than this machine need a token.")
        ] = "127.0.0.1",
        port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8750,
        token: Annotated[
            str,
            typer.Option(envvar="PAANO_UI_TOKEN", help="What every request must carry.", show_default="none"),
        ] = "",
        file: File = "",
        debug: Debug = False,
    ) -> None:
        """Serve the pages of the fleet: nights, sensors, weeks, groups, reviews. Read-only."""
        from flows.cli.serve_ui import serve_ui

        serve_ui(load(file), host, port, token)

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
        """One sensor: its versions, series, score and events."""
        from flows.pages.views import sensor_view, window_of

        fleet = load_fleet(file)
        zone = fleet.settings.zone
        window = window_of(fleet, since, until, days=3)
        view = sensor_view(fleet, sensor, window)
        if html is not None:
            from flows.pages.sensor_page import write_page

            write_page(fleet, view, html)
        if png is not None:
            from flows.pages.pictures import night

            png.parent.mkdir(parents=True, exist_ok=True)
            png.write_bytes(night(fleet.history.read(sensor, window), view.scores, view.events, zone))
        if as_json:
            print_json(view.to_dict())
            return
        if view.versions:
            table(f"{sensor}: versions", view.versions)
        from flows.cli.terminal import draw_sensor, event_columns

        draw_sensor(fleet.history.read(sensor, window), view.scores, view.events, zone)
        if view.events:
            table("events", [event_columns(row, zone) for row in view.events])
        for path in (html, png):
            if path is not None:
                screen.print(f"wrote {path}")


def _verdicts(fleet: Fleet) -> dict[str, str]:
    """What people said of events; events are shown also where a verdict is damaged, with a warning."""
    from flows.work.operations import verdict_by_event
    from paano.errors import StorageError

    try:
        return verdict_by_event(fleet)
    except StorageError as error:
        typer.echo(f"verdicts are not shown: {plain(str(error))}", err=True)
        return {}

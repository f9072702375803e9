"""The `paano` command. Heavy imports stay inside the commands: `paano --help` answers at once."""

from __future__ import annotations

import atexit
import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.cli import look as cli_look
from flows.cli import notify as cli_notify
from flows.cli import operations as cli_operations
from flows.cli import review as cli_review
from flows.cli import sensors as cli_sensors
from flows.cli.console import (
    FAILED,
    Commands,
    Debug,
    File,
    Json,
    Sensors,
    imports_done,
    load,
    parse_day,
    parse_time,
    print_json,
    screen,
    table,
)
from flows.cli.run import run_flow, run_housekeeping
from flows.evaluation.command import command as evaluate_command
from paano.errors import ConfigError
from storage.secrets import clean_traceback

app = typer.Typer(
    cls=Commands,
    help="An anomaly model for every sensor of a fleet: train, register, score every night.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("paano-fleet"))
        raise typer.Exit


@app.callback()
def paano(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Options of the command itself; its help is that of `app`."""


def example(text: str) -> str:
    """The last line of a command's help."""
    return f"Example: [bold]{text}[/]"


@app.command(epilog=example("paano init plant --name plant --history s3://plant/history"))
def init(
    folder: Annotated[Path, typer.Argument(help="Where the fleet file goes.")] = Path("."),
    name: Annotated[str, typer.Option(help="Name of the fleet.")] = "fleet",
    history: Annotated[str, typer.Option(help="Folder or URL of the history.")] = "history",
    scores: Annotated[str, typer.Option(help="Folder or URL for scores.")] = "scores",
    events: Annotated[str, typer.Option(help="Folder or URL for events.")] = "events",
    force: Annotated[bool, typer.Option("--force", help="Replace a fleet file that is there.")] = False,
    debug: Debug = False,
) -> None:
    """Write a fleet file with every key and its meaning."""
    from flows.settings.fleet_file import DEFAULT_FILE, Settings
    from flows.settings.template import render

    path = folder / DEFAULT_FILE
    if path.exists() and not force:
        raise ConfigError(f"{path} is there already; --force replaces it")
    values = {"fleet": {"name": name}, "history": {"url": history}, "scores": {"url": scores}}
    settings = Settings.from_dict({**values, "events": {"url": events}})
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(render(settings), encoding="utf-8")
    screen.print(f"wrote {path}; next: `paano doctor -f {path}`")


@app.command(epilog=example("paano demo"))
def demo(
    folder: Annotated[Path | None, typer.Option(help="Where everything goes (demo, or demo-s3).")] = None,
    s3: Annotated[bool, typer.Option("--s3", help="On a real S3, Prefect and MLflow server.")] = False,
    sensors: Annotated[int, typer.Option(min=12, help="Sensors of the made-up fleet.")] = 12,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make a fleet, train it, score three nights and compare with the faults that were planted."""
    from flows.cli.demo import run

    good = run(folder or Path("demo-s3" if s3 else "demo"), s3=s3, sensors=sensors, as_json=as_json)
    raise typer.Exit(0 if good else FAILED)


@app.command(epilog=example("paano score --day 2026-11-15"))
def score(
    sensors: Sensors = None,
    day: Annotated[str, typer.Option(help="The night, YYYY-MM-DD (default: the day before).")] = "",
    file: File = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Score a night: a score for every time step, events, and the rest of the night before."""
    run_flow("score", file, as_json, day=parse_day(day), sensors=sensors or None)


@app.command(epilog=example("paano backfill --first 2026-10-01 --last 2026-10-31"))
def backfill(
    first: Annotated[str, typer.Option(help="First night, YYYY-MM-DD.")],
    last: Annotated[str, typer.Option(help="Last night, YYYY-MM-DD.")],
    sensors: Sensors = None,
    again: Annotated[
        bool, typer.Option("--again", help="Replace what is stored: also nights that are scored already.")
    ] = False,
    file: File = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Score many nights, oldest first. Begun again, it goes on where it stopped."""
    begin, end = parse_day(first), parse_day(last)
    run_flow("backfill", file, as_json, first=begin, last=end, sensors=sensors or None, again=again)


@app.command(epilog=example("paano heal"))
def heal(
    sensors: Sensors = None,
    day: Annotated[str, typer.Option(help="The last day looked at, YYYY-MM-DD (default: yesterday).")] = "",
    file: File = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Score again the days whose history came late, and only these."""
    run_flow("heal", file, as_json, day=parse_day(day), sensors=sensors or None)


@app.command(epilog=example("paano retrain pump-17"))
def retrain(
    sensors: Sensors = None,
    as_of: Annotated[str, typer.Option(help="Train on history before this day or time, UTC.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say who is due, and why.")] = False,
    file: File = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Retrain the sensors that are due, or those named, and promote them by policy."""
    run_flow("retrain", file, as_json, as_of=parse_time(as_of), sensors=sensors or None, dry_run=dry_run)


@app.command(epilog=example("paano refresh pump-17"))
def refresh(
    sensors: Sensors = None,
    as_of: Annotated[str, typer.Option(help="Use history before this day or time, UTC.")] = "",
    file: File = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Put recent normal data into the models' banks, without training."""
    run_flow("refresh", file, as_json, as_of=parse_time(as_of), sensors=sensors or None)


@app.command(epilog=example("paano compact --dry-run"))
def compact(
    today: Annotated[str, typer.Option(help="As of this day, YYYY-MM-DD.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    file: File = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Join the small objects of closed days; let days go that are older than scores.keep."""
    run_housekeeping(file, as_json, today=parse_day(today), dry_run=dry_run, sweep=False)


@app.command(epilog=example("paano sweep --dry-run"))
def sweep(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Largest share of all model folders to go at once.")
    ] = 0.5,
    claim: Annotated[
        bool, typer.Option("--claim", help="From now on these files are swept from this registry.")
    ] = False,
    file: File = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove versions beyond registry.keep, and model files of this registry that no version points to."""
    run_housekeeping(file, as_json, dry_run=dry_run, compact=False, share=share, claim=claim)


@app.command(epilog=example("paano serve"))
def serve(file: File = "", debug: Debug = False) -> None:
    """Run nightly scoring, weekly retraining and housekeeping on this machine."""
    settings = load(file)
    from flows.serve import serve_fleet

    imports_done()
    serve_fleet(settings, file or "fleet.toml")


@app.command(epilog=example("paano doctor"))
def doctor(file: File = "", as_json: Json = False, debug: Debug = False) -> None:
    """Check the fleet file, stores, registry, Prefect, device and versions, and say how to mend each."""
    from flows.cli.doctor import examine

    findings = examine(file or "fleet.toml")
    if as_json:
        print_json([finding.to_dict() for finding in findings])
    else:
        table("paano doctor", [finding.to_dict() for finding in findings])
    raise typer.Exit(FAILED if any(finding.state == "bad" for finding in findings) else 0)


app.command("evaluate", epilog=example("paano evaluate TSB-AD-U-Tuning --files '*NAB*'"))(evaluate_command)
cli_look.register(app, example)
app.add_typer(cli_sensors.make(example), name="sensors")
app.add_typer(cli_review.make(example), name="review")
app.add_typer(cli_operations.make_calendar(example), name="calendar")
app.add_typer(cli_operations.make_event(example), name="event")
app.add_typer(cli_notify.make_notify(example), name="notify")


def main() -> None:
    """The command. A traceback (`--debug`, or a defect of ours) is printed without secrets."""
    # What is imported is no garbage: looking through it while it comes (until `imports_done`) and once more
    # at the end is a fifth of the time of a short command.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)  # the first to be registered is the last to be called
    try:
        app()
    except Exception as error:
        sys.stderr.write(clean_traceback(error))
        raise SystemExit(FAILED) from None


if __name__ == "__main__":
    main()

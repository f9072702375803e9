"""What people know and say about a fleet: its calendar of known periods, and verdicts on its events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import polars as pl

from flows.run.fleet import Fleet, storage_options
from flows.settings.fleet_file import Settings
from paano.errors import ConfigError
from storage.objects.store import open_store
from storage.operations.calendar import Calendar
from storage.operations.verdicts import GivenVerdict, Verdict, VerdictStore, precision
from storage.window import Window

SEARCHED = timedelta(days=400)  # how far back an event is looked for by its id
NAMED = 10  # unknown sensors in an error
JUDGED = timedelta(days=90)  # verdicts that precision is taken from


def open_calendar(settings: Settings) -> Calendar:
    """The known periods of the fleet.

    Raises:
        ConfigError: the calendar is damaged or has a wrong row.
    """
    return Calendar.read(
        settings.place(settings.operations.calendar), storage_options(settings), settings.zone
    )


def change_calendar(settings: Settings, change: Callable[[Calendar], Calendar]) -> Calendar:
    """Keep what `change` makes of the fleet's calendar; a change by somebody else at the same time stays.

    Raises:
        ConfigError: the calendar is damaged, or `change` raised it; nothing is written then.
    """
    place, zone = settings.place(settings.operations.calendar), settings.zone
    return Calendar.change(place, change, storage_options(settings), zone)


def open_verdicts(settings: Settings) -> VerdictStore:
    """The verdicts of the fleet."""
    return VerdictStore(open_store(settings.place(settings.operations.verdicts), storage_options(settings)))


def judge_events(
    fleet: Fleet, ids: Sequence[str], verdict: Verdict, at: datetime, note: str = "", by: str = ""
) -> list[GivenVerdict]:
    """Append the same verdict on several events.

    Raises:
        ConfigError: an id is unknown; nothing is appended then.
    """
    days = fleet.events.dates()
    known: dict[str, dict[str, object]] = {}
    for day in reversed([day for day in days if days[-1] - day <= SEARCHED]):
        rows = fleet.events.read_many(None, Window.day(day), ["event_id", "sensor", "start", "end"])
        for row in rows.filter(pl.col("event_id").is_in(list(ids))).iter_rows(named=True):
            known[row["event_id"]] = row
        if len(known) == len(set(ids)):
            break
    unknown = [id_ for id_ in ids if id_ not in known]
    if unknown:
        raise ConfigError(f"no event {unknown[0]!r}; `paano events` shows the ids")
    said = [
        GivenVerdict(row["sensor"], row["start"], row["end"], verdict, at, id_, note, by)  # type: ignore[arg-type]  # by schema
        for id_, row in ((id_, known[id_]) for id_ in dict.fromkeys(ids))
    ]
    open_verdicts(fleet.settings).append(said)
    return said


def refuse_unknown(fleet: Fleet, said: Sequence[GivenVerdict], name: str) -> None:
    """Refuse verdicts from the file `name` on sensors that the fleet does not have.

    Raises:
        ConfigError: there are some; the message names them.
    """
    catalog = fleet.history.sensors()
    unknown = sorted({one.sensor for one in said if one.sensor not in catalog})
    if unknown:
        more = f" and {len(unknown) - NAMED} more" * (len(unknown) > NAMED)
        raise ConfigError(
            f"{name}: the fleet has no sensor {', '.join(map(repr, unknown[:NAMED]))}{more}; nothing was "
            "imported. Correct the column Equipment (`paano sensors` lists the ids), or keep these too with "
            "--allow-unknown"
        )


@dataclass(frozen=True)
class Judged:
    """What people said of one sensor's events."""

    sensor: str
    confirmed: int
    dismissed: int
    expected: int
    precision: float | None  # confirmed among confirmed and dismissed


def judged(verdicts: VerdictStore, today: date) -> list[Judged]:
    """Each sensor with a verdict given in the last 90 days, the lowest precision first."""
    rows = verdicts.latest(since=today - JUDGED)
    found = []
    for (sensor,), mine in rows.group_by("sensor"):
        said = [Verdict(word) for word in mine["verdict"]]
        found.append(
            Judged(
                str(sensor),
                said.count(Verdict.CONFIRMED),
                said.count(Verdict.DISMISSED),
                said.count(Verdict.EXPECTED),
                precision(said),
            )
        )
    return sorted(found, key=lambda one: (1.0 if one.precision is None else one.precision, one.sensor))


def verdict_by_event(fleet: Fleet) -> dict[str, str]:
    """The newest verdict on each event that has one, by its id.

    Raises:
        StorageError: an object of the table is damaged; the message names it.
    """
    rows = fleet.known.verdicts.filter(pl.col("event_id") != "")
    return dict(zip(rows["event_id"], rows["verdict"], strict=True))

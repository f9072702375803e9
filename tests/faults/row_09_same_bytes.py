"""Row 9: the same night three times, under other clocks, zones and at the ends of the calendar."""

from __future__ import annotations

import os
import shutil
import sys
import time
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from flows.run.fleet import fix_shards, open_fleet
from flows.settings.fleet_file import Settings
from storage.tables.day_table import members_of
from tests.faults import fleet_work
from tests.faults.existing import run_tests
from tests.faults.processes import in_process
from tests.faults.row_01_every_call import difference
from tests.faults.tally import Row, Tally

NIGHTS = (5, 6, 7)
# name: (first day of history, zone of the fleet); the nights are days 5, 6 and 7
CALENDARS = {
    "a leap day": ("2028-02-23", "UTC"),
    "the end of a year": ("2026-12-25", "UTC"),
    "the end of a century": ("2099-12-26", "UTC"),
    "before 1970": ("1969-12-26", "UTC"),
    "clocks go forward in Rome": ("2026-03-23", "Europe/Rome"),
    "clocks go back in Rome": ("2026-10-19", "Europe/Rome"),
    "clocks go forward in New York": ("2026-03-02", "America/New_York"),
    "half an hour on Lord Howe": ("2026-09-28", "Australia/Lord_Howe"),
    "midnight is skipped in Cairo": ("2026-04-18", "Africa/Cairo"),
    "a missing day in Apia": ("2011-12-25", "Pacific/Apia"),
    "local days in Kathmandu": ("2026-05-01", "Asia/Kathmandu"),
    "local days on Kiritimati": ("2026-05-01", "Pacific/Kiritimati"),
}
ZONES = ("UTC", "Europe/Rome", "America/St_Johns", "Asia/Kathmandu", "Pacific/Kiritimati")
SKEWS = {
    "a day behind": timedelta(days=-1),
    "a day ahead": timedelta(days=1),
    "a minute ahead": timedelta(minutes=1),
    "ten years ahead": timedelta(days=3650),
    "in 1971": datetime(1971, 3, 1, tzinfo=UTC) - datetime.now(UTC),
}


def skew_clock(by: timedelta) -> None:
    """Move the clock of this process, as our rooms see it."""
    real = datetime

    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real)

    class Skewed(real, metaclass=Kind):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return real.now(tz) + by

    seconds, now, now_ns = by.total_seconds(), time.time, time.time_ns
    time.time = lambda: now() + seconds
    time.time_ns = lambda: now_ns() + int(seconds) * 10**9
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("flows", "storage", "paano") and vars(module).get("datetime") is real:
            module.datetime = Skewed  # type: ignore[attr-defined]  # in the process of a test


def night_again(folder: str, zone: str, skew: timedelta | None, times: int) -> dict[str, str]:
    """The night of day 6, after that of day 5, `times` times."""
    os.environ["TZ"] = zone
    time.tzset()
    if skew is not None:
        skew_clock(skew)
    for _ in range(times):
        fleet_work.score(fleet_work.opened(folder), 6)
    return fleet_work.objects(folder)


def calendar_fleet(folder: Path, first: str, zone: str) -> None:
    start = datetime.combine(date.fromisoformat(first), datetime.min.time(), UTC)
    changes: dict[str, Any] = {**fleet_work.CHANGES, "fleet": {"name": "tiny", "timezone": zone}}
    settings = fleet_work.fleets.settings_of(folder, **changes)
    fleet_work.fleets.new_registry(settings)
    for number in range(2):
        fleet_work.fleets.write_sensor(settings, f"s{number:02d}", fleet_work.signal(number, 10), start)
    fleet = open_fleet(settings)
    from flows.work.model.training import retrain_sensor

    for name in fleet_work.names_of(fleet):
        retrain_sensor(fleet, name, start + timedelta(days=5), None, "a test")
    fleet.registry.champions()


def calendar_run(folder: str, first: str, zone: str, how: str) -> dict[str, str]:
    """The three nights: one by one, three times each, or as one backfill."""
    changes: dict[str, Any] = {**fleet_work.CHANGES, "fleet": {"name": "tiny", "timezone": zone}}
    settings = fleet_work.fleets.settings_of(Path(folder), **changes)
    fleet = open_fleet(Settings.from_dict(settings.to_dict()))
    names = fleet_work.names_of(fleet)
    days = [date.fromisoformat(first) + timedelta(days=n) for n in NIGHTS]
    if zone == "Pacific/Apia":  # there was no 30 December 2011
        days.remove(date(2011, 12, 30))
    runs = (
        [days] if how == "backfill" else [[day] for day in days for _ in range(3 if how == "thrice" else 1)]
    )
    for some in runs:
        shards = fix_shards(fleet, len(names), some)
        versions = dict(fleet.registry.champions(names))
        for members in members_of(names, shards).values():
            outcomes = fleet_work.score_days(fleet, some, members, versions)
            assert all(outcome.state == "ok" for outcome in outcomes), outcomes
    return fleet_work.objects(folder)


def prepare(root: Path, calendars: list[str]) -> None:
    fleet = fleet_work.make(root / "first", sensors=2, days=8)
    fleet_work.score(fleet, 5)
    for name in calendars:
        calendar_fleet(root / name, *CALENDARS[name])


def run(tally: Tally, root: Path, short: bool) -> None:
    calendars = list(CALENDARS)[4:5] if short else list(CALENDARS)
    in_process(prepare, root, calendars)

    def again(zone: str, skew: timedelta | None, times: int) -> dict[str, str]:
        copy = root / "copy"
        shutil.copytree(root / "first", copy)
        try:
            return in_process(night_again, str(copy), zone, skew, times)
        finally:
            shutil.rmtree(copy)

    once = again("UTC", None, 1)
    with tally.trial("the same night three times"):
        found = again("UTC", None, 3)
        assert found == once, difference(found, once)
    for zone in ZONES[1:2] if short else ZONES[1:]:
        with tally.trial("zones of the machine", zone):
            found = again(zone, None, 2)
            assert found == once, difference(found, once)
    for name, skew in list(SKEWS.items())[3:4] if short else SKEWS.items():
        with tally.trial("wrong clocks", name):
            found = again("UTC", skew, 2)
            assert found == once, difference(found, once)
    for name in calendars:
        with tally.trial("calendars: nights, nights three times, one backfill", name):
            found = {}
            for how in ("nights", "thrice", "backfill"):
                copy = root / how
                shutil.copytree(root / name, copy)
                found[how] = in_process(calendar_run, str(copy), *CALENDARS[name], how)
                shutil.rmtree(copy)
            assert found["thrice"] == found["nights"], difference(found["thrice"], found["nights"])
            assert found["backfill"] == found["nights"], difference(found["backfill"], found["nights"])
    if not short:
        run_tests(
            tally,
            "tests of which day a run scores, over every change of the clocks of every zone",
            "tests/flows/test_flows_days.py",
        )


ROW = Row(
    9,
    "the same night three times; clock skew, DST, leap day, year ends, local days",
    "same bytes",
    run,
)

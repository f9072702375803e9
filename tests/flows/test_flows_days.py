"""The days of a fleet: local midnights, one day for every scheduled run, whatever the clocks do."""

from __future__ import annotations

import itertools
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import fleets
import pytest

from flows.run.days import (
    DAY,
    day_before,
    day_of,
    day_window,
    days_from,
    last_day_of,
    missed_nights,
    scored_before,
    zone_of,
)
from flows.settings.fleet_file import Settings
from paano.errors import ConfigError

FROM, TO = date(2024, 1, 1), date(2030, 1, 1)


def changes(zone: ZoneInfo) -> list[date]:
    """The days between FROM and TO around which the clocks of a zone change."""

    def offset(day: date) -> timedelta | None:
        return datetime(day.year, day.month, day.day, 12, tzinfo=zone).utcoffset()

    return [day for day in days_from(FROM, TO) if offset(day) != offset(day - DAY)]


def scheduled(cron: str, zone: str, first: date, last: date) -> list[datetime]:
    """When Prefect starts runs by this line, from `first` to `last`."""
    from prefect.server.schemas.schedules import CronSchedule

    schedule = CronSchedule(cron=cron, timezone=zone)
    start = datetime(first.year, first.month, first.day, tzinfo=UTC)
    end = datetime(last.year, last.month, last.day, tzinfo=UTC)
    return sorted(schedule._get_dates_generator(start=start, end=end))


def zones() -> list[str]:
    """One zone for each different history of its clocks, so that every change is walked through once."""
    seen: dict[tuple, str] = {}
    for name in sorted(zoneinfo.available_timezones()):
        zone = ZoneInfo(name)
        key = tuple(
            (day, datetime(day.year, day.month, day.day, 12, tzinfo=zone).utcoffset())
            for day in changes(zone)
        )
        if key:
            seen.setdefault(key, name)
    return sorted(seen.values())


@pytest.mark.slow
def test_every_day_is_scored_around_every_change_of_the_clocks_of_every_zone():
    walked, skipped = 0, set()
    for name in zones():
        settings = Settings.from_dict({"schedule": {"timezone": name}})
        for change in changes(ZoneInfo(name)):
            runs = scheduled(settings.schedule.score, name, change - 4 * DAY, change + 4 * DAY)
            days = [day_before(settings, moment) for moment in runs]
            missed = set(days_from(days[0], days[-1])) - set(days)
            for day in missed:  # no run was scheduled for it: the next one catches up
                skipped.add(name)
                assert min(later for later in days if later > day) - day <= settings.run.catch_up
            for moment, day in zip(runs, days, strict=True):
                assert day_window(settings, day).end <= moment, f"{name}: {day} is not over at {moment}"
            walked += 1
    assert walked > 200
    assert skipped <= {"Antarctica/Troll"}, "where clocks go two hours on, Prefect leaves out a run"


@pytest.mark.parametrize("zone", ["Europe/Rome", "America/New_York", "Pacific/Auckland", "Asia/Kolkata"])
def test_a_run_scores_the_day_before_its_scheduled_time_in_the_zone_of_the_fleet(zone):
    settings = Settings.from_dict({"schedule": {"timezone": zone}})
    runs = scheduled(settings.schedule.score, zone, date(2026, 3, 1), date(2026, 11, 30))
    days = [day_before(settings, moment) for moment in runs]
    assert set(days) == set(days_from(days[0], days[-1])), "none is missed"
    assert len(days) <= len(set(days)) + 1, "and at most one, where 01:30 comes twice, is run again"


def test_the_zone_is_that_of_the_schedule_unless_the_fleet_has_its_own():
    assert zone_of(Settings()).key == "UTC"
    assert zone_of(Settings.from_dict({"schedule": {"timezone": "Europe/Rome"}})).key == "Europe/Rome"
    both = {"schedule": {"timezone": "Europe/Rome"}, "fleet": {"timezone": "Asia/Tokyo"}}
    assert zone_of(Settings.from_dict(both)).key == "Asia/Tokyo"
    with pytest.raises(ConfigError, match=r"fleet\.timezone"):
        Settings.from_dict({"fleet": {"timezone": "Rome"}})


@pytest.mark.parametrize("zone", ["UTC", "Europe/Rome", "Africa/Cairo", "America/Santiago", "Asia/Beirut"])
def test_days_share_their_boundaries_also_where_midnight_is_skipped_or_comes_twice(zone):
    settings = Settings.from_dict({"fleet": {"timezone": zone}})
    windows = [day_window(settings, day) for day in days_from(date(2026, 1, 1), date(2027, 1, 1))]
    for before, after in itertools.pairwise(windows):
        assert before.end == after.start
        assert timedelta(hours=23) <= before.length <= timedelta(hours=25)
    assert day_window(settings, date(2026, 1, 1), date(2027, 1, 1)).end == windows[-1].end


@pytest.mark.parametrize("zone", ["UTC", "Europe/Rome", "America/New_York", "Pacific/Auckland"])
def test_the_last_day_is_found_from_the_dates_of_the_store(zone):
    settings = Settings.from_dict({"fleet": {"timezone": zone}})
    for day in days_from(date(2026, 3, 1), date(2026, 4, 30)):
        window = day_window(settings, day)
        assert last_day_of(settings, window.days()) == day
        assert day_of(settings, window.start) == day
    assert last_day_of(settings, []) is None


def test_a_local_day_is_scored_from_midnight_to_midnight_of_its_zone(tmp_path):
    from flows.work.night.night import score_days

    fleet = fleets.make(
        tmp_path,
        sensors=1,
        fleet={"name": "tiny", "timezone": "America/New_York"},
        model={"iterations": 0},
        history={"lookback": "5d"},
    )
    day = date.fromisoformat(fleets.night(6))  # the clocks change on it: it has 23 hours
    assert day == date(2026, 3, 8)
    score_days(fleet, [day], ["s00"], {})
    rows = fleet.scores.read("s00", day_window(fleet.settings, day))
    assert rows.height == 46
    assert rows["ts"][0] == datetime(2026, 3, 8, 5, tzinfo=UTC)
    assert fleet.scores.read("s00", fleets.window_of(5)).height == 0, "nothing before it is written"


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """The folder of a fleet with one sensor that can be scored without a training."""
    return fleets.make(
        tmp_path_factory.mktemp("zones") / "fleet", 1, model={"iterations": 0}, history={"lookback": "4d"}
    )


@pytest.mark.parametrize("zone", ["UTC", "Europe/Rome", "America/New_York"])
@pytest.mark.parametrize("scored", [(5, 8), (5, 7)])
def test_missed_nights_are_those_of_the_zone(history, tmp_path, zone, scored):
    from flows.run.fleet import open_fleet
    from flows.work.night.night import score_days

    values = history.settings.to_dict() | {
        "fleet": {"name": "tiny", "timezone": zone},
        "scores": {"url": str(tmp_path / "scores")},
        "events": {"url": str(tmp_path / "events")},
    }
    fleet = open_fleet(Settings.from_dict(values))
    days = [date.fromisoformat(fleets.night(number)) for number in scored]
    for day in days:
        score_days(fleet, [day], ["s00"], dict(fleet.registry.champions()))
    missed = [day for day in days_from(days[0], days[-1]) if day not in days]
    assert missed_nights(fleet, fleet.scores.dates()) == missed
    night = days[-1] + DAY
    assert scored_before(fleet, night, timedelta(days=9)) == days
    score_days(
        fleet,
        [night],
        ["s00"],
        dict(fleet.registry.champions()),
        dates=scored_before(fleet, night, timedelta(days=3)),
    )
    assert missed_nights(fleet, fleet.scores.dates()) == [], "the next night catches up"

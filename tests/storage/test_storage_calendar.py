"""Two people change one calendar at the same moment, in a folder and on S3: both changes stay."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from paano.errors import ConfigError, StorageUnavailable
from storage.objects.store import Store, open_store
from storage.operations.calendar import Calendar, Effect, Period

START = datetime(2026, 11, 2, tzinfo=UTC)


def period(sensor: str) -> Period:
    return Period(sensor, "", START, START + timedelta(days=1), Effect.BOTH)


def sensors(place, name: str) -> list[str]:
    return sorted(one.sensor for one in Calendar.read(place.at(name), place.options).periods)


@pytest.mark.parametrize("name", ["known.csv", "known.parquet"])
@pytest.mark.parametrize("already", [[], ["old"]])
def test_a_change_that_comes_between_reading_and_writing_is_not_lost(place, name, already):
    url = place.at(name)
    for sensor in already:
        Calendar.change(url, lambda known, sensor=sensor: known.add(period(sensor)), place.options)
    calls = []

    def slowly(known: Calendar) -> Calendar:
        calls.append(len(known.periods))
        if len(calls) == 1:
            Calendar.change(url, lambda other: other.add(period("quick")), place.options)
        return known.add(period("slow"))

    Calendar.change(url, slowly, place.options)
    assert sensors(place, name) == sorted([*already, "quick", "slow"])
    assert calls == [len(already), len(already) + 1]


def test_many_writers_at_once_lose_nothing(place):
    def add(number: int) -> None:
        Calendar.change(
            place.at("known.csv"), lambda known: known.add(period(f"pump-{number:02d}")), place.options
        )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(12)))
    assert sensors(place, "known.csv") == [f"pump-{number:02d}" for number in range(12)]


def test_a_period_whose_removal_lost_its_answer_is_removed_and_said_so_once(folder, monkeypatch):
    url, put = folder.at("known.csv"), type(open_store(folder.url)).put
    Calendar.change(url, lambda known: known.add(period("a")))
    lost = []

    def put_and_lose(self: Store, *given, **conditions) -> str:
        etag = put(self, *given, **conditions)
        if not lost:
            lost.append(etag)
            raise StorageUnavailable("the answer was lost")
        return etag

    monkeypatch.setattr(type(open_store(folder.url)), "put", put_and_lose)
    left = Calendar.change(url, lambda known: known.remove(period("a").id))
    assert lost and left.periods == () and sensors(folder, "known.csv") == []


def test_a_change_that_is_refused_writes_nothing(folder):
    with pytest.raises(ConfigError, match="no period"):
        Calendar.change(folder.at("known.csv"), lambda known: known.remove("nothing"))
    assert folder.store().head("known.csv") is None

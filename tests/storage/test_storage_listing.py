"""A history is listed once for all that a run asks of it, and the answers are those of a listing each."""

from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paano.errors import HistoryError
from storage.history.reader import History, HistoryLayout, write_history
from storage.objects import s3
from storage.objects.store import open_store
from storage.window import Window

DAYS, SENSORS = 9, ("a", "b/c", "d e")
FIRST = date(2026, 1, 1)
WHOLE = Window.day(FIRST, DAYS)


def rows(sensor, days=DAYS):
    ts = pl.datetime_range(
        datetime(2026, 1, 1), datetime(2026, 1, 1) + timedelta(days=days), "6h", closed="left", eager=True,
        time_zone="UTC",
    )  # fmt: skip
    return pl.DataFrame({"sensor": [sensor] * len(ts), "ts": ts, "value": range(len(ts))})


def counted(history):
    """The prefixes that `history` lists from now on."""
    asked, real = [], history.store.list

    def listing(prefix="", *skip):
        asked.append(prefix)
        return real(prefix, *skip)

    history.store.list = listing
    return asked


@pytest.fixture(params=["sensor", "long"])
def history(request, place):
    layout = HistoryLayout(kind=request.param)
    write_history(place.at("h"), pl.concat([rows(sensor) for sensor in SENSORS]), layout, place.options)
    return History(place.at("h"), layout, place.options)


def test_after_one_listing_nothing_is_listed_again(history):
    history.sensors()
    asked = counted(history)
    history.list_ahead(SENSORS, WHOLE)
    needed = 1 if history.layout.kind == "sensor" else DAYS  # long tables have a folder for each date
    assert len(asked) == needed
    history.read_many(SENSORS, Window.day(FIRST + timedelta(days=1), 3))
    history.list_ahead(SENSORS, Window.day(FIRST, 2))
    for sensor in SENSORS:
        history.listing.objects(sensor if history.layout.kind == "sensor" else None, Window.day(FIRST))
    assert len(asked) == needed


def test_few_sensors_of_many_are_listed_one_by_one(folder):
    names = [f"s{n}" for n in range(10)]
    write_history(folder.at("h"), pl.concat([rows(name) for name in names]))
    history = History(folder.at("h"))
    history.sensors()
    asked = counted(history)
    history.list_ahead(["s3", "s7"], WHOLE)
    assert sorted(asked) == ["s3", "s7"]


def test_several_days_of_a_sensor_take_one_listing(folder):
    write_history(folder.at("h"), rows("a"))
    history = History(folder.at("h"))
    days = [Window.day(FIRST + timedelta(days=n)) for n in (5, 1, 2)]
    alone = [history.layout.objects(history.store, "a", day) for day in days]
    asked = counted(history)
    assert history.listing.by_window("a", days) == alone
    assert asked == ["a"]


@settings(max_examples=25, deadline=None)
@given(first=st.integers(0, 60), length=st.integers(1, 60), kept=st.integers(1, 8), all_of_them=st.booleans())
def test_what_was_listed_ahead_is_what_a_listing_gives(tmp_path_factory, first, length, kept, all_of_them):
    history, fresh = stored(tmp_path_factory), stored(tmp_path_factory)
    history.list_ahead(SENSORS if all_of_them else SENSORS[:1], Window.day(FIRST, kept))
    start = WHOLE.start + timedelta(hours=3 * first)
    window = Window(start, start + timedelta(hours=3 * length))
    for sensor in SENSORS:
        assert history.listing.objects(sensor, window) == fresh.layout.objects(fresh.store, sensor, window)


def stored(tmp_path_factory, made={}):  # noqa: B006  one folder for all examples
    if "folder" not in made:
        made["folder"] = str(tmp_path_factory.mktemp("listing"))
        write_history(made["folder"], pl.concat([rows(sensor) for sensor in SENSORS]))
    return History(made["folder"])


def test_an_object_that_lies_too_deep_is_refused_as_without_a_listing(folder):
    write_history(folder.at("h"), pl.concat([rows("a", 2), rows("b", 2)]))
    store = open_store(folder.at("h"))
    (key, *_) = (info.key for info in store.list("a"))
    store.put("a/line-1/odd.parquet", store.get(key))
    history = History(folder.at("h"))
    history.list_ahead(["a", "b"], WHOLE)
    found = history.read_many(["a", "b"], Window.day(FIRST))
    assert isinstance(found["a"], HistoryError) and "line-1" in str(found["a"])
    assert found["b"].rows == 4


def test_data_that_came_after_the_listing_of_a_sensor_without_any_is_seen(folder):
    write_history(folder.at("h"), pl.concat([rows("a"), rows("b", 1)]))
    history = History(folder.at("h"))
    later = Window.day(FIRST + timedelta(days=3))
    history.list_ahead(["a", "b"], later)
    write_history(folder.at("h"), rows("b"))
    assert history.read("b", later, timedelta(hours=6)).rows == 4


@pytest.mark.parametrize("before", [0, 150, 299])
def test_dates_of_long_before_are_left_out_of_a_listing_and_nothing_else(bucket, monkeypatch, before):
    """Of a sensor with 300 days, one of a few, one whose objects have no dates, and folders beside them."""
    monkeypatch.setattr(s3, "PAGE", 40)
    monkeypatch.setattr(s3, "SHORT_PAGE", 12)
    store, days = bucket.store("h"), [FIRST + timedelta(days=n) for n in range(300)]
    keys = [f"{name}/date={day}/part-0.parquet" for name in ("a", "b c") for day in days]
    keys += [f"few/date={day}/{part}.parquet" for day in days[-3:] for part in "xy"]
    keys += ["free/2026.parquet", "free/date=2026-01-02.parquet", "gone/date=2026-01-02/_part.parquet"]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: store.put(key, b"-"), keys))
    history, asked = History(bucket.at("h"), options=bucket.options), []
    real = s3.S3Store._page
    monkeypatch.setattr(s3.S3Store, "_page", lambda *given: asked.append(given) or real(*given))
    window = Window(Window.day(days[before]).start, Window.day(days[-1]).end)
    names = ["a", "b c", "few", "free"]
    found, pages = history.listing._whole(names, window), len(asked)
    for name in names:
        assert found[name] == history.layout.objects(store, name, window), name
    if before == 299:
        assert pages < len(keys) / 40 / 2

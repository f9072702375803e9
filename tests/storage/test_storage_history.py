"""History in every layout, on a folder and on S3: read by window, repaired, refused by name."""

import io
from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from paano.errors import (
    ConfigError,
    HistoryError,
    PaanoError,
    SeriesTooShort,
    StorageUnavailable,
    UnknownSensor,
)
from storage.history.catalog import Catalog
from storage.history.reader import History, HistoryLayout, Reading, write_history
from storage.objects.local import LocalStore
from storage.window import Window

DAY = date(2026, 1, 2)
MINUTE = timedelta(minutes=1)
LAYOUTS = {
    "prefix": HistoryLayout(),
    "prefix, computed": HistoryLayout(path="{sensor}/date={date}.parquet"),
    "prefix, by month folders": HistoryLayout(path="h/{sensor}/year={year}/month={month}/day={day}"),
    "prefix, date first": HistoryLayout(path="date={date}/{sensor}.parquet"),
    "prefix, hive": HistoryLayout(path="sensor={sensor}"),
    "long": HistoryLayout(kind="long"),
    "long, an object per date": HistoryLayout(kind="long", path="all/{year}/{month}-{day}.parquet"),
}


def rows(sensor, days=3, interval=MINUTE, seed=0, channels=("value",)):
    start = datetime(2026, 1, 1)
    ts = pl.datetime_range(
        start, start + timedelta(days=days), interval, closed="left", eager=True, time_zone="UTC"
    )
    rng = np.random.default_rng(abs(hash(sensor)) % 2**32 + seed)
    return pl.DataFrame(
        {"sensor": [sensor] * len(ts), "ts": ts, **{c: rng.normal(size=len(ts)) for c in channels}}
    )


def put(store, key, frame):
    out = io.BytesIO()
    frame.write_parquet(out)
    store.put(key, out.getvalue())


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_gives_back_what_was_written(place, layout):
    fleet = {
        s: rows(s, interval=timedelta(minutes=10))
        for s in ("pump-17", "Pump 17", "../../x", "ü/1", "x" * 140)
    }
    write_history(place.url, pl.concat(fleet.values()), layout, place.options)
    history = History(place.url, layout, place.options)
    assert history.sensors().sensors == sorted(fleet)
    window = Window.day(DAY).widen(timedelta(hours=1), timedelta(hours=2))
    readings = history.read_many(fleet, window)
    for sensor, reading in readings.items():
        assert isinstance(reading, Reading), reading
        expected = fleet[sensor].filter((pl.col("ts") >= window.start) & (pl.col("ts") < window.end))
        np.testing.assert_array_equal(reading.values[:, 0], expected["value"].to_numpy())
        np.testing.assert_array_equal(reading.ts, expected["ts"].dt.replace_time_zone(None).to_numpy())
        assert reading.repaired == {} and reading.interval == timedelta(minutes=10)
        assert reading.digest == history.read(sensor, window).digest


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_an_unknown_sensor_is_named_with_the_nearest_ids(folder, layout):
    write_history(folder.url, rows("pump-17", days=1), layout)
    history = History(folder.url, layout)
    with pytest.raises(UnknownSensor, match=r"pump-71.*did you mean pump-17"):
        history.read("pump-71", Window.day(date(2026, 1, 1)))
    with pytest.raises(HistoryError):
        history.read("", Window.day(date(2026, 1, 1)))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_known_sensor_without_rows_in_the_window_is_all_missing(folder, layout):
    write_history(folder.url, rows("a", days=1), layout)
    reading = History(folder.url, layout).read("a", Window.day(date(2026, 1, 5)), MINUTE)
    assert reading.rows == 0 and reading.values.shape == (1440, 1)
    assert reading.repaired == {"holes": 1440}


def counting(history):
    """The keys that `history` asks its store for."""
    asked = []
    get, opened = history.store.get, history.store.open
    history.store.get = lambda key: (asked.append(key), get(key))[1]
    history.store.open = lambda key: (asked.append(key), opened(key))[1]
    return asked


def test_a_long_table_is_read_once_for_all_sensors(folder):
    layout = HistoryLayout(kind="long", interval=MINUTE)
    fleet = [f"s{n:03d}" for n in range(200)]
    write_history(folder.url, pl.concat([rows(s, interval=timedelta(minutes=30)) for s in fleet]), layout)
    history = History(folder.url, layout)
    asked = counting(history)
    readings = history.read_many(fleet, Window.day(DAY).widen(timedelta(hours=1)))
    assert all(isinstance(reading, Reading) for reading in readings.values())
    assert sorted(asked) == ["date=2026-01-01/part-0000.parquet", "date=2026-01-02/part-0000.parquet"]


def test_only_the_objects_of_the_window_are_read(folder):
    write_history(folder.url, rows("a", days=20))
    history = History(folder.url, HistoryLayout(interval=MINUTE, tolerance=0.0))
    asked = counting(history)
    history.read("a", Window.day(date(2026, 1, 10), 2))
    assert asked == [f"a/date=2026-01-{d}/part-0000.parquet" for d in (10, 11)]


def test_a_computed_path_lists_nothing(folder, monkeypatch):
    layout = HistoryLayout(path="{sensor}/date={date}.parquet", interval=MINUTE)
    write_history(folder.url, rows("a"), layout)
    history = History(folder.url, layout)
    monkeypatch.setattr(history.store, "list", lambda prefix="": pytest.fail("listed"))
    assert history.read("a", Window.day(DAY)).rows == 1440


def test_only_the_needed_columns_and_row_groups_are_read(folder, monkeypatch):
    from storage.history.bounded import BoundedFile

    frame = pl.concat([rows(f"s{n}", days=1, channels=("a", "b", "c")) for n in range(10)]).sort(
        "sensor", "ts"
    )
    out = io.BytesIO()
    frame.write_parquet(out, row_group_size=1440, statistics=True)
    folder.store().put("date=2026-01-01/x.parquet", out.getvalue())
    read, original = [], BoundedFile._read

    def spy(file, groups, columns):
        table = original(file, groups, columns)
        read.append((table.num_rows, sorted(table.column_names)))
        return table

    monkeypatch.setattr(BoundedFile, "_read", spy)
    history = History(folder.url, HistoryLayout(kind="long", values={"b": "pressure"}, interval=MINUTE))
    reading = history.read("s3", Window.day(date(2026, 1, 1)))
    assert read == [(1440, ["b", "sensor", "ts"])]
    assert reading.channels == ["pressure"]


def test_a_large_object_is_read_in_parts_and_gives_the_same(place, monkeypatch):
    write_history(place.url, rows("a"), LAYOUTS["long"], place.options)
    whole = History(place.url, LAYOUTS["long"], place.options).read("a", Window.day(DAY))
    monkeypatch.setattr("storage.history.rows.WHOLE", 100)
    in_parts = History(place.url, LAYOUTS["long"], place.options).read("a", Window.day(DAY))
    assert in_parts.digest == whole.digest


def test_files_of_large_objects_are_open_one_at_a_time_and_closed_also_if_damaged(folder, monkeypatch):
    write_history(folder.url, rows("a"))
    folder.store().put("a/date=2026-01-03/part-0001.parquet", b"PAR1" + bytes(200))
    monkeypatch.setattr("storage.history.rows.WHOLE", 100)
    opened, at_once, real = [], [], LocalStore.open

    def spy(store, key):
        opened.append(real(store, key))
        at_once.append(sum(not file.closed for file in opened))
        return opened[-1]

    monkeypatch.setattr(LocalStore, "open", spy)
    with pytest.raises(HistoryError, match="part-0001"):
        History(folder.url).read("a", Window.day(date(2026, 1, 1), 3))
    assert at_once == [1, 1, 1, 1] and all(file.closed for file in opened)


def test_a_large_object_that_goes_away_while_it_is_read_is_left_out_as_a_small_one_is(folder, monkeypatch):
    write_history(folder.url, rows("a"))
    history, whole = History(folder.url), Window.day(date(2026, 1, 1), 3)
    history.list_ahead(["a"], whole)
    folder.store().delete("a/date=2026-01-02/part-0000.parquet")
    small = history.read("a", whole)
    monkeypatch.setattr("storage.history.rows.WHOLE", 100)
    assert history.read("a", whole).digest == small.digest
    assert np.isnan(small.values).sum() == 1440


def messy(sensor="a"):
    """A day with everything wrong that can be put right."""
    frame = rows(sensor, days=1).filter(pl.int_range(pl.len()) % 100 != 7)
    jitter = pl.duration(milliseconds=(pl.int_range(pl.len()) * 7919) % 20_000 - 10_000)
    odd = frame.with_columns(
        pl.when(pl.int_range(pl.len()) % 5 == 0).then(pl.col("ts") + jitter).otherwise("ts")
    )
    twice = frame.head(30).with_columns(value=pl.lit(42.0))
    return pl.concat([odd.sample(fraction=1.0, shuffle=True, seed=1), twice]).with_columns(
        value=pl.when(pl.int_range(pl.len()) == 5).then(np.inf).otherwise("value")
    )


def test_everything_repaired_is_counted(folder):
    put(folder.store(), "a/x.parquet", messy().drop("sensor"))
    reading = History(folder.url).read("a", Window.day(date(2026, 1, 1)), MINUTE)
    assert set(reading.repaired) == {"holes", "infinite", "repeated", "snapped", "unsorted"}
    assert reading.repaired["holes"] >= 15 and reading.repaired["repeated"] == 30


def test_a_night_and_a_backfill_see_the_same_values(folder):
    put(folder.store(), "a/x.parquet", messy().drop("sensor"))
    history = History(folder.url, HistoryLayout(interval=MINUTE))
    day = Window.day(date(2026, 1, 1))
    whole = history.read("a", day)
    for hour in range(0, 24, 5):
        part = Window(day.start + timedelta(hours=hour), min(day.start + timedelta(hours=hour + 5), day.end))
        assert history.read("a", part).digest == whole.cut(part).digest


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_time_zones_and_units_end_in_utc(folder, unit, zone):
    ts = rows("a", days=1)["ts"].dt.cast_time_unit(unit)
    ts = ts.dt.replace_time_zone(None) if zone is None else ts.dt.convert_time_zone(zone)
    put(folder.store(), "a/x.parquet", pl.DataFrame({"ts": ts, "value": np.arange(1440.0)}))
    reading = History(folder.url).read("a", Window.day(date(2026, 1, 1)))
    assert reading.start == datetime(2026, 1, 1, tzinfo=UTC)
    np.testing.assert_array_equal(reading.values[:, 0], np.arange(1440.0))


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt64, pl.Float32, pl.Boolean, pl.Decimal(10, 2)])
def test_any_kind_of_number_is_a_value(folder, dtype):
    frame = rows("a", days=1).select("ts", value=(pl.int_range(pl.len()) % 2).cast(dtype))
    put(folder.store(), "a/x.parquet", frame)
    values = History(folder.url).read("a", Window.day(date(2026, 1, 1))).values[:, 0]
    assert values[:4].tolist() == [0, 1, 0, 1]


def test_many_channels_are_renamed_and_in_the_order_asked_for(folder):
    frame = rows("a", days=1, channels=("t", "p", "note")).with_columns(note=pl.lit("text"))
    put(folder.store(), "a/x.parquet", frame.drop("sensor"))
    layout = HistoryLayout(values={"p": "pressure", "t": "temperature"})
    reading = History(folder.url, layout).read("a", Window.day(date(2026, 1, 1)))
    assert reading.channels == ["pressure", "temperature"]
    np.testing.assert_array_equal(reading.values[:, 1], frame["t"].to_numpy())
    assert History(folder.url).read("a", Window.day(date(2026, 1, 1))).channels == ["p", "t"]


GOOD = rows("a", days=1)
BROKEN = {
    "no time column": (GOOD.drop("ts"), "no column 'ts'"),
    "time as text": (GOOD.with_columns(pl.col("ts").cast(pl.String)), "not timestamps"),
    "value as text": (GOOD.with_columns(value=pl.lit("7")), "no column of numbers"),
}


@pytest.mark.parametrize("kind", ["sensor", "long"])
@pytest.mark.parametrize("frame, what", BROKEN.values(), ids=BROKEN)
def test_columns_of_the_wrong_kind_are_refused_with_sensor_and_object(folder, kind, frame, what):
    key = "a/date=2026-01-01/x.parquet" if kind == "sensor" else "date=2026-01-01/x.parquet"
    put(folder.store(), key, frame if kind == "long" else frame.drop("sensor"))
    with pytest.raises(HistoryError, match=what) as caught:
        History(folder.url, HistoryLayout(kind=kind)).read("a", Window.day(date(2026, 1, 1)))
    assert key in str(caught.value) and str(caught.value).startswith("a: ")


def test_a_column_that_is_asked_for_and_not_there_is_named(folder):
    put(folder.store(), "a/x.parquet", GOOD.drop("sensor"))
    layout = HistoryLayout(values={"pressure": "p"})
    with pytest.raises(
        HistoryError, match=r"no column 'pressure', only ts, value; correct history\.channels"
    ):
        History(folder.url, layout).read("a", Window.day(date(2026, 1, 1)))


def test_a_schema_that_changed_in_the_middle_is_refused_with_both_objects(folder):
    write_history(folder.url, rows("a", days=1))
    other = rows("a", days=2).filter(pl.col("ts").dt.date() == DAY).rename({"value": "celsius"})
    put(folder.store(), "a/date=2026-01-02/part-0000.parquet", other.drop("sensor"))
    with pytest.raises(HistoryError, match=r"columns changed: .*01-02.* has celsius, .*01-01.* has value"):
        History(folder.url).read("a", Window.day(date(2026, 1, 1), 2))


@pytest.mark.parametrize("damage", [b"", b"not parquet at all", None], ids=["empty", "text", "cut"])
@pytest.mark.parametrize("kind", ["sensor", "long"])
def test_a_damaged_object_fails_its_sensor_by_name_and_no_other(place, kind, damage):
    layout = HistoryLayout(kind=kind, interval=timedelta(hours=1), tolerance=0.0)
    keys = write_history(
        place.url, pl.concat([rows(s, interval=timedelta(hours=1)) for s in "ab"]), layout, place.options
    )
    victim = next(key for key in keys if "2026-01-02" in key)
    store = place.store()
    store.put(victim, store.get(victim)[:200] if damage is None else damage)
    readings = History(place.url, layout, place.options).read_many("ab", Window.day(DAY, 2))
    hurt = {"a"} if kind == "sensor" else {"a", "b"}
    for sensor, reading in readings.items():
        if sensor in hurt:
            assert isinstance(reading, HistoryError) and victim in str(reading) and sensor in str(reading)
        else:
            assert isinstance(reading, Reading)
    # days that do not need the object are not hurt
    assert History(place.url, layout, place.options).read("a", Window.day(date(2026, 1, 3))).rows == 24


def test_a_store_that_is_away_is_transient_for_each_sensor(s3):
    import dataclasses

    options = dataclasses.replace(s3.options, endpoint="http://127.0.0.1:9", attempts=1)
    for kind in ("sensor", "long"):
        history = History(s3.url("away"), HistoryLayout(kind=kind, interval=MINUTE), options)
        readings = history.read_many(["a", "b"], Window.day(DAY))
        assert all(isinstance(reading, StorageUnavailable) for reading in readings.values())


def test_an_interval_is_inferred_or_the_error_says_what_to_set(folder):
    write_history(folder.url, rows("a", interval=timedelta(seconds=30)))
    assert History(folder.url).read("a", Window.day(DAY)).interval == timedelta(seconds=30)
    put(folder.store(), "b/x.parquet", rows("b").drop("sensor").head(2))
    with pytest.raises(SeriesTooShort, match=r"b: 2 rows .* set history\.interval"):
        History(folder.url).read("b", Window.day(date(2026, 1, 1)))


def test_an_interval_that_makes_a_grid_without_end_is_refused(folder):
    write_history(folder.url, rows("a"))
    with pytest.raises(HistoryError, match="points at an interval"):
        History(folder.url).read("a", Window.day(DAY), timedelta(microseconds=1))


def test_a_digest_stands_for_exactly_the_values():
    values = np.array([[1.0], [np.nan], [3.0]])
    reading = Reading("a", datetime(2026, 1, 1, tzinfo=UTC), MINUTE, values, ["v"])
    same = Reading("b", reading.start, MINUTE, values.copy(), ["v"], {"holes": 1})
    assert reading.digest == same.digest
    other_nan = np.frombuffer(np.uint64(0x7FF8000000000001).tobytes(), np.float64)[0]
    assert (
        Reading("a", reading.start, MINUTE, np.array([[1.0], [other_nan], [3.0]]), ["v"]).digest
        == reading.digest
    )
    changes = [
        Reading("a", reading.start + MINUTE, MINUTE, values, ["v"]),
        Reading("a", reading.start, 2 * MINUTE, values, ["v"]),
        Reading("a", reading.start, MINUTE, values, ["w"]),
        Reading("a", reading.start, MINUTE, values + 1e-12, ["v"]),
    ]
    assert len({reading.digest, *(c.digest for c in changes)}) == 5


def test_a_cut_reading_has_the_rows_of_its_window():
    reading = Reading("a", datetime(2026, 1, 1, tzinfo=UTC), MINUTE, np.arange(60.0)[:, None], ["v"])
    part = reading.cut(Window(datetime(2026, 1, 1, 0, 10), datetime(2026, 1, 1, 0, 20)))
    assert part.values[:, 0].tolist() == list(range(10, 20)) and part.start.minute == 10
    assert reading.cut(Window.day(date(2026, 1, 1))).digest == reading.digest
    assert len(reading.cut(Window.day(date(2026, 2, 1)))) == 0


def test_a_catalog_is_read_from_csv_or_parquet(place):
    store = place.store()
    store.put(
        "sensors.csv",
        b"sensor,group,interval,enabled,owner,more\nb,hall 2,5m,true,ann,x\na,,30,no,,\n0017,,,,,\n",
    )
    frame = pl.DataFrame(
        {"sensor": ["a", "b"], "interval": [timedelta(seconds=30), None], "enabled": [False, True]}
    )
    put(store, "sensors.parquet", frame)
    given = Catalog.read(place.at("sensors.csv"), place.options)
    assert given.sensors == ["0017", "b"] and given["b"].group == "hall 2" and given["b"].owner == "ann"
    assert given.intervals() == {"a": timedelta(seconds=30), "b": timedelta(minutes=5)}
    assert Catalog.read(place.at("sensors.parquet"), place.options).sensors == ["b"]
    history = History(place.at("h"), HistoryLayout(catalog=place.at("sensors.csv")), place.options)
    assert history.sensors().sensors == ["0017", "b"]


@pytest.mark.parametrize(
    "text, what",
    [
        ("name\na\n", "'sensor' is missing"),
        ("sensor\na\na\n", "twice"),
        ("sensor,interval\na,often\n", "such as"),
        ("sensor,interval\na,-5\n", "such as"),
        ("sensor,enabled\na,maybe\n", "not true or false"),
        ('sensor,group\n"",x\n', "without a sensor id"),
    ],
)
def test_a_catalog_that_is_wrong_says_where(folder, text, what):
    folder.store().put("c.csv", text.encode())
    with pytest.raises(ConfigError, match=what):
        Catalog.read(folder.at("c.csv"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "wide"},
        {"path": "x"},
        {"kind": "long", "path": "{sensor}"},
        {"path": "{sensor}/{hour}"},
        {"tolerance": 0.7},
        {"interval": timedelta(0)},
        {"values": {}},
    ],
)
def test_a_layout_that_cannot_be_is_refused_with_its_key(wrong):
    with pytest.raises(ConfigError, match=r"history\."):
        HistoryLayout(**wrong)


def test_all_errors_of_a_read_are_ours(folder):
    history = History(folder.at("nowhere"), HistoryLayout(interval=MINUTE))
    assert isinstance(history.read_many(["a"], Window.day(DAY))["a"], PaanoError)


@pytest.mark.parametrize(
    "path",
    ["date={date}", "year={year}/month={month}/day={day}", "t/{date}.parquet", "{year}/{date}.parquet"],
)
def test_sensors_of_long_tables_are_found_in_the_newest_dates_alone(place, path, monkeypatch):
    layout = HistoryLayout(kind="long", path=path)
    old = rows("old", days=10, interval=timedelta(hours=6)).with_columns(pl.col("ts") - timedelta(days=300))
    new = rows("new", days=10, interval=timedelta(hours=6))
    write_history(place.url, pl.concat([old, new]), layout, place.options)
    put(place.store(), "zz/other.parquet", new)  # not a date
    history = History(place.url, layout, place.options)

    looked, real = [], type(history.store).list
    monkeypatch.setattr(
        type(history.store), "list", lambda store, prefix="": looked.append(prefix) or real(store, prefix)
    )
    assert history.sensors().sensors == ["new"]
    last = layout.newest(history.store, 2)
    days = [Window.day(date(2026, 1, 9)), Window.day(date(2026, 1, 10))]
    places = [place for day in days for place in layout.places(None, day)]
    assert len(last) == 2
    assert all(info.key.startswith(place) for info, place in zip(last, places, strict=True))
    assert not any("2025" in prefix for prefix in looked)

"""Data as it is: nested folders, local time, quality, numbers in text, counters, repeated stamps."""

import io
import os
from datetime import UTC, date, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paano.errors import ConfigError, HistoryError
from storage.history.columns import local_to_utc, only_rise
from storage.history.reader import History, HistoryLayout, SensorColumns, write_history
from storage.window import Window

DAY = date(2026, 1, 1)
TODAY = Window.day(DAY)
FIVE = timedelta(minutes=5)
NESTED = HistoryLayout(path="{site}/{line}/{sensor}")


def frame(sensor="a", rows=288, start=datetime(2026, 1, 1), step=FIVE, **columns):
    ts = [start + n * step for n in range(rows)]
    values = columns or {"value": np.sin(np.arange(rows) / 9)}
    return pl.DataFrame({"sensor": [sensor] * rows, "ts": ts, **values})


def put(store, key, rows):
    out = io.BytesIO()
    rows.write_parquet(out)
    store.put(key, out.getvalue())


# -- nested folders ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "{site}/{line}/{sensor}",
        "site={site}/line={line}/sensor={sensor}",
        "h/{site}/{line}/{sensor}.parquet",
        "{site}/{line}/{sensor}/date={date}.parquet",
        "{date}/{site}/{line}/{sensor}.parquet",
    ],
)
def test_an_id_is_the_joined_path_of_its_levels(place, path):
    ids = ["werk-a/line-1/pump-1", "werk-a/line-1/pump-2", "werk-b/line-1/pump-1"]
    layout = HistoryLayout(path=path)
    rows = pl.concat([frame(name, value=np.full(288, float(n))) for n, name in enumerate(ids)])
    write_history(place.url, rows, layout, place.options)
    history = History(place.url, layout, place.options)
    assert history.sensors().sensors == ids
    for n, reading in enumerate(history.read_many(ids, TODAY).values()):
        assert reading.values[:, 0].tolist() == [float(n)] * 288
    with pytest.raises(HistoryError, match="site/line/sensor"):
        history.read("pump-1", TODAY)


def test_folders_deeper_than_the_path_are_refused_and_never_merged(place):
    for line in ("line-1", "line-2"):
        put(place.store(), f"werk-a/{line}/pump-1/x.parquet", frame().drop("sensor"))
    history = History(place.url, HistoryLayout(), place.options)
    with pytest.raises(HistoryError, match=r"werk-a: .*deeper than history.path.*'line-1' is no date"):
        history.read("werk-a", TODAY)
    assert len(HistoryLayout().misplaced(history.store)) == 2


@pytest.mark.parametrize(
    "folders",
    ["date=2026-01-01", "year=2026/month=01/day=01", "2026/01/01", "2026-01-01", "2026-01", "20260101"],
)
def test_dates_below_a_sensor_are_no_other_sensor(folder, folders):
    put(folder.store(), f"a/{folders}/x.parquet", frame().drop("sensor"))
    assert History(folder.url).read("a", TODAY).rows == 288


@pytest.mark.parametrize("folders", ["1", "line=1", "line=1/2026", "2026/01/pump", "x"])
def test_what_is_no_date_is_refused(folder, folders):
    put(folder.store(), f"a/{folders}/x.parquet", frame().drop("sensor"))
    with pytest.raises(HistoryError, match="deeper"):
        History(folder.url).read("a", TODAY)


def test_parquet_above_the_depth_of_the_path_is_found(folder):
    write_history(folder.url, frame("werk-a/line-1/pump-1"), NESTED)
    put(folder.store(), "werk-a/stray.parquet", frame())
    assert NESTED.misplaced(folder.store()) == ["werk-a/stray.parquet"]


# -- local time ----------------------------------------------------------------------------------------------


def local_rows(first, hours, zone="Europe/Rome", step=FIVE):
    """What a logger writes that shows local time: (naive local times, true UTC times) in order."""
    utc = [first + n * step for n in range(int(timedelta(hours=hours) / step))]
    ts = pl.Series(utc, dtype=pl.Datetime("us", "UTC")).dt.convert_time_zone(zone).dt.replace_time_zone(None)
    return ts, utc


CHANGES = {
    "winter": (datetime(2026, 1, 10, tzinfo=UTC), {}),
    "summer": (datetime(2026, 7, 10, tzinfo=UTC), {}),
    "forward": (datetime(2026, 3, 28, 22, tzinfo=UTC), {}),
    "back": (datetime(2026, 10, 24, 22, tzinfo=UTC), {"repeated_hour": 24}),
}


@pytest.mark.parametrize("first, counted", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("kind", ["sensor", "long"])
def test_local_time_ends_in_utc_and_changes_of_the_clock_are_counted(folder, kind, first, counted):
    ts, utc = local_rows(first, 6)
    values = np.arange(len(ts), dtype=float) % 7
    rows = pl.DataFrame({"sensor": ["a"] * len(ts), "ts": ts, "value": values})
    layout = HistoryLayout(kind=kind, timezone="Europe/Rome", interval=FIVE)
    for day, part in rows.group_by(pl.col("ts").dt.date()):
        prefix = "a/" if kind == "sensor" else ""
        put(folder.store(), f"{prefix}date={day[0]}/x.parquet", part.drop("sensor") if prefix else part)
    reading = History(folder.url, layout).read("a", Window(utc[0], utc[-1] + FIVE))
    np.testing.assert_array_equal(reading.values[:, 0], values)
    assert reading.repaired == counted


def test_an_hour_that_did_not_exist_is_missing_and_counted(folder):
    ts = pl.datetime_range(
        datetime(2026, 3, 29, 1), datetime(2026, 3, 29, 5), FIVE, closed="left", eager=True
    )  # a logger that went through the hour that Rome skipped
    put(folder.store(), "a/x.parquet", pl.DataFrame({"ts": ts, "value": np.arange(len(ts)) % 5.0}))
    window = Window(datetime(2026, 3, 29), datetime(2026, 3, 29, 3))
    reading = History(folder.url, HistoryLayout(timezone="Europe/Rome")).read("a", window, FIVE)
    assert reading.repaired == {"skipped_hour": 12} and reading.rows == 36


def test_stamps_with_a_zone_of_their_own_are_not_moved(folder):
    rows = frame().with_columns(pl.col("ts").dt.replace_time_zone("Asia/Tokyo")).drop("sensor")
    put(folder.store(), "a/x.parquet", rows)
    reading = History(folder.url, HistoryLayout(timezone="Europe/Rome")).read("a", TODAY, FIVE)
    assert reading.newest == datetime(2026, 1, 1, 14, 55, tzinfo=UTC)


def test_a_night_and_a_backfill_agree_over_a_change_of_the_clock(folder):
    ts, utc = local_rows(datetime(2026, 10, 24, tzinfo=UTC), 48)
    put(folder.store(), "a/x.parquet", pl.DataFrame({"ts": ts, "value": np.arange(len(ts)) % 11.0}))
    history = History(folder.url, HistoryLayout(timezone="Europe/Rome", interval=FIVE))
    whole = history.read("a", Window(utc[0], utc[-1] + FIVE))
    for hour in range(0, 48, 3):
        part = Window(utc[0] + timedelta(hours=hour), utc[0] + timedelta(hours=hour + 3))
        assert history.read("a", part).digest == whole.cut(part).digest


@settings(max_examples=60, deadline=None)
@given(
    first=st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
    zone=st.sampled_from(
        ["Europe/Rome", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "UTC"]
    ),
    minutes=st.sampled_from([1, 5, 10, 15, 30]),
)
def test_an_ordered_log_in_local_time_is_read_back_exactly(first, zone, minutes):
    """Any zone, any change of the clock; half-hour changes (Lord Howe) too where rows are dense enough."""
    local, utc = local_rows(
        first.replace(tzinfo=UTC, second=0, microsecond=0), 8, zone, timedelta(minutes=minutes)
    )
    found, missing, _ = local_to_utc(local.dt.timestamp("us").to_numpy(), zone)
    assert not missing.any()
    assert found.tolist() == [int(t.timestamp()) * 1_000_000 for t in utc]


def test_a_zone_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match=r"history\.timezone"):
        HistoryLayout(timezone="Rome")


# -- repeated stamps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["{sensor}", "{sensor}/{date}.parquet"])
def test_of_a_repeated_stamp_the_newest_object_wins_whatever_its_name(folder, path):
    day = frame(value=np.full(288, 1.0)).drop("sensor")
    keys = ["a/2026-01-01.parquet", "a/2026-01-02.parquet"]  # the second repeats the first day
    put(folder.store(), keys[0], day)
    put(folder.store(), keys[1], day.with_columns(value=pl.lit(2.0)))
    layout = HistoryLayout(path=path, slack=timedelta(days=1), interval=FIVE)
    for ages, wins in (((100, 200), 2.0), ((200, 100), 1.0), ((100, 100), 2.0)):
        for key, age in zip(keys, ages, strict=True):
            os.utime(os.path.join(folder.url, key), (1_700_000_000 + age,) * 2)
        reading = History(folder.url, layout).read("a", TODAY)
        assert set(reading.values[:, 0]) == {wins} and reading.repaired["repeated"] == 288


def test_in_one_object_the_last_row_wins(folder):
    day = frame(value=np.full(288, 1.0)).drop("sensor")
    put(folder.store(), "a/x.parquet", pl.concat([day, day.with_columns(value=pl.lit(3.0))]))
    assert set(History(folder.url).read("a", TODAY, FIVE).values[:, 0]) == {3.0}


# -- quality and text ----------------------------------------------------------------------------------------

WORDS = np.where(np.arange(288) % 10 == 3, "BAD", "Good")


@pytest.mark.parametrize(
    "quality, good",
    [
        (WORDS, ("good",)),
        (np.where(WORDS == "BAD", 0, 192), ("192",)),
        (np.where(WORDS == "BAD", 24, 216), ("192-255",)),
        (pl.Series(WORDS).cast(pl.Categorical), ("GOOD", "ok")),
        (np.where(WORDS == "BAD", None, "good"), ("good",)),
    ],
)
@pytest.mark.parametrize("kind", ["sensor", "long"])
def test_a_bad_value_is_missing_and_counted_and_never_a_failed_sensor(folder, kind, quality, good):
    rows = frame(value=np.arange(288) % 6.0).with_columns(q=pl.Series(list(quality)))
    key = "a/x.parquet" if kind == "sensor" else "date=2026-01-01/x.parquet"
    put(folder.store(), key, rows.drop("sensor") if kind == "sensor" else rows)
    layout = HistoryLayout(kind=kind, quality="q", good=good)
    reading = History(folder.url, layout).read("a", TODAY)
    assert reading.channels == ["value"] and reading.repaired["bad_quality"] == 29
    np.testing.assert_array_equal(np.isnan(reading.values[:, 0]), WORDS == "BAD")


def test_each_column_may_have_a_quality_of_its_own(folder):
    rows = frame(p=np.arange(288) % 6.0, t=np.arange(288) % 5.0).with_columns(p_q=pl.Series(WORDS))
    put(folder.store(), "a/x.parquet", rows.drop("sensor"))
    reading = History(folder.url, HistoryLayout(quality="{column}_q")).read("a", TODAY)
    assert reading.channels == ["p", "t"] and np.isnan(reading.values).sum(axis=0).tolist() == [29, 0]


def test_a_quality_column_that_is_missing_is_named(folder):
    put(folder.store(), "a/x.parquet", frame().drop("sensor"))
    with pytest.raises(HistoryError, match=r"no column 'q'.*history\.quality"):
        History(folder.url, HistoryLayout(quality="q")).read("a", TODAY)


@pytest.mark.parametrize("kind", ["sensor", "long"])
def test_numbers_in_a_text_column_that_is_named_are_read(folder, kind):
    texts = ["1.5", " -2 ", "3,25", "1e3", "warm", "", None, "NaN"] * 36
    rows = frame().with_columns(value=pl.Series(texts))
    key = "a/x.parquet" if kind == "sensor" else "date=2026-01-01/x.parquet"
    put(folder.store(), key, rows.drop("sensor") if kind == "sensor" else rows)
    layout = HistoryLayout(kind=kind, values={"value": "value"})
    reading = History(folder.url, layout).read("a", TODAY)
    np.testing.assert_array_equal(reading.values[:8, 0], [1.5, -2, 3.25, 1000, *[np.nan] * 4])
    assert reading.repaired["no_number"] == 36


# -- counters ------------------------------------------------------------------------------------------------


def counted(rows=288):
    wave = np.sin(np.arange(rows) / 9)
    return frame(rows=rows, seq=np.arange(rows), value=wave, step_up=(np.arange(rows) > 99) * 1.0)


def test_a_column_that_only_rises_is_left_out_with_a_note(folder):
    put(folder.store(), "a/x.parquet", counted().drop("sensor"))
    reading = History(folder.url).read("a", TODAY)
    assert reading.channels == ["step_up", "value"] and reading.left_out == ["seq"]
    assert "left out seq: it only rises; history.channels" in reading.note


def test_a_counter_that_is_named_stays(folder):
    put(folder.store(), "a/x.parquet", counted().drop("sensor"))
    layout = HistoryLayout(values={"seq": "seq", "value": "value"})
    assert History(folder.url, layout).read("a", TODAY).channels == ["seq", "value"]


def test_a_sensor_that_is_a_counter_keeps_its_only_channel(folder):
    put(folder.store(), "a/x.parquet", frame(value=np.arange(288.0)).drop("sensor"))
    assert History(folder.url).read("a", TODAY).channels == ["value"]


def test_the_channels_of_a_model_are_read_whatever_a_short_window_shows(folder):
    put(folder.store(), "a/x.parquet", counted().drop("sensor"))
    short = Window(TODAY.start, TODAY.start + timedelta(hours=1))
    history = History(folder.url)
    assert history.read("a", short).channels == ["seq", "step_up", "value"]  # too few rows to judge
    assert history.read("a", short, channels=["step_up", "value"]).channels == ["step_up", "value"]
    assert history.read("a", TODAY, channels=["seq", "value"]).channels == ["seq", "value"]
    # a model's channel that is gone: the present ones, for the caller to say so
    assert history.read("a", TODAY, channels=["gone"]).channels == ["seq", "step_up", "value"]


def test_only_what_never_falls_and_rises_mostly_is_a_counter():
    n = np.arange(100.0)
    values = np.stack(
        [n, -n, n % 50, n > 50, n * 0, np.cumsum(n % 3 > 0), np.where(n % 7, n, np.nan)], axis=1
    )
    assert only_rise(values).tolist() == [True, False, False, False, False, True, True]
    assert not only_rise(values[:20]).any()


# -- what a reading says of the sensor -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sensor", "long"])
def test_a_reading_tells_the_newest_stamp_and_the_interval_it_saw(folder, kind):
    first = frame("a", rows=144)
    slower = frame("a", rows=30, start=datetime(2026, 1, 1, 12), step=timedelta(minutes=10))
    layout = HistoryLayout(kind=kind)
    write_history(
        folder.url, pl.concat([first, slower]).with_columns(pl.col("ts").dt.replace_time_zone("UTC")), layout
    )
    history = History(folder.url, layout)
    reading = history.read("a", TODAY, FIVE)
    assert reading.interval == FIVE and reading.newest == datetime(2026, 1, 1, 16, 50, tzinfo=UTC)
    assert history.read("a", Window(datetime(2026, 1, 1, 13), TODAY.end), FIVE).seen_interval == 2 * FIVE
    silent = history.read("a", Window.day(date(2026, 1, 3)), FIVE)
    assert silent.newest is None and silent.rows == 0
    assert history.newest() == reading.newest and history.newest("a") == reading.newest


# -- sensors that are otherwise ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sensor", "long"])
def test_channels_and_interval_may_differ_by_sensor(folder, kind):
    own = {"b": SensorColumns({"q": "flow"}, timedelta(minutes=10))}
    rows = pl.concat([frame(s, p=np.arange(288) % 5.0, q=np.arange(288) % 7.0) for s in "ab"])
    layout = HistoryLayout(kind=kind, values={"p": "pressure"}, interval=FIVE)
    write_history(folder.url, rows.rename({"p": "pressure"}), layout)
    history = History(folder.url, layout, per_sensor=lambda s: own.get(s, SensorColumns()))
    found = history.read_many("ab", TODAY)
    assert found["a"].channels == ["pressure"] and found["a"].interval == FIVE
    assert found["b"].channels == ["flow"] and found["b"].interval == 2 * FIVE
    np.testing.assert_array_equal(found["b"].values[:, 0], (np.arange(288) % 7.0)[::2])


def test_every_count_is_explained_in_the_page_about_data():
    import inspect
    import re
    from pathlib import Path

    from storage.history import grid, rows

    page = (Path(__file__).resolve().parents[2] / "docs" / "your-data.md").read_text(encoding="utf-8")
    counted = set(re.findall(r'^        "([a-z_]+)": int\(', inspect.getsource(grid), re.MULTILINE))
    source = inspect.getsource(rows)
    for form in (r'"([a-z_]+)": counted\(', r'counts\["([a-z_]+)"\] =', r'"([a-z_]+)": (?:wrong|bad)\b'):
        counted |= set(re.findall(form, source))
    assert {"holes", "bad_time", "repeated_hour"} <= counted
    assert sorted(name for name in counted - {"rows"} if f"`{name}`" not in page) == []

"""Long tables are read once for all tasks of a night, and every task gets what it would have read itself."""

import os
import zlib
from datetime import date, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from paano.errors import HistoryError
from storage.history.reader import History, HistoryLayout, Reading, write_history
from storage.history.scatter import Piece, remove_pieces
from storage.objects.store import open_store
from storage.window import Window

LONG = HistoryLayout(kind="long")
WINDOW = Window.day(date(2026, 1, 2)).widen(before=timedelta(hours=12))


def table(sensors, days, per_day):
    step = timedelta(days=1) / per_day
    ts = pl.datetime_range(
        datetime(2026, 1, 1), datetime(2026, 1, 1) + timedelta(days=days), step, closed="left", eager=True,
        time_zone="UTC",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "sensor": np.repeat(np.array(sensors, dtype=object), len(ts)),
            "ts": pl.concat([ts] * len(sensors)),
            "value": rng.normal(size=len(ts) * len(sensors)).round(3),
        },
        schema_overrides={"sensor": pl.String},
    )


def batches_of(sensors, count):
    """By a hash of the id, as shards are: neighbours in the table are in different batches."""
    return [[s for s in sensors if zlib.crc32(s.encode()) % count == n] for n in range(count)]


def counting(history):
    """Bytes that `history` gets from its store, by key."""
    got, get = {}, history.store.get
    real_open = history.store.open

    def counted(key):
        data = get(key)
        got.setdefault(key, []).append(len(data))
        return data

    class Counted:
        def __init__(self, key):
            self.key, self.file = key, real_open(key)

        def read(self, *size):
            data = self.file.read(*size)
            got.setdefault(self.key, []).append(len(data))
            return data

        def __getattr__(self, name):
            return getattr(self.file, name)

    history.store.get, history.store.open = counted, Counted
    return got


def bytes_ratio(history, got, window):
    there = {info.key: info.size for info in history.store.list("")}
    inside = [found.key for found in history.layout.objects(history.store, None, window)]
    return sum(sum(sizes) for sizes in got.values()) / sum(there[key] for key in inside)


def check_night(place, sensors, count, per_day, layout=LONG):
    """One night of `sensors` in `count` batches: every reading as without pieces; the ratio of bytes."""
    history = History(place.at("h"), layout, place.options)
    got = counting(history)
    batches = batches_of(sensors, count)
    pieces = history.scatter(WINDOW, batches, place.at("pieces"))
    readings = {}
    for batch, piece in zip(batches, pieces, strict=True):
        carried = Piece.from_dict(piece.to_dict())
        readings |= history.with_piece(carried).read_many(batch, WINDOW)
    ratio = bytes_ratio(history, got, WINDOW)
    alone = History(place.at("h"), layout, place.options).read_many(sensors, WINDOW)
    assert set(readings) == set(sensors)
    for sensor, reading in readings.items():
        assert isinstance(reading, Reading), reading
        assert reading.digest == alone[sensor].digest
        assert (reading.repaired, reading.newest) == (alone[sensor].repaired, alone[sensor].newest)
    remove_pieces(open_store(place.at("pieces"), place.options))
    assert not list(open_store(place.at("pieces"), place.options).list(""))
    return ratio


@pytest.mark.parametrize("path", ["date={date}", "t/{date}.parquet"])
def test_a_night_in_many_batches_reads_every_object_once(place, path):
    sensors, layout = [f"s{n:03d}" for n in range(60)], HistoryLayout(kind="long", path=path)
    write_history(place.at("h"), table(sensors, 4, 24), layout, place.options)
    assert check_night(place, sensors, 20, 24, layout) <= 1.0


def test_large_objects_are_read_in_parts_and_once(folder, monkeypatch):
    monkeypatch.setattr("storage.history.rows.WHOLE", 100_000)
    monkeypatch.setattr("storage.history.bounded.AT_ONCE", 1_000_000)
    sensors = [f"s{n:03d}" for n in range(200)]
    write_history(folder.at("h"), table(sensors, 3, 1440), LONG)
    assert check_night(folder, sensors, 10, 1440) <= 1.2


def test_a_large_object_on_s3_is_fetched_in_exact_ranges(bucket, monkeypatch):
    """No read-ahead: what the reader asks for is what travels."""
    import s3fs

    monkeypatch.setattr("storage.history.rows.WHOLE", 100_000)
    fetched, fetch = [], s3fs.core.S3File._fetch_range

    def counted(file, start, end):
        data = fetch(file, start, end)
        fetched.append(len(data))
        return data

    monkeypatch.setattr(s3fs.core.S3File, "_fetch_range", counted)
    sensors = [f"s{n:03d}" for n in range(200)]
    write_history(bucket.at("h"), table(sensors, 3, 1440), LONG, bucket.options)
    history = History(bucket.at("h"), LONG, bucket.options)
    history.scatter(WINDOW, batches_of(sensors, 5), bucket.at("pieces"))
    there = {info.key: info.size for info in history.store.list("")}
    inside = [found.key for found in LONG.objects(history.store, None, WINDOW)]
    assert 0 < sum(fetched) <= 1.2 * sum(there[key] for key in inside)


@pytest.mark.slow
def test_5000_sensors_in_50_batches_read_at_most_a_fifth_more_than_there_is(folder):
    sensors = [f"plant-{n % 7}/pump-{n:05d}" for n in range(5000)]
    write_history(folder.at("h"), table(sensors, 4, 288), LONG)
    assert check_night(folder, sensors, 50, 288) <= 1.2


def test_a_window_beyond_the_piece_is_read_from_the_history(folder):
    write_history(folder.at("h"), table(["a", "b"], 4, 24), LONG)
    history = History(folder.at("h"), LONG)
    (piece,) = history.scatter(WINDOW, [["a"]], folder.at("pieces"))
    wide = Window.day(date(2026, 1, 1), 4)
    with_piece = history.with_piece(piece)
    assert with_piece.read("a", wide).digest == history.read("a", wide).digest
    assert with_piece.read("b", WINDOW).digest == history.read("b", WINDOW).digest
    daily = timedelta(days=1)  # rows at the edges of a long interval may not be in the piece
    assert with_piece.read("a", WINDOW, daily).digest == history.read("a", WINDOW, daily).digest


def test_the_newest_object_wins_in_a_piece_too(folder):
    day = table(["a"], 2, 24)
    write_history(folder.at("h"), day, LONG)
    store = open_store(folder.at("h"))
    newer = day.filter(pl.col("ts").dt.date() == date(2026, 1, 2)).with_columns(value=pl.lit(7.0))
    path = os.path.join(store.url, "date=2026-01-02", "a-first-by-name.parquet")
    newer.write_parquet(path)
    os.utime(os.path.join(store.url, "date=2026-01-02", "part-0000.parquet"), (1_700_000_000,) * 2)
    history = History(folder.at("h"), LONG)
    (piece,) = history.scatter(WINDOW, [["a"]], folder.at("pieces"))
    for one in (history, history.with_piece(piece)):
        assert set(one.read("a", Window.day(date(2026, 1, 2))).values[:, 0]) == {7.0}


def test_a_silent_sensor_of_a_batch_is_known_and_empty(folder):
    write_history(folder.at("h"), table(["a"], 2, 24), LONG)
    history = History(folder.at("h"), LONG)
    (piece,) = history.scatter(WINDOW, [["a", "silent"]], folder.at("pieces"))
    found = history.with_piece(piece).read_many(["a", "silent"], WINDOW, {"silent": timedelta(hours=1)})
    assert found["a"].rows == 36 and found["silent"].rows == 0 and found["silent"].channels == ["value"]


def test_a_damaged_object_is_named(folder):
    keys = write_history(folder.at("h"), table(["a"], 3, 24), LONG)
    open_store(folder.at("h")).put(keys[1], b"PAR1 no more")
    with pytest.raises(HistoryError, match=keys[1]):
        History(folder.at("h"), LONG).scatter(WINDOW, [["a"]], folder.at("pieces"))


def test_a_prefix_per_sensor_is_not_scattered(folder):
    with pytest.raises(HistoryError, match=r"history\.layout"):
        History(folder.url).scatter(WINDOW, [["a"]], folder.at("pieces"))

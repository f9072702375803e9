"""Hostile and damaged history among healthy sensors: each is refused by name, the others are read as ever."""

import dataclasses
import io
import os
import resource
import subprocess
import sys
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paano.errors import PaanoError
from storage import footer
from storage.history.reader import History, HistoryLayout, Reading
from storage.window import Window

DAY = Window.day(date(2026, 1, 1))
ROWS = 288
FIVE = timedelta(minutes=5)
STAMPS = np.datetime64("2026-01-01", "us") + np.arange(ROWS) * np.timedelta64(5, "m")
VALUES = np.sin(np.arange(ROWS) / 9)


def parquet(columns, **options):
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


def stamps(numbers, unit):
    return pa.array(np.asarray(numbers, np.int64), pa.timestamp(unit))


def timed(numbers, unit):
    return parquet({"ts": stamps(numbers, unit), "value": VALUES})


SECONDS = STAMPS.astype("datetime64[s]").astype(np.int64)


def nested(depth, **options):
    kind = pa.int32()
    for _ in range(depth):
        kind = pa.struct([("x", kind)])
    return parquet({"ts": STAMPS[:1], "deep": pa.nulls(1, kind)}, **options)


def many_rows():
    """A few hundred kilobytes that hold 200 million rows."""
    part = pa.table({"ts": stamps(np.full(20_000_000, SECONDS[0]), "s"), "value": np.zeros(20_000_000)})
    out = io.BytesIO()
    with pq.ParquetWriter(out, part.schema, compression="zstd") as writer:
        for _ in range(2):
            writer.write_table(part, row_group_size=20_000_000)
    return out.getvalue()


def fast_and_wide():
    times = np.datetime64("2026-01-01", "us") + np.arange(200) * np.timedelta64(50, "ms")
    rng = np.random.default_rng(0)
    return parquet({"ts": times, **{f"c{n}": rng.normal(size=200) for n in range(100)}})


def many_columns(count):
    return parquet({"ts": STAMPS[:1], **{f"c{n}": [1.0] for n in range(count)}})


def decimals():
    return parquet({"ts": STAMPS, "value": pa.array([1] * ROWS, pa.decimal256(76, 0))})


def long_text():
    """One text of a megabyte at every row: 288 MB if it were written out, 1 MB as a dictionary."""
    return parquet({"ts": STAMPS, "value": VALUES, "note": pa.array(["x" * 2**20] * ROWS)})


def cut(data, share):
    return data[: int(len(data) * share)]


def flipped(data, at):
    broken = bytearray(data)
    broken[at] ^= 0xFF
    return bytes(broken)


HEALTHY = parquet({"ts": STAMPS, "value": VALUES})

# name: (bytes of the object, words of the error; empty: it is read, perhaps as all missing)
HOSTILE = {
    "milliseconds-as-seconds": (lambda: timed(SECONDS * 1000, "s"), "outside the years"),
    "microseconds-as-milliseconds": (lambda: timed(SECONDS * 10**6, "ms"), "outside the years"),
    "nanoseconds-as-milliseconds": (lambda: timed(SECONDS * 10**9, "ms"), "outside the years"),
    "before-the-year-1": (lambda: timed(SECONDS - 10**11, "s"), "outside the years"),
    "largest-stamp": (lambda: timed([2**63 - 1] * ROWS, "us"), "outside the years"),
    "smallest-stamp": (lambda: timed([-(2**63)] * ROWS, "us"), "outside the years"),
    "one-bad-stamp": (lambda: timed([*SECONDS[1:] * 1000, 2**62], "ms"), ""),
    "far-future": (lambda: parquet({"ts": STAMPS + np.timedelta64(200 * 365, "D"), "value": VALUES}), ""),
    "fast-and-wide": (fast_and_wide, "history.largest_mb"),
    "many-rows": (many_rows, "history.largest_mb"),
    "many-columns": (lambda: many_columns(5_000), "5,001 columns"),
    "nested-deep": (lambda: nested(90), "nested"),
    "nested-in-structs": (lambda: nested(3), "no column of numbers"),
    "a-list-as-value": (lambda: parquet({"ts": STAMPS, "value": [[1.0]] * ROWS}), "no column of numbers"),
    "long-text": (long_text, ""),
    "footer-of-4-gigabytes": (lambda: HEALTHY[:-8] + b"\xff\xff\xff\xff" + b"PAR1", "damaged"),
    "footer-of-nothing": (lambda: HEALTHY[:-8] + b"\x00\x00\x00\x00" + b"PAR1", "damaged"),
    "no-bytes": (lambda: b"", "damaged"),
    "text": (lambda: b"ts,value\n2026-01-01,1\n", "damaged"),
    "only-the-marks": (lambda: b"PAR1PAR1", "damaged"),
    "cut-in-half": (lambda: cut(HEALTHY, 0.5), "damaged"),
    "cut-near-the-end": (lambda: cut(HEALTHY, 0.98), "damaged"),
    "flipped-footer": (lambda: flipped(HEALTHY, -20), None),
    "flipped-data": (lambda: flipped(HEALTHY, 40), None),
    "no-time": (lambda: parquet({"value": VALUES}), "no column 'ts'"),
    "time-as-text": (lambda: parquet({"ts": STAMPS.astype(str), "value": VALUES}), "not timestamps"),
    "time-as-number": (lambda: parquet({"ts": SECONDS, "value": VALUES}), "not timestamps"),
    "time-twice": (lambda: parquet_twice(), "several columns 'ts'"),
    "only-null-stamps": (lambda: parquet({"ts": pa.nulls(ROWS, pa.timestamp("us")), "value": VALUES}), ""),
    "no-rows": (lambda: parquet({"ts": STAMPS[:0], "value": VALUES[:0]}), ""),
    "only-text": (lambda: parquet({"ts": STAMPS, "value": ["warm"] * ROWS}), "no column of numbers"),
    "infinite": (lambda: parquet({"ts": STAMPS, "value": np.full(ROWS, np.inf)}), ""),
    "huge-decimals": (decimals, ""),
    "no-statistics": (lambda: parquet({"ts": STAMPS, "value": VALUES}, write_statistics=False), ""),
    "a-name-of-a-megabyte": (lambda: parquet({"ts": STAMPS, "v" * 2**20: VALUES}), ""),
}  # fmt: skip


def parquet_twice():
    out = io.BytesIO()
    pq.write_table(
        pa.Table.from_arrays([pa.array(STAMPS)] * 2 + [pa.array(VALUES)], ["ts", "ts", "value"]), out
    )
    return out.getvalue()


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """A folder of healthy sensors with a hostile one of each kind among them, read at once."""
    root = tmp_path_factory.mktemp("hostile")
    for n in range(10):
        (root / f"healthy-{n}").mkdir()
        (root / f"healthy-{n}" / "x.parquet").write_bytes(HEALTHY)
    for name, (made, _) in HOSTILE.items():
        (root / name).mkdir()
        (root / name / "x.parquet").write_bytes(made())
    (root / "fifo").mkdir()
    os.mkfifo(root / "fifo" / "x.parquet")
    (root / "device").mkdir()
    (root / "device" / "x.parquet").symlink_to("/dev/zero")
    (root / "folder" / "x.parquet").mkdir(parents=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    history = History(str(root), HistoryLayout(largest=256 * 2**20))
    found = history.read_many(history.sensors().sensors, DAY.widen(before=timedelta(days=1)), workers=2)
    return found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def test_the_healthy_sensors_are_read_as_if_alone(readings):
    found, _ = readings
    for n in range(10):
        reading = found[f"healthy-{n}"]
        assert isinstance(reading, Reading), reading
        np.testing.assert_array_equal(reading.values[ROWS:, 0], VALUES)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_object_is_its_own_sensors_outcome(readings, name):
    found, words = readings[0][name], HOSTILE[name][1]
    if words:
        assert isinstance(found, PaanoError) and words in str(found), found
        assert str(found).startswith(f"{name}: ")
    elif isinstance(found, PaanoError):  # too few rows for an interval, or a flipped bit that was noticed
        assert name in str(found)


@pytest.mark.parametrize("name", ["fifo", "device"])
def test_what_is_no_regular_file_is_refused_and_nothing_waits(readings, name):
    assert "not a regular file" in str(readings[0][name])


def test_a_bad_stamp_among_good_ones_is_counted(readings):
    reading = readings[0]["one-bad-stamp"]
    assert isinstance(reading, Reading) and reading.repaired["bad_time"] == 1 and reading.rows == ROWS - 1


def test_a_text_that_repeats_is_held_once(readings):
    assert readings[0]["long-text"].rows == ROWS


SENSORS = [f"s{n:02d}" for n in range(8)]
LONG_POISONS = {
    "milliseconds as seconds": lambda t: t * 1000,
    "microseconds as seconds": lambda t: t * 10**6,
    "before the year 1": lambda t: t - 10**11,
}


@pytest.mark.parametrize("spoil", LONG_POISONS.values(), ids=LONG_POISONS)
def test_impossible_stamps_in_a_long_table_are_one_sensors_outcome(folder, spoil):
    """The statistics of the whole table lie outside the years 1 to 9999; seven of eight sensors are fine."""
    times = np.concatenate([spoil(SECONDS) if name == "s03" else SECONDS for name in SENSORS])
    table = {
        "sensor": np.repeat(SENSORS, ROWS),
        "ts": stamps(times, "s"),
        "value": np.tile(VALUES, len(SENSORS)),
    }
    folder.store().put("date=2026-01-01/x.parquet", parquet(table))
    found = History(folder.url, HistoryLayout(kind="long")).read_many(SENSORS, DAY)
    assert "outside the years 1 to 9999" in str(found["s03"]) and isinstance(found["s03"], PaanoError)
    for name in set(SENSORS) - {"s03"}:
        np.testing.assert_array_equal(found[name].values[:, 0], VALUES)


def test_a_sensor_column_of_bytes_is_read_as_text(folder):
    table = {"sensor": pa.array([b"pump-1"] * ROWS), "ts": STAMPS, "value": VALUES}
    folder.store().put("date=2026-01-01/x.parquet", parquet(table))
    history = History(folder.url, HistoryLayout(kind="long"))
    assert history.sensors().sensors == ["pump-1"]
    assert history.read("pump-1", DAY).rows == ROWS


@pytest.mark.parametrize(
    "ids, what",
    [
        (pa.array([b"\xff\xfe"] * ROWS), "no UTF-8 text"),
        (pa.array(np.full(ROWS, 1.5)), "holds double, not texts"),
        (pa.array([{"id": 1}] * ROWS), "not texts"),
    ],
)
def test_a_sensor_column_that_names_nobody_is_refused(folder, ids, what):
    folder.store().put("date=2026-01-01/x.parquet", parquet({"sensor": ids, "ts": STAMPS, "value": VALUES}))
    with pytest.raises(PaanoError, match=what):
        History(folder.url, HistoryLayout(kind="long")).sensors()


def test_whole_numbers_are_ids_as_they_are_written(folder):
    folder.store().put(
        "date=2026-01-01/x.parquet", parquet({"sensor": np.full(ROWS, 17), "ts": STAMPS, "value": VALUES})
    )
    history = History(folder.url, HistoryLayout(kind="long"))
    assert history.sensors().sensors == ["17"] and history.read("17", DAY).rows == ROWS


def test_bounds_that_contradict_themselves_hide_no_rows():
    (group,) = footer.row_groups(HEALTHY)
    kind = pq.read_schema(io.BytesIO(HEALTHY)).field("ts").type
    real = group.columns["ts"]
    assert group.bounds("ts", kind) is not None
    wrong = dataclasses.replace(real, low=real.high, high=real.low)
    assert dataclasses.replace(group, columns={"ts": wrong}).bounds("ts", kind) is None


LIMITED = """
import resource, sys, datetime as dt
sys.path[:0] = {path!r}
from storage.history.reader import History, HistoryLayout
from storage.window import Window
import pyarrow, polars, numpy
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
history = History({url!r}, HistoryLayout(largest=128 * 2**20))
found = history.read_many(history.sensors().sensors, Window.day(dt.date(2026, 1, 1), 28), workers=1)
assert all(isinstance(one, Exception) for one in found.values()), found
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used)
"""


def test_memory_stays_small_while_bombs_are_refused(tmp_path):
    """In a process of its own, so that the peak is its own."""
    for name in ("many-rows", "fast-and-wide", "many-columns", "nested-deep", "footer-of-4-gigabytes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.parquet").write_bytes(HOSTILE[name][0]())
    root = str(Path(__file__).resolve().parents[2])
    code = LIMITED.format(path=[root], url=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 50 * 1024, "kilobytes of resident memory above the start"


def test_100_000_columns_are_refused_by_the_length_of_the_footer():
    from storage.history.bounded import LARGEST_FOOTER, BoundedFile, TooLarge

    footer = LARGEST_FOOTER + 1
    with pytest.raises(TooLarge, match="footer"):
        BoundedFile(b"PAR1" + b"\0" * footer + footer.to_bytes(4, "little") + b"PAR1")


def test_a_naive_frame_of_polars_is_healthy_too(folder):
    frame = pl.DataFrame({"ts": [datetime(2026, 1, 1) + n * FIVE for n in range(ROWS)], "value": VALUES})
    out = io.BytesIO()
    frame.write_parquet(out)
    folder.store().put("a/x.parquet", out.getvalue())
    assert History(folder.url).read("a", DAY).rows == ROWS

"""Footers read by hand say what pyarrow says of healthy files, and a damaged one is an error."""

from __future__ import annotations

import io
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from storage import footer

START = datetime(2026, 1, 1, tzinfo=UTC)


def table_of(rows: int, unit: str, zone: str | None) -> pa.Table:
    times = [START + timedelta(minutes=5 * n) for n in range(rows)]
    return pa.table(
        {
            "ts": pa.array([t if zone else t.replace(tzinfo=None) for t in times], pa.timestamp(unit, zone)),
            "sensor": pa.array([f"pump-{n % 7}é" for n in range(rows)]),
            "value": pa.array([None if n % 5 == 0 else n / 3 for n in range(rows)]),
            "tags": pa.array([["a"] * (n % 3) for n in range(rows)]),
            "good": pa.array([n % 2 == 0 for n in range(rows)]),
            "place": pa.array([{"x": n, "y": None} for n in range(rows)]),
        }
    )


def written(table: pa.Table, **options: object) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 300),
    unit=st.sampled_from(["ms", "us", "ns"]),
    zone=st.sampled_from([None, "UTC", "Europe/Rome"]),
    per_group=st.integers(1, 200),
    statistics=st.booleans(),
    compression=st.sampled_from(["zstd", "none", "snappy"]),
)
def test_a_healthy_footer_says_what_pyarrow_says(rows, unit, zone, per_group, statistics, compression):
    data = written(
        table_of(rows, unit, zone),
        row_group_size=per_group,
        write_statistics=statistics,
        compression=compression,
    )
    known, schema = pq.read_metadata(io.BytesIO(data)), pq.read_schema(io.BytesIO(data))
    found = footer.row_groups(data)
    assert len(found) == known.num_row_groups
    for number, group in enumerate(found):
        twin = known.row_group(number)
        assert (group.rows, group.size) == (twin.num_rows, twin.total_byte_size)
        columns = [twin.column(n) for n in range(twin.num_columns)]
        assert {c.path_in_schema: c.total_uncompressed_size for c in columns} == {
            path: column.size for path, column in group.columns.items()
        }
        for column in columns[:2]:  # the time and the sensor
            name, said = column.path_in_schema, column.statistics
            bounds = group.bounds(name, schema.field(name).type)
            assert bounds == ((said.min, said.max) if said is not None and said.has_min_max else None)


def test_nobody_asks_for_the_bounds_of_other_columns():
    data = written(table_of(20, "us", "UTC"))
    (group,) = footer.row_groups(data)
    assert group.bounds("value", pa.float64()) is None and group.bounds("nothing", pa.string()) is None


@settings(max_examples=2000, deadline=None)
@given(edits=st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 255)), min_size=1, max_size=5))
def test_a_damaged_footer_is_an_error_or_a_footer(edits):
    data = bytearray(HEALTHY)
    for place, byte in edits:
        data[-1 - place % len(data)] = byte
    try:
        for group in footer.row_groups(bytes(data)):
            group.bounds("ts", pa.timestamp("us", "UTC"))
    except footer.DamagedFooter as error:
        assert str(error)


HEALTHY = written(table_of(50, "us", "UTC"), row_group_size=20)


def test_structs_without_end_are_refused():
    body = bytes([0x4C]) * 100_000
    with pytest.raises(footer.DamagedFooter):
        footer.row_groups(body + len(body).to_bytes(4, "little") + b"PAR1")


READ = """
import sys
from datetime import date
from storage.history.reader import History
from storage.window import Window
for found in History(sys.argv[1]).read_many(["bad"], Window.day(date(2026, 1, 1)), workers=1).values():
    print(type(found).__name__)
"""


def test_a_footer_at_which_pyarrow_ends_the_process_is_the_error_of_its_sensor(tmp_path):
    """A column is said to have a value in every row, and its histogram of levels knows rows without."""
    optional, required = b"\x25\x02\x18\x05value", b"\x25\x00\x18\x05value"
    assert HEALTHY.count(optional) == 1
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.parquet").write_bytes(HEALTHY.replace(optional, required))
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["HistoryError"]), done.stderr

"""Parquet in and out: the same rows give the same bytes; only the needed columns and row groups are read."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

ROW_GROUP = 65_536  # rows; a sensor's day is found by the statistics of a few of these


def arrow_schema(schema: Mapping[str, pl.DataType], required: Collection[str]) -> pa.Schema:
    """polars' columns as Arrow's, with the plain texts and lists that every reader knows."""

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_large_list(kind):
            return pa.list_(plain(kind.value_type))
        return pa.string() if pa.types.is_large_string(kind) else kind

    columns = pl.DataFrame(schema=schema).to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    return pa.schema([pa.field(c.name, plain(c.type), nullable=c.name not in required) for c in columns])


def encode(frame: pl.DataFrame, schema: pa.Schema, note: str | None = None) -> bytes:
    """`frame` as Parquet with every writer setting pinned: equal rows are equal bytes."""
    out = io.BytesIO()
    with pq.ParquetWriter(
        out,
        schema,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=3,
        use_dictionary=True,
        write_statistics=True,
        store_schema=False,
        coerce_timestamps="us",
    ) as writer:
        writer.write_table(frame.to_arrow().cast(schema), row_group_size=ROW_GROUP)
        if note is not None:
            writer.add_key_value_metadata({"paano": note})
    return out.getvalue()


def note(data: bytes) -> str:
    """What `encode` was given as `note`; empty if there is none or this is no Parquet."""
    try:
        kept: dict[bytes, bytes] = open_file(data).metadata.metadata or {}
        return kept.get(b"paano", b"").decode()
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return ""


def decode(
    source: bytes | BinaryIO,
    columns: Sequence[str] | None = None,
    wanted: Callable[[Bounds], bool] | None = None,
    renamed: Mapping[str, str] | None = None,
    later: Collection[str] = (),
) -> pl.DataFrame:
    """Rows of a Parquet file: only `columns`, and only the row groups that `wanted` says yes to.

    `renamed` gives the present name of columns that had another one in files of an older form, `later` are
    columns that such files may lack: then the rows come without them.
    """
    file = open_file(source)
    held = set(file.schema_arrow.names) if renamed or later else set()
    older = {old: new for old, new in (renamed or {}).items() if old in held and new not in held}
    if columns is not None:
        names = {new: old for old, new in older.items()}
        columns = [names.get(column, column) for column in columns if column in held or column not in later]
    return pl.DataFrame(pl.from_arrow(read_groups(file, columns, wanted))).rename(older, strict=False)


def open_file(source: bytes | BinaryIO) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(source) if isinstance(source, bytes) else source, pre_buffer=True)


def read_groups(
    file: pq.ParquetFile, columns: Sequence[str] | None, wanted: Callable[[Bounds], bool] | None
) -> pa.Table:
    """The row groups of `file` that `wanted` says yes to."""
    groups = list(range(file.metadata.num_row_groups))
    if wanted is not None:
        groups = [g for g in groups if wanted(Bounds(file.metadata.row_group(g)))]
    columns = None if columns is None else list(columns)
    # Threads here would fight with those that read other objects.
    return file.read_row_groups(groups, columns=columns, use_threads=False)


class Bounds:
    """Smallest and largest value of the columns of one row group, as far as its writer kept them."""

    def __init__(self, group: Any) -> None:
        self._columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}

    def __call__(self, column: str) -> tuple[Any, Any] | None:
        found = self._columns.get(column)
        statistics = found.statistics if found is not None and found.is_stats_set else None
        if statistics is None or not statistics.has_min_max:
            return None
        return statistics.min, statistics.max

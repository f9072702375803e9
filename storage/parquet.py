"""Parquet in and out: the same rows give the same bytes; only the needed columns and row groups are read."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from storage.footer import RowGroup, row_groups

Bounds = Callable[[str], "tuple[Any, Any] | None"]  # smallest and largest value of a column, if known
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
    data: bytes,
    columns: Sequence[str] | None = None,
    wanted: Callable[[Bounds], bool] | None = None,
    renamed: Mapping[str, str] | None = None,
    later: Collection[str] = (),
) -> pl.DataFrame:
    """Rows of a Parquet file: only `columns`, and only the row groups that `wanted` says yes to.

    `renamed` gives the present name of columns that had another one in files of an older form, `later` are
    columns that such files may lack: then the rows come without them.
    """
    file = open_file(data)
    held = set(file.schema_arrow.names) if renamed or later else set()
    older = {old: new for old, new in (renamed or {}).items() if old in held and new not in held}
    if columns is not None:
        names = {new: old for old, new in older.items()}
        columns = [names.get(column, column) for column in columns if column in held or column not in later]
    groups = list(range(file.metadata.num_row_groups))
    if wanted is not None and len(groups) > 1:
        groups = [n for n, group in enumerate(row_groups(data)) if wanted(_bounds(file, group))]
    # Threads here would fight with those that read other objects.
    table = file.read_row_groups(groups, columns=columns, use_threads=False)
    return pl.DataFrame(pl.from_arrow(table)).rename(older, strict=False)


def open_file(data: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(data), pre_buffer=True)


def _bounds(file: pq.ParquetFile, group: RowGroup) -> Bounds:
    """Smallest and largest value of the columns of one row group, as far as its writer kept them."""
    return lambda column: group.bounds(column, file.schema_arrow.field(column).type)

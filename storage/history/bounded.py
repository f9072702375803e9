"""A Parquet file opened with care: what it asks for is known and bounded before anything is allocated.

A few megabytes can hold a thousand million equal rows, a footer a hundred thousand columns: the footer's
length is read first, then its figures, and only then data, a few row groups at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from storage.footer import TAIL, RowGroup, footer_length, row_groups
from storage.parquet import Bounds

LARGEST_FOOTER = 16 * 2**20  # bytes
MOST_COLUMNS = 4096
MOST_LEVELS = 64  # of nesting
AT_ONCE = 64 * 2**20  # bytes of row groups that are decoded together


class TooLarge(ValueError):
    """The file asks for more than it may."""


class BoundedFile:
    """One Parquet file. Texts come as dictionaries, so that a long one that repeats is held once."""

    def __init__(self, source: bytes | BinaryIO) -> None:
        footer = footer_length(source)
        if footer > LARGEST_FOOTER:
            raise TooLarge(
                f"its footer has {footer:,} bytes and at most {LARGEST_FOOTER:,} are read; "
                "write fewer columns or larger row groups"
            )
        self._whole = isinstance(source, bytes)
        self._source = pa.BufferReader(source) if isinstance(source, bytes) else source
        # To fetch ahead what is at hand already would only keep other threads busy.
        self._file = pq.ParquetFile(self._source, pre_buffer=not self._whole)
        self.metadata = self._file.metadata
        if self.metadata.num_columns > MOST_COLUMNS:
            raise TooLarge(
                f"it has {self.metadata.num_columns:,} columns and at most {MOST_COLUMNS:,} are read"
            )
        leaves = [self.metadata.schema.column(n) for n in range(self.metadata.num_columns)]
        if any(leaf.path.count(".") > MOST_LEVELS for leaf in leaves):
            raise TooLarge(f"its columns are nested in more than {MOST_LEVELS} levels; write plain ones")
        texts = [
            leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and leaf.path == leaf.name
        ]
        if texts:
            self._file = pq.ParquetFile(
                self._source, metadata=self.metadata, read_dictionary=texts, pre_buffer=not self._whole
            )
        self.schema: pa.Schema = self._file.schema_arrow
        self._footer = footer

    def __enter__(self) -> BoundedFile:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close(force=True)

    def tables(
        self, columns: Collection[str], near: Callable[[Bounds], bool], largest: int
    ) -> Iterator[pa.Table]:
        """The row groups that `near` says yes to by their statistics, a few at a time.

        TooLarge if a single row group would take more than `largest` bytes.
        """
        pending: list[int] = []
        total = 0
        for number, group in enumerate(self._groups(columns, largest)):
            if not near(lambda column, group=group: self._bounds(group, column)):  # type: ignore[misc]  # mypy knows no type for a lambda's default
                continue
            size = decoded(group, columns)
            if size > largest:
                raise TooLarge(
                    f"a part of it has {group.rows:,} rows, {size / 2**20:,.0f} MiB when read, "
                    f"and {largest / 2**20:,.0f} are allowed; raise history.largest_mb or "
                    "write smaller row groups"
                )
            if pending and total + size > AT_ONCE:
                yield self._read(pending, columns)
                pending, total = [], 0
            pending.append(number)
            total += size
        if pending:
            yield self._read(pending, columns)

    def _read(self, groups: Sequence[int], columns: Collection[str]) -> pa.Table:
        # Threads here would fight with those that read other objects.
        return self._file.read_row_groups(list(groups), columns=list(columns), use_threads=False)

    def _groups(self, columns: Collection[str], largest: int) -> list[RowGroup]:
        """The row groups; where there is one, and it is here and small, nobody needs its columns."""
        if self._whole and self.metadata.num_row_groups == 1:
            only = self.metadata.row_group(0)
            group = RowGroup(only.num_rows, only.total_byte_size, {})
            if decoded(group, columns) <= largest:
                return [group]
        end = TAIL + self._footer
        self._source.seek(0, 2)
        self._source.seek(self._source.tell() - end)
        return row_groups(self._source.read(end))

    def _bounds(self, group: RowGroup, column: str) -> tuple[Any, Any] | None:
        """Smallest and largest value of a column, if its writer kept them and they make sense."""
        number = self.schema.get_field_index(column)
        return group.bounds(column, self.schema.field(number).type) if number >= 0 else None


def decoded(group: RowGroup, columns: Collection[str]) -> int:
    """Bytes that the columns of a row group take when they are read."""
    known = [group.columns[name].size for name in columns if name in group.columns]
    stored = sum(known) if group.columns else group.size
    return max(0, stored) + 8 * max(0, group.rows) * len(columns)

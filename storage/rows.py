"""Rows of one history object: the needed columns and row groups, checked, as plain arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paano.errors import HistoryError, ObjectMissing
from storage import parquet
from storage.faults import name_error
from storage.grid import micros
from storage.layout import HistoryLayout
from storage.objects import ObjectInfo, Store
from storage.window import Window

WHOLE = 8 * 2**20  # bytes: up to here one request for the whole object is cheaper than several for its parts


@dataclass(frozen=True)
class Rows:
    """Rows in the order of their files. `codes` says which of `names` a row of a long table belongs to."""

    stamps: np.ndarray  # int64 [n], microseconds since 1970
    values: np.ndarray  # float64 [n, C]
    channels: list[str]
    no_time: int
    objects: list[str]
    codes: np.ndarray | None = None
    names: Sequence[str] = ()

    def none(self) -> Rows:
        """The same channels without a row."""
        return Rows(self.stamps[:0], self.values[:0], self.channels, 0, self.objects)

    def by_sensor(self) -> Iterator[tuple[str, Rows]]:
        """The rows of each sensor, in file order."""
        order = np.argsort(self.codes, kind="stable")
        codes, stamps, values = self.codes[order], self.stamps[order], self.values[order]
        edges = np.flatnonzero(np.diff(codes)) + 1
        for low, high in zip([0, *edges], [*edges, len(codes)], strict=True):
            if low < high:
                name = self.names[codes[low]]
                yield name, Rows(stamps[low:high], values[low:high], self.channels, 0, self.objects)


def join(parts: Sequence[Rows], subject: str) -> Rows:
    """Several objects' rows as one; HistoryError if their channels differ."""
    channels = parts[0].channels
    for part in parts[1:]:
        if part.channels != channels:
            raise HistoryError(
                f"{subject}: the columns changed: {part.objects[0]} has {', '.join(part.channels)}, "
                f"{parts[0].objects[0]} has {', '.join(channels)}; name the common ones in history.values"
            )
    return Rows(
        np.concatenate([part.stamps for part in parts]),
        np.concatenate([part.values for part in parts]),
        channels,
        sum(part.no_time for part in parts),
        [key for part in parts for key in part.objects],
    )


class RowReader:
    """Reads objects of one layout."""

    def __init__(self, store: Store, layout: HistoryLayout) -> None:
        self.store = store
        self.layout = layout

    def read(
        self, key: str, size: int | None, window: Window, wanted: Sequence[str] | None, subject: str
    ) -> Rows | None:
        """Rows within `window`, in a long table of the sensors `wanted`; None if there is no object."""
        where = self.store.url_of(key)
        try:
            with self._open(key, size) as file:
                return self._rows(file, where, window, wanted, subject)
        except ObjectMissing:
            return None
        except (pa.ArrowException, OSError) as error:
            if getattr(error, "errno", None):
                raise name_error(error, where) from error
            raise HistoryError(f"{subject}: {where} is empty or damaged ({_short(error)})") from error

    def channels(self, info: ObjectInfo, subject: str) -> list[str]:
        """The channels of an object, by its footer."""
        where = self.store.url_of(info.key)
        try:
            with self._open(info.key, info.size) as file:
                return list(self._columns(file.schema_arrow, where, subject).values())
        except (pa.ArrowException, OSError) as error:
            raise HistoryError(f"{subject}: {where} is empty or damaged ({_short(error)})") from error

    def sensors(self, info: ObjectInfo) -> list[str]:
        """The sensors of a long table's object; only that column is read."""
        where = self.store.url_of(info.key)
        try:
            with self._open(info.key, info.size) as file:
                self._need(file.schema_arrow, self.layout.sensor, "history.sensor", where, "catalogue")
                column = file.read(columns=[self.layout.sensor], use_threads=False).column(0)
        except (pa.ArrowException, OSError) as error:
            raise HistoryError(f"{where} is empty or damaged ({_short(error)})") from error
        return [str(name) for name in pc.unique(column).to_pylist() if name is not None]

    def _open(self, key: str, size: int | None) -> pq.ParquetFile:
        if size is None and self.layout.kind == "long":
            info = self.store.head(key)
            if info is None:
                raise ObjectMissing(key)
            size = info.size
        source: bytes | BinaryIO = self.store.get(key) if (size or 0) <= WHOLE else self.store.open(key)
        return parquet.open_file(source)

    def _columns(self, schema: pa.Schema, where: str, subject: str) -> dict[str, str]:
        """{column: channel}, in the order of the channels; HistoryError if one is missing or no number."""
        if self.layout.values is not None:
            columns = dict(self.layout.values)
        else:
            apart = (
                {self.layout.time, self.layout.sensor} if self.layout.kind == "long" else {self.layout.time}
            )
            names = sorted(f.name for f in schema if f.name not in apart and _is_number(f.type))
            columns = {name: name for name in names}
            if not columns:
                raise HistoryError(f"{subject}: {where} has no column of numbers, only {_names(schema)}")
        for name in columns:
            kind = self._need(schema, name, "history.values", where, subject)
            if not _is_number(kind):
                raise HistoryError(f"{subject}: {where}: the column {name!r} holds {kind}, not numbers")
        return columns

    def _need(self, schema: pa.Schema, name: str, setting: str, where: str, subject: str) -> pa.DataType:
        if schema.get_field_index(name) < 0:
            raise HistoryError(
                f"{subject}: {where} has no column {name!r}, only {_names(schema)}; correct {setting}"
            )
        return schema.field(name).type

    def _rows(
        self, file: pq.ParquetFile, where: str, window: Window, wanted: Sequence[str] | None, subject: str
    ) -> Rows:
        layout, schema = self.layout, file.schema_arrow
        kind = self._need(schema, layout.time, "history.time", where, subject)
        if not pa.types.is_timestamp(kind):
            raise HistoryError(f"{subject}: {where}: the column {layout.time!r} holds {kind}, not timestamps")
        columns = self._columns(schema, where, subject)
        needed = [layout.time, *columns]
        if wanted is not None:
            self._need(schema, layout.sensor, "history.sensor", where, subject)
            needed.append(layout.sensor)

        def near(bounds: parquet.Bounds) -> bool:
            return _touches(bounds(layout.time), window) and (
                wanted is None or _any_between(bounds(layout.sensor), wanted)
            )

        table = parquet.read_groups(file, needed, near)
        time = pc.cast(table.column(layout.time), pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
        stamps = pc.fill_null(time, np.iinfo(np.int64).min).to_numpy()
        no_time = time.null_count
        keep = (stamps >= micros(window.start)) & (stamps <= micros(window.end))
        codes = None
        if wanted is not None:
            codes = pc.fill_null(
                pc.index_in(
                    table.column(layout.sensor).cast(pa.string()), value_set=pa.array(wanted, pa.string())
                ),
                -1,
            ).to_numpy()
            keep &= codes >= 0
            codes = codes[keep]
        # float64 [n, C]
        values = np.empty((int(np.count_nonzero(keep)), len(columns)))
        for n, name in enumerate(columns):
            values[:, n] = _floats(table.column(name))[keep]
        return Rows(stamps[keep], values, list(columns.values()), no_time, [where], codes, wanted or ())


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    """float64 with NaN for null."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    column = column.cast(pa.float64(), safe=False)
    return pc.fill_null(column, np.nan).to_numpy()


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return (
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    )


def _touches(span: tuple[Any, Any] | None, window: Window) -> bool:
    """Whether a row group's times can lie in `window`; yes if its writer kept no bounds."""
    if span is None or not all(isinstance(t, datetime) for t in span):
        return True
    low, high = (t.replace(tzinfo=UTC) if t.tzinfo is None else t for t in span)
    return low <= window.end and high >= window.start


def _any_between(span: tuple[Any, Any] | None, wanted: Sequence[str]) -> bool:
    if span is None or not all(isinstance(name, str) for name in span):
        return True
    return any(span[0] <= name <= span[1] for name in wanted)


def _names(schema: pa.Schema) -> str:
    return ", ".join(schema.names[:20]) or "none at all"


def _short(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]

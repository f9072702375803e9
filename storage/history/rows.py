"""Rows of one history object: the needed columns and row groups, checked, as plain arrays."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa

from paano.errors import HistoryError, ObjectMissing, PaanoError
from storage.history import columns
from storage.history.bounded import BoundedFile, TooLarge
from storage.history.grid import micros
from storage.history.layout import Found, HistoryLayout
from storage.objects.errors import name_error
from storage.objects.store import ObjectInfo, Store
from storage.parquet import Bounds
from storage.window import Window

WHOLE = 8 * 2**20  # bytes: up to here one request for the whole object is cheaper than several for its parts
_A_DAY_AND_MORE = timedelta(hours=26)  # local time and UTC are never further apart


@dataclass(frozen=True)
class Wanted:
    """The columns to read: those named, which may hold numbers as text, and if asked every one of numbers."""

    named: frozenset[str] = frozenset()
    numbers: bool = True


@dataclass(frozen=True)
class Fetched:
    """An object as the store gave it: its bytes; None where it is large, and parts of it will be read."""

    found: Found
    data: bytes | None


@dataclass(frozen=True)
class Rows:
    """Rows of one object in its order. `codes` says which of `names` a row belongs to."""

    stamps: np.ndarray  # int64 [n], microseconds since 1970
    values: np.ndarray  # float64 [n, C]
    columns: list[str]  # C names; after `pick` those of the channels
    objects: list[str]  # addresses
    counts: Mapping[str, np.ndarray] = field(default_factory=dict)  # int64 [names] of what was wrong
    codes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    names: Sequence[str] = ()
    number_columns: frozenset[str] = frozenset()  # of `columns`, those that hold numbers and not text
    others: str = ""  # every column of the object, for messages
    modified: datetime | None = None

    def none(self) -> Rows:
        """The same columns without a row."""
        return replace(self, stamps=self.stamps[:0], values=self.values[:0], codes=self.codes[:0], counts={})

    def by_sensor(self) -> Iterator[tuple[str, Rows]]:
        """The rows of each sensor that has any, in file order, with its counts."""
        order = np.argsort(self.codes, kind="stable")
        codes, stamps, values = self.codes[order], self.stamps[order], self.values[order]
        edges = np.searchsorted(codes, np.arange(len(self.names) + 1))
        seen = self.counts.get("rows", np.zeros(len(self.names)))
        for n, name in enumerate(self.names):
            low, high = edges[n], edges[n + 1]
            if low < high or seen[n]:
                counts = {what: count[n : n + 1] for what, count in self.counts.items()}
                yield (
                    name,
                    replace(
                        self, stamps=stamps[low:high], values=values[low:high], counts=counts, codes=codes[:0]
                    ),
                )

    def total(self, what: str) -> int:
        return int(self.counts[what].sum()) if what in self.counts else 0


def pick(rows: Rows, values: Mapping[str, str] | None, pinned: Sequence[str] | None, subject: str) -> Rows:
    """The rows with their channels: those in `values`, else `pinned` if all are there, else all numbers.

    HistoryError if a named column is missing, or if there is no column of numbers.
    """
    there = {name: n for n, name in enumerate(rows.columns)}
    if values is not None:
        chosen = dict(values)
        for name in chosen:
            if name not in there:
                raise HistoryError(
                    f"{subject}: {rows.objects[0]} has no column {name!r}, only {rows.others}; "
                    "correct history.channels"
                )
    elif pinned and all(name in rows.number_columns for name in pinned):
        chosen = {name: name for name in pinned}
    else:
        chosen = {name: name for name in sorted(rows.number_columns)}
        if not chosen:
            raise HistoryError(
                f"{subject}: {rows.objects[0]} has no column of numbers, only {rows.others}; "
                "name the columns that hold numbers as text in history.channels"
            )
    order = [there[name] for name in chosen]
    return replace(rows, values=rows.values[:, order], columns=list(chosen.values()))


def join(parts: Sequence[Rows], subject: str) -> Rows:
    """Several objects' rows as one, in this order; HistoryError if their channels differ."""
    channels = parts[0].columns
    for part in parts[1:]:
        if part.columns != channels:
            raise HistoryError(
                f"{subject}: the columns changed: {part.objects[0]} has {', '.join(part.columns)}, "
                f"{parts[0].objects[0]} has {', '.join(channels)}; name the common ones in history.channels"
            )
    kinds = {what for part in parts for what in part.counts}
    return Rows(
        np.concatenate([part.stamps for part in parts]),
        np.concatenate([part.values for part in parts]),
        channels,
        [key for part in parts for key in part.objects],
        {what: np.array([sum(part.total(what) for part in parts)]) for what in kinds},
    )


class RowReader:
    """Reads objects of one layout."""

    def __init__(self, store: Store, layout: HistoryLayout) -> None:
        self.store = store
        self.layout = layout

    def read(
        self, found: Found, window: Window, sensors: Sequence[str] | None, wanted: Wanted, subject: str
    ) -> Rows | None:
        """Rows within `window`, in a long table of `sensors`; None if there is no object.

        Whatever the object does to its reader is a HistoryError that names it.
        """
        fetched = self.fetch(found, subject)
        return None if fetched is None else self.decode(fetched, window, sensors, wanted, subject)

    def fetch(self, found: Found, subject: str) -> Fetched | None:
        """The first half of `read`, which waits for the store; a large object is left to the second."""
        try:
            return self._fetch(found)
        except ObjectMissing:
            return None
        except Exception as error:
            raise self._named(error, self.store.url_of(found.key), subject) from error

    def decode(
        self, fetched: Fetched, window: Window, sensors: Sequence[str] | None, wanted: Wanted, subject: str
    ) -> Rows | None:
        """The second half of `read`, which computes."""
        where = self.store.url_of(fetched.found.key)
        try:
            with self._opened(fetched) as file:
                rows = self._rows(file, where, window, sensors, wanted, subject)
                return replace(rows, modified=fetched.found.modified)
        except ObjectMissing:
            return None
        except Exception as error:
            raise self._named(error, where, subject) from error

    def tables(
        self, found: Found, window: Window, sensors: Sequence[str], wanted: Wanted, subject: str
    ) -> Iterator[pa.Table]:
        """A long table's row groups near `window`, a few at a time: the needed columns as they are stored."""
        where = self.store.url_of(found.key)
        try:
            with self._opened(self._fetch(found)) as file:
                _, _, needed, near, _ = self._plan(file.schema, where, window, sensors, wanted, subject)
                yield from file.tables(needed, near, self.layout.largest)
        except Exception as error:
            raise self._named(error, where, subject) from error

    def located(self, found: Found) -> Found | None:
        """`found` with its size and age; None if there is no such object."""
        if found.modified is not None:
            return found
        info = self.store.head(found.key)
        return None if info is None else Found.of(info)

    def columns(self, info: ObjectInfo, subject: str) -> Rows:
        """The columns of an object, by its footer: rows without a row."""
        where = self.store.url_of(info.key)
        try:
            with self._opened(self._fetch(Found.of(info))) as file:
                return self._columns(file.schema, where, Wanted(), subject)
        except Exception as error:
            raise self._named(error, where, subject) from error

    def sensors(self, info: ObjectInfo) -> list[str]:
        """The sensors of a long table's object; only that column is read."""
        where = self.store.url_of(info.key)
        try:
            with self._opened(self._fetch(Found.of(info))) as file:
                self._need(file.schema, self.layout.sensor, "history.sensor", where, "catalog")
                names: set[str] = set()
                for table in file.tables([self.layout.sensor], lambda _: True, self.layout.largest):
                    known, codes = self.ids(table, where, "catalog")
                    names.update(known[code] for code in np.unique(codes) if code >= 0)
                return sorted(names)
        except Exception as error:
            raise self._named(error, where, "catalog") from error

    def newest(self, info: ObjectInfo, subject: str) -> int | None:
        """The newest stamp of an object in microseconds since 1970, of all its sensors."""
        everything = Window(datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC))
        found = Found.of(info)
        rows = self.read(found, everything, None, Wanted(numbers=False), subject)
        return int(rows.stamps.max()) if rows is not None and len(rows.stamps) else None

    def _named(self, error: Exception, where: str, subject: str) -> PaanoError:
        """The error of a person's concern for whatever reading `where` raised."""
        if isinstance(error, PaanoError):
            return error
        if isinstance(error, TooLarge):
            return HistoryError(f"{subject}: {where} is refused: {error}")
        if isinstance(error, OSError) and error.errno:
            return name_error(error, where)
        if isinstance(error, (pa.ArrowException, OSError)):
            return HistoryError(f"{subject}: {where} is empty or damaged ({_short(error)})")
        return HistoryError(f"{subject}: {where} cannot be read ({type(error).__name__}: {_short(error)})")

    def _fetch(self, found: Found) -> Fetched:
        size = found.size
        if size is None and self.layout.kind == "long":
            info = self.store.head(found.key)
            if info is None:
                raise ObjectMissing(found.key)
            found, size = Found.of(info), info.size
        return Fetched(found, self.store.get(found.key) if (size or 0) <= WHOLE else None)

    @contextmanager
    def _opened(self, fetched: Fetched) -> Iterator[BoundedFile]:
        """The file of an object. A large one is opened here, so that few are open at once, and closed."""
        with ExitStack() as held:
            source: bytes | BinaryIO | None = fetched.data
            if source is None:
                source = held.enter_context(closing(self.store.open(fetched.found.key)))
            yield held.enter_context(BoundedFile(source))

    def _columns(self, schema: pa.Schema, where: str, wanted: Wanted, subject: str) -> Rows:
        """The columns to read, as rows without a row; HistoryError if a named one is no number nor text."""
        layout = self.layout
        apart = {layout.time} | ({layout.sensor} if layout.kind == "long" else set())
        if layout.quality:
            apart |= {layout.quality.replace("{column}", name) for name in schema.names}
        names = [
            f.name
            for f in schema
            if f.name in wanted.named
            or (wanted.numbers and f.name not in apart and columns.is_number(f.type))
        ]
        for name in names:
            kind = schema.field(name).type
            if not (columns.is_number(kind) or columns.is_text(kind)):
                raise HistoryError(f"{subject}: {where}: the column {name!r} holds {kind}, not numbers")
        return Rows(
            np.empty(0, np.int64),
            np.empty((0, len(names))),
            names,
            [where],
            number_columns=frozenset(
                n for n in names if columns.is_number(schema.field(n).type) and n not in apart
            ),
            others=_names(schema),
        )

    def _need(self, schema: pa.Schema, name: str, setting: str, where: str, subject: str) -> pa.DataType:
        count = schema.names.count(name)
        if count != 1:
            has = f"no column {name!r}" if not count else f"several columns {name!r}"
            raise HistoryError(f"{subject}: {where} has {has}, only {_names(schema)}; correct {setting}")
        return schema.field(name).type

    def ids(self, table: pa.Table, where: str, subject: str = "history") -> tuple[list[str], np.ndarray]:
        """The sensors of a long table's rows and the number of each row's; -1 where there is none."""
        try:
            return columns.texts(table.column(self.layout.sensor))
        except ValueError as error:
            raise HistoryError(
                f"{subject}: {where}: the column {self.layout.sensor!r} {error}; correct history.sensor"
            ) from error

    def _rows(
        self,
        file: BoundedFile,
        where: str,
        window: Window,
        sensors: Sequence[str] | None,
        wanted: Wanted,
        subject: str,
    ) -> Rows:
        layout = self.layout
        empty, quality, needed, near, local = self._plan(file.schema, where, window, sensors, wanted, subject)
        parts, size = [], 0
        for table in file.tables(needed, near, layout.largest):
            part = self._part(table, empty, quality, where, window, sensors, local, subject)
            size += part.values.nbytes + part.stamps.nbytes
            if sensors is None and size > layout.largest:
                raise TooLarge(
                    f"its rows are more than history.largest_mb = {layout.largest // 2**20:,} holds"
                )
            parts.append(part)
        if not parts:
            return replace(empty, names=sensors or (subject,))
        return replace(
            parts[0],
            stamps=np.concatenate([part.stamps for part in parts]),
            values=np.concatenate([part.values for part in parts]),
            codes=np.concatenate([part.codes for part in parts]),
            counts={what: np.sum([part.counts[what] for part in parts], axis=0) for what in parts[0].counts},
        )

    def _plan(
        self,
        schema: pa.Schema,
        where: str,
        window: Window,
        sensors: Sequence[str] | None,
        wanted: Wanted,
        subject: str,
    ) -> tuple[Rows, dict[str, str], list[str], Callable[[Bounds], bool], bool]:
        """What to read: channels, their quality columns, all columns, which row groups, local time or not."""
        layout = self.layout
        kind = self._need(schema, layout.time, "history.time", where, subject)
        if not pa.types.is_timestamp(kind):
            raise HistoryError(
                f"{subject}: {where}: the column {layout.time!r} holds {kind}, not timestamps; "
                "correct history.time"
            )
        empty = self._columns(schema, where, wanted, subject)
        quality = self._quality(schema, empty.columns, where, subject)
        needed = [layout.time, *empty.columns, *quality.values()]
        if sensors is not None:
            self._need(schema, layout.sensor, "history.sensor", where, subject)
            needed.append(layout.sensor)
        local = kind.tz is None and layout.timezone != "UTC"
        stored = window.widen(_A_DAY_AND_MORE, _A_DAY_AND_MORE) if local else window

        def near(bounds: Bounds) -> bool:
            return _touches(bounds(layout.time), stored) and (
                sensors is None or _any_between(bounds(layout.sensor), sensors)
            )

        return empty, quality, list(dict.fromkeys(needed)), near, local

    def _quality(self, schema: pa.Schema, names: Sequence[str], where: str, subject: str) -> dict[str, str]:
        """{value column: quality column}; HistoryError if the layout names one that is not there."""
        setting = self.layout.quality
        if not setting:
            return {}
        if "{column}" not in setting:
            self._need(schema, setting, "history.quality", where, subject)
            return dict.fromkeys(names, setting)
        pairs = {name: setting.replace("{column}", name) for name in names}
        return {name: column for name, column in pairs.items() if column in schema.names}

    def _part(
        self,
        table: pa.Table,
        empty: Rows,
        quality: Mapping[str, str],
        where: str,
        window: Window,
        sensors: Sequence[str] | None,
        local: bool,
        subject: str,
    ) -> Rows:
        """The rows of one table within `window`, with counts per sensor of what was wrong."""
        names = (subject,) if sensors is None else sensors
        stamps, no_time, impossible = columns.stamps(table.column(self.layout.time))
        codes = np.zeros(len(stamps), np.int64)
        if sensors is not None:
            known, own = self.ids(table, where, subject)
            number = {name: n for n, name in enumerate(sensors)}
            codes = np.array([number.get(name, -1) for name in known] + [-1], np.int64)[own]
        ours = codes >= 0

        def counted(mask: np.ndarray) -> np.ndarray:
            return np.bincount(codes[mask & ours], minlength=len(names))

        counts = {"rows": counted(ours), "no_time": counted(no_time), "bad_time": counted(impossible)}
        usable = ours & ~no_time & ~impossible
        if local:
            at = np.flatnonzero(usable)
            utc, missing, twice = columns.local_to_utc(stamps[at], self.layout.timezone)
            stamps[at] = utc
            skipped, repeated = np.zeros(len(stamps), bool), np.zeros(len(stamps), bool)
            skipped[at], repeated[at] = missing, twice
            usable &= ~skipped
            counts["skipped_hour"] = counted(skipped)
        keep = usable & (stamps >= micros(window.start)) & (stamps <= micros(window.end))
        if local:
            counts["repeated_hour"] = counted(keep & repeated)
        codes = codes[keep]
        # float64 [n, C]
        values = np.empty((len(codes), len(empty.columns)))
        kept = table if keep.all() else table.filter(pl.Series(keep).to_arrow())
        wrong, bad = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
        for n, name in enumerate(empty.columns):
            values[:, n], unreadable = columns.numbers(kept.column(name))
            wrong += np.bincount(codes[unreadable], minlength=len(names))
            if name in quality:
                poor = ~columns.good(kept.column(quality[name]), self.layout.good)
                values[poor, n] = np.nan
                bad += np.bincount(codes[poor], minlength=len(names))
        counts |= {"no_number": wrong, "bad_quality": bad}
        return replace(empty, stamps=stamps[keep], values=values, codes=codes, names=names, counts=counts)


def _touches(span: tuple[Any, Any] | None, window: Window) -> bool:
    """Whether a row group's times can lie in `window`; yes if its writer kept no bounds."""
    if span is None or not all(isinstance(t, datetime) for t in span):
        return True
    low, high = (t.replace(tzinfo=UTC) if t.tzinfo is None else t for t in span)
    return bool(low <= window.end and high >= window.start)


def _any_between(span: tuple[Any, Any] | None, wanted: Sequence[str]) -> bool:
    if span is None or not all(isinstance(name, str) for name in span):
        return True
    at = bisect.bisect_left(wanted, span[0])  # `wanted` is sorted
    return at < len(wanted) and wanted[at] <= span[1]


def _names(schema: pa.Schema) -> str:
    more = f" and {len(schema.names) - 20} more" if len(schema.names) > 20 else ""
    return (", ".join(schema.names[:20]) + more) or "none at all"


def _short(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]

"""Tables by date and shard: one object each, `date=YYYY-MM-DD/shard-0003.parquet`, written whole.

A sensor belongs to a shard by a stable hash. The number of shards is fixed by the first writer, in a note: a
Parquet object with the same columns and no rows, so that it disturbs nobody who reads the whole folder. A
closed day may be joined into one object, `date=…/day.parquet` (see housekeeping): then that is read and
rewritten.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import polars as pl
import pyarrow as pa

from paano.errors import ConfigError, Conflict, ObjectMissing, StorageError, Transient
from storage import parquet
from storage.keys import date_prefix, shard_key, shard_of
from storage.objects import Store
from storage.window import Window

NOTE_DATE = date(1970, 1, 1)
NOTE = f"{date_prefix(NOTE_DATE)}/store.parquet"
DEFAULT_SHARDS = 16
MOVED = "the rows of this object are in day.parquet"
_LARGEST_MARK = 16_384  # bytes; not every object needs to be looked into
_PATIENCE = 120.0  # seconds that a writer tries against others
_TURNS = [
    threading.Lock() for _ in range(64)
]  # threads of one process take turns before they race with others


@dataclass(frozen=True)
class Written:
    """What a write did. `changed` is false when the object already held the same bytes."""

    key: str
    rows: int
    changed: bool


class DayTable:
    """Rows of sensors in time, by date and shard. Subclasses say which columns."""

    kind: str
    schema: dict[str, pl.DataType]
    time: str  # the column that decides the date
    order: tuple[str, ...]  # sorted and unique by these
    required: tuple[str, ...]  # never null

    def __init__(self, store: Store, shards: int | None = None) -> None:
        """`shards = None` takes what the store has, or 16 for a new one."""
        if shards is not None and not 1 <= shards <= 9999:
            raise ConfigError(f"{self.kind}.shards = {shards} is outside 1 to 9999")
        self.store = store
        self._asked = shards
        self._fixed: int | None = None

    # -- shards

    @property
    def shards(self) -> int:
        """How many shards the store has; for a new one, how many it will have."""
        return self._note() or self._asked or DEFAULT_SHARDS

    def shard_of(self, sensor: str) -> int:
        return shard_of(sensor, self.shards)

    def _note(self) -> int | None:
        """The shard count the store was begun with, or None for a store not begun."""
        if self._fixed is None:
            try:
                raw = self.store.get(NOTE)
            except ObjectMissing:
                return None
            where = self.store.url_of(NOTE)
            try:
                note = json.loads(parquet.note(raw))
                kind, shards = note["kind"], int(note["shards"])
            except (ValueError, KeyError, TypeError) as error:
                raise StorageError(f"{where}: it is damaged, so the number of shards is unknown") from error
            if kind != self.kind:
                raise ConfigError(
                    f"{where}: this store holds {kind}, not {self.kind}; give them two addresses"
                )
            if self._asked is not None and shards != self._asked:
                raise ConfigError(
                    f"{self.kind}.shards = {self._asked}, but {self.store.url} was begun with {shards}; "
                    "the number is fixed for a store: use that, or another address"
                )
            self._fixed = shards
        return self._fixed

    def begin(self) -> int:
        """Fix the shard count, if nobody has; it."""
        while self._note() is None:
            note = {"format": 1, "kind": self.kind, "shards": self._asked or DEFAULT_SHARDS}
            text = json.dumps(note, sort_keys=True)
            try:
                self.store.put(NOTE, parquet.encode(self.empty(), self.arrow, text), if_absent=True)
            except Conflict:
                continue  # somebody else was first: theirs holds
        return self._note() or DEFAULT_SHARDS

    # -- write

    def write_day(self, day: date, shard: int, frame: pl.DataFrame) -> Written:
        """The whole of (day, shard): one PUT, the last writer wins. An equal object is left alone."""
        window = Window.day(day)

        def change(held: pl.DataFrame) -> pl.DataFrame:
            # On a joined day the object also holds other shards.
            others = [s for s in held["sensor"].unique() if self.shard_of(s) != shard]
            return pl.concat([held.filter(pl.col("sensor").is_in(others)), rows]) if others else rows

        rows = self._checked(frame, day, shard, window)
        return self._rewrite(day, shard, change)

    def replace(
        self,
        day: date,
        shard: int,
        frame: pl.DataFrame,
        sensors: Iterable[str] | None = None,
        window: Window | None = None,
    ) -> Written:
        """Take out the rows of `sensors` (default: those in `frame`) within `window` (default: the day), then
        put in the rows of `frame`. Other rows stay, whoever writes at the same time."""
        window = window or Window.day(day)
        rows = self._checked(frame, day, shard, window)
        gone = sorted(set(rows["sensor"]) if sensors is None else set(sensors))
        stray = set(rows["sensor"]) - set(gone)
        if stray:
            raise StorageError(
                f"{self.kind}: rows of {sorted(stray)[0]!r}, which is not among those replaced"
            )
        taken = (
            pl.col("sensor").is_in(gone)
            & (pl.col(self.time) >= window.start)
            & (pl.col(self.time) < window.end)
        )
        return self._rewrite(day, shard, lambda held: pl.concat([held.filter(~taken), rows]))

    def update(
        self, frame: pl.DataFrame, window: Window, sensors: Iterable[str] | None = None
    ) -> list[Written]:
        """`replace` on every (date, shard) of `sensors` × `window`; rows not in `frame` are taken out."""
        self.begin()
        rows = self.canonical(frame)
        names = sorted(set(rows["sensor"]) if sensors is None else set(sensors))
        outside = rows.filter((pl.col(self.time) < window.start) | (pl.col(self.time) >= window.end))
        if outside.height:
            raise StorageError(f"{self.kind}: {outside.height} rows lie outside the window {window}")
        by_shard: dict[int, list[str]] = {}
        for sensor in names:
            by_shard.setdefault(self.shard_of(sensor), []).append(sensor)
        parts = rows.with_columns(pl.col(self.time).dt.date().alias("_date")).partition_by(
            "_date", as_dict=True, include_key=False
        )
        empty = rows.clear()
        written = []
        for day in window.days():
            today = parts.get((day,), empty)
            span = window.common(Window.day(day))
            for shard, members in sorted(by_shard.items()):
                some = today.filter(pl.col("sensor").is_in(members))
                written.append(self.replace(day, shard, some, members, span))
        return written

    def _rewrite(self, day: date, shard: int, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Written:
        """Read, change and write one object; again if somebody else wrote in between."""
        self.begin()
        deadline = time.monotonic() + _PATIENCE
        with _TURNS[hash((self.store.url, day, shard)) % len(_TURNS)]:
            for attempt in range(10_000):
                key, data, etag = self._held(day, shard)
                held = self.decoded(data, key) if data is not None else self.empty()
                rows = self.canonical(change(held))
                if data is None and not rows.height:
                    return Written(key, 0, False)  # nothing there and nothing to say
                new = parquet.encode(rows, self.arrow)
                if new == data:
                    return Written(key, rows.height, False)
                try:
                    self.store.put(key, new, if_match=etag, if_absent=data is None)
                    return Written(key, rows.height, True)
                except (Conflict, Transient):
                    # After a lost answer the next look shows whether it was written.
                    if time.monotonic() > deadline or attempt >= 50:
                        raise
                    time.sleep(random.uniform(0, min(0.02 * 2**attempt, 1.0)))
        raise AssertionError("unreachable")

    def _held(self, day: date, shard: int) -> tuple[str, bytes | None, str | None]:
        """Key, bytes and etag of the object that holds (day, shard): its own, or the joined day's."""
        own = shard_key(day, shard)
        found: tuple[str, bytes | None, str | None] = (own, None, None)
        for key in (own, joined_key(day)):
            try:
                found = (key, *self.store.get_with_etag(key))
            except ObjectMissing:
                continue
            if not self.has_moved(found[1]):
                break
        return found

    def moved_mark(self) -> bytes:
        """An object without rows that stands where a shard's own was, while a day is being joined."""
        return parquet.encode(self.empty(), self.arrow, MOVED)

    def has_moved(self, data: bytes) -> bool:
        return len(data) < _LARGEST_MARK and parquet.note(data) == MOVED

    # -- read

    def read(self, sensor: str, window: Window, columns: list[str] | None = None) -> pl.DataFrame:
        """Rows of a sensor, sorted by time. One object per day is asked for; none is listed."""
        return self.read_many([sensor], window, columns)

    def read_many(
        self,
        sensors: Iterable[str] | None,
        window: Window,
        columns: list[str] | None = None,
        workers: int = 8,
    ) -> pl.DataFrame:
        """Rows of many sensors (None: all), sorted by sensor and time. Each object is read once."""
        names = None if sensors is None else sorted(set(sensors))
        wide = None if columns is None else list(dict.fromkeys([*columns, *self.order, "sensor", self.time]))
        if self._note() is None:
            frames = []
        else:
            shards = None if names is None else sorted({self.shard_of(s) for s in names})
            with ThreadPoolExecutor(workers) as pool:
                tasks = [(day, shards) for day in window.days()]
                frames = [
                    f
                    for part in pool.map(lambda t: self._read_day(*t, names, window, wide), tasks)
                    for f in part
                ]
        whole = pl.concat(frames).sort(self.order) if frames else self.empty().select(wide or pl.all())
        return whole.select(columns) if columns is not None else whole

    def _read_day(
        self,
        day: date,
        shards: list[int] | None,
        names: list[str] | None,
        window: Window,
        columns: list[str] | None,
    ) -> list[pl.DataFrame]:
        def rows(key: str) -> pl.DataFrame | None:
            try:
                data = self.store.get(key)
            except ObjectMissing:
                return None
            return None if self.has_moved(data) else self._rows(data, key, names, window, columns)

        joined = joined_key(day)
        if shards is None:
            keys = [i.key for i in self.store.list(date_prefix(day)) if i.key.endswith(".parquet")]
        else:
            keys = [shard_key(day, shard) for shard in shards]
        found = {key: frame for key in keys if key != joined and (frame := rows(key)) is not None}
        frames = list(found.values())
        if joined in keys or len(found) < len(keys):
            whole = rows(joined)
            if whole is not None:
                # A shard's own object counts before the joined one: a join may have been cut short.
                own = [s for s in whole["sensor"].unique() if shard_key(day, self.shard_of(s)) in found]
                frames.append(whole.filter(~pl.col("sensor").is_in(own)))
        return frames

    def _rows(
        self, data: bytes, key: str, names: list[str] | None, window: Window, columns: list[str] | None
    ) -> pl.DataFrame:
        frame = self.decoded(data, key, columns, names)
        if names is not None:
            frame = frame.filter(pl.col("sensor").is_in(names))
        return frame.filter((pl.col(self.time) >= window.start) & (pl.col(self.time) < window.end))

    def decoded(
        self, data: bytes, key: str, columns: list[str] | None = None, names: list[str] | None = None
    ) -> pl.DataFrame:
        """Rows of an object of this table; StorageError if it is none."""

        def wanted(bounds: parquet.Bounds) -> bool:
            span = bounds("sensor")
            return span is None or any(span[0] <= name <= span[1] for name in names or ())

        try:
            frame = parquet.decode(data, columns, wanted if names is not None else None)
            return frame.select(columns or list(self.schema)).cast(
                {c: t for c, t in self.schema.items() if columns is None or c in columns}
            )
        except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as error:
            raise StorageError(
                f"{self.store.url_of(key)}: it is damaged or has other columns ({error}); "
                "remove it and write that date again"
            ) from error

    def dates(self) -> list[date]:
        """Dates with at least one object."""
        return sorted(d for d in map(date_of, self.store.folders()) if d not in (None, NOTE_DATE))

    # -- rows

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns as they are written."""
        return parquet.arrow_schema(self.schema, self.required)

    def empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.schema)

    def canonical(self, frame: pl.DataFrame) -> pl.DataFrame:
        """`frame` with exactly our columns, types and order; StorageError if that is not possible."""
        missing = [name for name in self.schema if name not in frame.columns]
        if missing:
            raise StorageError(f"{self.kind}: the column {missing[0]!r} is missing")
        try:
            rows = frame.select(list(self.schema)).cast(dict(self.schema))
        except pl.exceptions.PolarsError as error:
            raise StorageError(f"{self.kind}: a column has the wrong type: {error}") from error
        rows = self.tidy(rows).sort(self.order)
        for name in self.required:
            if rows[name].null_count():
                raise StorageError(f"{self.kind}: the column {name!r} must not be null")
        if rows.height and rows.select(self.order).is_duplicated().any():
            twice = rows.filter(rows.select(self.order).is_duplicated()).row(0, named=True)
            raise StorageError(f"{self.kind}: {twice['sensor']!r} has two rows at {twice[self.time]}")
        return rows

    def tidy(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What else a subclass makes the same everywhere."""
        return rows

    def _checked(self, frame: pl.DataFrame, day: date, shard: int, window: Window) -> pl.DataFrame:
        shards = self.begin()
        if not 0 <= shard < shards:
            raise StorageError(f"{self.kind}: there is no shard {shard}; {self.store.url} has {shards}")
        rows = self.canonical(frame)
        span = Window.day(day).common(window)
        outside = (
            rows.filter((pl.col(self.time) < span.start) | (pl.col(self.time) >= span.end)) if span else rows
        )
        if outside.height:
            raise StorageError(f"{self.kind}: {outside.height} rows lie outside {span or window}")
        for sensor in rows["sensor"].unique():
            if shard_of(sensor, shards) != shard:
                raise StorageError(
                    f"{self.kind}: {sensor!r} belongs to shard {shard_of(sensor, shards)}, not {shard}"
                )
        return rows


def joined_key(day: date) -> str:
    """The object of a whole closed day, after `compact`."""
    return f"{date_prefix(day)}/day.parquet"


def date_of(folder: str) -> date | None:
    """The date of a folder `date=YYYY-MM-DD`; None for any other."""
    name, _, value = folder.partition("=")
    try:
        return date.fromisoformat(value) if name == "date" else None
    except ValueError:
        return None

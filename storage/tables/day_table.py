"""Tables by date and shard: one object each, `date=YYYY-MM-DD/shard-0003.parquet`, written whole.

A sensor belongs to a shard by a stable hash; how many shards a date has is in the store's note (`layout`).
A writer reads the object, changes it and writes it if nobody else did meanwhile; equal rows are not written.

A date of version 0.1 is *joinable*: its many small objects may be joined into `date=…/day.parquet` (see
`compaction`). There a shard's rows are in its own object if that exists and is no mark, otherwise in
`day.parquet`; and nobody creates a shard's own object any more. So rows only ever move from the one to the
other, and whoever looks into them in this order finds them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from functools import cached_property, reduce
from typing import ClassVar, TypeVar

import polars as pl
import pyarrow as pa

from paano.errors import ConfigError, ObjectMissing, StorageError
from storage import parquet
from storage.footer import DamagedFooter
from storage.keys import date_prefix, shard_key, shard_of
from storage.objects.store import Store
from storage.retry import on_condition
from storage.tables.layout import (
    MOST_SHARDS,
    NOTE,
    NOTE_DATE,
    SENSORS_PER_OBJECT,
    Note,
    Span,
    date_of,
    dates_in,
    shards_for,
)
from storage.window import Window

__all__ = ["NOTE", "NOTE_DATE", "DayTable", "Written", "date_of", "joined_key"]

MOVED = "the rows of this object are in day.parquet"
WORKERS = 8  # objects read or written at once
_LARGEST_MARK = 16_384  # bytes; not every object needs to be looked into
_TURNS = [
    threading.Lock() for _ in range(64)
]  # threads of one process take turns before they race with others

A = TypeVar("A")
B = TypeVar("B")
Change = Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class Written:
    """What a write did. `changed` is false when the object already held the same rows."""

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
    renamed: ClassVar[dict[str, str]] = {}  # columns by their names in objects of an older form
    later: ClassVar[tuple[str, ...]] = ()  # columns that objects of an older form do not have: null

    def __init__(self, store: Store, shards: int | None = None) -> None:
        """`shards` is for dates that nobody has written to; by default it follows the number of sensors."""
        if shards is not None and not 1 <= shards <= MOST_SHARDS:
            raise ConfigError(f"{self.kind}.shards = {shards} is outside 1 to {MOST_SHARDS}")
        self.store = store
        self._asked = shards
        self.note = Note(store, self.kind, lambda text: parquet.encode(self.empty(), self.arrow, text))

    # -- shards

    @property
    def shards(self) -> int:
        """The number of shards of the last date that was decided; for a new store, what it would be."""
        layout = self.note.layout()
        if layout is None:
            return self._asked or 1
        return layout.fixed or (layout.spans[-1].shards if layout.spans else self._asked or 1)

    def shards_on(self, day: date) -> int | None:
        """The number of shards of a date; None if nobody has written to it."""
        span = self.note.on(day, fresh=True)
        return span.shards if span else None

    def shard_of(self, sensor: str, day: date | None = None) -> int:
        """The shard of a sensor on a date; without a date, on the last one that was decided."""
        return shard_of(sensor, (self.shards_on(day) if day else None) or self.shards)

    def begin(
        self,
        days: Iterable[date],
        sensors: int = 1,
        per_object: int = SENSORS_PER_OBJECT,
        shards: int | None = None,
    ) -> dict[date, int]:
        """Decide the number of shards of every date in `days`, where nobody has; which they are.

        Args:
            days: dates that are about to be written.
            sensors: how many sensors the fleet has, not only those of this run.
            per_object: how many sensors an object should hold.
            shards: the number for dates not decided yet, instead of one that fits `sensors`.
        """
        exact = shards or self._asked
        found = self.note.decide(days, exact or shards_for(sensors, per_object), exact=exact is not None)
        return {day: span.shards for day, span in found.items()}

    # -- write

    def write_day(self, day: date, shard: int, frame: pl.DataFrame) -> Written:
        """The whole of (day, shard): one PUT, the last writer wins. An equal object is left alone."""
        rows = self._checked(frame, Window.day(day))
        span = self._span(day, rows)
        self._check_shard(rows, shard, span)

        def change(held: pl.DataFrame) -> pl.DataFrame:
            # day.parquet also holds other shards.
            others = [s for s in held["sensor"].unique() if shard_of(s, span.shards) != shard]
            return pl.concat([held.filter(pl.col("sensor").is_in(others)), rows])

        return self._rewrite_shards(day, span, {shard: change})[0]

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
        within = Window.day(day).common(window) if window else Window.day(day)
        if within is None:
            raise StorageError(f"{self.kind}: the window {window} does not touch {day}")
        rows = self._checked(frame, within)
        names = self._names(rows, sensors)
        span = self._span(day, rows)
        self._check_shard(rows, shard, span)
        return self._rewrite_shards(day, span, {shard: self._replacement(names, within, rows)})[0]

    def update(
        self, frame: pl.DataFrame, window: Window, sensors: Iterable[str] | None = None
    ) -> list[Written]:
        """Make the rows of `sensors` (default: those in `frame`) within `window` those of `frame`.

        Every (date, shard) is one object: it is read once and written once, or not at all if it holds these
        rows already. Objects are written side by side; an error leaves each of them old or new.
        """
        rows = self._checked(frame, window)
        names = self._names(rows, sensors)
        days = window.days()
        with_rows = set(rows[self.time].dt.date().unique()) if rows.height else set()
        spans = self.note.on_all(days, fresh=True)
        if with_rows - spans.keys() or self.note.is_old():
            self.begin(with_rows, len(names))
            spans = self.note.on_all(days)
        tasks = []
        for day, members, some in self._by_object(rows, names, spans):
            within = window.common(Window.day(day))
            assert within is not None
            changes = {
                shard: self._replacement(members[shard], within, some.get(shard, rows.clear()))
                for shard in sorted(members)
            }
            tasks += (
                [(day, changes)]
                if spans[day].joinable
                else [(day, {shard: one}) for shard, one in changes.items()]
            )
        done = _side_by_side(lambda task: self._rewrite_shards(task[0], spans[task[0]], task[1]), tasks)
        return [written for part in done for written in part]

    def _by_object(
        self, rows: pl.DataFrame, names: list[str], spans: Mapping[date, Span]
    ) -> Iterable[tuple[date, dict[int, list[str]], dict[int, pl.DataFrame]]]:
        """For every decided date: the sensors by shard, and the rows by shard."""
        members = {n: members_of(names, n) for n in {span.shards for span in spans.values()}}
        dated = rows.with_columns(_day=pl.col(self.time).dt.date())
        parts = dated.partition_by("_day", as_dict=True, include_key=False) if rows.height else {}
        for day in sorted(spans):
            by_shard = members[spans[day].shards]
            today = parts.get((day,))
            if today is None:
                yield day, by_shard, {}
            elif len(by_shard) == 1:
                yield day, by_shard, {next(iter(by_shard)): today}
            else:
                where = {name: shard for shard, some in by_shard.items() for name in some}
                sharded = today.with_columns(
                    _shard=pl.col("sensor").replace_strict(where, return_dtype=pl.Int32)
                )
                split = sharded.partition_by("_shard", as_dict=True, include_key=False)
                yield day, by_shard, {key[0]: part for key, part in split.items()}

    def _replacement(self, names: list[str], within: Window, rows: pl.DataFrame) -> Change:
        time = pl.col(self.time)
        taken = pl.col("sensor").is_in(names) & (time >= within.start) & (time < within.end)
        return lambda held: pl.concat([held.filter(~taken), rows]) if held.height else rows

    def _rewrite_shards(self, day: date, span: Span, changes: Mapping[int, Change]) -> list[Written]:
        """Change the rows of some shards of a date, wherever they are."""
        written: list[Written] = []
        elsewhere: list[Change] = []
        for shard, change in changes.items():
            done = self._rewrite(shard_key(day, shard), change, own=span.joinable)
            if done is None:
                elsewhere.append(change)
            else:
                written.append(done)
        if elsewhere:
            whole = self._rewrite(joined_key(day), lambda held: reduce(lambda h, c: c(h), elsewhere, held))
            assert whole is not None
            written.append(whole)
        return written

    def _rewrite(self, key: str, change: Change, own: bool = False) -> Written | None:
        """Read, change and write one object; again if somebody else wrote in between.

        With `own`, the key is a shard's own object on a joinable date: None if its rows are elsewhere.
        """

        def once() -> Written | None:
            data, etag = self._get(key)
            if own and (data is None or self.has_moved(data)):
                return None
            held = self.decoded(data, key) if data is not None else self.empty()
            rows = change(held).sort(self.order)
            if rows.equals(held):
                return Written(key, rows.height, False)  # also: nothing there and nothing to say
            self.store.put(key, parquet.encode(rows, self.arrow), if_match=etag, if_absent=data is None)
            return Written(key, rows.height, True)

        with _TURNS[hash((self.store.url, key)) % len(_TURNS)]:
            return on_condition(once)

    def _get(self, key: str) -> tuple[bytes, str] | tuple[None, None]:
        try:
            return self.store.get_with_etag(key)
        except ObjectMissing:
            return None, None

    def moved_mark(self) -> bytes:
        """An object without rows that stands where a shard's own was, while a day is being joined."""
        return parquet.encode(self.empty(), self.arrow, MOVED)

    def has_moved(self, data: bytes) -> bool:
        """Whether an object is such a mark."""
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
        workers: int = WORKERS,
    ) -> pl.DataFrame:
        """Rows of many sensors (None: all), sorted by sensor and time. Each object is read once.

        Args:
            sensors: their ids; None lists the objects of each date and takes all rows.
            window: which time.
            columns: only these, in this order.
            workers: how many objects at once.
        """
        names = None if sensors is None else sorted(set(sensors))
        wide = None if columns is None else list(dict.fromkeys([*columns, *self.order, "sensor", self.time]))
        tasks: list[_Task] = []
        for day, span in sorted(self.note.on_all(window.days(), fresh=True).items()):
            if names is None:
                listed = (info.key for info in self.store.list(date_prefix(day)))
                keys: dict[str, list[str] | None] = {k: None for k in listed if k.endswith(".parquet")}
            else:
                keys = {shard_key(day, s): m for s, m in members_of(names, span.shards).items()}
            tasks += (
                [_Task(day, span, keys)] if span.joinable else [_Task(day, span, {k: keys[k]}) for k in keys]
            )
        parts = _side_by_side(lambda task: self._read_task(task, window, wide), tasks, workers)
        frames = [frame for part in parts for frame in part]
        whole = pl.concat(frames).sort(self.order) if frames else self.empty().select(wide or pl.all())
        return whole.select(columns) if columns is not None else whole

    def _read_task(self, task: _Task, window: Window, columns: list[str] | None) -> list[pl.DataFrame]:
        def rows(key: str, names: list[str] | None) -> pl.DataFrame | None:
            try:
                data = self.store.get(key)
            except ObjectMissing:
                return None
            if task.span.joinable and self.has_moved(data):
                return None
            return self._rows(data, key, names, window, columns)

        joined = joined_key(task.day)
        own = {k: f for k, names in task.keys.items() if k != joined and (f := rows(k, names)) is not None}
        frames = list(own.values())
        if task.span.joinable and (joined in task.keys or len(own) < len(task.keys)):
            elsewhere = [names for key, names in task.keys.items() if key not in own]
            wanted = None if None in elsewhere else sorted({n for some in elsewhere for n in some or ()})
            whole = rows(joined, wanted)
            if whole is not None:
                # A shard's own object counts before the joined one: a join may have been cut short.
                hidden = [s for s in whole["sensor"].unique() if self._own_key(s, task) in own]
                frames.append(whole.filter(~pl.col("sensor").is_in(hidden)) if hidden else whole)
        return frames

    @staticmethod
    def _own_key(sensor: str, task: _Task) -> str:
        return shard_key(task.day, shard_of(sensor, task.span.shards))

    def _rows(
        self, data: bytes, key: str, names: list[str] | None, window: Window, columns: list[str] | None
    ) -> pl.DataFrame:
        frame = self.decoded(data, key, columns, names)
        time = pl.col(self.time)
        inside = (time >= window.start) & (time < window.end)
        return frame.filter(inside if names is None else inside & pl.col("sensor").is_in(names))

    def decoded(
        self, data: bytes, key: str, columns: list[str] | None = None, names: list[str] | None = None
    ) -> pl.DataFrame:
        """Rows of an object of this table; StorageError if it is none."""

        def wanted(bounds: parquet.Bounds) -> bool:
            span = bounds("sensor")
            return span is None or any(span[0] <= name <= span[1] for name in names or ())

        try:
            frame = parquet.decode(
                data, columns, wanted if names is not None else None, self.renamed, self.later
            )
            kept = columns or list(self.schema)
            return frame.select(
                pl.col(name).cast(self.schema[name])
                if name in frame.columns or name not in self.later
                else pl.lit(None, self.schema[name]).alias(name)
                for name in kept
            )
        except (pa.ArrowException, pl.exceptions.PolarsError, DamagedFooter, OSError) as error:
            raise StorageError(
                f"{self.store.url_of(key)}: it is damaged or has other columns ({error}); "
                "remove it and write that date again"
            ) from error

    def dates(self) -> list[date]:
        """Dates with at least one object."""
        return dates_in(self.store)

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
            rows = frame.select(pl.col(name).cast(kind) for name, kind in self.schema.items())
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

    def _checked(self, frame: pl.DataFrame, window: Window) -> pl.DataFrame:
        rows = self.canonical(frame)
        time = pl.col(self.time)
        outside = rows.filter((time < window.start) | (time >= window.end)).height
        if outside:
            raise StorageError(f"{self.kind}: {outside} rows lie outside the window {window}")
        return rows

    def _names(self, rows: pl.DataFrame, sensors: Iterable[str] | None) -> list[str]:
        held = set(rows["sensor"].unique())
        names = held if sensors is None else set(sensors)
        stray = held - names
        if stray:
            raise StorageError(f"{self.kind}: rows of {min(stray)!r}, which is not among those replaced")
        return sorted(names)

    def _span(self, day: date, rows: pl.DataFrame) -> Span:
        """The span of a date that is about to be written."""
        self.begin([day], rows["sensor"].n_unique())
        span = self.note.on(day)
        assert span is not None
        return span

    def _check_shard(self, rows: pl.DataFrame, shard: int, span: Span) -> None:
        if not 0 <= shard < span.shards:
            raise StorageError(
                f"{self.kind}: there is no shard {shard}; {self.store.url} has {span.shards} on {span.first}"
            )
        for sensor in rows["sensor"].unique():
            if shard_of(sensor, span.shards) != shard:
                raise StorageError(
                    f"{self.kind}: {sensor!r} belongs to shard {shard_of(sensor, span.shards)}, not {shard}"
                )


@dataclass(frozen=True)
class _Task:
    """Objects that are read together, each with the sensors wanted from it (None: all)."""

    day: date
    span: Span
    keys: dict[str, list[str] | None]


def members_of(names: Iterable[str], shards: int) -> dict[int, list[str]]:
    """The sensors of each shard that has one, shards in order."""
    members: dict[int, list[str]] = {}
    for name in names:
        members.setdefault(shard_of(name, shards), []).append(name)
    return dict(sorted(members.items()))


def _side_by_side(work: Callable[[A], B], tasks: list[A], workers: int = WORKERS) -> list[B]:
    if len(tasks) <= 1 or workers <= 1:
        return [work(task) for task in tasks]
    with ThreadPoolExecutor(min(workers, len(tasks))) as pool:
        return list(pool.map(work, tasks))


def joined_key(day: date) -> str:
    """The object of a whole joined day, after `compact`."""
    return f"{date_prefix(day)}/day.parquet"

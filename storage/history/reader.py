"""History in: Parquet of one or many sensors, read by window onto a regular grid.

    history = History("s3://bucket/history", HistoryLayout(kind="long", values={"value": "pressure"}))
    reading = history.read("pump-17", Window.day(date(2026, 1, 2)))
    reading.values, reading.ts, reading.repaired, reading.digest

Only what is needed is read: objects are computed from the window, columns and row groups are pruned. Long
tables that many tasks need are read once by `History.scatter` (storage/history/scatter.py).
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
import polars as pl

from paano.errors import HistoryError, ObjectMissing, PaanoError, SeriesTooShort
from storage.ahead import ahead
from storage.history.catalog import Catalog
from storage.history.columns import only_rise
from storage.history.grid import LARGEST, Grid, infer_interval, moment, to_grid
from storage.history.layout import Found, HistoryLayout, SensorColumns
from storage.history.listing import Listing
from storage.history.paths import is_parquet
from storage.history.reading import Reading
from storage.history.rows import Fetched, RowReader, Rows, Wanted, join, pick
from storage.history.scatter import Piece, piece_layout, scatter
from storage.objects.store import StorageOptions, open_store
from storage.window import Window

__all__ = ["History", "HistoryLayout", "Piece", "Reading", "SensorColumns", "write_history"]

_UNKNOWN = timedelta(hours=1)  # an interval not known yet is taken as at most this
_NEWEST = 7  # folders that are looked into to discover the sensors of long tables
_SEEN = 100  # stamps by which the present interval is seen
_NOT_REPAIRS = ("rows",)

PerSensor = Callable[[str], SensorColumns]
A = TypeVar("A")
P = ParamSpec("P")


class History:
    """Parquet under `url`, read-only.

    `per_sensor` says what single sensors have otherwise than the layout: their channels, their interval.
    """

    def __init__(
        self,
        url: str,
        layout: HistoryLayout | None = None,
        options: StorageOptions | None = None,
        per_sensor: PerSensor | None = None,
    ) -> None:
        self.layout = layout or HistoryLayout()
        self.options = options
        self.store = open_store(url, options)
        self.listing = Listing(self.store, self.layout)
        self.per_sensor: PerSensor = per_sensor or (lambda _sensor: SensorColumns())
        self._catalog: Catalog | None = None
        self._piece: Piece | None = None

    def __repr__(self) -> str:
        return f"History({self.store.url!r}, {self.layout.kind!r})"

    def sensors(self, refresh: bool = False) -> Catalog:
        """The catalog, given or discovered; kept after the first call."""
        if self._catalog is None or refresh:
            if self.layout.catalog is not None:
                self._catalog = Catalog.read(self.layout.catalog, self.options)
            elif self.layout.kind == "sensor":
                self._catalog = Catalog.of(self.layout.discover(self.store))
            else:
                reader = RowReader(self.store, self.layout)
                found = self.layout.newest(self.store, _NEWEST)
                self._catalog = Catalog.of(name for info in found for name in reader.sensors(info))
        return self._catalog

    def newest(self, sensor: str | None = None) -> datetime | None:
        """The newest stamp of a sensor with a folder of its own, else of the whole history; None: no rows.

        One listing and the stamps of one object. Flows use it to refuse a day that no data can reach, and
        to say since when a sensor is silent.
        """
        reader, subject = RowReader(self.store, self.layout), sensor or "history"
        folder = self.layout.folder(sensor) if sensor is not None else None
        if folder is not None:
            found = [info for info in self.store.list(folder) if is_parquet(info.key)]
        elif sensor is not None and self.layout.kind == "sensor":
            found = [i for i in self.layout.newest(self.store, 1) if sensor in i.key]
        else:
            found = self.layout.newest(self.store, 1)
        # Objects are named by date as a rule; where they are not, the last one written is looked at too.
        looked = (
            {info.key: info for info in (found[-1], max(found, key=lambda i: i.modified))} if found else {}
        )
        stamps = [stamp for info in looked.values() if (stamp := reader.newest(info, subject)) is not None]
        return moment(max(stamps)) if stamps else None

    def list_ahead(self, sensors: Iterable[str], window: Window) -> None:
        """List what `sensors` have in `window` once, for all that is asked of this history afterwards.

        For a run: what comes later is not seen through this object. Raises what a listing raises.
        """
        self.listing.ahead(sensors, window, len(self.sensors()))

    def read(
        self,
        sensor: str,
        window: Window,
        interval: timedelta | None = None,
        channels: Sequence[str] | None = None,
    ) -> Reading:
        """Every grid point of `window`, missing ones as NaN. HistoryError names the sensor and the object."""
        reading = self.read_many(
            [sensor],
            window,
            {} if interval is None else {sensor: interval},
            workers=1,
            channels={} if channels is None else {sensor: channels},
        )[sensor]
        if isinstance(reading, PaanoError):
            raise reading
        return reading

    def read_many(
        self,
        sensors: Iterable[str],
        window: Window,
        intervals: Mapping[str, timedelta] | None = None,
        workers: int = 8,
        channels: Mapping[str, Sequence[str]] | None = None,
    ) -> dict[str, Reading | PaanoError]:
        """A reading or its error for each sensor. An object of a long table is read once for all of them.

        `intervals` pins the interval of a sensor (of its model, of the catalog); else it is its own, the
        layout's, or inferred. `channels` pins the channels (of its model) where the settings name none: a
        column that came later is not read, and none is judged to be a counter. An error may be Transient.
        """
        plans = {
            name: _Plan(
                name,
                self.per_sensor(name),
                self.layout,
                (intervals or {}).get(name),
                (channels or {}).get(name),
            )
            for name in dict.fromkeys(sensors)
        }
        piece, longest = (
            self._piece,
            max((plan.interval or _UNKNOWN for plan in plans.values()), default=_UNKNOWN),
        )
        if piece is not None and piece.covers(plans, window, longest):
            inside = History(piece.url, piece_layout(self.layout), self.options, self.per_sensor)
            inside._catalog = Catalog.of(piece.sensors)
            return inside.read_many(plans, window, intervals, workers, channels)
        read = self._read_long if self.layout.kind == "long" else self._read_each
        return read(plans, window, workers)

    def scatter(
        self,
        window: Window,
        batches: Sequence[Sequence[str]],
        to: str,
        intervals: Mapping[str, timedelta] | None = None,
    ) -> list[Piece]:
        """The rows of `window`, read once, as one piece per batch below the address `to`; long tables only.

        A night of many tasks would else read every object once per task. Use it in the flow, before tasks
        are handed out, with the widest window that a batch needs; give each task its piece, and there:

            history.with_piece(piece).read_many(sensors, window, intervals)

        A window that the piece does not cover (a first model's lookback) is read from the history itself.
        `to` is a folder that all workers see: local for one machine, on the store for a cluster. Delete it
        when the run ends (`remove_pieces`). HistoryError if an object cannot be read, as for a read.
        """
        if self.layout.kind != "long":
            raise HistoryError(
                "only history.layout = 'long' is scattered; a prefix per sensor is read as it is"
            )
        own = {name: self.per_sensor(name) for batch in batches for name in batch}
        known = [(intervals or {}).get(name) or columns.interval for name, columns in own.items()]
        longest = max((one or self.layout.interval or _UNKNOWN for one in known), default=_UNKNOWN)
        objects = self.listing.objects(None, self._reach(window, {longest}))
        reader, ask = RowReader(self.store, self.layout), self._wanted(own.values())
        return scatter(reader, objects, window, longest, batches, ask, open_store(to, self.options))

    def with_piece(self, piece: Piece) -> History:
        """This history, with the rows that `piece` holds read from there."""
        other = History(self.store.url, self.layout, self.options, self.per_sensor)
        other.store, other.listing = self.store, self.listing
        other._catalog, other._piece = self._catalog, piece
        return other

    # -- a prefix per sensor ---------------------------------------------------------------------------------

    def _read_each(
        self, plans: Mapping[str, _Plan], window: Window, workers: int
    ) -> dict[str, Reading | PaanoError]:
        # Threads wait for the store. Decoding is Python, in which they would only hold each other up.
        fetched = ahead(
            lambda plan: _guarded(self._fetch_one, plan, window), plans.values(), workers=max(1, workers)
        )
        return {
            plan.sensor: _guarded(self._decode_one, plan, window, found) if isinstance(found, list) else found
            for plan, found in zip(plans.values(), fetched, strict=True)
        }

    def _fetch_one(self, plan: _Plan, window: Window) -> list[Fetched] | Reading:
        """The objects of one sensor, or its reading: to read parts of a large object is to wait, too."""
        reader = RowReader(self.store, self.layout)
        found = self.listing.objects(plan.sensor, self._reach(window, {plan.interval}))
        fetched = [one for each in found if (one := reader.fetch(each, plan.sensor)) is not None]
        large = any(one.data is None for one in fetched)
        return self._decode_one(plan, window, fetched) if large else fetched

    def _decode_one(self, plan: _Plan, window: Window, fetched: list[Fetched]) -> Reading:
        """The reading of one sensor from its objects."""
        reader, ask = RowReader(self.store, self.layout), self._wanted([plan.columns])
        wide = self._reach(window, {plan.interval})
        parts = [reader.decode(one, wide, None, ask, plan.sensor) for one in fetched]
        return self._reading(plan, self._joined(plan, [part for part in parts if part is not None]), window)

    # -- long tables -----------------------------------------------------------------------------------------

    def _read_long(
        self, plans: Mapping[str, _Plan], window: Window, workers: int
    ) -> dict[str, Reading | PaanoError]:
        wide = self._reach(window, {plan.interval for plan in plans.values()})
        reader = RowReader(self.store, self.layout)
        sensors = sorted(plans)
        ask = self._wanted([plan.columns for plan in plans.values()])

        def one(found: Found) -> Rows | PaanoError | None:
            try:
                return reader.read(found, wide, sensors, ask, subject=f"{len(plans)} sensors")
            except PaanoError as error:
                return error

        try:
            objects = self.listing.objects(None, wide)
        except PaanoError as error:
            return dict.fromkeys(plans, error)
        with ThreadPoolExecutor(max(1, workers)) as pool:
            parts = list(pool.map(one, objects))
        broken = [part for part in parts if isinstance(part, PaanoError)]
        found = [part for part in parts if isinstance(part, Rows)]
        if broken:
            # Which sensors a damaged object held cannot be known: none of them has its whole window.
            return {name: type(broken[0])(f"{name}: {broken[0]}") for name in plans}
        per_sensor: dict[str, list[Rows]] = {name: [] for name in plans}
        for part in found:
            for name, rows in part.by_sensor():
                per_sensor[name].append(rows)
        out: dict[str, Reading | PaanoError] = {}
        for name, plan in plans.items():
            try:
                held = per_sensor[name]
                if not held and name in self.sensors():
                    held = [part.none() for part in found][-1:]
                out[name] = self._reading(plan, self._joined(plan, held), window)
            except PaanoError as error:
                out[name] = error
            except Exception as error:
                out[name] = _unexpected(name, error)
        return out

    # -- what both share -------------------------------------------------------------------------------------

    def _wanted(self, sensors: Iterable[SensorColumns]) -> Wanted:
        """The columns that any of the sensors needs."""
        chosen = [own.values if own.values is not None else self.layout.values for own in sensors]
        named = frozenset(column for values in chosen for column in values or ())
        return Wanted(named, any(values is None for values in chosen))

    def _joined(self, plan: _Plan, parts: list[Rows]) -> Rows:
        """The rows of a sensor; none, if it is a known one. UnknownSensor if it is not."""
        if parts:
            picked = [pick(part, plan.values, plan.channels, plan.sensor) for part in parts]
            return join(self._by_age(picked), plan.sensor)
        reader, layout = RowReader(self.store, self.layout), self.layout
        folder = layout.folder(plan.sensor)
        found = [i for i in self.store.list(folder) if is_parquet(i.key)] if folder is not None else []
        if not found:
            self.sensors()[plan.sensor]  # raises, with the nearest ids
            found = layout.newest(self.store, 1)
        if plan.values is not None:
            channels = list(plan.values.values())
        elif found:
            columns = reader.columns(found[-1], plan.sensor)
            channels = pick(columns, None, plan.channels, plan.sensor).columns
        else:
            raise HistoryError(
                f"{plan.sensor}: there is nothing to read; name its columns in history.channels"
            )
        return Rows(np.empty(0, np.int64), np.empty((0, len(channels))), channels, [])

    def _by_age(self, parts: list[Rows]) -> list[Rows]:
        """The parts by age of their object, then by name: of a repeated stamp the last wins."""
        if self.layout.newest_by == "name" or not _overlap(parts):
            return parts
        # Computed objects were not listed: their age is asked for only here, where it matters.
        parts = [part if part.modified is not None else self._with_age(part) for part in parts]
        return sorted(parts, key=lambda part: part.modified or datetime.min.replace(tzinfo=UTC))

    def _with_age(self, part: Rows) -> Rows:
        key = part.objects[0].removeprefix(self.store.url).lstrip("/")
        info = self.store.head(key)
        if info is None:
            raise ObjectMissing(f"{part.objects[0]}: it was removed while it was read")
        return replace(part, modified=info.modified)

    def _reach(self, window: Window, intervals: set[timedelta | None]) -> Window:
        """`window` with the rows just outside that belong to its grid points."""
        spans = [self._grid(window, interval or _UNKNOWN).span for interval in intervals or {None}]
        low, high = (
            moment(bound(ends)) for bound, ends in zip((min, max), zip(*spans, strict=True), strict=True)
        )
        return Window(min(low, window.start), max(high, window.end))

    def _grid(self, window: Window, interval: timedelta) -> Grid:
        return Grid.of(window, interval, self.layout.tolerance, self.layout.phase)

    def _reading(self, plan: _Plan, rows: Rows, window: Window) -> Reading:
        name, interval = plan.sensor, plan.interval
        seen_rows = rows.total("rows")
        if not len(rows.stamps) and seen_rows and rows.total("bad_time") == seen_rows:
            raise HistoryError(
                f"{name}: every stamp in {rows.objects[0]} lies outside the years 1 to 9999; its writer "
                "mixed up seconds and milliseconds, or history.time names the wrong column"
            )
        order = np.argsort(rows.stamps, kind="stable")
        stamps = rows.stamps[order]
        if interval is None:
            interval = infer_interval(stamps)
        if interval is None:
            raise SeriesTooShort(
                f"{name}: {len(stamps)} rows in {window} are too few to see the interval; "
                "set history.interval or the catalog's"
            )
        grid = self._grid(window, interval)
        size = grid.count * max(1, rows.values.shape[1]) * 8
        if not 0 < grid.count <= LARGEST or size > self.layout.largest:
            raise HistoryError(
                f"{name}: {window} has {grid.count:,} points at an interval of {interval}, "
                f"{size / 2**20:,.0f} MiB with {rows.values.shape[1]} channels; "
                f"{self.layout.largest // 2**20:,} are allowed: correct history.interval, name fewer "
                "history.channels, shorten history.lookback or raise history.largest_mb"
            )
        if plan.values is None and not plan.channels:
            rows, left_out = _without_counters(rows, order)
        else:
            left_out = []
        values, repaired = to_grid(rows.stamps, rows.values, grid)
        repaired |= {what: rows.total(what) for what in rows.counts if what not in _NOT_REPAIRS}
        there = stamps[~np.isnan(rows.values[order]).all(axis=1)]
        return Reading(
            sensor=name,
            start=moment(grid.first),
            interval=interval,
            values=values,
            channels=rows.columns,
            repaired={what: count for what, count in repaired.items() if count},
            objects=rows.objects,
            left_out=left_out,
            newest=moment(int(there[-1])) if len(there) else None,
            seen_interval=infer_interval(there[-_SEEN:]),
        )


class _Plan:
    """How one sensor is read: its interval and its channels, from wherever they are said."""

    def __init__(
        self,
        sensor: str,
        columns: SensorColumns,
        layout: HistoryLayout,
        interval: timedelta | None,
        channels: Sequence[str] | None,
    ) -> None:
        self.sensor = sensor
        self.columns = columns
        self.values = columns.values if columns.values is not None else layout.values
        self.interval = interval or columns.interval or layout.interval
        self.channels = channels


def _overlap(parts: Sequence[Rows]) -> bool:
    """Whether the times of two parts overlap, so that a stamp may be in both."""
    spans = sorted((int(part.stamps.min()), int(part.stamps.max())) for part in parts if len(part.stamps))
    return any(after[0] <= before[1] for before, after in itertools.pairwise(spans))


def _without_counters(rows: Rows, order: np.ndarray) -> tuple[Rows, list[str]]:
    """The rows without the channels that only rise, and their names; all stay if none would be left."""
    rises = only_rise(rows.values[order])
    if not rises.any() or rises.all():
        return rows, []
    kept = [name for name, rise in zip(rows.columns, rises, strict=True) if not rise]
    left_out = [name for name, rise in zip(rows.columns, rises, strict=True) if rise]
    return replace(rows, values=rows.values[:, ~rises], columns=kept), left_out


def _guarded(
    work: Callable[Concatenate[_Plan, P], A], plan: _Plan, *more: P.args, **named: P.kwargs
) -> A | PaanoError:
    """What `work` gives, or its error: the others of a batch are served whatever one sensor's data does."""
    try:
        return work(plan, *more, **named)
    except PaanoError as error:
        return error
    except Exception as error:
        return _unexpected(plan.sensor, error)


def _unexpected(sensor: str, error: Exception) -> HistoryError:
    """The outcome of a sensor whose data raised what nobody foresaw."""
    named = HistoryError(f"{sensor}: its history cannot be used ({type(error).__name__}: {str(error)[:200]})")
    named.__cause__ = error
    return named


def write_history(
    url: str, frame: pl.DataFrame, layout: HistoryLayout | None = None, options: StorageOptions | None = None
) -> list[str]:
    """Write rows (`sensor`, `ts` UTC, a column per channel) in `layout`; the keys. For demos and tests."""
    layout, store = layout or HistoryLayout(), open_store(url, options)
    columns = {channel: column for column, channel in (layout.values or {}).items()}
    rows = frame.rename({"ts": layout.time, **{c: n for c, n in columns.items() if c in frame.columns}})
    rows = rows.rename({"sensor": layout.sensor}).with_columns(pl.col(layout.time).dt.date().alias("_date"))
    by_sensor = [layout.sensor] if layout.kind == "sensor" else []
    keys = []
    for key, part in rows.partition_by(["_date", *by_sensor], as_dict=True).items():
        day = Window.day(key[0])
        place = layout.places(key[1] if by_sensor else None, Window(day.start, day.end))[0]
        if not is_parquet(layout.path):
            place += "/part-0000.parquet" if layout.dated else f"/date={key[0].isoformat()}/part-0000.parquet"
        part = part.drop("_date", *by_sensor).sort(
            by=layout.time if by_sensor else [layout.sensor, layout.time]
        )
        out = io.BytesIO()
        part.write_parquet(out, compression="zstd", statistics=True, row_group_size=65_536)
        store.put(place, out.getvalue())
        keys.append(place)
    return sorted(keys)

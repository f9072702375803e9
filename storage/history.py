"""History in: Parquet of one or many sensors, read by window onto a regular grid.

    history = History("s3://bucket/history", HistoryLayout(kind="long", values={"value": "pressure"}))
    reading = history.read("pump-17", Window.day(date(2026, 1, 2)))
    reading.values, reading.ts, reading.repaired, reading.digest

Only what is needed is read: objects are computed from the window, columns and row groups are pruned.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from paano.errors import HistoryError, PaanoError, SeriesTooShort
from storage.catalog import Catalog
from storage.grid import LARGEST, Grid, infer_interval, micros, moment, to_grid
from storage.layout import HistoryLayout, is_parquet
from storage.objects import StorageOptions, open_store
from storage.rows import RowReader, Rows, join
from storage.window import Window

__all__ = ["History", "HistoryLayout", "Reading", "write_history"]

_UNKNOWN = timedelta(hours=1)  # an interval not known yet is taken as at most this
_NEWEST = 7  # folders that are looked into to discover the sensors of long tables


@dataclass(frozen=True)
class Reading:
    """The rows of one sensor in a window, on a regular grid. NaN is missing."""

    sensor: str
    start: datetime  # of the first row, UTC
    interval: timedelta
    values: np.ndarray  # float64 [N, C]
    channels: list[str]  # C names
    repaired: dict[str, int] = field(default_factory=dict)
    objects: list[str] = field(default_factory=list)  # what was read, by address

    def __len__(self) -> int:
        return len(self.values)

    @property
    def ts(self) -> np.ndarray:
        """datetime64[us] [N], UTC."""
        step = self.interval // timedelta(microseconds=1)
        return (micros(self.start) + step * np.arange(len(self))).astype("datetime64[us]")

    @property
    def end(self) -> datetime:
        """The time after the last row."""
        return self.start + len(self) * self.interval

    @property
    def rows(self) -> int:
        """Rows with at least one value."""
        return int(np.count_nonzero(~np.isnan(self.values).all(axis=1)))

    @property
    def digest(self) -> str:
        """Stands for exactly what a model sees: where the grid is, the channels and every value."""
        step = self.interval // timedelta(microseconds=1)
        head = json.dumps([micros(self.start), step, self.channels, self.values.shape], separators=(",", ":"))
        values = np.where(np.isnan(self.values), np.nan, self.values)  # one NaN of the many
        return hashlib.sha256(head.encode() + values.astype("<f8").tobytes()).hexdigest()[:32]

    def cut(self, window: Window) -> Reading:
        """The rows within `window`."""
        step = self.interval // timedelta(microseconds=1)
        low = max(0, -((micros(self.start) - micros(window.start)) // step))
        high = max(low, min(len(self), -((micros(self.start) - micros(window.end)) // step)))
        return replace(self, start=self.start + low * self.interval, values=self.values[low:high])


class History:
    """Parquet under `url`, read-only."""

    def __init__(
        self, url: str, layout: HistoryLayout | None = None, options: StorageOptions | None = None
    ) -> None:
        self.layout = layout or HistoryLayout()
        self.options = options
        self.store = open_store(url, options)
        self._catalog: Catalog | None = None

    def __repr__(self) -> str:
        return f"History({self.store.url!r}, {self.layout.kind!r})"

    def sensors(self, refresh: bool = False) -> Catalog:
        """The catalogue, given or discovered; kept after the first call."""
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

    def read(self, sensor: str, window: Window, interval: timedelta | None = None) -> Reading:
        """Every grid point of `window`, missing ones as NaN. HistoryError names the sensor and the object."""
        intervals = {} if interval is None else {sensor: interval}
        reading = self.read_many([sensor], window, intervals, workers=1)[sensor]
        if isinstance(reading, PaanoError):
            raise reading
        return reading

    def read_many(
        self,
        sensors: Iterable[str],
        window: Window,
        intervals: Mapping[str, timedelta] | None = None,
        workers: int = 8,
    ) -> dict[str, Reading | PaanoError]:
        """A reading or its error for each sensor. An object of a long table is read once for all of them.

        `intervals` pins the interval of a sensor (of its model, of the catalogue); else it is the layout's,
        else inferred. An error may be Transient.
        """
        names = list(dict.fromkeys(sensors))
        intervals = intervals or {}
        read = self._read_long if self.layout.kind == "long" else self._read_each
        return read(names, window, intervals, workers)

    def _read_each(
        self, names: list[str], window: Window, intervals: Mapping[str, timedelta], workers: int
    ) -> dict[str, Reading | PaanoError]:
        def one(name: str) -> Reading | PaanoError:
            try:
                return self._read_one(name, window, intervals.get(name) or self.layout.interval)
            except PaanoError as error:
                return error

        with ThreadPoolExecutor(max(1, workers)) as pool:
            return dict(zip(names, pool.map(one, names), strict=True))

    def _read_one(self, name: str, window: Window, interval: timedelta | None) -> Reading:
        wide = self._reach(window, {interval})
        reader = RowReader(self.store, self.layout)
        parts = []
        objects = self.layout.objects(self.store, name, wide)
        for key, size in objects:
            part = reader.read(key, size, wide, None, subject=name)
            if part is not None:
                parts.append(part)
        return self._reading(name, self._joined(name, parts), window, interval)

    def _joined(self, name: str, parts: list[Rows]) -> Rows:
        """The rows of a sensor; none, if it is a known one. UnknownSensor if it is not."""
        if parts:
            return join(parts, name)
        reader, layout = RowReader(self.store, self.layout), self.layout
        folder = layout.folder(name)
        found = [i for i in self.store.list(folder) if is_parquet(i.key)] if folder is not None else []
        if not found:
            self.sensors()[name]  # raises, with the nearest ids
            found = layout.newest(self.store, 1)
        if layout.values is not None:
            channels = list(layout.values.values())
        elif found:
            channels = reader.channels(found[-1], name)
        else:
            raise HistoryError(f"{name}: there is nothing to read; name its columns in history.values")
        return Rows(np.empty(0, np.int64), np.empty((0, len(channels))), channels, 0, [])

    def _read_long(
        self, names: list[str], window: Window, intervals: Mapping[str, timedelta], workers: int
    ) -> dict[str, Reading | PaanoError]:
        wide = self._reach(window, {intervals.get(name) or self.layout.interval for name in names})
        reader = RowReader(self.store, self.layout)
        wanted = sorted(set(names))

        def one(item: tuple[str, int | None]) -> Rows | PaanoError | None:
            try:
                return reader.read(*item, wide, wanted, subject=f"{len(names)} sensors")
            except PaanoError as error:
                return error

        try:
            objects = self.layout.objects(self.store, None, wide)
        except PaanoError as error:
            return dict.fromkeys(names, error)
        with ThreadPoolExecutor(max(1, workers)) as pool:
            parts = list(pool.map(one, objects))
        broken = [part for part in parts if isinstance(part, PaanoError)]
        if broken:
            # Which sensors a damaged object held cannot be known: none of them has its whole window.
            return {name: type(broken[0])(f"{name}: {broken[0]}") for name in names}
        per_sensor: dict[str, list[Rows]] = {name: [] for name in names}
        for part in parts:
            for name, rows in part.by_sensor() if part is not None else ():
                per_sensor[name].append(rows)
        out: dict[str, Reading | PaanoError] = {}
        for name in names:
            try:
                interval = intervals.get(name) or self.layout.interval
                rows = per_sensor[name]
                if not rows and name in self.sensors():
                    rows = [part.none() for part in parts if part is not None][-1:]
                out[name] = self._reading(name, self._joined(name, rows), window, interval)
            except PaanoError as error:
                out[name] = error
        return out

    def _reach(self, window: Window, intervals: set[timedelta | None]) -> Window:
        """`window` with the rows just outside that belong to its grid points."""
        spans = [self._grid(window, interval or _UNKNOWN).span for interval in intervals or {None}]
        low, high = (
            moment(bound(ends)) for bound, ends in zip((min, max), zip(*spans, strict=True), strict=True)
        )
        return Window(min(low, window.start), max(high, window.end))

    def _grid(self, window: Window, interval: timedelta) -> Grid:
        return Grid.of(window, interval, self.layout.tolerance, self.layout.phase)

    def _reading(self, name: str, rows: Rows, window: Window, interval: timedelta | None) -> Reading:
        if interval is None:
            interval = infer_interval(rows.stamps)
        if interval is None:
            raise SeriesTooShort(
                f"{name}: {len(rows.stamps)} rows in {window} are too few to see the interval; "
                "set history.interval or the catalogue's"
            )
        grid = self._grid(window, interval)
        if not 0 < grid.count <= LARGEST:
            raise HistoryError(
                f"{name}: {window} has {grid.count} points at an interval of {interval}; "
                "correct history.interval or the window"
            )
        values, repaired = to_grid(rows.stamps, rows.values, grid)
        repaired["no_time"] = rows.no_time
        return Reading(
            sensor=name,
            start=moment(grid.first),
            interval=interval,
            values=values,
            channels=rows.channels,
            repaired={what: count for what, count in repaired.items() if count},
            objects=rows.objects,
        )


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
        if not is_parquet(place):
            place += "/part-0000.parquet" if layout.dated else f"/date={key[0].isoformat()}/part-0000.parquet"
        part = part.drop("_date", *by_sensor).sort(
            by=layout.time if by_sensor else [layout.sensor, layout.time]
        )
        out = io.BytesIO()
        part.write_parquet(out, compression="zstd", statistics=True, row_group_size=65_536)
        store.put(place, out.getvalue())
        keys.append(place)
    return sorted(keys)

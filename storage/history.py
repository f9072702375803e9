"""History in: Parquet of one or many sensors, read by window onto a regular grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
import polars as pl

from paano.errors import PaanoError
from storage.catalog import Catalog
from storage.objects import StorageOptions
from storage.window import Window


@dataclass(frozen=True)
class HistoryLayout:
    """Where the rows of a sensor are, and what the columns are called.

    `kind = "sensor"`: a prefix per sensor. `path` gives it: `{sensor}` alone means any Parquet below that
    folder (hive partitions `date=…`, or `year=…/month=…/day=…` are used to skip objects); with `{date}` in
    it the objects are computed from the window and nothing is listed (`{sensor}/date={date}.parquet`).
    `kind = "long"`: tables with a sensor column, `path` with `{date}`: a folder (`date={date}`) or an object.
    """

    kind: str = "sensor"
    path: str = "{sensor}"
    time: str = "ts"
    sensor: str = "sensor"  # the sensor column of long tables
    values: Mapping[str, str] | None = None  # {column in the files: channel name}; None: every number column
    interval: timedelta | None = None  # None: inferred from the rows
    tolerance: float = 0.5  # a stamp is snapped to a grid point at most this share of the interval away
    phase: timedelta = timedelta(0)  # grid points are multiples of the interval since 1970 plus this
    catalog: str | None = None  # URL of a catalogue (Parquet or CSV); None: discovered


@dataclass(frozen=True)
class Reading:
    """The rows of one sensor in a window, on a regular grid. NaN is missing."""

    sensor: str
    start: datetime  # of the first row, UTC
    interval: timedelta
    values: np.ndarray  # float64 [N, C]
    channels: list[str]  # C names
    repaired: dict[str, int] = field(default_factory=dict)
    digest: str = ""
    objects: list[str] = field(default_factory=list)  # what was read

    @property
    def ts(self) -> np.ndarray:
        """datetime64[us] [N], UTC."""
        raise NotImplementedError

    def cut(self, window: Window) -> Reading:
        """The rows within `window`, with the digest of just these."""
        raise NotImplementedError


class History:
    """Parquet under `url`, read-only."""

    def __init__(
        self, url: str, layout: HistoryLayout | None = None, options: StorageOptions | None = None
    ) -> None:
        raise NotImplementedError

    def sensors(self, refresh: bool = False) -> Catalog:
        """The catalogue, given or discovered; kept after the first call."""
        raise NotImplementedError

    def read(self, sensor: str, window: Window, interval: timedelta | None = None) -> Reading:
        """Every grid point of `window`, missing ones as NaN. HistoryError names the sensor and the object."""
        raise NotImplementedError

    def read_many(
        self,
        sensors: Iterable[str],
        window: Window,
        intervals: Mapping[str, timedelta] | None = None,
        workers: int = 8,
    ) -> dict[str, Reading | PaanoError]:
        """A reading or its error for each sensor. An object of a long table is read once for all of them."""
        raise NotImplementedError


def write_history(
    url: str, frame: pl.DataFrame, layout: HistoryLayout, options: StorageOptions | None = None
) -> list[str]:
    """Write `frame` (sensor, ts, channels…) in `layout`: an object per day, or per sensor and day."""
    raise NotImplementedError

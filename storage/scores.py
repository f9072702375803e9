"""Scores out: `date=YYYY-MM-DD/shard-0003.parquet`, one object and one PUT per (date, shard)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

import polars as pl

from storage.objects import Store
from storage.window import Window

SCORE_SCHEMA = {
    "sensor": pl.String,
    "ts": pl.Datetime("us", "UTC"),
    "score": pl.Float32,
    "threshold": pl.Float32,
    "anomaly": pl.Boolean,
    "status": pl.String,
    "coverage": pl.UInt16,
    "model_version": pl.Int32,
}


@dataclass(frozen=True)
class Written:
    """What a write did. `changed` is false when the object already held the same bytes."""

    key: str
    rows: int
    changed: bool
    etag: str


class ScoreStore:
    """Scores of a fleet. The shard count is fixed by the first write; another one is a ConfigError."""

    def __init__(self, store: Store, shards: int | None = None) -> None:
        """`shards = None` takes what the store has, or 16 for a new one."""
        raise NotImplementedError

    @property
    def shards(self) -> int:
        raise NotImplementedError

    def shard_of(self, sensor: str) -> int:
        raise NotImplementedError

    def write_day(self, day: date, shard: int, frame: pl.DataFrame) -> Written:
        """The whole object of (day, shard): one PUT, the last writer wins. An equal object is left alone."""
        raise NotImplementedError

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
        raise NotImplementedError

    def update(
        self, frame: pl.DataFrame, window: Window, sensors: Iterable[str] | None = None
    ) -> list[Written]:
        """`replace` on every (date, shard) of `sensors` × `window`; rows not in `frame` are taken out."""
        raise NotImplementedError

    def read(self, sensor: str, window: Window, columns: list[str] | None = None) -> pl.DataFrame:
        """Rows of a sensor, sorted by time. One object per day is asked for; none is listed."""
        raise NotImplementedError

    def read_many(
        self, sensors: Iterable[str] | None, window: Window, columns: list[str] | None = None
    ) -> pl.DataFrame:
        """Rows of many sensors (None: all), sorted by sensor and time."""
        raise NotImplementedError

    def dates(self) -> list[date]:
        """Dates with at least one object."""
        raise NotImplementedError

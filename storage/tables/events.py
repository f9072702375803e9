"""Events out: the same folder form as scores; an event lies in the date of its start."""

from __future__ import annotations

from typing import ClassVar

import polars as pl

from storage.tables.day_table import DayTable

EVENT_SCHEMA = {
    "event_id": pl.String(),
    "sensor": pl.String(),
    "start": pl.Datetime("us", "UTC"),
    "end": pl.Datetime("us", "UTC"),
    "peak": pl.Datetime("us", "UTC"),
    "score": pl.Float32(),
    "severity": pl.Float32(),
    "length": pl.Int32(),
    "channels": pl.List(pl.String()),
    "cause": pl.String(),  # which part of the score raised it: shape, level, shape and level
    "model_version": pl.Int32(),
}


class EventStore(DayTable):
    """Events of a fleet: the methods of ScoreStore, with `start` as the time of a row."""

    kind = "events"
    schema = EVENT_SCHEMA
    time = "start"
    order = ("sensor", "start", "event_id")  # a fault and a stuck value may begin in the same row
    renamed: ClassVar[dict[str, str]] = {"kind": "cause"}
    required = ("event_id", "sensor", "start", "end", "peak", "length")

    def tidy(self, rows: pl.DataFrame) -> pl.DataFrame:
        """A missing figure is null, never NaN."""
        return rows.with_columns(pl.col("score", "severity").fill_nan(None))

"""Events out: the same folder form as scores; an event lies in the date of its start."""

from __future__ import annotations

import polars as pl

from storage.tables import DayTable

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
    "kind": pl.String(),  # which part of the score spoke: shape, level, shape and level
    "model_version": pl.Int32(),
}


class EventStore(DayTable):
    """Events of a fleet: the methods of ScoreStore, with `start` as the time of a row."""

    kind = "events"
    schema = EVENT_SCHEMA
    time = "start"
    order = ("sensor", "start")
    required = ("event_id", "sensor", "start", "end", "peak", "length")

    def tidy(self, rows: pl.DataFrame) -> pl.DataFrame:
        """A missing figure is null, never NaN."""
        return rows.with_columns(pl.col("score", "severity").fill_nan(None))

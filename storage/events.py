"""Events out: the same folder form as scores; an event lies in the date of its start."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

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
    arrow = pa.schema(
        [
            pa.field("event_id", pa.string(), nullable=False),
            pa.field("sensor", pa.string(), nullable=False),
            pa.field("start", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("end", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("peak", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("score", pa.float32()),
            pa.field("severity", pa.float32()),
            pa.field("length", pa.int32(), nullable=False),
            pa.field("channels", pa.list_(pa.string())),
            pa.field("kind", pa.string()),
            pa.field("model_version", pa.int32()),
        ]
    )
    time = "start"
    order = ["sensor", "start"]  # noqa: RUF012

    def required(self) -> list[str]:
        return ["event_id", "sensor", "start", "end", "peak", "length"]

    def tidy(self, rows: pl.DataFrame) -> pl.DataFrame:
        """A missing figure is null, never NaN."""
        return rows.with_columns(pl.col("score", "severity").fill_nan(None))

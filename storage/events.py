"""Events out: the same folder form as scores; an event lies in the date of its start."""

from __future__ import annotations

import polars as pl

from storage.scores import ScoreStore

EVENT_SCHEMA = {
    "event_id": pl.String,
    "sensor": pl.String,
    "start": pl.Datetime("us", "UTC"),
    "end": pl.Datetime("us", "UTC"),
    "peak": pl.Datetime("us", "UTC"),
    "score": pl.Float32,
    "severity": pl.Float32,
    "length": pl.Int32,
    "channels": pl.List(pl.String),
    "model_version": pl.Int32,
}


class EventStore(ScoreStore):
    """Events of a fleet: the methods of ScoreStore, with `start` as the time of a row."""

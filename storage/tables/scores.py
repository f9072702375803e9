"""Scores out: `date=YYYY-MM-DD/shard-0003.parquet`, one object and one PUT per (date, shard)."""

from __future__ import annotations

import polars as pl

from paano.errors import StorageError
from paano.status import SCORED, Status
from storage.tables.day_table import DayTable, Written

__all__ = ["SCORE_SCHEMA", "STATUSES", "ScoreStore", "Written"]

STATUSES = tuple(str(status) for status in Status)
WITH_SCORE = tuple(str(status) for status in (*SCORED, Status.MUTED))

SCORE_SCHEMA = {
    "sensor": pl.String(),
    "ts": pl.Datetime("us", "UTC"),
    "score": pl.Float32(),
    "threshold": pl.Float32(),
    "anomaly": pl.Boolean(),
    "status": pl.String(),
    "coverage": pl.UInt16(),
    "model_version": pl.Int32(),
}


class ScoreStore(DayTable):
    """Scores of a fleet. The shard count is fixed by the first write; another one is a ConfigError."""

    kind = "scores"
    schema = SCORE_SCHEMA
    time = "ts"
    order = ("sensor", "ts")
    required = ("sensor", "ts", "anomaly", "status", "coverage")

    def tidy(self, rows: pl.DataFrame) -> pl.DataFrame:
        """A missing score is null, never NaN; only `ok`, `provisional` and `muted` rows have one."""
        rows = rows.with_columns(pl.col("score", "threshold").fill_nan(None))
        odd = rows.filter(~pl.col("status").is_in(STATUSES))
        if odd.height:
            raise StorageError(
                f"scores: {odd['status'][0]!r} is not a status; allowed: {', '.join(STATUSES)}"
            )
        scored = pl.col("status").is_in(WITH_SCORE)
        wrong = rows.filter(scored != pl.col("score").is_not_null())
        if wrong.height:
            row = wrong.row(0, named=True)
            raise StorageError(
                f"scores: {row['sensor']!r} at {row['ts']} is {row['status']} with the score {row['score']}; "
                "ok, provisional and muted rows have a score, all others none"
            )
        loud = rows.filter(pl.col("anomaly") & (pl.col("status") == str(Status.MUTED)))
        if loud.height:
            row = loud.row(0, named=True)
            raise StorageError(f"scores: {row['sensor']!r} at {row['ts']} is muted and cannot be an anomaly")
        return rows

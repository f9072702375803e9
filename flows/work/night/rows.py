"""Which score rows a run may write: the one place that decides what takes the place of what is stored.

A run is about a stretch of days. It computes every row that the data of these days can change: those of the
days themselves, and those of one context before and after. What is then stored follows from history and
champion alone, not from the order in which runs came:

- **Days asked for.** The new rows take the place of the stored ones, unless a row would become worse: a score
  is better than `no_data`, and that is better than `no_model`. Where a row would become worse, the better one
  stays; if it was given by another model version, its whole day stays, so that two models never share a day.
  A rescore replaces the days in any case.
  Rows that the calendar mutes come as `muted` and are ranked like any other with a score.
- **Neighbouring rows** are written only where a row of the same model version is stored, and only if they
  differ: a night finishes the rows that the night before had to leave `provisional`, and a day whose history
  came late brings the rows around it up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import polars as pl

from paano.alarms.events import anomalous
from paano.status import SCORED, Status
from storage.tables.scores import SCORE_SCHEMA
from storage.window import Window

KEY = ["sensor", "ts"]
STATUSES = tuple(Status)
SAME = 1e-6  # scores this close are the same: the last bits may depend on where a series was cut


@dataclass(frozen=True)
class NewRows:
    """The rows that were computed for one sensor, in order of time. Plain arrays, for any engine to carry."""

    sensor: str
    ts: np.ndarray  # datetime64[us] [n], UTC
    score: np.ndarray  # float32 [n], NaN = none
    status: np.ndarray  # str [n]
    coverage: np.ndarray  # uint16 [n]
    threshold: float | None
    version: int | None

    def __len__(self) -> int:
        return len(self.ts)

    def within(self, window: Window) -> np.ndarray:
        """bool [n]: the rows in `window`."""
        return (self.ts >= as_stamp(window.start)) & (self.ts < as_stamp(window.end))


def as_stamp(moment: datetime) -> np.datetime64:
    """A moment as the arrays keep it."""
    return np.datetime64(moment.replace(tzinfo=None), "us")


def frame_of(parts: Sequence[NewRows]) -> pl.DataFrame:
    """The rows of many sensors as the score store keeps them."""
    if not parts:
        return pl.DataFrame(schema=SCORE_SCHEMA)
    lengths = [len(part) for part in parts]

    def repeat(values: Iterable[object], kind: pl.DataType) -> pl.Series:
        return pl.Series(list(values), dtype=kind).gather(numbers)

    numbers = np.repeat(np.arange(len(parts), dtype=np.uint32), lengths)
    score = np.concatenate([part.score for part in parts]).astype(np.float32)
    status = np.concatenate([part.status.astype("<U11") for part in parts])
    limits = np.repeat(
        np.array([np.inf if part.threshold is None else part.threshold for part in parts], np.float32),
        lengths,
    )
    return pl.DataFrame(
        {
            "sensor": repeat((part.sensor for part in parts), pl.String()),
            "ts": np.concatenate([part.ts for part in parts]),
            "score": pl.Series(score, dtype=pl.Float32).fill_nan(None),
            "threshold": repeat((part.threshold for part in parts), pl.Float32()),
            "anomaly": anomalous(score, status, limits),
            "status": texts(status),
            "coverage": np.concatenate([part.coverage for part in parts]).astype(np.uint16),
            "model_version": repeat((part.version for part in parts), pl.Int32()),
        }
    ).with_columns(pl.col("ts").cast(pl.Datetime("us")).dt.replace_time_zone("UTC"))


def texts(status: np.ndarray) -> pl.Series:
    """Statuses as a column of text; a few values stand in very many rows."""
    numbers = np.zeros(len(status), np.uint32)
    for number, known in enumerate(STATUSES):
        numbers[status == known.value] = number
    return pl.Series([str(known) for known in STATUSES]).gather(numbers)


def merge_rows(
    stored: pl.DataFrame, new: pl.DataFrame, days: Sequence[Window], rescore: bool = False
) -> pl.DataFrame:
    """`stored` with the rows of `new` that may take their place, sorted by sensor and time.

    Args:
        stored: all rows of the sensors of `new`, in the span of `new`.
        new: what was computed, for the days and around them.
        days: the days asked for, in order; together they are one stretch.
        rescore: replace these days even where rows become worse.
    """
    inside = pl.col("ts").is_between(days[0].start, days[-1].end, closed="left")
    if not stored.height:
        return new.filter(inside).sort(KEY)
    day = pl.lit(0, pl.Int32) + pl.sum_horizontal(
        pl.lit(0, pl.Int32), *((pl.col("ts") >= other.start).cast(pl.Int32) for other in days[1:])
    )
    both = new.with_columns(new=pl.lit(True)).join(
        stored.with_columns(old=pl.lit(True)), on=KEY, how="full", coalesce=True, suffix="_old"
    )
    both = both.with_columns(
        pl.col("new", "old").fill_null(False),
        inside=inside,
        day=day,
        gain=_rank("status").fill_null(-1) - _rank("status_old").fill_null(-1),
        other=pl.col("model_version").ne_missing(pl.col("model_version_old")),
    )
    chosen = _inside(both, rescore) | _outside(both)
    columns = list(SCORE_SCHEMA)
    taken = both.filter(chosen).select(columns)
    kept = both.filter(pl.col("old") & ~chosen & ~_dropped(both, rescore)).select(
        *KEY, *(pl.col(f"{name}_old").alias(name) for name in columns if name not in KEY)
    )
    return pl.concat([taken, kept.select(columns)]).sort(KEY)


def _rank(column: str) -> pl.Expr:
    status = pl.col(column)
    return (
        pl.when(status.is_in([str(known) for known in (*SCORED, Status.MUTED)]))
        .then(2)
        .when(status == str(Status.NO_DATA))
        .then(1)
        .when(status == str(Status.NO_MODEL))
        .then(0)
        .cast(pl.Int32)
    )


def _day_is_replaced(rescore: bool) -> pl.Expr:
    """Whether the new rows of a sensor's day take the place of all stored ones."""
    if rescore:
        return pl.col("inside")
    computed = pl.col("new").any().over("sensor", "day", "inside")
    worse = (pl.col("new") & pl.col("old") & (pl.col("gain") < 0)).any().over("sensor", "day", "inside")
    return pl.col("inside") & computed & ~worse


def _inside(both: pl.DataFrame, rescore: bool) -> pl.Expr:
    """Rows of the days asked for that are written."""
    mixed = (pl.col("old") & pl.col("new") & pl.col("other")).any().over("sensor", "day", "inside")
    row_by_row = ~mixed & (~pl.col("old") | (pl.col("gain") >= 0))
    return pl.col("inside") & pl.col("new") & (_day_is_replaced(rescore) | row_by_row)


def _dropped(both: pl.DataFrame, rescore: bool) -> pl.Expr:
    """Stored rows of a replaced day at times that are no longer on the sensor's grid."""
    return _day_is_replaced(rescore) & ~pl.col("new")


def _outside(both: pl.DataFrame) -> pl.Expr:
    """Neighbouring rows that are written."""
    score, old = pl.col("score"), pl.col("score_old")
    # The calendar of a neighbouring day counts when that day is run: muted or not is no difference here.
    status, before = (
        pl.col(name).replace(str(Status.MUTED), str(Status.OK)) for name in ("status", "status_old")
    )
    differs = (
        status.ne_missing(before)
        | pl.col("coverage").ne_missing(pl.col("coverage_old"))
        | ((score - old).abs() > SAME * pl.max_horizontal(pl.lit(1.0), old.abs()))
    ).fill_null(True)
    # A run about another day may not see that the history ends for good where it ends: final stays final.
    less_sure = (status == str(Status.PROVISIONAL)) & (before == str(Status.OK))
    same_model = pl.col("new") & pl.col("old") & ~pl.col("other") & ~less_sure.fill_null(False)
    return ~pl.col("inside") & same_model & (pl.col("gain") >= 0) & differs

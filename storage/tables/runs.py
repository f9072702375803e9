"""Outcomes of runs: `flow=score/date=YYYY-MM-DD/shard-0000.parquet`, a row per sensor and moment.

The date is that of the night, or of the moment, that the run was about, not of the clock. A run of the whole
fleet replaces all rows of that moment, a run of some sensors only theirs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from storage.objects.store import StorageOptions, open_store
from storage.tables.day_table import DayTable, Written
from storage.window import Window

FIGURES: dict[str, pl.DataType] = {
    "rows": pl.Int64(),
    "missing": pl.Int64(),
    "anomalies": pl.Int64(),
    "highest": pl.Float64(),
    "threshold": pl.Float64(),
    "repaired": pl.String(),
    "events": pl.Int64(),
    "severity": pl.Float64(),
    "version": pl.Int64(),
    "champion": pl.Int64(),
    "kind": pl.String(),
    "why": pl.String(),
    "vus_pr": pl.Float64(),
    "champion_vus_pr": pl.Float64(),
    "alarms": pl.Float64(),
    "champion_alarms": pl.Float64(),
    "trained_to": pl.String(),
    "seconds": pl.Float64(),
    "age_days": pl.Float64(),
    "ks": pl.Float64(),
    "psi": pl.Float64(),
    "alarm_days": pl.Int64(),
    "gaps": pl.Float64(),
    "note": pl.String(),
}
RUN_SCHEMA: dict[str, pl.DataType] = {
    "sensor": pl.String(),
    "as_of": pl.Datetime("us", "UTC"),
    "flow": pl.String(),
    "title": pl.String(),
    "state": pl.String(),
    "reason": pl.String(),
    "batch": pl.Int32(),
    **FIGURES,
    "more": pl.String(),  # figures that have no column, as JSON
}


@dataclass(frozen=True)
class RunRow:
    """What became of one sensor in a run."""

    sensor: str
    state: str
    reason: str = ""
    batch: int = 0
    figures: Mapping[str, Any] = field(default_factory=dict)


class RunStore(DayTable):
    """The outcomes of one flow. `as_of` is the moment a run was about; for a night, the start of its day."""

    kind = "runs"
    schema = RUN_SCHEMA
    time = "as_of"
    order = ("sensor", "as_of")
    required = ("sensor", "as_of", "flow", "state")

    def __init__(self, url: str, flow: str, options: StorageOptions | None = None) -> None:
        """The runs of `flow` in the folder or URL of all runs."""
        super().__init__(open_store(f"{url.rstrip('/')}/flow={flow}", options), shards=1)
        self.flow = flow

    def keep(self, rows: Iterable[RunRow], as_of: datetime, title: str = "", whole: bool = False) -> Written:
        """Write the outcomes of a run.

        Args:
            rows: one for each sensor of the run.
            as_of: the moment the run was about.
            title: what it is called in reports.
            whole: the run was about the whole fleet: rows of other sensors at that moment are removed.
        """
        moment = as_of.replace(tzinfo=UTC) if as_of.tzinfo is None else as_of.astimezone(UTC)
        frame = self._frame(list(rows), moment, title)
        window = Window(moment, moment + timedelta(microseconds=1))
        gone = set(frame["sensor"])
        if whole:
            gone |= set(self.read_many(None, window, ["sensor"])["sensor"])
        return self.replace(moment.date(), 0, frame, gone, window)

    def _frame(self, rows: list[RunRow], moment: datetime, title: str) -> pl.DataFrame:
        made = []
        for row in rows:
            columns, more = split_figures(row.figures)
            made.append(
                {
                    "sensor": row.sensor,
                    "as_of": moment,
                    "flow": self.flow,
                    "title": title,
                    "state": str(row.state),
                    "reason": row.reason,
                    "batch": row.batch,
                    **columns,
                    "more": json.dumps(more, sort_keys=True, default=str) if more else None,
                }
            )
        return pl.DataFrame(made, schema=RUN_SCHEMA, orient="row")

    def counts(self, window: Window) -> dict[str, int]:
        """How many sensors ended in which state, the most frequent first; the last moment of each counts."""
        rows = self.read_many(None, window, ["sensor", "as_of", "state"])
        states = rows.group_by("sensor", maintain_order=True).last()["state"]
        return {row["state"]: row["count"] for row in states.value_counts(sort=True).iter_rows(named=True)}


def split_figures(figures: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures that fit their column, and the others. A missing figure and NaN are neither."""
    columns: dict[str, Any] = {}
    more: dict[str, Any] = {}
    for name, value in figures.items():
        if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
            continue
        kind = FIGURES.get(name)
        fits = (
            (isinstance(kind, pl.String) and isinstance(value, str))
            or (isinstance(kind, pl.Int64) and isinstance(value, int) and not isinstance(value, bool))
            or (isinstance(kind, pl.Float64) and isinstance(value, (int, float)))
        )
        if fits:
            columns[name] = float(value) if isinstance(kind, pl.Float64) else value
        else:
            more[name] = value
    return columns, more

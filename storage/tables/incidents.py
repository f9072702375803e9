"""Incidents out: events of one group that overlap in time, in the date of their start.

The column `sensor` is the first sensor that moved; `sensors` has all members, the first first.
"""

from __future__ import annotations

import polars as pl

from storage.tables.day_table import DayTable

INCIDENT_SCHEMA = {
    "incident_id": pl.String(),
    "sensor": pl.String(),  # the first to move
    "group": pl.String(),  # of the catalog; a sensor without one is a group of its own
    "start": pl.Datetime("us", "UTC"),
    "end": pl.Datetime("us", "UTC"),  # included
    "severity": pl.Float32(),  # the largest of its events
    "cause": pl.String(),  # of the event with that severity
    "sensors": pl.List(pl.String()),
    "events": pl.List(pl.String()),  # ids, by start
}


class IncidentStore(DayTable):
    """Incidents of a fleet: the methods of ScoreStore, with `start` as the time of a row."""

    kind = "incidents"
    schema = INCIDENT_SCHEMA
    time = "start"
    order = ("sensor", "start", "incident_id")
    required = ("incident_id", "sensor", "group", "start", "end", "sensors", "events")

    def tidy(self, rows: pl.DataFrame) -> pl.DataFrame:
        """A missing figure is null, never NaN."""
        return rows.with_columns(pl.col("severity").fill_nan(None))

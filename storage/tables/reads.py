"""What a night read: for each sensor and day, what its history looked like then.

`objects` stands for the names, sizes and ages of the objects that can hold the day, as a listing shows them;
`digest` for the values themselves. A day whose `objects` are the same has not changed. Of a day that could
not be scored `digest` is empty, and `objects` stands for those of the days around it too. `inputs` stands for
all that the scores of the day follow from, with the `figures` of its outcome; it is null where a run has to
look again in any case.
"""

from __future__ import annotations

import polars as pl

from storage.tables.day_table import DayTable

READ_SCHEMA = {
    "sensor": pl.String(),
    "ts": pl.Datetime("us", "UTC"),  # the start of the day
    "end": pl.Datetime("us", "UTC"),
    "objects": pl.String(),
    "digest": pl.String(),
    "interval": pl.Duration("us"),  # and the channels, that the values were read with
    "channels": pl.List(pl.String()),
    "inputs": pl.String(),
    "figures": pl.String(),  # JSON
}


class ReadStore(DayTable):
    """What nights read: the methods of ScoreStore."""

    kind = "reads"
    schema = READ_SCHEMA
    time = "ts"
    order = ("sensor", "ts")
    later = ("inputs", "figures")
    required = ("sensor", "ts", "end", "objects", "digest", "interval", "channels")

"""One pass over long tables: every object is read once and its rows are handed to the batches they belong to.

`History.scatter` says how flows use it. A piece is a small long table with the columns of the history, one
object per source object, so that the same reader reads both and gives the same values.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.history.layout import Found, HistoryLayout
from storage.history.rows import RowReader, Wanted
from storage.objects.store import Store
from storage.window import Window

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Piece:
    """The rows of one batch: where they are, whose, and of which window. Plain, to travel to a task."""

    url: str
    sensors: tuple[str, ...]
    start: str  # ISO times
    end: str
    longest: float  # seconds: rows of a sensor with a longer interval may be missing at the edges

    def covers(self, sensors: Collection[str], window: Window, longest: timedelta) -> bool:
        """Whether all rows of `sensors` in `window` (with the edges an interval needs) are in this piece."""
        own = Window.from_dict({"start": self.start, "end": self.end})
        return (
            set(sensors) <= set(self.sensors)
            and own.start <= window.start
            and window.end <= own.end
            and longest.total_seconds() <= self.longest
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Piece:
        return cls(**{**value, "sensors": tuple(value["sensors"])})


def piece_layout(layout: HistoryLayout) -> HistoryLayout:
    """The layout of a piece of a history with `layout`: one folder, its objects in the order of their age."""
    return replace(layout, path="rows", newest_by="name", catalog=None)


def scatter(
    reader: RowReader,
    objects: Sequence[Found],
    window: Window,
    longest: timedelta,
    batches: Sequence[Sequence[str]],
    wanted: Wanted,
    to: Store,
    workers: int = 4,
) -> list[Piece]:
    """Read `objects` once and write the rows of each batch's sensors below `to`; the pieces, by batch."""
    owner = {name: number for number, batch in enumerate(batches) for name in batch}
    sensors = sorted(owner)
    there = [found for one in objects if (found := reader.located(one)) is not None]
    if reader.layout.newest_by == "modified":
        there.sort(key=lambda found: (found.modified or _LONG_AGO, found.key))
    # Pieces are read by name: what wins for a repeated stamp, the newest object, has the last name.

    def hand_out(item: tuple[int, Found]) -> None:
        rank, found = item
        for part, table in enumerate(reader.tables(found, window, sensors, wanted, f"{len(owner)} sensors")):
            known, codes = reader.ids(table, found.key)
            number = np.array([owner.get(name, -1) for name in known] + [-1], np.int64)[codes]
            order = np.argsort(number, kind="stable")
            edges = np.searchsorted(number[order], np.arange(len(batches) + 1))
            for batch in range(len(batches)):
                rows = order[edges[batch] : edges[batch + 1]]
                if len(rows):
                    key = f"batch-{batch:04d}/rows/{rank:06d}-{part:04d}.parquet"
                    to.put(key, _encoded(table.take(pa.array(rows))))

    with ThreadPoolExecutor(max(1, workers)) as pool:
        for _ in pool.map(hand_out, enumerate(there)):
            pass  # raises what went wrong
    return [
        Piece(
            to.url_of(f"batch-{number:04d}"),
            tuple(batch),
            window.start.isoformat(),
            window.end.isoformat(),
            longest.total_seconds(),
        )
        for number, batch in enumerate(batches)
    ]


def remove_pieces(to: Store) -> None:
    """Delete what `scatter` wrote below `to`."""
    to.delete([info.key for info in to.list("") if info.key.startswith("batch-")])


def _encoded(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", compression_level=1)
    return out.getvalue()

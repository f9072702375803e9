"""Row 12: hostile Parquet, read by a process whose memory and time are measured."""

from __future__ import annotations

import io
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paano.errors import PaanoError
from storage.history.reader import History, HistoryLayout, Reading
from tests.faults.processes import in_process
from tests.faults.tally import Row, Tally
from tests.storage.test_storage_hostile_history import (
    DAY,
    HEALTHY,
    HOSTILE,
    ROWS,
    STAMPS,
    VALUES,
    many_columns,
    nested,
    parquet,
)

MEMORY = 160 << 10  # kB of growth: half of it is Arrow's and polars' own first use
SECONDS = 20.0


def constant_rows(rows: int, codec: str) -> bytes:
    """Many equal rows in few bytes."""
    part = pa.table({"ts": pa.array(np.repeat(STAMPS[:1], rows)), "value": np.zeros(rows)})
    out = io.BytesIO()
    pq.write_table(part, out, compression=codec, row_group_size=rows)
    return out.getvalue()


def wrong_statistics() -> bytes:
    """The statistics of the time column exchanged in the footer."""
    low, high = STAMPS[0].astype(np.int64).tobytes(), STAMPS[-1].astype(np.int64).tobytes()
    footer = 8 + int.from_bytes(HEALTHY[-8:-4], "little")
    changed = HEALTHY[-footer:].replace(low, b"\0" * 8).replace(high, low)
    return HEALTHY[:-footer] + changed


def longer_pages() -> bytes:
    """A page header that says more than there is."""
    broken = bytearray(HEALTHY)
    broken[4:12] = b"\x15\x00\x15\xfe\xff\xff\xff\x0f"
    return bytes(broken)


BOMBS: dict[str, Callable[[], bytes]] = {
    **{name: made for name, (made, _) in HOSTILE.items()},
    "100,000 columns": lambda: many_columns(100_000),
    "20,000 columns": lambda: many_columns(20_000),
    "nested 200 levels": lambda: nested(200),
    "30 million equal rows, gzip": lambda: constant_rows(30_000_000, "gzip"),
    "30 million equal rows, zstd": lambda: constant_rows(30_000_000, "zstd"),
    "wrong statistics": wrong_statistics,
    "longer pages": longer_pages,
    "many row groups": lambda: parquet({"ts": STAMPS, "value": VALUES}, row_group_size=1),
    "a dictionary of megabytes": lambda: parquet(
        {"ts": STAMPS, "value": VALUES, "note": [f"{n}" * 20_000 for n in range(ROWS)]}
    ),
}


def read(folder: str) -> tuple[str, int, float]:
    """What reading gives, with the growth of resident memory (kB) and the time it took."""
    used, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    history = History(folder, HistoryLayout(largest=128 * 2**20))
    found: dict[str, Any] = history.read_many(history.sensors().sensors, DAY, workers=1)
    [one] = found.values()
    ours = isinstance(one, PaanoError)
    text = (
        "read" if isinstance(one, Reading) else f"{'' if ours else 'unexpected '}{type(one).__name__}: {one}"
    )
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used
    return text, grown, time.process_time() - began


def run(tally: Tally, root: Path, short: bool) -> None:
    skipped = ("30 million", "100,000", "many-rows", "a dictionary")
    chosen = [name for name in BOMBS if not short or not name.startswith(skipped)][:: 9 if short else 1]
    worst = 0
    for number, name in enumerate(chosen):
        folder = root / str(number)
        (folder / "bad").mkdir(parents=True)
        (folder / "bad" / "x.parquet").write_bytes(BOMBS[name]())
        with tally.trial("hostile Parquet files", name):
            text, grown, seconds = in_process(read, str(folder))
            worst = max(worst, grown)
            assert grown < MEMORY, f"{grown} kB more memory"
            assert seconds < SECONDS, f"{seconds:.0f} s of work"
            assert text == "read" or not text.startswith("unexpected"), text
    tally.notes.append(f"largest growth of resident memory while reading: {worst >> 10} MB")


ROW = Row(
    12,
    "hostile Parquet: bombs, 100,000 columns, nesting, wrong statistics",
    "refused within bounds of memory and time",
    run,
)

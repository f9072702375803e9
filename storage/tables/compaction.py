"""Keeping stores small: join small objects of closed days, remove what is older than it must be kept.

Only dates of version 0.1 are joined: it wrote a few kB per sensor and day. Dates of this version have few,
well-filled objects, so that there is nothing to join and no rule for it to break.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta

import polars as pl

from paano.errors import Conflict, ObjectMissing
from storage import parquet
from storage.keys import date_prefix, shard_key, shard_of
from storage.objects.store import ObjectInfo
from storage.retry import patiently
from storage.tables.day_table import DayTable, joined_key
from storage.tables.layout import Layout

ATTEMPTS = 8  # to join a day that others write to


@dataclass(frozen=True)
class Compacted:
    """What `compact` joined (or would join, in a dry run)."""

    dates: list[date]
    before: int  # objects
    after: int
    bytes: int  # read
    busy: list[date] = field(default_factory=list)  # left for the next run: others went on writing to them


def compact(table: DayTable, before: date, dry_run: bool = False) -> Compacted:
    """Join the objects of every joinable date before `before` that has more than one. Rows stay the same.

    Writers may go on meanwhile and lose nothing. A reader other than ours may see a row twice between the
    write of the joined object and the removal of the small ones; a rerun finishes a join cut short there.
    """
    dates, busy, count, size = [], [], 0, 0
    # The note is read after the dates: what has objects by then is joinable for ever, or never.
    closed = [day for day in table.dates() if day < before]
    layout = table.note.layout(fresh=True) or Layout()
    for day in closed:
        span = layout.on(day)
        if span is None or not span.joinable:
            continue
        infos = _objects(table, day)
        if len(infos) < 2:
            continue
        if not dry_run:
            try:
                join(table, day, span.shards)
            except Conflict:
                busy.append(day)
                continue
        dates.append(day)
        count += len(infos)
        size += sum(info.size for info in infos)
    return Compacted(dates, count, len(dates), size, busy)


def _objects(table: DayTable, day: date) -> list[ObjectInfo]:
    return [info for info in table.store.list(date_prefix(day)) if info.key.endswith(".parquet")]


def join(table: DayTable, day: date, shards: int) -> None:
    """One object for a joinable day; begun again if somebody writes to it meanwhile.

    1. `day.parquet` is written with all rows; a shard's own object still counts before it.
    2. Each own object is replaced, if it is unchanged, by a mark that its rows have moved. This is the moment
       from which `day.parquet` counts for that shard, and every writer goes there.
    3. The marks are removed. Nobody creates an own object on a joinable date, so none comes back.

    Raises:
        Conflict: others went on writing to the day. It is whole, and the next run joins the rest.
    """
    patiently(lambda: _join(table, day, shards), (Conflict, ObjectMissing), attempts=ATTEMPTS, first=0.05)


def _join(table: DayTable, day: date, shards: int) -> None:
    joined, mark = joined_key(day), table.moved_mark()
    held = {info.key: table.store.get_with_etag(info.key) for info in _objects(table, day)}
    rows = _rows_of(table, day, shards, {key: data for key, (data, _) in held.items()})
    data = parquet.encode(table.canonical(rows), table.arrow)
    before, etag = held.pop(joined, (None, None))
    if data != before:
        table.store.put(joined, data, if_match=etag, if_absent=before is None)
    for key, (small, its_etag) in held.items():
        if not table.has_moved(small):
            table.store.put(key, mark, if_match=its_etag)
    table.store.delete(list(held))


def _rows_of(table: DayTable, day: date, shards: int, objects: dict[str, bytes]) -> pl.DataFrame:
    """The rows of a day. Of two objects with the same row the later wins: foreign, joined, a shard's own.

    The joined one has no say in a shard that has its own object, not even in what is gone from there.
    """
    joined = joined_key(day)
    objects = {key: data for key, data in objects.items() if not table.has_moved(data)}
    frames: list[pl.DataFrame] = [table.empty()]
    for key in sorted(objects, key=lambda key: (_rank(key, joined), key)):
        frame = table.decoded(objects[key], key)
        if key == joined:
            own = [s for s in frame["sensor"].unique() if shard_key(day, shard_of(s, shards)) in objects]
            frame = frame.filter(~pl.col("sensor").is_in(own))
        frames.append(frame)
    return pl.concat(frames).unique(subset=table.order, keep="last", maintain_order=True)


def _rank(key: str, joined: str) -> int:
    return 1 if key == joined else 2 if key.rpartition("/")[2].startswith("shard-") else 0


def retire(table: DayTable, keep: timedelta, today: date, dry_run: bool = False) -> list[date]:
    """Remove the dates more than `keep` before `today`; which they are."""
    old = [day for day in table.dates() if today - day > keep]
    if not dry_run:
        for day in old:
            table.store.delete([info.key for info in table.store.list(date_prefix(day))])
    return old

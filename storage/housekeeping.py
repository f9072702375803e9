"""Keeping stores small: join small objects of closed days, remove what is older than it must be kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

import polars as pl

from paano.errors import Conflict, ObjectMissing
from storage import parquet
from storage.keys import date_prefix, shard_key
from storage.objects import ObjectInfo
from storage.tables import DayTable, joined_key


@dataclass(frozen=True)
class Compacted:
    """What `compact` joined (or would join, in a dry run)."""

    dates: list[date]
    before: int  # objects
    after: int
    bytes: int  # read


def compact(table: DayTable, before: date, dry_run: bool = False) -> Compacted:
    """Join the objects of every date before `before` that has more than one. Rows stay the same.

    Writers may go on meanwhile and lose nothing. A reader other than ours may see a row twice between the
    write of the joined object and the removal of the small ones; a rerun finishes a join cut short there.
    """
    dates, count, size = [], 0, 0
    for day in table.dates():
        if day >= before:
            continue
        infos = _objects(table, day)
        if len(infos) < 2:
            continue
        if not dry_run:
            _join(table, day)
        dates.append(day)
        count += len(infos)
        size += sum(info.size for info in infos)
    return Compacted(dates, count, len(dates), size)


def _objects(table: DayTable, day: date) -> list[ObjectInfo]:
    return [info for info in table.store.list(date_prefix(day)) if info.key.endswith(".parquet")]


def _join(table: DayTable, day: date) -> None:
    """One object for the day; begun again if somebody writes to it meanwhile.

    No store removes an object only if it is unchanged. So each small object is first replaced, which can be
    conditional, by a mark that its rows have moved: from then on every writer goes to the joined one.
    """
    joined, mark = joined_key(day), table.moved_mark()
    while True:
        try:
            held = {info.key: table.store.get_with_etag(info.key) for info in _objects(table, day)}
            rows = _rows_of(table, day, {key: data for key, (data, _) in held.items()})
            data = parquet.encode(table.canonical(rows), table.arrow)
            before, etag = held.pop(joined, (None, None))
            if data != before:
                table.store.put(joined, data, if_match=etag, if_absent=before is None)
            for key, (small, its_etag) in held.items():
                if not table.has_moved(small):
                    table.store.put(key, mark, if_match=its_etag)
        except (Conflict, ObjectMissing):
            continue
        table.store.delete(list(held))
        return


def _rows_of(table: DayTable, day: date, objects: dict[str, bytes]) -> pl.DataFrame:
    """The rows of a day. Of two objects with the same row the later wins: foreign, joined, a shard's own.

    The joined one has no say in a shard that has its own object, not even in what is gone from there.
    """
    joined = joined_key(day)
    objects = {key: data for key, data in objects.items() if not table.has_moved(data)}
    frames: list[pl.DataFrame] = [table.empty()]
    for key in sorted(objects, key=lambda key: (_rank(key, joined), key)):
        frame = table.decoded(objects[key], key)
        if key == joined:
            own = [s for s in frame["sensor"].unique() if shard_key(day, table.shard_of(s)) in objects]
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

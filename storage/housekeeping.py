"""Keeping stores small: join small objects of closed days, remove what is older than it must be kept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

import polars as pl

from paano.errors import Conflict, ObjectMissing
from storage import parquet
from storage.keys import date_prefix
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

    For closed days: a backfill of the same days should not run at the same time. Readers may see a row twice
    between the write of the joined object and the removal of the small ones; a rerun finishes a join that was
    cut short there.
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
    """One object for the day; begun again if somebody writes to it meanwhile."""
    joined = joined_key(day)
    while True:
        etags: dict[str, str] = {}
        frames: list[pl.DataFrame] = []
        # Where two objects have the same row the later one in this list wins: foreign, joined, a shard's own.
        infos = _objects(table, day)
        for key in sorted((info.key for info in infos), key=lambda key: (_rank(key, joined), key)):
            data, etags[key] = table.store.get_with_etag(key)
            frames.append(table.decoded(data, key))
        rows = pl.concat(frames).unique(subset=table.order, keep="last", maintain_order=True)
        data = parquet.encode(table.canonical(rows), table.arrow)
        try:
            table.store.put(joined, data, if_match=etags.get(joined), if_absent=joined not in etags)
        except Conflict:
            continue
        small = [key for key in etags if key != joined]
        if all(_etag(table, key) == etags[key] for key in small):
            table.store.delete(small)
            return


def _rank(key: str, joined: str) -> int:
    return 1 if key == joined else 2 if key.rpartition("/")[2].startswith("shard-") else 0


def _etag(table: DayTable, key: str) -> str | None:
    try:
        return table.store.get_with_etag(key)[1]
    except ObjectMissing:
        return None


def retire(table: DayTable, keep: timedelta, today: date, dry_run: bool = False) -> list[date]:
    """Remove the dates more than `keep` before `today`; which they are."""
    old = [day for day in table.dates() if today - day > keep]
    if not dry_run:
        for day in old:
            table.store.delete([info.key for info in table.store.list(date_prefix(day))])
    return old

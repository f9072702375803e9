"""Stores as version 0.1 left them: one number of shards for ever, an object per shard."""

from __future__ import annotations

import json

import polars as pl

from storage import parquet
from storage.keys import shard_key
from storage.tables.day_table import DayTable, members_of
from storage.tables.layout import NOTE
from tests.storage.made import DAY, night


def begin(table: DayTable, shards: int) -> None:
    """The note of version 0.1."""
    text = json.dumps({"format": 1, "kind": table.kind, "shards": shards}, sort_keys=True)
    table.store.put(NOTE, parquet.encode(table.empty(), table.arrow, text))


def write(table: DayTable, day, shards: int, rows: pl.DataFrame) -> None:
    """The objects of one date."""
    for shard, members in members_of(sorted(set(rows["sensor"])), shards).items():
        some = table.canonical(rows.filter(pl.col("sensor").is_in(members)))
        table.store.put(shard_key(day, shard), parquet.encode(some, table.arrow))


def make(table: DayTable, shards: int, days=(DAY,)) -> DayTable:
    """A store of version 0.1 with a night of the fleet on each of `days`."""
    begin(table, shards)
    for day in days:
        write(table, day, shards, night(day))
    return table


def night_bytes(table: DayTable, version: int) -> bytes:
    """An object with a night of the fleet."""
    return parquet.encode(table.canonical(night(version=version)), table.arrow)

"""Event objects of the version before have a column `kind` where there is `cause` now."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

import polars as pl
import pytest

from storage import parquet
from storage.keys import shard_key
from storage.objects.local import LocalStore
from storage.tables.compaction import compact
from storage.tables.events import EventStore
from storage.window import Window
from tests.storage import made, old_store


class OlderEventStore(EventStore):
    """Writes as the version before did."""

    schema: ClassVar = {"kind" if name == "cause" else name: of for name, of in EventStore.schema.items()}
    renamed: ClassVar = {}


@pytest.fixture
def store(tmp_path):
    return LocalStore(str(tmp_path / "events"))


@pytest.fixture
def rows(store):
    """Events of two sensors as they are now; the store holds them in the older form."""
    rows = pl.concat([made.events("pump-1", made.DAY), made.events("pump-2", made.DAY)])
    OlderEventStore(store, shards=1).update(rows.rename({"cause": "kind"}), Window.day(made.DAY))
    assert columns(store) == [*OlderEventStore.schema]
    return EventStore(store).canonical(rows)


def columns(store) -> list[str]:
    return parquet.open_file(store.get(shard_key(made.DAY, 0))).schema_arrow.names


def test_older_events_are_read_with_their_cause(store, rows):
    events = EventStore(store)
    assert events.read_many(None, Window.day(made.DAY)).equals(rows)
    some = events.read("pump-2", Window.day(made.DAY), ["start", "cause"])
    assert some.columns == ["start", "cause"]
    assert some["cause"].to_list() == made.events("pump-2", made.DAY)["cause"].to_list()


def test_reading_changes_no_object(store, rows):
    before = store.get(shard_key(made.DAY, 0))
    EventStore(store).read_many(None, Window.day(made.DAY))
    assert store.get(shard_key(made.DAY, 0)) == before


def test_a_change_of_one_sensor_writes_the_object_in_the_new_form(store, rows):
    changed = made.events("pump-1", made.DAY).with_columns(cause=pl.lit("level"))
    EventStore(store).update(changed, Window.day(made.DAY))
    assert columns(store) == [*EventStore.schema]
    after = EventStore(store).read_many(None, Window.day(made.DAY))
    kept = rows.filter(pl.col("sensor") == "pump-2")
    assert after.filter(pl.col("sensor") == "pump-2").equals(kept)
    assert set(after.filter(pl.col("sensor") == "pump-1")["cause"]) == {"level"}


def test_a_day_of_both_forms_is_joined_in_the_new_one(store):
    window = Window.day(made.DAY)
    older = OlderEventStore(store)
    old_store.begin(older, shards=8)
    old_store.write(older, made.DAY, 8, made.events("pump-1").rename({"cause": "kind"}))
    EventStore(store).update(made.events("b"), window)
    before = EventStore(store).read_many(None, window)
    compact(EventStore(store), before=made.DAY + timedelta(days=1))
    assert EventStore(store).read_many(None, window).equals(before)
    (joined,) = [info.key for info in store.list() if "1970" not in info.key]
    assert parquet.open_file(store.get(joined)).schema_arrow.names == [*EventStore.schema]


def test_columns_of_an_older_object_are_read_also_without_the_renamed_one(store, rows):
    some = EventStore(store).read_many(None, Window.day(made.DAY), ["event_id"])
    assert some["event_id"].to_list() == rows["event_id"].to_list()

"""Joined days read the same; what is too old goes, and nothing else."""

from datetime import timedelta

import polars as pl
import pytest

from storage.keys import shard_key
from storage.tables.compaction import compact, retire
from storage.tables.scores import ScoreStore
from storage.window import Window
from tests.storage import old_store
from tests.storage.made import DAY, FLEET, night, scores

NEXT = DAY + timedelta(days=1)
BOTH = Window.day(DAY, 2)


@pytest.fixture
def store(place):
    return old_store.make(ScoreStore(place.store()), 8, (DAY, NEXT))


def keys(store):
    return [info.key for info in store.store.list() if "1970" not in info.key]


def test_a_closed_day_becomes_one_object_with_the_same_rows(store):
    before, small = store.read_many(None, BOTH), keys(store)
    planned = compact(store, before=NEXT, dry_run=True)
    assert keys(store) == small
    done = compact(store, before=NEXT)
    assert done == planned and done.dates == [DAY] and done.after == 1 and done.before > 2
    assert [key for key in keys(store) if "2026-01-02" in key] == ["date=2026-01-02/day.parquet"]
    assert [key for key in keys(store) if "2026-01-03" in key] == [
        key for key in small if "2026-01-03" in key
    ]
    assert store.read_many(None, BOTH).equals(before)
    for sensor in FLEET:
        assert store.read(sensor, BOTH).equals(before.filter(before["sensor"] == sensor))
    assert compact(store, before=NEXT).dates == []


def test_a_joined_day_can_be_written_to_as_before(store):
    compact(store, before=NEXT)
    store.update(scores("a", version=7), Window.day(DAY))
    shard = store.shard_of("b", DAY)
    members = [s for s in FLEET if store.shard_of(s, DAY) == shard]
    store.write_day(DAY, shard, pl.concat([scores(s, version=8) for s in members]))
    assert [key for key in keys(store) if "2026-01-02" in key] == ["date=2026-01-02/day.parquet"]
    versions = {s: store.read(s, Window.day(DAY))["model_version"][0] for s in FLEET}
    assert versions == {s: 8 if s in members else 7 if s == "a" else 1 for s in FLEET}


def test_a_join_that_was_cut_short_shows_no_row_twice_and_is_finished_by_the_next(store):
    before = store.read_many(None, BOTH)
    own = shard_key(DAY, store.shard_of("a", DAY))
    data = store.store.get(own)
    compact(store, before=NEXT)
    store.store.put(own, data)  # as if the removal had not come to this one
    assert store.read_many(None, BOTH).equals(before)
    assert store.read_many(FLEET, BOTH).equals(before)
    compact(store, before=NEXT)
    assert own not in keys(store) and store.read_many(None, BOTH).equals(before)


def test_many_small_objects_of_another_writer_are_joined_too(store):
    from storage import parquet

    extra = [f"more-{n}" for n in range(5)]
    for n, sensor in enumerate(extra):
        data = parquet.encode(store.canonical(scores(sensor)), store.arrow)
        store.store.put(f"date={DAY}/part-{n}.parquet", data)
    compact(store, before=NEXT)
    assert sorted(store.read_many(None, Window.day(DAY))["sensor"].unique()) == sorted([*FLEET, *extra])
    assert store.read("more-3", Window.day(DAY)).equals(store.canonical(scores("more-3")))


def test_days_older_than_they_must_be_kept_are_removed(store):
    today = DAY + timedelta(days=31)
    assert retire(store, timedelta(days=30), today, dry_run=True) == [DAY]
    assert store.read("a", Window.day(DAY)).height > 0
    assert retire(store, timedelta(days=30), today) == [DAY]
    assert store.read("a", Window.day(DAY)).height == 0
    assert store.read("a", Window.day(NEXT)).height > 0
    assert ScoreStore(store.store).shards_on(NEXT) == 8  # the note is never too old


class Interrupted:
    """A store before whose n-th call something else happens."""

    def __init__(self, store, at, happen):
        self.store, self.at, self.happen, self.calls = store, at, happen, 0

    def __getattr__(self, name):
        value = getattr(self.store, name)
        if name not in ("get", "get_with_etag", "put", "delete", "list"):
            return value

        def call(*arguments, **named):
            self.calls += 1
            if self.calls == self.at:
                self.happen()
            return value(*arguments, **named)

        return call


def test_a_writer_at_any_moment_of_a_join_loses_nothing(place):
    at, calls = 1, 2
    while at <= calls:
        table = old_store.make(ScoreStore(place.store(f"scores-{at}")), 4)
        expected = {sensor: 1 for sensor in FLEET} | {"a": 9}

        def write(table=table):
            table.update(scores("a", version=9), Window.day(DAY))

        joining = ScoreStore(Interrupted(table.store, at, write))
        compact(joining, before=NEXT)
        calls = joining.store.calls
        assert calls >= at, "the join was over before it was disturbed"
        found = table.read_many(None, Window.day(DAY))
        assert {
            s: v for s, v in found.group_by("sensor").agg(pl.col("model_version").first()).iter_rows()
        } == (expected), f"disturbed at call {at}"
        assert found.height == night(DAY).height
        at += 1
    assert at > 8


def test_a_row_taken_out_while_a_day_is_joined_does_not_come_back(store):
    own = shard_key(DAY, store.shard_of("a", DAY))
    data = store.store.get(own)
    compact(store, before=NEXT)
    store.store.put(own, data)  # the join was cut short here
    store.update(scores("a").head(3), Window.day(DAY), ["a"])
    compact(store, before=NEXT)
    assert store.read("a", Window.day(DAY)).height == 3

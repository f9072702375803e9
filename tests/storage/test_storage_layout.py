"""How many shards a date has: decided once, by its first writer; a store grows; old stores go on."""

import itertools
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paano.errors import ConfigError, StorageError
from storage import parquet
from storage.keys import shard_key, shard_of
from storage.objects.store import open_store
from storage.tables.compaction import compact
from storage.tables.events import EventStore
from storage.tables.layout import NOTE, Layout, shards_for
from storage.tables.scores import ScoreStore
from storage.window import Window
from tests.storage import old_store
from tests.storage.made import DAY, FLEET, night, scores

NEXT = DAY + timedelta(days=1)
OLD_DEMO = Path(os.environ.get("OLD_FLEET", "no such folder"))  # `paano demo` of version 0.1
DATES = st.dates(date(2025, 12, 1), date(2026, 2, 1))


@given(st.lists(st.tuples(st.sets(DATES, max_size=8), st.integers(1, 64)), max_size=8))
def test_what_was_decided_of_a_date_never_changes(decisions):
    layout, first = Layout(), {}
    for days, shards in decisions:
        layout = layout.with_days(days, shards)
        for day in days:
            first.setdefault(day, shards)
        assert {day: layout.on(day).shards for day in first} == first
    assert all(a.last < b.first and not a.goes_on_with(b) for a, b in itertools.pairwise(layout.spans))
    asked = DAY
    assert (layout.on(asked) is None) == (asked not in first)


@given(st.integers(1, 300_000), st.integers(1, 500))
def test_objects_are_well_filled(sensors, per_object):
    shards = shards_for(sensors, per_object)
    assert shards & (shards - 1) == 0
    if shards < 8_192:
        assert sensors <= shards * per_object and (shards == 1 or sensors > shards * per_object / 2)


@given(st.text(min_size=1), st.integers(0, 6), st.integers(0, 6))
def test_a_shard_of_a_larger_number_lies_within_one_of_a_smaller(sensor, small, more):
    assert shard_of(sensor, 1 << (small + more)) % (1 << small) == shard_of(sensor, 1 << small)


def test_a_store_grows_with_its_fleet_and_old_dates_keep_their_number(place):
    table = ScoreStore(place.store())
    assert table.begin([DAY], sensors=10) == {DAY: 1}
    table.update(night(DAY), Window.day(DAY))
    assert table.begin([DAY, NEXT], sensors=500) == {DAY: 1, NEXT: 8}
    table.update(night(NEXT), Window.day(NEXT))
    for reader in (table, ScoreStore(place.store())):
        assert (reader.shards_on(DAY), reader.shards_on(NEXT)) == (1, 8)
        both = reader.read_many(FLEET, Window.day(DAY, 2))
        assert both.equals(table.canonical(pl.concat([night(DAY), night(NEXT)])))
        assert reader.read("a", Window.day(NEXT)).equals(table.canonical(scores("a", NEXT)))
    table.update(scores("a", DAY, version=5), Window.day(DAY))
    assert [info.key for info in table.store.list(f"date={DAY}")] == [shard_key(DAY, 0)]


def test_a_fleet_that_grows_and_shrinks_a_little_keeps_its_number(folder):
    table = ScoreStore(folder.store())
    sizes = [500, 520, 500, 510, 700, 300, 100]
    days = [DAY + timedelta(days=n) for n in range(len(sizes))]
    found = [table.begin([day], sensors=size)[day] for day, size in zip(days, sizes, strict=True)]
    assert found == [8, 16, 16, 16, 16, 16, 2]


def test_a_backfill_before_the_first_night_is_not_bound_by_its_number(folder):
    table = ScoreStore(folder.store())
    table.begin([DAY], sensors=1)
    past = [DAY - timedelta(days=n) for n in range(1, 40)]
    assert set(table.begin(past, sensors=5_000).values()) == {128}
    assert ScoreStore(folder.store()).shards_on(DAY) == 1


def test_a_writer_with_an_old_note_never_writes_to_a_date_by_another_number(place):
    early, late = ScoreStore(place.store()), ScoreStore(place.store())
    early.begin([DAY], sensors=1)
    late.begin([NEXT], sensors=500)  # `early` has a note without this date
    early.update(night(NEXT), Window.day(NEXT))
    assert early.shards_on(NEXT) == 8
    assert late.read_many(FLEET, Window.day(NEXT)).equals(late.canonical(night(NEXT)))


def test_of_many_first_writers_one_decides(place):
    tables = [ScoreStore(place.store(), shards=n + 1) for n in range(8)]
    ready = threading.Barrier(len(tables))

    def write(table):
        ready.wait()
        return table.begin([DAY, NEXT])

    with ThreadPoolExecutor(len(tables)) as pool:
        found = list(pool.map(write, tables))
    assert all(one == found[0] for one in found) and len(set(found[0].values())) == 1


@pytest.mark.parametrize("joined", [False, True])
def test_a_store_of_the_version_before_is_read_and_continued(place, joined):
    old = old_store.make(ScoreStore(place.store()), 64, (DAY - timedelta(days=9), DAY))
    if joined:
        assert compact(old, before=NEXT).before > 2
    table = ScoreStore(place.store())
    assert table.read_many(None, Window.day(DAY)).equals(table.canonical(night(DAY)))
    assert table.begin([DAY, NEXT], sensors=500) == {DAY: 64, NEXT: 8}
    table.update(
        pl.concat([scores("a", DAY, version=2), scores("new", DAY), scores("a", NEXT)]), Window.day(DAY, 2)
    )
    for reader in (table, old, ScoreStore(place.store())):  # also one that read the old note
        assert reader.read("a", Window.day(DAY, 2))["model_version"].unique().sort().to_list() == [1, 2]
        assert reader.read("new", Window.day(DAY)).height == 24
        assert reader.read_many(None, Window.day(DAY)).height == 24 * (len(FLEET) + 1)
        assert reader.read("b", Window.day(DAY)).equals(table.canonical(scores("b", DAY)))
    assert table.shards_on(DAY - timedelta(days=9)) == 64 and table.shards_on(DAY - timedelta(days=5)) is None


def test_a_first_write_of_this_version_renews_an_old_note_before_it_writes(place):
    old_store.make(ScoreStore(place.store()), 64)
    slow, quick = ScoreStore(place.store()), ScoreStore(place.store())
    assert slow.shards == 64  # it has read the old note
    quick.begin([NEXT], sensors=500)
    slow.update(night(NEXT), Window.day(NEXT))
    assert slow.shards_on(NEXT) == 8
    assert quick.read_many(FLEET, Window.day(NEXT)).equals(quick.canonical(night(NEXT)))


@pytest.mark.skipif(not OLD_DEMO.is_dir(), reason="there is no fleet of version 0.1 here")
def test_a_whole_demo_fleet_of_version_0_1_reads_as_it_did(tmp_path):
    shutil.copytree(OLD_DEMO / "scores", tmp_path / "scores")
    shutil.copytree(OLD_DEMO / "events", tmp_path / "events")
    for kind, table in (
        ("scores", ScoreStore(open_store(str(tmp_path / "scores")))),
        ("events", EventStore(open_store(str(tmp_path / "events")))),
    ):
        plain = pl.concat(
            [table.decoded(p.read_bytes(), p.name) for p in (OLD_DEMO / kind).rglob("*.parquet")]
        ).sort(table.order)
        days = table.dates()
        window = Window(Window.day(days[0]).start, Window.day(days[-1]).end)
        names = sorted(set(plain["sensor"]))
        for _ in range(2):
            assert table.read_many(names, window).equals(plain) and table.read_many(None, window).equals(
                plain
            )
            assert not any(w.changed for w in table.update(plain, window))  # converts the note
        assert compact(table, days[-1] + timedelta(days=1)).after == len(days)
        assert table.read_many(names, window).equals(plain) and table.read_many(None, window).equals(plain)


def test_a_store_whose_note_was_lost_is_not_begun_anew(folder):
    ScoreStore(folder.store()).update(night(), Window.day(DAY))
    folder.store().delete(NOTE)
    with pytest.raises(StorageError, match="holds dates, but not"):
        ScoreStore(folder.store()).update(night(NEXT), Window.day(NEXT))


@pytest.mark.parametrize("text", ["", "{", '{"format": 2, "kind": "scores"}', '{"format": 1}'])
def test_a_damaged_note_is_named(folder, text):
    table = ScoreStore(folder.store())
    table.store.put(NOTE, parquet.encode(table.empty(), table.arrow, text))
    with pytest.raises(StorageError, match=r"store\.parquet: it is damaged"):
        table.read("a", Window.day(DAY))


def test_a_note_of_a_later_version_is_refused(folder):
    table = ScoreStore(folder.store())
    text = '{"format": 3, "kind": "scores"}'
    table.store.put(NOTE, parquet.encode(table.empty(), table.arrow, text))
    with pytest.raises(ConfigError, match="newer version"):
        table.read("a", Window.day(DAY))


class Counting:
    """A store that counts its requests."""

    def __init__(self, store):
        self.store, self.calls, self.lock = store, [], threading.Lock()

    def __getattr__(self, name):
        value = getattr(self.store, name)
        if name not in ("get", "get_with_etag", "put", "delete", "list", "head", "folders"):
            return value

        def call(*arguments, **named):
            with self.lock:
                self.calls.append("get" if name.startswith("get") else name)
            return value(*arguments, **named)

        return call

    def taken(self):
        calls, self.calls = self.calls, []
        return {name: calls.count(name) for name in sorted(set(calls))}


def test_a_night_of_a_shard_takes_one_get_and_one_put_per_object(folder):
    names = [f"s{n}" for n in range(200)]
    rows = {day: pl.concat([scores(name, day, minutes=240) for name in names]) for day in (DAY, NEXT)}
    store = Counting(folder.store())
    table = ScoreStore(store)
    table.begin([DAY, NEXT], sensors=200)
    store.taken()
    table.update(rows[DAY], Window.day(DAY))
    assert store.taken() == {"get": 4, "put": 4}  # 200 sensors are 4 shards
    both = pl.concat([rows[DAY], rows[NEXT]])
    table.update(both, Window.day(DAY, 2), names)
    assert store.taken() == {"get": 8, "put": 4}  # nothing changed on the first date
    table.update(both, Window.day(DAY, 2), names)
    assert store.taken() == {"get": 8}
    table.read_many(names, Window.day(DAY, 2))
    assert store.taken() == {"get": 8}
    one = ScoreStore(store)
    one.read("s1", Window.day(DAY, 2))
    assert store.taken() == {"get": 3}  # its note, and an object per date
    one.read_many(None, Window.day(DAY))
    assert store.taken() == {"get": 4, "list": 1}


def test_nothing_to_say_about_a_date_that_nobody_wrote_to_costs_one_look_at_the_note(folder):
    store = Counting(folder.store())
    table = EventStore(store)
    table.begin([DAY], sensors=3)
    store.taken()
    table.update(table.empty(), Window.day(DAY - timedelta(days=30), 30), FLEET)
    assert store.taken() == {"get": 1}

"""Scores and events: one object per (date, shard), the same bytes on a rerun, other engines as oracles."""

import random
import time
from datetime import date, datetime, timedelta

import duckdb
import numpy as np
import polars as pl
import pyarrow.dataset
import pyarrow.parquet
import pytest

from paano.errors import ConfigError, StorageError
from storage.keys import shard_key, shard_of
from storage.objects.store import open_store
from storage.tables.events import EventStore
from storage.tables.scores import ScoreStore
from storage.window import Window
from tests.storage.made import DAY, FLEET, events, night, scores
from tests.storage.workers import going, together


def test_scores_come_back_as_they_were_written(place):
    store = ScoreStore(place.store(), shards=3)
    store.update(night(), Window.day(DAY))
    for sensor in FLEET:
        back = store.read(sensor, Window.day(DAY))
        assert back.equals(store.canonical(scores(sensor)))
    assert store.read_many(None, Window.day(DAY)).equals(store.canonical(night()))
    assert store.read_many(["a", "b"], Window.day(DAY), ["sensor", "score"]).shape == (48, 2)
    assert store.dates() == [DAY]
    assert store.read("a", Window.day(DAY + timedelta(days=1))).height == 0
    assert store.read("nobody", Window.day(DAY)).height == 0


def test_the_columns_are_those_of_the_contract(folder):
    store = ScoreStore(folder.store(), shards=1)
    store.write_day(DAY, 0, night())
    key = shard_key(DAY, 0)
    assert key == "date=2026-01-02/shard-0000.parquet"
    schema = pyarrow.parquet.read_schema(f"{folder.url}/{key}")
    assert [(f.name, str(f.type)) for f in schema] == [
        ("sensor", "string"),
        ("ts", "timestamp[us, tz=UTC]"),
        ("score", "float"),
        ("threshold", "float"),
        ("anomaly", "bool"),
        ("status", "string"),
        ("coverage", "uint16"),
        ("model_version", "int32"),
    ]
    column = pyarrow.parquet.ParquetFile(f"{folder.url}/{key}").metadata.row_group(0).column(1)
    assert column.compression == "ZSTD" and column.is_stats_set
    frame = pl.read_parquet(f"{folder.url}/{key}")
    assert frame.equals(frame.sort("sensor", "ts"))


def test_duckdb_and_pyarrow_and_polars_read_the_folder_with_no_help(folder):
    store = ScoreStore(folder.store(), shards=3)
    for n in range(3):
        day = DAY + timedelta(days=n)
        store.update(night(day), Window.day(day))
    query = "select sensor, count(*) n, count(score) scored, sum(score) total from {}"
    query += " where date = '2026-01-03' group by 1 order by 1"
    expected = store.read_many(None, Window.day(DAY + timedelta(days=1)))
    expected = expected.group_by("sensor").agg(
        n=pl.len(), scored=pl.col("score").count(), total=pl.col("score").sum()
    )
    by_us = expected.sort("sensor")
    by_duck = duckdb.sql(
        query.format(f"read_parquet('{folder.url}/**/*.parquet', hive_partitioning=true)")
    ).pl()
    arrow = pyarrow.dataset.dataset(folder.url, partitioning="hive").to_table()
    by_arrow = pl.DataFrame(pl.from_arrow(arrow)).filter(pl.col("date") == "2026-01-03")
    by_polars = (
        pl.scan_parquet(folder.url, hive_partitioning=True)
        .filter(pl.col("date") == date(2026, 1, 3))
        .collect()
    )
    assert by_duck["sensor"].to_list() == by_us["sensor"].to_list() == sorted(FLEET)
    assert (
        by_duck["n"].to_list() == by_us["n"].to_list()
        and by_duck["scored"].to_list() == by_us["scored"].to_list()
    )
    np.testing.assert_allclose(by_duck["total"], by_us["total"], rtol=1e-6)
    for other in (by_arrow, by_polars):
        rows = other.drop("date").sort("sensor", "ts")
        assert rows.equals(store.read_many(None, Window.day(DAY + timedelta(days=1))))


def test_duckdb_and_polars_read_it_from_s3(bucket, s3):
    store = ScoreStore(bucket.store(), shards=2)
    store.update(night(), Window.day(DAY))
    frame = pl.scan_parquet(f"{bucket.url}/", storage_options=s3.polars, hive_partitioning=True).collect()
    assert frame.drop("date").sort("sensor", "ts").equals(store.read_many(None, Window.day(DAY)))


def test_a_rerun_writes_nothing(place):
    store = ScoreStore(place.store(), shards=2)
    store.update(night(), Window.day(DAY))
    before = [(i.key, i.modified, place.store().get(i.key)) for i in place.store().list()]
    again = ScoreStore(place.store()).update(
        night().sample(fraction=1, shuffle=True, seed=3), Window.day(DAY)
    )
    assert [written.changed for written in again] == [False, False]
    assert [(i.key, i.modified, place.store().get(i.key)) for i in place.store().list()] == before


def test_the_same_rows_are_the_same_bytes_whoever_writes_them(folder, tmp_path):
    one, other = (
        ScoreStore(folder.store(), shards=1),
        ScoreStore(open_store(str(tmp_path / "other")), shards=1),
    )
    one.write_day(DAY, 0, night())
    for sensor in reversed(FLEET):
        other.update(scores(sensor), Window.day(DAY))
    assert one.store.get(shard_key(DAY, 0)) == other.store.get(shard_key(DAY, 0))


def test_thirty_nights_equal_one_backfill_row_for_row(folder, tmp_path):
    nightly, backfill = (
        ScoreStore(folder.store(), shards=2),
        ScoreStore(open_store(str(tmp_path / "b")), shards=2),
    )
    days = [DAY + timedelta(days=n) for n in range(30)]
    whole = pl.concat([night(day, minutes=240) for day in days])
    backfill.update(whole, Window.day(DAY, 30))
    for n, day in enumerate(days):
        tonight = night(day, minutes=240)
        # the last two rows of a night are provisional until the next one
        late = pl.col("ts") >= Window.day(day).end - timedelta(hours=8)
        unsure = tonight.with_columns(
            status=pl.when(late & (pl.col("status") == "ok")).then(pl.lit("provisional")).otherwise("status"),
            coverage=pl.when(late).then(pl.col("coverage") // 2).otherwise("coverage"),
        )
        window = Window.day(day).widen(timedelta(hours=8)) if n else Window.day(day)
        finished = whole.filter((pl.col("ts") >= window.start) & (pl.col("ts") < Window.day(day).start))
        nightly.update(pl.concat([finished, unsure if n < 29 else tonight]), window)
    assert nightly.read_many(None, Window.day(DAY, 30)).equals(backfill.read_many(None, Window.day(DAY, 30)))
    keys = [info.key for info in backfill.store.list()]
    assert keys == [info.key for info in nightly.store.list()]
    assert all(nightly.store.get(key) == backfill.store.get(key) for key in keys)


def test_a_part_of_a_day_is_replaced_and_the_rest_stays(place):
    store = ScoreStore(place.store(), shards=1)
    store.update(night(), Window.day(DAY))
    noon = Window(datetime(2026, 1, 2, 12), datetime(2026, 1, 2, 14))
    new = scores("a", seed=9, version=2).filter(pl.col("ts").is_between(noon.start, noon.end, closed="left"))
    store.update(new, noon)
    after = store.read("a", Window.day(DAY))
    inside = pl.col("ts").is_between(noon.start, noon.end, closed="left")
    assert after.filter(inside).equals(store.canonical(new))
    assert after.filter(~inside).equals(store.canonical(scores("a")).filter(~inside))
    assert store.read("b", Window.day(DAY)).equals(store.canonical(scores("b")))


def test_rows_that_are_no_more_are_taken_out(folder):
    store = ScoreStore(folder.store(), shards=1)
    store.update(night(), Window.day(DAY))
    store.update(night().clear(), Window.day(DAY), sensors=["a", "b"])
    assert sorted(store.read_many(None, Window.day(DAY))["sensor"].unique()) == sorted(
        set(FLEET) - {"a", "b"}
    )


def test_a_day_without_rows_makes_no_object(folder):
    EventStore(folder.store(), shards=4).update(
        EventStore(folder.store()).empty(), Window.day(DAY), sensors=FLEET
    )
    assert EventStore(folder.store()).dates() == []


def test_a_store_of_scores_is_not_taken_for_one_of_events(place):
    ScoreStore(place.store(), shards=5).update(night(), Window.day(DAY))
    with pytest.raises(ConfigError, match="holds scores, not events"):
        EventStore(place.store()).read("a", Window.day(DAY))


WRONG = {
    "a missing column": (lambda f: f.drop("coverage"), "'coverage' is missing"),
    "a row twice": (lambda f: pl.concat([f, f]), "two rows"),
    "another day": (lambda f: f.with_columns(pl.col("ts") + timedelta(days=1)), "outside"),
    "a status we do not know": (lambda f: f.with_columns(status=pl.lit("fine")), "not a status"),
    "a score for no data": (lambda f: f.with_columns(status=pl.lit("no_data"), score=0.5), "all others none"),
    "ok without a score": (lambda f: f.with_columns(status=pl.lit("ok"), score=None), "all others none"),
    "a type that does not fit": (lambda f: f.with_columns(coverage=pl.lit(-1)), "wrong type"),
    "no sensor": (lambda f: f.with_columns(sensor=None), "must not be null"),
}


@pytest.mark.parametrize("change, what", WRONG.values(), ids=WRONG)
def test_rows_that_break_the_contract_are_refused(folder, change, what):
    store = ScoreStore(folder.store(), shards=1)
    with pytest.raises(StorageError, match=what):
        store.write_day(DAY, 0, change(scores("a")))
    assert store.dates() == []


def test_a_sensor_of_another_shard_is_refused(folder):
    store = ScoreStore(folder.store(), shards=4)
    with pytest.raises(StorageError, match="belongs to shard"):
        store.write_day(DAY, (shard_of("a", 4) + 1) % 4, scores("a"))


def test_a_damaged_score_object_is_named(folder):
    store = ScoreStore(folder.store(), shards=1)
    store.update(night(), Window.day(DAY))
    folder.store().put(shard_key(DAY, 0), b"PAR1 but no more")
    with pytest.raises(StorageError, match=r"shard-0000\.parquet: it is damaged"):
        store.read("a", Window.day(DAY))


def test_processes_that_write_one_object_at_once_lose_no_sensor(place):
    names = [f"s{n}" for n in range(4)]
    together([("score", place, name) for name in names])
    store = ScoreStore(place.store())
    for name in names:
        assert store.read(name, Window.day(DAY)).equals(store.canonical(scores(name)))


def test_a_scorer_killed_at_any_moment_leaves_the_old_or_the_new_day(place):
    store = ScoreStore(place.store(), shards=1)
    store.update(night(version=1), Window.day(DAY))
    versions = {v: store.canonical(night(version=v)) for v in (1, 2)}
    chance = random.Random(3)
    for _ in range(2):
        with going("score_for_ever", place):
            time.sleep(0.1 + chance.random() * 0.3)
        held = store.read_many(None, Window.day(DAY))
        assert held.equals(versions[held["model_version"][0]])
    store.update(night(version=3), Window.day(DAY))  # the next run goes on as if nothing had been
    assert store.read("a", Window.day(DAY))["model_version"].unique().to_list() == [3]


def test_events_come_back_and_other_engines_read_them(place, s3):
    store = EventStore(place.store(), shards=2)
    rows = pl.concat([events(sensor) for sensor in FLEET])
    store.update(rows, Window.day(DAY))
    assert store.read_many(None, Window.day(DAY)).equals(store.canonical(rows))
    assert store.read("a", Window(datetime(2026, 1, 2, 4), datetime(2026, 1, 2, 6)))[
        "event_id"
    ].to_list() == ["a-1"]
    assert not any(w.changed for w in store.update(rows, Window.day(DAY)))
    if place.options is None:
        duck = duckdb.sql(
            "select sensor, sum(length) l, max(len(channels)) c "
            f"from read_parquet('{place.url}/*/*.parquet') group by 1"
        ).pl()
        assert duck.height == len(FLEET) and set(duck["l"]) == {30} and set(duck["c"]) == {2}


def test_an_event_that_was_finished_later_replaces_its_former_self(folder):
    store = EventStore(folder.store(), shards=1)
    store.update(events("a"), Window.day(DAY))
    longer = events("a").with_columns(length=99)
    store.update(longer, Window.day(DAY), sensors=["a"])
    assert store.read("a", Window.day(DAY))["length"].to_list() == [99, 99, 99]

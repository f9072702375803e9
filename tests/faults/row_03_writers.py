"""Row 3: eight writers of the same objects, on S3 and on a disk, with compaction between them."""

from __future__ import annotations

import itertools
from datetime import timedelta
from pathlib import Path

import polars as pl

from paano.errors import Conflict
from storage.objects.store import StorageOptions, open_store
from storage.tables.compaction import compact
from storage.tables.scores import ScoreStore
from storage.window import Window
from tests.faults.processes import Running
from tests.faults.tally import Row, Tally
from tests.servers import seaweed
from tests.storage import old_store
from tests.storage.made import DAY, scores

WRITERS = 8


def day_of(number: int, joinable: bool):
    """Days in turn; those before DAY were begun by version 0.1 and are joined."""
    return DAY + timedelta(days=-(number % 5) if joinable else 1 + number % 5)


def write(url: str, options: StorageOptions | None, name: str, rounds: int) -> int:
    """Write a day of one sensor again and again, every round another version."""
    table = ScoreStore(open_store(url, options))
    for number in range(rounds):
        for joinable in (False, True):
            day = day_of(number, joinable)
            rows = scores(name, day, minutes=240, version=number + 1)
            while True:  # a batch that met too many others is tried again, as Prefect does
                try:
                    table.update(rows, Window.day(day), [name])
                    break
                except Conflict:
                    continue
    return rounds


def add(url: str, options: StorageOptions | None, rounds: int) -> int:
    """Add one to an object."""
    store = open_store(url, options)
    for _ in range(rounds):
        while True:
            data, etag = store.get_with_etag("sum")
            try:
                store.put("sum", str(int(data) + 1).encode(), if_match=etag)
                break
            except Conflict:
                continue
    return rounds


def join_for_ever(url: str, options: StorageOptions | None) -> None:
    table = ScoreStore(open_store(url, options))
    for _ in itertools.count():
        compact(table, DAY + timedelta(days=30))


def read_for_ever(url: str, options: StorageOptions | None, names: list[str], flag: str) -> int:
    """Read while others write: no row twice, none half, until the file `flag` appears; how often."""
    table, done = ScoreStore(open_store(url, options)), 0
    while not Path(flag).exists():
        for joinable in (False, True):
            found = table.read_many(names, Window.day(day_of(done, joinable)))
            assert not found.select("sensor", "ts").is_duplicated().any(), "a row twice"
            for key, part in found.group_by("sensor"):
                assert part.height == 6 and part["model_version"].n_unique() == 1, (
                    f"{key}: rows of two writes"
                )
        done += 1
    return done


def begin_store(url: str, options: StorageOptions | None) -> None:
    """A store with dates of version 0.1, which are joined, and new ones."""
    table = ScoreStore(open_store(url, options))
    old_store.begin(table, 2)
    for number in range(5):
        day = day_of(number, True)
        old_store.write(table, day, 2, scores("first", day, minutes=240))
    table.begin([day_of(number, False) for number in range(5)], shards=1)


def on(tally: Tally, where: str, url: str, options: StorageOptions | None, rounds: int, root: Path) -> None:
    begin_store(f"{url}/table", options)
    names = [f"w{n}" for n in range(WRITERS)]
    flag = root / f"over-{where}"
    joiner = Running(join_for_ever, f"{url}/table", options)
    reader = Running(read_for_ever, f"{url}/table", options, names, str(flag))
    writers = [Running(write, f"{url}/table", options, name, rounds) for name in names]
    with tally.trial(f"rounds of {WRITERS} writers of the same objects on {where}", count=rounds):
        for writer in writers:
            assert writer.result() == rounds
        flag.touch()
        tally.passed(f"reads meanwhile on {where}", reader.result())
        assert joiner.process.is_alive(), "the compactor failed"
    joiner.kill()
    table = ScoreStore(open_store(f"{url}/table", options))
    for number, joinable in itertools.product(range(5), (False, True)):
        day = day_of(number, joinable)
        with tally.trial(f"days afterwards on {where}", str(day)):
            found = table.read_many(None, Window.day(day))
            wrote = [n for n in range(rounds) if n % 5 == number]
            expected = set(names) if wrote else set()
            assert set(found["sensor"]) - {"first"} == expected, "a sensor is lost"
            assert ("first" in set(found["sensor"])) == joinable, "what was there before is lost"
            last = found.filter(pl.col("sensor") != "first")["model_version"].unique().to_list()
            assert last == ([wrote[-1] + 1] if wrote else []), "an update is lost"
    store = open_store(f"{url}/sum", options)
    store.put("sum", b"0")
    adders = [Running(add, f"{url}/sum", options, rounds) for _ in range(WRITERS)]
    with tally.trial(f"conditional additions on {where}", count=WRITERS * rounds):
        for adder in adders:
            adder.result()
        assert store.get("sum") == str(WRITERS * rounds).encode(), "an addition is lost"


def run(tally: Tally, root: Path, short: bool) -> None:
    rounds = 3 if short else 100
    on(tally, "a disk", str(root / "disk"), None, rounds, root)
    with seaweed(root) as s3:
        on(tally, "S3", s3.url("writers"), s3.options, rounds, root)


ROW = Row(
    3,
    "8 writers of the same objects, 100 rounds, on S3 and on a disk; compaction between them",
    "no lost update, no torn object",
    run,
)

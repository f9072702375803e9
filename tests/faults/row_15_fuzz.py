"""Row 15: fuzz. Whatever is in a fleet file, a footer, a model.json or a calendar: only our errors."""

from __future__ import annotations

import io
import json
import shutil
import string
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from flows.settings.fleet_file import Settings, keys
from paano import PaAno, PaAnoConfig
from paano.errors import PaanoError
from storage.history.reader import History
from storage.operations.calendar import Calendar
from storage.window import Window
from tests.faults.processes import in_process
from tests.faults.tally import Row, Tally
from tests.storage.test_storage_hostile_history import DAY, HEALTHY

CASES = {"fleet files": 14_000, "Parquet footers": 16_000, "model.json": 10_000, "calendars": 10_000}
PIECE = 2_000  # cases in one process, so that a crash costs one piece

plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30),
    st.sampled_from(["", "0", "-1", "1d", "9999d", "1e400", "nan", "../x", "s3://", "s3://b", "\0", "{"]),
)  # fmt: skip
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


CALENDAR_WORDS = [
    *("pump-*", "[", "", "2026-01-01", "2026-01-01T00:00", "9999-12-31", "0001-01-01", "1970-01-01"),
    *("mute", "no_training", "both", "weekly", "daily", "FREQ=MONTHLY;BYDAY=1SU", "FREQ=HOURLY"),
    *("FREQ=YEARLY;BYEASTER=0", "FREQ=DAILY;COUNT=999999999", "RRULE:FREQ=WEEKLY;INTERVAL=0", "DTSTART:x"),
]


def only_ours(work: Callable[[], Any]) -> None:
    """Run it; our own errors are what it may raise."""
    try:
        work()
    except PaanoError as error:
        assert str(error), "an error without words"


def repeated(test: Callable[..., None], strategy: dict[str, Any], count: int, seed: int) -> None:
    from hypothesis import seed as seeded

    limits = settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    seeded(seed)(limits(given(**strategy)(test)))()


def fuzz_fleet_files(folder: Path, count: int, seed: int) -> None:
    known = [(section, key) for section, key, _ in keys()]
    one = st.tuples(st.sampled_from(known), values)
    changes = st.lists(one, min_size=1, max_size=3)
    text = st.text(alphabet=string.printable, max_size=80)
    file = folder / "fleet.toml"

    def load(chosen: list[Any], raw: str, as_text: bool) -> None:
        if as_text:
            file.write_text(raw)
            only_ours(lambda: Settings.load(file))
            return
        tables: dict[str, Any] = {}
        for (section, key), value in chosen:
            tables.setdefault(section, {})[key] = value
        only_ours(lambda: Settings.from_dict({**tables, "folder": folder}))

    repeated(
        load, {"chosen": changes, "raw": text, "as_text": st.sampled_from([False, False, True])}, count, seed
    )


def fuzz_footers(folder: Path, count: int, seed: int) -> None:
    footer = 8 + int.from_bytes(HEALTHY[-8:-4], "little")
    places = st.integers(1, footer)
    edits = st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=4)
    (folder / "bad").mkdir()
    file = folder / "bad" / "x.parquet"

    def read(changed: list[tuple[int, int]], cut: int) -> None:
        data = bytearray(HEALTHY)
        for place, byte in changed:
            data[-place] = byte
        file.write_bytes(data[cut:] if cut else data)
        history = History(str(folder))

        def work() -> None:
            for found in history.read_many(["bad"], DAY, workers=1).values():
                assert not isinstance(found, Exception) or isinstance(found, PaanoError), repr(found)

        only_ours(work)

    cuts = st.sampled_from([0, 0, 0, 0, 0, 0, 4, 100])
    repeated(read, {"changed": edits, "cut": cuts}, count, seed)


def fuzz_models(folder: Path, count: int, seed: int) -> None:
    good = folder / "good"
    config = PaAnoConfig(patch=8, width=0.0625, iterations=0)
    PaAno(config, "cpu").fit(np.sin(np.arange(120) / 3)).save(good)
    bad = folder / "bad"
    shutil.copytree(good, bad)
    note = json.loads((good / "model.json").read_text())
    ways = [(name,) for name in note] + [
        (name, inner) for name, part in note.items() if isinstance(part, dict) for inner in part
    ]
    raw = (good / "model.json").read_bytes()

    def load(way: tuple[str, ...], value: Any, byte: tuple[int, int], by_byte: bool) -> None:
        if by_byte:
            data = bytearray(raw)
            data[byte[0] % len(data)] = byte[1]
            (bad / "model.json").write_bytes(data)
        else:
            changed = json.loads(raw)
            target = changed
            for step in way[:-1]:
                target = target[step]
            target[way[-1]] = value
            (bad / "model.json").write_text(json.dumps(changed))

        def work() -> None:
            facts = PaAno.load(bad, "cpu").facts
            only_ours(lambda: (facts.interval, facts.window_end, facts.channel_names))

        only_ours(work)

    strategy = {"way": st.sampled_from(ways), "value": values, "by_byte": st.booleans()}
    strategy["byte"] = st.tuples(st.integers(0, 10**6), st.integers(0, 255))
    repeated(load, strategy, count, seed)


def fuzz_calendars(folder: Path, count: int, seed: int) -> None:
    words = st.sampled_from(CALENDAR_WORDS)
    cell = words | st.text(alphabet=string.printable.replace("\r", ""), max_size=20)
    row = st.tuples(*[cell] * 7)
    file = folder / "calendar.csv"
    window = Window(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))

    def read(rows: list[tuple[str, ...]], raw: bytes, by_bytes: bool) -> None:
        import csv

        out = io.StringIO()
        csv.writer(out).writerows([("sensor", "group", "start", "end", "what", "reason", "repeat"), *rows])
        file.write_bytes(raw if by_bytes else out.getvalue().encode())

        def work() -> None:
            for period in Calendar.read(str(file)).periods:
                period.covers("pump-1", None)
                period.within(window)

        only_ours(work)

    strategy = {"rows": st.lists(row, max_size=3), "raw": st.binary(max_size=60)}
    strategy["by_bytes"] = st.sampled_from([False] * 4 + [True])
    repeated(read, strategy, count, seed)


WORK = {
    "fleet files": fuzz_fleet_files,
    "Parquet footers": fuzz_footers,
    "model.json": fuzz_models,
    "calendars": fuzz_calendars,
}


def run(tally: Tally, root: Path, short: bool) -> None:
    for name, total in CASES.items():
        done, number = 0, 0
        total = 150 if short else total
        while done < total:
            count, number = min(PIECE, total - done), number + 1
            folder = root / f"{name.replace(' ', '-')}-{number}"
            folder.mkdir()
            with tally.trial(name, f"part {number}", count=count):
                in_process(WORK[name], folder, count, 1000 * number)
            done += count
            shutil.rmtree(folder)


ROW = Row(
    15,
    "fuzz: fleet file, Parquet footers, model.json, calendar (hypothesis), 50,000 cases",
    "no crash, no hang, only our errors",
    run,
)

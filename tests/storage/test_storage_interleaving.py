"""Every order of the steps of writers, readers and a compactor: nothing is lost, doubled or hidden.

Each actor is a thread that stops before every call to the store; a hypothesis state machine says whose call
comes next, and may kill an actor there. What is checked is that every sensor's row behaves like one variable:
a read gives the value of a write that had begun and was not replaced before the read began.
"""

from __future__ import annotations

import builtins
import itertools
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from paano.errors import Conflict, ObjectMissing
from storage import retry
from storage.objects.store import ObjectInfo, Store, content_etag, under
from storage.tables import day_table
from storage.tables.compaction import compact
from storage.tables.scores import ScoreStore
from storage.window import Window
from tests.storage import old_store
from tests.storage.made import DAY

NEW = DAY + timedelta(days=5)  # a date that version 0.1 did not write to
OLD_SHARDS = 2
SENSORS = ["a", "b", "c", "d"]
CALLS = ("get", "get_with_etag", "put", "delete", "list", "head", "folders")


class MemoryStore(Store):
    """A dict. Every call is one step, as on S3."""

    def __init__(self):
        super().__init__("dict://")
        self.held: dict[str, bytes] = {}

    def get_with_etag(self, key):
        if key not in self.held:
            raise ObjectMissing(key)
        return self.held[key], content_etag(self.held[key])

    def put(self, key, data, *, if_match=None, if_absent=False):
        held = self.held.get(key)
        if (if_absent and held is not None) or (
            if_match is not None and (held is None or content_etag(held) != if_match)
        ):
            raise Conflict(key)
        self.held[key] = data
        return content_etag(data)

    def list(self, prefix=""):
        now = datetime.now(UTC)
        return iter(
            [ObjectInfo(k, len(d), now) for k, d in sorted(self.held.items()) if k.startswith(under(prefix))]
        )

    def folders(self, prefix=""):
        return sorted({key.split("/")[0] for key in self.held if "/" in key})

    def delete(self, keys):
        for key in [keys] if isinstance(keys, str) else keys:
            self.held.pop(key, None)


class Killed(BaseException):
    """The process of an actor is gone."""


class Actor:
    """Work in a thread of its own that waits before every call to the store."""

    def __init__(self, store, work):
        self.go, self.waits = threading.Semaphore(0), threading.Semaphore(0)
        self.done = self.killed = False
        self.result = self.error = None
        self.store, self.work = store, work
        threading.Thread(target=self._run, daemon=True).start()
        assert self.waits.acquire(timeout=30)

    def _run(self):
        try:
            self.result = self.work(self)
        except Killed:
            pass
        except Exception as error:
            self.error = error
        finally:
            self.done = True
            self.waits.release()

    def step(self):
        """The call it waits at, and on to the next."""
        self.go.release()
        assert self.waits.acquire(timeout=30), "an actor waits for something else than a step"

    def __getattr__(self, name):  # as the store that the work is given
        value = getattr(self.store, name)
        if name not in CALLS:
            return value

        def call(*arguments, **named):
            self.waits.release()
            self.go.acquire()
            if self.killed:
                raise Killed
            found = value(*arguments, **named)
            return iter(builtins.list(found)) if name == "list" else found

        return call


@dataclass
class Write:
    """A value of one sensor's row; None takes the row out."""

    value: int | None
    begun: float
    ended: float = math.inf


@dataclass
class Running:
    actor: Actor
    begun: int
    write: Write | None = None
    reads: list[tuple[object, str]] = field(default_factory=list)


def row(sensor, day, value):
    ts = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    values = {"sensor": sensor, "ts": ts, "score": 0.5, "threshold": 1.0, "anomaly": False, "status": "ok"}
    return pl.DataFrame([{**values, "coverage": 1, "model_version": value}])


class Tables(RuleBasedStateMachine):
    """Up to three writers, readers and compactors at once on a store begun by version 0.1."""

    make_store = staticmethod(MemoryStore)

    @initialize(held=st.sets(st.sampled_from(SENSORS)), renewed=st.booleans(), joined=st.booleans())
    def begin(self, held, renewed, joined):
        self.store = self.make_store()
        self.clock, self.values = itertools.count(1), itertools.count(1)
        self.now = 0
        self.running: list[Running] = []
        self.writes = {(s, day): [Write(None, -2, -1)] for s in SENSORS for day in (DAY, NEW)}
        table = ScoreStore(self.store)
        old_store.begin(table, OLD_SHARDS)
        if held:
            rows = pl.concat([row(s, DAY, 0) for s in sorted(held)])
            old_store.write(table, DAY, OLD_SHARDS, rows)
            for sensor in held:
                self.writes[sensor, DAY] = [Write(0, -2, -1)]
        if renewed:
            table.begin([])
        if joined:
            compact(ScoreStore(self.store), DAY + timedelta(days=1))

    def tick(self):
        self.now = next(self.clock)
        return self.now

    def start(self, work, **more):
        if len(self.running) < 3:
            self.running.append(Running(Actor(self.store, work), self.tick(), **more))
            self.settle(self.running[-1])

    @rule(
        sensor=st.sampled_from(SENSORS),
        day=st.sampled_from([DAY, NEW]),
        out=st.booleans(),
        shards=st.sampled_from([1, 2, 3]),
    )
    def start_writing(self, sensor, day, out, shards):
        if len(self.running) >= 3:
            return
        write = Write(None if out else next(self.values), self.now + 1)
        self.writes[sensor, day].append(write)
        frame = row(sensor, day, 0).clear() if out else row(sensor, day, write.value)
        self.start(
            lambda store: ScoreStore(store, shards).update(frame, Window.day(day), [sensor]), write=write
        )

    @rule()
    def start_joining(self):
        self.start(lambda store: compact(ScoreStore(store), NEW + timedelta(days=1)))

    @rule(day=st.sampled_from([DAY, NEW]), sensor=st.sampled_from([None, *SENSORS]))
    def start_reading(self, day, sensor):
        names = None if sensor is None else [sensor]

        def read(store):
            found = ScoreStore(store).read_many(names, Window.day(day), workers=1)
            assert not found.select("sensor", "ts").is_duplicated().any()
            return found

        self.start(read, reads=[(day, s) for s in (names or SENSORS)])

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 2), steps=st.integers(1, 8))
    def step(self, which, steps):
        running = self.running[which % len(self.running)]
        for _ in range(steps):
            if running.actor.done:
                break
            running.actor.step()
            self.tick()
        self.settle(running)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 2))
    def kill(self, which):
        running = self.running[which % len(self.running)]
        running.actor.killed = True
        running.actor.step()
        self.running.remove(running)  # its write may have happened or not: it never ends

    def settle(self, running):
        """Take a finished actor out; what it read must have been there."""
        if not running.actor.done or running not in self.running:
            return
        self.running.remove(running)
        if running.actor.error is not None:
            raise running.actor.error
        if running.write:
            running.write.ended = self.tick()
        if running.reads:
            for day, sensor in running.reads:
                self.check(running.actor.result, day, sensor, running.begun)

    def check(self, frame, day, sensor, begun):
        found = frame.filter(pl.col("sensor") == sensor)["model_version"].to_list()
        assert len(found) <= 1, f"{sensor} has {len(found)} rows on {day}"
        value = found[0] if found else None
        writes = self.writes[sensor, day]
        # A write that ended before another one began, which itself ended before this read began, is over.
        over = [w for w in writes if any(w.ended < x.begun and x.ended < begun for x in writes)]
        fine = [w.value for w in writes if w not in over]
        assert value in fine, f"{sensor} on {day} is {value}, should be one of {fine}"

    @invariant()
    def nobody_failed(self):
        for running in getattr(self, "running", []):
            assert running.actor.error is None

    def teardown(self):
        if not hasattr(self, "store"):
            return
        while self.running:
            running = self.running[0]
            running.actor.step()
            self.tick()
            self.settle(running)
        for _ in range(2):  # before and after one more join
            now = self.tick()
            for day in (DAY, NEW):
                whole = ScoreStore(self.store).read_many(None, Window.day(day), workers=1)
                some = ScoreStore(self.store).read_many(SENSORS, Window.day(day), workers=1)
                assert whole.equals(some)
                for sensor in SENSORS:
                    self.check(whole, day, sensor, now)
            done = compact(ScoreStore(self.store), NEW + timedelta(days=1))
            assert not done.busy
            span = ScoreStore(self.store).note.on(DAY)
            if span is not None and span.joinable:
                assert len(list(self.store.list(f"date={DAY}"))) <= 1


@pytest.fixture(autouse=True)
def as_processes(monkeypatch):
    """Threads of the test stand for processes: they take no turns. Nobody waits."""
    monkeypatch.setattr(day_table, "_TURNS", [nullcontext()] * 64)
    monkeypatch.setattr(retry.time, "sleep", lambda seconds: None)


def check_machine(make_store, examples, steps=40):
    machine = type("TablesOn", (Tables,), {"make_store": staticmethod(make_store)})
    run_machine(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_every_interleaving_on_a_dict_keeps_every_row():
    check_machine(MemoryStore, 60)


@pytest.mark.slow
def test_many_more_interleavings_on_a_dict_keep_every_row():
    check_machine(MemoryStore, 5_000, 60)


def test_interleavings_on_a_folder_and_on_s3_keep_every_row(place):
    numbers = itertools.count()
    check_machine(lambda: place.store(f"machine-{next(numbers)}"), 8, 30)


def test_four_writers_beside_a_compactor_lose_nothing(place):
    """The stress that lost rows in 47 of 400 days with version 0.1: writers of one shard, joins between."""
    days = [DAY + timedelta(days=n) for n in range(12)]
    old_store.begin(ScoreStore(place.store()), 1)
    for day in days[::2]:
        old_store.write(ScoreStore(place.store()), day, 1, row("first", day, 0))
    ready, over = threading.Barrier(5), threading.Event()

    def write(name):
        table = ScoreStore(place.store())
        ready.wait()
        for day in days:
            table.update(row(name, day, 1), Window.day(day))

    def join():
        table = ScoreStore(place.store())
        ready.wait()
        while not over.is_set():
            compact(table, days[-1] + timedelta(days=1))

    names = ["a", "b", "c", "d"]
    with ThreadPoolExecutor(5) as pool:
        joining = pool.submit(join)
        writing = [pool.submit(write, name) for name in names]
        try:
            for one in writing:
                one.result()
        finally:
            over.set()
        joining.result()
    table = ScoreStore(place.store())
    for day in days:
        found = table.read_many(None, Window.day(day))["sensor"].to_list()
        assert found == [*names, "first"] if day in days[::2] else found == names, day


def test_a_join_that_others_go_on_disturbing_gives_up_and_says_so(monkeypatch):
    store = MemoryStore()
    old_store.make(ScoreStore(store), 2)
    put, version = store.put, itertools.count(2)

    def disturbed(key, data, **conditions):
        if conditions.get("if_match") and "shard-" in key:  # somebody is always quicker with this object
            put(key, old_store.night_bytes(ScoreStore(store), next(version)))
        return put(key, data, **conditions)

    monkeypatch.setattr(store, "put", disturbed)
    done = compact(ScoreStore(store), DAY + timedelta(days=1))
    assert done.dates == [] and done.busy == [DAY]

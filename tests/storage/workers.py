"""Programs that tests run beside each other: `python -m tests.storage.workers JOB URL ENDPOINT MORE…`.

Each says "ready" once everything is imported, waits for a line, and goes.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager

from paano.errors import Conflict
from storage.objects.store import StorageOptions, open_store


def start(job, place, *more):
    """A worker that is ready to go."""
    endpoint = place.options.endpoint if place.options else ""
    command = [sys.executable, "-m", "tests.storage.workers", job, place.url, endpoint, *map(str, more)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@contextmanager
def going(job, place, *more):
    """A worker at its endless work; killed at the end of the block, wherever it is."""
    worker = start(job, place, *more)
    assert worker.stdout.readline() == b"ready\n", worker.stderr.read().decode()
    worker.stdin.write(b"go\n")
    worker.stdin.flush()
    try:
        yield worker
    finally:
        worker.kill()
        worker.communicate()


def together(jobs):
    """Run [(job, place, more…)] at the same moment; what each printed."""
    workers = [start(*job) for job in jobs]
    for worker in workers:
        assert worker.stdout.readline() == b"ready\n", worker.stderr.read().decode()
    printed = []
    for worker in workers:
        worker.stdin.write(b"go\n")
        worker.stdin.flush()
    for worker in workers:
        out, err = worker.communicate(timeout=600)
        assert worker.returncode == 0, err.decode()
        printed.append(out.decode().strip())
    return printed


def add(store, count):
    """Add one to an object, `count` times."""
    yield
    for _ in range(int(count)):
        while True:
            data, etag = store.get_with_etag("sum")
            try:
                store.put("sum", str(int(data) + 1).encode(), if_match=etag)
                break
            except Conflict:
                continue


def put_for_ever(store):
    """Write a large object again and again."""
    yield
    n = 0
    while True:
        n += 1
        store.put("x", str(n % 10).encode() * 200_000)


def score(store, sensor):
    """Write a day of one sensor."""
    from storage.tables.scores import ScoreStore
    from storage.window import Window
    from tests.storage.made import DAY, scores

    table, rows = ScoreStore(store, shards=1), scores(sensor)
    yield
    table.update(rows, Window.day(DAY))


def score_for_ever(store):
    """Write a day of the fleet as of version 1, then 2, then 1 …"""
    from storage.tables.scores import ScoreStore
    from storage.window import Window
    from tests.storage.made import DAY, night

    table = ScoreStore(store, shards=1)
    nights = [table.canonical(night(version=n)) for n in (1, 2)]
    yield
    while True:
        for rows in nights:
            table.update(rows, Window.day(DAY))


def register(store, tracking_uri, *more):
    """Register as champion: `folder sensor… [-- folder sensor…]`."""
    from storage.registry.registry import Registry

    registry = Registry(tracking_uri, store.url, "plant", f"{more[0]}-cache", store.options)
    registry.client.client  # noqa: B018
    yield
    for part in " ".join(more).split(" -- "):
        folder, *sensors = part.split()
        for sensor in sensors:
            print(registry.register(sensor, folder, alias="champion").version)


JOBS = {job.__name__: job for job in (add, put_for_ever, score, score_for_ever, register)}


def main():
    job, url, endpoint, *more = sys.argv[1:]
    options = StorageOptions(
        endpoint=endpoint or None, region="us-east-1", key="test-key", secret="test-secret"
    )
    steps = JOBS[job](open_store(url, options), *more)
    next(steps)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in steps:
        pass


if __name__ == "__main__":
    main()

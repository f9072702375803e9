"""Row 14: three hundred nights in one process with 1 % of all calls failing."""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from paano.errors import Transient
from tests.faults import fleet_work, injected
from tests.faults.processes import in_process
from tests.faults.row_01_every_call import difference
from tests.faults.tally import Row, Tally

SHARE = 0.01
WARM_UP = 60  # nights
LOOK = 5  # nights between two looks: collecting garbage takes as long as a night
FIRST = fleet_work.TRAINED


def resident() -> int:
    """Bytes of memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def children() -> int:
    return len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def soak(folder: Path, nights: int, again: int) -> dict[str, object]:
    """The nights in order; each is tried again until it went through. Every `again` nights a retraining."""
    tempfile.tempdir = str(folder / "tmp")
    (folder / "tmp").mkdir()
    fleet = fleet_work.opened(folder)
    chance, failed = random.Random(14), 0

    def sometimes(_number: int, name: str) -> None:
        nonlocal failed
        if chance.random() < SHARE:
            failed += 1
            raise injected.lost(name)

    memory: list[int] = []
    threads: list[int] = []
    files: list[int] = []

    def through(work: Callable[..., object], number: int) -> None:
        for _ in range(50):
            injected.begin(sometimes)
            try:
                work(fleet, number)
                return
            except Transient:
                continue
            finally:
                injected.end()
        raise AssertionError(f"night {number} never went through")

    for number in range(FIRST, FIRST + nights):
        through(fleet_work.score, number)
        if again and (number - FIRST) % again == again - 1:
            through(fleet_work.train, number)  # apart: a night that is scored again has the new champion
        if (number - FIRST) % LOOK == LOOK - 1:
            memory.append(resident())
        threads.append(threading.active_count())
        files.append(len(os.listdir("/proc/self/fd")))
    return {
        "memory": memory,
        "threads": threads,
        "files": files,
        "children": children(),
        "faults": failed,
        "temporary": sorted(os.listdir(folder / "tmp")),
        "beside": leftovers(folder),
    }


def leftovers(folder: Path) -> list[str]:
    """Half-written files, and lock files beyond the few that serve all keys."""
    found = [str(p.relative_to(folder)) for p in folder.rglob("*") if "half-" in p.name or ".new-" in p.name]
    locks = [p for p in folder.rglob("lock-*") if p.is_file()]
    return found + ([f"{len(locks)} lock files"] if len(locks) > 64 * 6 else [])


def prepare(folder: Path, nights: int) -> None:
    fleet_work.make(folder, sensors=2, days=FIRST + nights)


def undisturbed(folder: Path, nights: int, again: int) -> None:
    """The same nights and trainings without faults."""
    fleet = fleet_work.opened(folder)
    for number in range(FIRST, FIRST + nights):
        fleet_work.score(fleet, number)
        if again and (number - FIRST) % again == again - 1:
            fleet_work.train(fleet, number)


def run(tally: Tally, root: Path, short: bool) -> None:
    nights, again = (6, 0) if short else (300, 60)
    in_process(prepare, root / "soak", nights)
    shutil.copytree(root / "soak", root / "calm")
    found = in_process(soak, root / "soak", nights, again)
    tally.passed("nights in one process with 1 % of calls failing", nights)
    warm = min(WARM_UP, nights // 2)
    if not short:
        memory = found["memory"]
        before = max(memory[warm // LOOK - 1 : warm // LOOK + 1])
        growth = max(memory[-2:]) / before - 1
        tally.notes.append(f"{found['faults']} faults; memory {growth:+.1%} after night {warm}")
        with tally.trial("looks at memory"):
            assert growth < 0.05, f"it grew by {growth:.1%} after {warm} nights ({before >> 20} MB)"
    with tally.trial("looks at threads and open files"):
        for name in ("threads", "files"):
            assert found[name][-1] <= found[name][warm] + 2, f"{name}: {found[name][warm]}, {found[name][-1]}"
    with tally.trial("looks at processes"):
        assert found["children"] == 0, found["children"]
    with tally.trial("looks at temporary and half-written files"):
        assert not found["temporary"] and not found["beside"], (found["temporary"], found["beside"])
    with tally.trial("comparisons with nights without faults"):
        in_process(undisturbed, root / "calm", nights, again)
        have, want = fleet_work.objects(root / "soak"), fleet_work.objects(root / "calm")
        assert have == want, difference(have, want)


ROW = Row(
    14,
    "soak: 300 simulated nights with 1 % faults",
    "memory flat (under 5 % after warm-up), no leaked files, locks, temporary objects, processes",
    run,
)

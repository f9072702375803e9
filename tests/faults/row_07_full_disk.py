"""Row 7: a disk that is full, a limit on the size of files, a folder that is read-only."""

from __future__ import annotations

import logging
import os
import resource
import shutil
import signal
from pathlib import Path

from paano.errors import PaanoError
from tests.faults import fleet_work
from tests.faults.mounts import read_only, small_disk
from tests.faults.processes import in_process
from tests.faults.row_01_every_call import WORK, State, difference, prepare, state_of
from tests.faults.tally import Row, Tally

LEFT = (0, 2_000, 6_000, 12_000, 25_000, 50_000, 100_000, 200_000, 400_000)  # bytes
LIMITS = (1_000, 3_000, 10_000, 30_000)  # bytes of a file


def attempt(kind: str, folder: str) -> str:
    """The work; what was said if it failed. Only errors of ours are clean."""
    try:
        WORK[kind](folder)
    except PaanoError as error:
        assert str(error) and "\n" not in str(error).strip(), f"not a clean message: {error!r}"
        return str(error)
    return ""


def fill(disk: Path, left: int) -> Path:
    """A file that takes all but `left` bytes of the disk."""
    path = disk / "filler"
    with path.open("wb") as file:
        free = os.statvfs(disk)
        want = free.f_bavail * free.f_frsize - left
        try:
            while want > 0:
                want -= file.write(b"\0" * min(want, 1 << 16))
                file.flush()
        except OSError:
            pass  # the disk is full, as it shall be
    return path


def on_small_disk(source: str, disk: str, kind: str, left: int | None, after: State) -> str:
    """The work on a disk with `left` bytes free (None: read-only), then again with room for it."""
    logging.disable(logging.CRITICAL)
    small_disk(Path(disk), 64 << 20)
    folder = Path(disk) / "fleet"
    shutil.copytree(source, folder)
    if left is None:
        read_only(Path(disk), True)
        said = attempt(kind, str(folder))
        assert said, "nothing was said of a disk that cannot be written"
        read_only(Path(disk), False)
    else:
        filler = fill(Path(disk), left)
        said = attempt(kind, str(folder))
        fleet_work.whole_objects(folder)
        filler.unlink()
    settle(kind, folder, after)
    return said


def with_limit(folder: str, kind: str, limit: int) -> str:
    """The work in a process that may write no file longer than `limit`."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return attempt(kind, folder)


def settle(kind: str, folder: Path, after: State) -> None:
    fleet_work.whole_objects(folder)
    fleet_work.versions_have_files(fleet_work.opened(folder))
    WORK[kind](str(folder))
    found = state_of(str(folder))
    assert found.objects == after.objects, difference(found.objects, after.objects)
    assert found.models == after.models, difference(found.models, after.models)


def can_mount(folder: str) -> bool:
    try:
        small_disk(Path(folder), 1 << 20)
    except OSError:
        return False
    return True


def run(tally: Tally, root: Path, short: bool) -> None:
    in_process(prepare, root)
    mounts = in_process(can_mount, str(root / "try"))
    if not mounts:
        tally.notes.append("small disks cannot be mounted here: only limits on the size of files were tried")
    for kind in ("scoring", "retraining") if short else WORK:
        copy = root / "copy"
        shutil.copytree(root / kind, copy)
        in_process(WORK[kind], str(copy))
        after = in_process(state_of, str(copy))
        shutil.rmtree(copy)
        kinds = f"full disks during a {kind}"
        for left in (LEFT[3:4] if short else LEFT) if mounts else ():
            with tally.trial(kinds, f"{left} bytes left"):
                in_process(on_small_disk, str(root / kind), str(root / "disk"), kind, left, after)
        if mounts:
            with tally.trial(f"read-only disks during a {kind}"):
                in_process(on_small_disk, str(root / kind), str(root / "disk"), kind, None, after)
        for limit in LIMITS[:1] if short else LIMITS:
            shutil.copytree(root / kind, copy)
            with tally.trial(f"limits on the size of files during a {kind}", f"{limit} bytes"):
                in_process(with_limit, str(copy), kind, limit)
                in_process(settle, kind, copy, after)
            shutil.rmtree(copy)


ROW = Row(7, "disk full, quota, read-only folder", "clean error, no damage", run)

"""Row 7: a disk without room for bytes or for files, a quota, a limit on their size, a read-only folder."""

from __future__ import annotations

import errno
import itertools
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

FULL, NO_FILES, READ_ONLY = "full disks", "disks with no room for files", "read-only disks"
LEFT = (0, 2_000, 6_000, 12_000, 25_000, 50_000, 100_000, 200_000, 400_000)  # bytes
FILES_LEFT = (0, 2, 5, 12)
QUOTAS = (1, 3, 8)  # the call to the disk at which the quota is used up
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


def fill_with_files(disk: Path, left: int) -> Path:
    """A folder of empty files that takes all but `left` of those that the disk has room for."""
    folder = disk / "files"
    folder.mkdir()
    for number in range(os.statvfs(disk).f_favail - left):
        (folder / str(number)).touch()
    return folder


def on_small_disk(source: str, disk: str, kind: str, fault: str, left: int, after: State) -> str:
    """The work on a small disk with a fault: room for `left` bytes or files, or none to write at all.

    Then again without the fault.
    """
    logging.disable(logging.CRITICAL)
    small_disk(Path(disk), 64 << 20, files=3000)
    folder = Path(disk) / "fleet"
    shutil.copytree(source, folder)
    if fault == READ_ONLY:
        read_only(Path(disk), True)
        said = attempt(kind, str(folder))
        assert said, "nothing was said of a disk that cannot be written"
        read_only(Path(disk), False)
    else:
        filler = {FULL: fill, NO_FILES: fill_with_files}[fault](Path(disk), left)
        said = attempt(kind, str(folder))
        fleet_work.whole_objects(folder)
        shutil.rmtree(filler) if filler.is_dir() else filler.unlink()
    settle(kind, folder, after)
    return said


def with_quota(folder: str, kind: str, calls: int) -> str:
    """The work where the system answers "quota exceeded" from this call on: few kernels have one."""
    logging.disable(logging.CRITICAL)
    number, real = itertools.count(1), os.fsync

    def fsync(file: int) -> None:
        if next(number) >= calls:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        real(file)

    os.fsync = fsync
    try:
        return attempt(kind, folder)
    finally:
        os.fsync = real


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
        faults = [(FULL, left, f"{left} bytes left") for left in (LEFT[3:4] if short else LEFT)]
        faults += [
            (NO_FILES, left, f"{left} files left") for left in (FILES_LEFT[1:2] if short else FILES_LEFT)
        ]
        faults.append((READ_ONLY, 0, ""))
        for fault, left, name in faults if mounts else ():
            with tally.trial(f"{fault} during a {kind}", name):
                in_process(on_small_disk, str(root / kind), str(root / "disk"), kind, fault, left, after)
        limited = [("limits on the size of files", with_limit, n) for n in (LIMITS[:1] if short else LIMITS)]
        limited += [("quotas", with_quota, n) for n in (QUOTAS[1:2] if short else QUOTAS)]
        for fault, work, number in limited:
            shutil.copytree(root / kind, copy)
            with tally.trial(f"{fault} during a {kind}", str(number)):
                in_process(work, str(copy), kind, number)
                in_process(settle, kind, copy, after)
            shutil.rmtree(copy)


ROW = Row(7, "disk full, quota, read-only folder", "clean error, no damage", run)

"""What a killed command would leave behind: processes, temporary folders, half-written files of the cache.

Processes end with the command that started them, however it ends (on Linux: `watchdog.py`). Folders of
processes that are gone are removed when the next command runs a flow. Lock files stay on purpose: the system
releases a lock with its process, and to remove its file would let two writers in; a store has at most 64.
"""

from __future__ import annotations

import atexit
import contextlib
import glob
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from flows.processes import watchdog

HALF_AGE = 3600.0  # seconds after which a half-written file of a process that is not here may go
_HALF = re.compile(r"^\.(?:half|gone)-(\d+)-[0-9a-f]+$|^\..+\.json-(\d+)-[0-9a-f]+$")
_started: dict[int, subprocess.Popen[bytes]] = {}  # the watchdog of this process, by its id: forks have none


def watch_children() -> None:
    """From now on, processes that this one starts end with it, also when it is killed. Linux only.

    To be called before they are started: they are known by a variable that they inherit.
    """
    if sys.platform != "linux" or os.getpid() in _started:
        return
    token = f"{os.getpid()}-{secrets.token_hex(8)}"
    program = [sys.executable, "-I", "-S", watchdog.__file__, token, f"{glob.escape(_prefix(os.getpid()))}*"]
    plain = {name: value for name, value in os.environ.items() if name != watchdog.MARK}
    process = subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=plain,
        start_new_session=True,  # Ctrl-C is for the command
    )
    os.environ[watchdog.MARK] = token
    _started[os.getpid()] = process
    atexit.register(_dismiss, os.getpid())


def _dismiss(pid: int) -> None:
    process = _started.get(os.getpid())
    if process is None or pid != os.getpid() or process.stdin is None:
        return
    process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):  # it goes on alone
        process.wait(2 * watchdog.PATIENCE)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that is gone afterwards; if this process is killed, soon after or with the next command."""
    with tempfile.TemporaryDirectory(
        dir=tempfile.gettempdir(), prefix=Path(_prefix(os.getpid())).name
    ) as name:
        yield Path(name)


def _prefix(pid: int) -> str:
    """How the temporary folders of a process begin. Containers may share a folder, not their numbers."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return f"{tempfile.gettempdir()}/paano-{space}-{pid}-"


def clean_leftovers(cache: Path | None = None) -> list[Path]:
    """Remove temporary folders of processes that are gone, and old half-written models; what was removed."""
    gone = []
    ours = _prefix(0).removesuffix("0-")
    for name in glob.glob(f"{glob.escape(ours)}*-*"):
        pid = name.removeprefix(ours).partition("-")[0]
        if pid.isdigit() and not lives(int(pid)):
            gone.append(Path(name))
    if cache is not None:
        halves = [*cache.glob(".*"), *cache.glob("*.since/.*"), *(cache / "models").glob(".*")]
        gone += [path for path in halves if _is_old_half(path)]
    for path in gone:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return gone


def _is_old_half(path: Path) -> bool:
    """Whether a file of the cache was being written by a process that is gone; machines may share a cache."""
    found = _HALF.match(path.name)
    if found is None or lives(int(found[1] or found[2])):
        return False
    try:
        return path.stat().st_mtime < time.time() - HALF_AGE
    except FileNotFoundError:
        return False


def lives(pid: int) -> bool:
    """Whether there is a process with this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

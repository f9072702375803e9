"""Loads model folders, each in a process of its own that has 50 MB of memory left for it.

    python -m tests.attacks.loader < jobs

A job is a line of JSON, [reader, folder]; the answer is a line of JSON, the error's class and text or null.
The parent imports torch once and forks for every job, so memory taken for one does not count for another.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from paano import PaAno

ROOM = 50 << 20  # bytes


def load(folder: Path) -> None:
    PaAno.load(folder, "cpu")


def careless(folder: Path) -> None:
    """Takes what is there, however large: what the limit must stop."""
    for path in folder.iterdir():
        path.read_bytes()


READERS = {"load": load, "careless": careless}


def limit_memory() -> None:
    """From here on, this process gets ROOM bytes of address space more than it has."""
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + ROOM, has + ROOM))


def answer_to(reader: str, folder: Path) -> list[str] | None:
    os.chdir(folder.parent)
    limit_memory()
    try:
        READERS[reader](folder)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def main() -> None:
    for line in sys.stdin:
        reader, folder = json.loads(line)
        pid = os.fork()
        if pid == 0:
            print(json.dumps(answer_to(reader, Path(folder))), flush=True)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status:
            print(json.dumps(["killed", f"wait status {status}"]), flush=True)


if __name__ == "__main__":
    main()

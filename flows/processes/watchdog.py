"""A program of its own that outlives a killed command: it ends what the command started and left behind.

    python -I -S watchdog.py TOKEN FOLDERS

Its standard input is a pipe that only the command holds open. When the pipe closes, every process with
`CHILD_OF_PAANO=TOKEN` in its environment is ended, and the temporary folders that fit FOLDERS are removed.
After a command that ended by itself there are none. Only the standard library is imported: it starts at once.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import signal
import sys
import time

MARK = "CHILD_OF_PAANO"
PATIENCE = 5.0  # seconds after SIGTERM, and again after SIGKILL


def marked(token: str) -> list[int]:
    """The processes of this user that have the mark with `token`."""
    line, found = f"{MARK}={token}".encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if line in file.read().split(b"\0"):
                    found.append(int(name))
        except OSError:
            continue  # ended while we looked, or another user's
    return found


def end_marked(token: str) -> None:
    """End the processes with the mark: politely, and after a while at once."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + PATIENCE
        signalled: set[int] = set()
        while (found := marked(token)) and time.monotonic() < deadline:
            for pid in set(found) - signalled:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, sign)
            signalled |= set(found)
            time.sleep(0.1)
        if not found:
            return


def main(token: str, folders: str) -> None:
    """Wait for the end of the command, then clean up."""
    while os.read(0, 4096):
        pass
    end_marked(token)
    for folder in glob.glob(folders):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

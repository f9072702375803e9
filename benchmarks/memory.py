"""The memory of a process, for benchmarks."""

from __future__ import annotations

import re
import resource
from pathlib import Path


def peak_mb(pid: int | str = "self") -> float:
    """The most resident memory of a process; ru_maxrss counts that of the one which started it as well."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    return int(found[1]) / 1024 if found else 0.0

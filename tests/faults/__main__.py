"""The fault suite: `python -m tests.faults` tries everything and prints what was tried and what survived.

    python -m tests.faults                  all rows, the table on the screen and in docs/faults.md
    python -m tests.faults --row 3          one row
    python -m tests.faults --short          the part that is in `make test`
    python -m tests.faults --row 3 --json   one row, its counts as JSON
    python -m tests.faults --thorough       at every single call where it is every k-th otherwise: hours

Every row runs in a process of its own, three at a time: one of them mostly waits.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.faults import rows
from tests.faults.page import table, write_page
from tests.faults.processes import end_server
from tests.faults.tally import THOROUGH, Tally

ROOT = Path(__file__).resolve().parents[2]
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    "OMP_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "2",
    "GIT_PYTHON_REFRESH": "quiet",
}
SECONDS = 1800  # for one row
LONGEST_FIRST = (5, 1, 4, 2, 13, 16, 14, 7, 6, 9, 15, 8)  # the others take a minute


def run_row(number: int, short: bool, last: bool) -> dict[str, Any]:
    """Run one row here; its counts. Processes of the `last` row of this process are ended with it."""
    tally, began = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="paano-faults-") as folder:
        try:
            rows.load(number).run(tally, Path(folder), short)
        except Exception as error:  # the row itself broke: it is not a pass
            tally.failed("the row itself", "", error)
    if last:
        end_server()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        **asdict(tally),
        "row": number,
        "what": tally.what,
        "survived": tally.survived,
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(sum(u.ru_utime + u.ru_stime for u in used), 1),
    }


def run_apart(number: int, short: bool) -> dict[str, Any]:
    """Run one row in a process of its own; its counts."""
    command = [sys.executable, "-m", "tests.faults", "--row", str(number), "--json"]
    environment = {**os.environ, **QUIET, "PYTHONPATH": str(ROOT)}
    print(f"row {number:2d} begins", file=sys.stderr, flush=True)
    began = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        try:
            done = subprocess.run(
                command + ["--short"] * short,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                cwd=ROOT,
                timeout=SECONDS,
            )
            found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
            errors.seek(0)
            tally = Tally()
            tally.failed("the row itself", "", f"{error}\n{errors.read().decode(errors='replace')[-2000:]}")
            found = {**asdict(tally), "row": number, "what": tally.what, "survived": 0}
            found |= {"seconds": round(time.monotonic() - began, 1), "cpu_seconds": 0.0}
    print(
        f"row {number:2d}: tried {found['tried']:,}, survived {found['survived']:,}, "
        f"{found['seconds']:.0f} s, {found['cpu_seconds']:.0f} s of CPU",
        file=sys.stderr,
        flush=True,
    )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--row", type=int, action="append", choices=sorted(rows.modules()))
    parser.add_argument("--short", action="store_true", help="only the part that is in `make test`")
    parser.add_argument("--json", action="store_true", help="run here and print the counts as JSON")
    parser.add_argument("--results", help="make the page from files of earlier --json answers in this folder")
    parser.add_argument("--jobs", type=int, default=3, help="rows at a time")
    parser.add_argument("--thorough", action="store_true", help="at every call, not at every k-th")
    asked = parser.parse_args()
    numbers = asked.row or sorted(rows.modules())
    if asked.thorough:
        os.environ[THOROUGH] = "1"
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    if asked.results:
        lines = [
            line for path in Path(asked.results).glob("*.json") for line in path.read_text().splitlines()
        ]
        kept = sorted(
            (json.loads(line) for line in lines if line.startswith("{")), key=lambda one: one["row"]
        )
        write_page(ROOT / "docs" / "faults.md", kept, sum(one["seconds"] for one in kept) / 60)
        return int(any(one["failures"] for one in kept))
    if asked.json:
        found = [run_row(number, asked.short, last=number == numbers[-1]) for number in numbers]
        for one in found:
            print(json.dumps(one), flush=True)
        return int(any(one["failures"] for one in found))
    began = time.monotonic()
    with ThreadPoolExecutor(max(1, asked.jobs)) as pool:
        # The longest first, so that the last to end is a short one.
        order = sorted(numbers, key=lambda n: LONGEST_FIRST.index(n) if n in LONGEST_FIRST else 99)
        results = dict(zip(order, pool.map(lambda n: run_apart(n, asked.short), order), strict=True))
    found = [results[number] for number in numbers]
    minutes = (time.monotonic() - began) / 60
    print(table(found))
    for one in found:
        for name, text in one["failures"].items():
            print(f"\nrow {one['row']}, {name}\n{text}")
        for name, text in one["limits"].items():
            print(f"\nrow {one['row']}, known not to hold: {name}: {text}")
    print(f"\n{minutes:.1f} minutes")
    if not asked.short and not asked.row:
        write_page(ROOT / "docs" / "faults.md", found, minutes)
    return int(any(one["failures"] for one in found))


if __name__ == "__main__":
    sys.exit(main())

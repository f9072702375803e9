"""The table of the suite, on the screen and as docs/faults.md."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.faults import rows

HEAD = """# What was tried to break it

Made by `make faults` ({when}, {minutes:.0f} minutes, {machine}); do not edit. Each row is a program in
`tests/faults/`; a short, deterministic part of each is in `make test`. *Tried* counts trials, *survived*
those after which everything in *must hold* held. *Seconds* of a row are by the clock on {cores} cores, beside
other rows, and in brackets those of the CPU.

"""


def table(found: list[dict[str, Any]], every: bool = False) -> str:
    """The rows as a Markdown table; with `every`, also those that have not been run."""
    lines = ["| # | fault | must hold | what was tried | tried | survived | seconds |", "|---|" + "---|" * 6]
    ran = {one["row"]: one for one in found}
    for number in sorted(rows.modules()) if every else sorted(ran):
        row, one = rows.load(number), ran.get(number)
        if one is None:
            lines.append(f"| {number} | {row.fault} | {row.must_hold} | not run | | | |")
            continue
        what = one["what"].replace("|", "\\|")
        lines.append(
            f"| {row.number} | {row.fault} | {row.must_hold} | {what} | {one['tried']:,} | "
            f"{one['survived']:,} | {one['seconds']:.0f} ({one['cpu_seconds']:.0f}) |"
        )
    tried, survived = (sum(one[name] for one in found) for name in ("tried", "survived"))
    seconds, cpu = (sum(one[name] for one in found) for name in ("seconds", "cpu_seconds"))
    lines.append(f"| | **all** | | | **{tried:,}** | **{survived:,}** | {seconds:.0f} ({cpu:.0f}) |")
    return "\n".join(lines)


def write_page(path: Path, found: list[dict[str, Any]], minutes: float) -> None:
    """Write the table with what did not survive and what is known not to hold."""
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    parts = [
        HEAD.format(when=today, minutes=minutes, machine=machine, cores=os.cpu_count()),
        table(found, every=True),
    ]
    if missing := sorted(set(rows.modules()) - {one["row"] for one in found}):
        words = ", ".join(map(str, missing))
        parts[0] += f"**Not whole:** rows {words} were not run in full on this version.\n\n"
    failures = [(one["row"], name, text) for one in found for name, text in one["failures"].items()]
    limits = [(one["row"], name, text) for one in found for name, text in one["limits"].items()]
    notes = [(one["row"], text) for one in found for text in one["notes"]]
    if failures:
        parts.append("\n\n## What did not survive\n")
        parts += [f"\n- row {row}, {name}: {_last_line(text)}" for row, name, text in failures]
    parts.append("\n\n## What is known not to hold\n")
    parts += [f"\n- row {row}, {name}: {text}" for row, name, text in limits] or ["\nNothing in this run."]
    parts.append("\n\n## Notes\n")
    parts += [f"\n- row {row}: {text}" for row, text in notes]
    path.write_text("".join(parts) + "\n")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:300].replace("|", "\\|")

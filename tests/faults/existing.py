"""Tests that are there already count as trials: they are run by pytest, each with its name."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from tests.faults.tally import Tally

ROOT = Path(__file__).resolve().parents[2]


def run_tests(
    tally: Tally, kind: str, *where: str, keyword: str = "", slow: bool = False, at_once: int = 1
) -> None:
    """Run the tests in the files `where` (from the root, with `::name` if wanted) and count each of them.

    `at_once`: how many run side by side, where they mostly wait.
    """
    with tempfile.TemporaryDirectory(prefix="paano-faults-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += ["-k", keyword] * bool(keyword) + ["-m", "not slow"] * (not slow)
        command += ["-n", str(at_once)] * (at_once > 1)
        done = subprocess.run(
            [*command, *where],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=1500,
        )
        if not report.exists():
            tally.failed(kind, ", ".join(where), done.stdout[-1500:] + done.stderr[-1500:])
            return
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    if not cases:
        tally.failed(kind, ", ".join(where), "there is no such test")
    for case in cases:
        wrong = [part for part in case if part.tag in ("failure", "error")]
        if wrong:
            tally.failed(kind, case.get("name", ""), (wrong[0].text or wrong[0].get("message") or "")[-1500:])
        elif not any(part.tag == "skipped" for part in case):
            tally.passed(kind)

"""A short, deterministic part of every row of the fault suite; `make faults` runs all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import rows
from tests.faults.__main__ import QUIET, ROOT, run_apart

NUMBERS = sorted(rows.modules())


@pytest.fixture(scope="module")
def short():
    """What became of the short part of every row, {number: counts}: one process for all, it imports once."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--short", "--json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **QUIET, "PYTHONPATH": str(ROOT)},
        timeout=1800,
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode in (0, 1) and len(found) == len(NUMBERS), done.stderr[-3000:]
    return {one["row"]: one for one in found}


@pytest.mark.parametrize("number", NUMBERS)
def test_the_short_part_of_the_row_survives(short, number):
    found = short[number]
    assert found["tried"] > 0
    assert not found["failures"], json.dumps(found["failures"], indent=1).replace("\\n", "\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_the_whole_row_survives(number):
    found = run_apart(number, short=False)
    assert not found["failures"], json.dumps(found["failures"], indent=1).replace("\\n", "\n")


def test_every_row_has_a_number_and_a_module_of_its_own():
    for number, module in rows.modules().items():
        assert rows.load(number).number == number, module
    assert len(list(Path(__file__).parent.glob("row_*.py"))) == len(NUMBERS)

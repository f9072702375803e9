"""A short, deterministic part of every row of the fault suite; `make faults` runs all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults import rows
from tests.faults.__main__ import run_apart

NUMBERS = sorted(rows.modules())


@pytest.mark.parametrize("number", NUMBERS)
def test_the_short_part_of_the_row_survives(number):
    found = run_apart(number, short=True)
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

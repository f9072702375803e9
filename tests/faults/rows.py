"""The rows of the suite, in order."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tests.faults.tally import Row


def modules() -> dict[int, str]:
    """{number: name of the module}, without importing any."""
    found = sorted(Path(__file__).parent.glob("row_*.py"))
    return {int(path.stem.split("_")[1]): f"tests.faults.{path.stem}" for path in found}


def load(number: int) -> Row:
    """The row with this number."""
    row: Row = import_module(modules()[number]).ROW
    return row

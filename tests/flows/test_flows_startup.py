"""Commands that only look start at once: they bring neither torch nor Prefect."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest


@pytest.mark.parametrize(
    "module",
    ["flows.pages.views", "flows.pages.night_facts", "flows.run.fleet", "flows.run.report", "flows.run.days"],
)
def test_looking_at_a_fleet_imports_neither_torch_nor_prefect(module):
    code = f"import sys, {module}; print([m for m in ('torch', 'prefect', 'mlflow') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_version_is_that_of_the_package_and_needs_no_heavy_import():
    code = (
        "import sys; from flows.cli.app import app; app(['--version'], standalone_mode=False); "
        "print([m for m in ('torch', 'prefect', 'mlflow', 'polars', 'numpy') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[:2] == [version("paano-fleet"), "[]"]

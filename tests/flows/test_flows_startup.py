"""Commands that only look start at once: they bring neither torch nor Prefect."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["flows.pages.views", "flows.run.fleet", "flows.run.report", "flows.run.days"]
)
def test_looking_at_a_fleet_imports_neither_torch_nor_prefect(module):
    code = f"import sys, {module}; print([m for m in ('torch', 'prefect', 'mlflow') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

"""Commands that only look start at once: they bring neither torch nor Prefect nor MLflow."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import polars as pl
import pytest

from flows.settings.fleet_file import DEFAULT_FILE, Settings
from flows.settings.template import render
from storage.history.reader import write_history
from storage.registry.client import RegistryClient
from tests.servers import mlflow_server

HEAVY = ("torch", "prefect", "mlflow", "pandas", "sqlalchemy", "scipy", "sklearn", "matplotlib", "plotly")


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
        "heavy = ('torch', 'prefect', 'mlflow', 'polars', 'numpy', 'pydantic'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n")[:2] == [version("paano-fleet"), "[]"]


@pytest.fixture(scope="module")
def fleet_file(tmp_path_factory):
    """A fleet of one sensor without a model, its registry in a SQLite file."""
    folder = tmp_path_factory.mktemp("fleet")
    settings = Settings.from_dict({"fleet": {"name": "plant"}, "folder": folder})
    (folder / DEFAULT_FILE).write_text(render(settings))
    stamps = pl.datetime_range(
        pl.datetime(2026, 1, 1, time_zone="UTC"),
        pl.datetime(2026, 1, 3, time_zone="UTC"),
        "5m",
        closed="left",
        eager=True,
    )
    rows = {"sensor": "a", "ts": stamps, "value": np.arange(len(stamps)) / 7}
    write_history(settings.place(settings.history.url), pl.DataFrame(rows))
    (folder / "mlflow").mkdir()
    assert RegistryClient(settings.tracking_uri).client is not None  # MLflow makes its tables
    return folder / DEFAULT_FILE


def heavy_of(fleet_file, *words, environment=None):
    """What of HEAVY a command has imported when it ends."""
    code = (
        "import sys; from flows.cli.app import app\n"
        f"try: app({[*words, '-f', str(fleet_file)]!r}, standalone_mode=False)\n"
        f"finally: print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()[-1]


@pytest.mark.parametrize("command", [("status",), ("sensors",), ("events",)])
def test_commands_that_look_import_nothing_heavy(fleet_file, command):
    assert heavy_of(fleet_file, *command) == "[]"


def test_status_imports_nothing_heavy_with_a_server_of_mlflow(fleet_file, tmp_path):
    database = f"sqlite:///{fleet_file.parent}/mlflow/mlflow.db"
    with mlflow_server(tmp_path, backend=database) as address:
        found = heavy_of(fleet_file, "status", environment={"PAANO_REGISTRY__TRACKING_URI": address})
    assert found == "[]"


def test_a_night_is_scored_without_mlflow_and_pandas():
    """Flows read the registry and the history; only what registers a model needs MLflow."""
    code = (
        "import sys, flows.score, pyarrow as pa; from storage.history.columns import numbers, stamps; "
        "from datetime import datetime, UTC; import polars as pl; "
        "column = pl.Series([datetime(2026, 1, 1, tzinfo=UTC), None]).to_arrow(); "
        "stamps(pa.chunked_array([column])); numbers(pa.chunked_array([pl.Series([1.5, None]).to_arrow()])); "
        "print([m for m in ('mlflow', 'pandas', 'scipy.fft', 'matplotlib') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

"""The wheel holds everything: installed in an environment of its own, outside the checkout, the demo runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("paano", "storage", "flows")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this checkout, built from a copy so that nothing is left in it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(source)]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt")], check=True, cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_rooms(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    files = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - held == set()


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel_outside_the_checkout(wheel, tmp_path):
    """Dependencies are the ones at hand: installing torch and MLflow again would take minutes."""
    home = tmp_path / "home"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "env"], check=True)
    python = home / "env" / "bin" / "python"
    place = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    Path(place, "shared.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps"]
    # The shared packages count as installed too, among them this project itself: leave that alone.
    subprocess.run([*install, "--ignore-installed", str(wheel)], check=True, cwd=home)
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment = {
        **{key: value for key, value in kept.items() if not key.startswith(("PREFECT_", "MLFLOW_TRACKING"))},
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    where = subprocess.run(
        [python, "-c", "import flows, paano, storage; print(flows.__file__, paano.__file__)"],
        capture_output=True, text=True, check=True, cwd=home, env=environment,
    ).stdout  # fmt: skip
    assert str(home) in where and str(ROOT) not in where
    done = subprocess.run(
        [home / "env" / "bin" / "paano", "demo", "--json"],
        capture_output=True, text=True, cwd=home, env=environment, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["found"] > 0
    assert (home / "demo" / "scores").is_dir()

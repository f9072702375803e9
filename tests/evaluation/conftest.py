from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paano.evaluation.protocol import LabelledSeries

ROOT = Path(__file__).resolve().parents[2]

# Settings of a model that is fitted in a moment.
TINY = ("model.patch=16", "model.width=0.0625", "model.iterations=2", "model.minibatch=16")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real, labelled series."""
    folder = Path(os.environ.get("PAANO_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / "TSB-AD-U-Tuning").is_dir():
        pytest.skip("no real data: set PAANO_DATA to the folder that holds TSB-AD-U-Tuning")
    return folder


@pytest.fixture
def bumped() -> LabelledSeries:
    """A wave with a bump of 30 rows long after its 800 training rows."""
    rng = np.random.default_rng(3)
    values = np.sin(np.arange(1500) / 9) + 0.1 * rng.normal(size=1500)
    values[1200:1230] += 4
    labels = np.zeros(1500, dtype=bool)
    labels[1200:1230] = True
    return LabelledSeries("made.csv", "made", 800, values[:, None], labels, digest="")


def write_series(folder: Path, name: str, *, rows: int = 400, channels: int = 1, seed: int = 0) -> Path:
    """A wave with one labelled fault, in the benchmark's form."""
    rng = np.random.default_rng(seed)
    t = np.arange(rows)
    values = np.stack([np.sin(2 * np.pi * t / (20 + 3 * c)) for c in range(channels)], axis=1)
    values += 0.05 * rng.normal(size=values.shape)
    labels = np.zeros((rows, 1))
    at = int(rows * 0.7)
    labels[at : at + 15] = 1
    values[at : at + 15] = rng.normal(size=(15, channels))
    folder.mkdir(parents=True, exist_ok=True)
    head = ",".join([f"c{c}" for c in range(channels)] + ["Label"])
    path = folder / name
    np.savetxt(path, np.hstack([values, labels]), delimiter=",", header=head, comments="", fmt="%.6g")
    return path


@pytest.fixture
def series_folder(tmp_path: Path) -> Path:
    """Three good files of two subsets, one of them with many channels, and one that is damaged."""
    folder = tmp_path / "series"
    write_series(folder, "001_NAB_id_1_Traffic_tr_150_1st_280.csv", seed=1)
    write_series(folder, "002_NAB_id_2_Traffic_tr_150_1st_315.csv", rows=450, seed=2)
    write_series(folder, "003_SMD_id_1_Facility_tr_150_1st_280.csv", channels=3, seed=3)
    (folder / "004_MSL_id_1_Sensor_tr_150_1st_9.csv").write_text("Data,Label\n1.0,0\n2.0,zero\n")
    return folder


@pytest.fixture
def run(monkeypatch, tmp_path) -> Callable:
    """`paano evaluate` in this process alone, its results kept away from the user's own."""
    from typer.testing import CliRunner

    from flows.cli.app import app

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*arguments: object, tiny: bool = True):
        settings = [word for setting in (TINY if tiny else ()) for word in ("--set", setting)]
        return CliRunner().invoke(app, ["evaluate", *map(str, arguments), "--workers", "1", *settings])

    return call

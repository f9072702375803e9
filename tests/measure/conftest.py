from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real, labelled series."""
    folder = Path(os.environ.get("PAANO_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / "TSB-AD-U-Tuning").is_dir():
        pytest.skip("no real data: set PAANO_DATA to the folder that holds TSB-AD-U-Tuning")
    return folder

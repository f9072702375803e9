"""A fleet small enough to be trained and scored in seconds, on any engine."""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from pathlib import Path

import polars as pl

from paano.evaluation.synth import FIRST_DAY, make_fleet
from storage.history.reader import write_history
from storage.objects.store import StorageOptions

DAYS, NIGHTS = 12, 2

MODEL = """
[model]
preset = "light"
patch = 24
width = 0.125
iterations = 4
minibatch = 16

[retrain]
holdout = "2d"
floor = 0.0
"""

FLEET = """
[fleet]
name = "tiny"

[history]
lookback = "10d"

[run]
engine = "{engine}"
workers = {workers}
address = "{address}"
tolerated_failures = 0.0
"""


def days() -> tuple[str, list[str]]:
    """The moment to train at, and the nights to score."""
    nights = [str((FIRST_DAY + timedelta(days=DAYS - NIGHTS + n)).date()) for n in range(NIGHTS)]
    return nights[0], nights


def write_history_of(url: str, sensors: int, options: StorageOptions | None = None) -> None:
    """The history of a fleet like the demo's under `url`: twelve sensors are one of each kind."""
    step = timedelta(minutes=30)
    for sensor in make_fleet(sensors, DAYS, step, seed=5, nights=NIGHTS):
        values = dict(zip(sensor.channels, sensor.values.T, strict=True))
        rows = pl.DataFrame({"ts": sensor.ts, **values}).with_columns(
            pl.col("ts").dt.replace_time_zone("UTC"), sensor=pl.lit(sensor.name)
        )
        write_history(url, rows, options=options)


def write_fleet(
    folder: Path, engine: str = "local", workers: int = 2, address: str = "", sensors: int = 12
) -> Path:
    """History and fleet file of a tiny fleet in `folder`; the path of the fleet file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_history_of(str(folder / "history"), sensors)
    file = folder / "fleet.toml"
    file.write_text(MODEL + FLEET.format(engine=engine, workers=workers, address=address))
    return file


def run_fleet(file: Path) -> None:
    """Train every sensor and score every night, through the real flows."""
    from flows.retrain import retrain
    from flows.score import score

    as_of, nights = days()
    retrain(str(file), as_of=as_of)
    for night in nights:
        score(str(file), day=night)


def objects(folder: Path) -> dict[str, str]:
    """Name and hash of every object that a run must leave the same: scores, events and models.

    Each registry has an identity of its own, so what names the owner of a model differs between two fleets.
    """
    found = {}
    for kind in ("scores", "events", "mlflow/artifacts"):
        for path in sorted((folder / kind).rglob("*")):
            if path.is_file() and path.name != "registry.json" and path.parent.name != "owners":
                name = model_by_content(folder, str(path.relative_to(folder)))
                if name is not None:
                    found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def model_by_content(folder: str | Path, name: str) -> str | None:
    """The name of a file with the digest of its model in place of the id that MLflow drew for it.

    None for a file of a folder that is not whole, which no version points to.
    """
    drawn = re.match(r"(.*/\.mlflow/models/)(m-[0-9a-f]+)(/.*)", name)
    if drawn is None:
        return name
    place = Path(folder) / f"{drawn[1]}{drawn[2]}" / "artifacts"
    if not (place / "MLmodel").exists():
        return None
    digest = hashlib.sha256((place / "model" / "model.json").read_bytes()).hexdigest()[:16]
    return f"{drawn[1]}{digest}{drawn[3]}"

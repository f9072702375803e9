"""The fleet that is broken, and the work that is disturbed: plain functions of the flows, without Prefect.

Small enough that a night takes a fraction of a second: half-hour steps, a patch of eight points, an encoder
as it was drawn. Everything here also runs in the processes that are killed.
"""

from __future__ import annotations

import hashlib
import io
import json
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flows.run.fleet import Fleet, absent_outcomes, absent_sensors, fix_shards, open_fleet
from flows.run.outcome import Outcome
from flows.settings.fleet_file import Settings
from flows.work.model.training import retrain_sensor
from flows.work.night.night import score_days
from storage.tables.compaction import compact
from storage.tables.day_table import members_of
from storage.window import Window
from tests.engines.tiny import model_by_content
from tests.flows import fleets
from tests.storage import old_store

CHANGES: dict[str, dict[str, Any]] = {
    "model": {"iterations": 0, "patch": 8, "width": 0.0625, "preset": "light"},
    "history": {"lookback": "5d"},
    "alarms": {"budget": 30.0},
    "retrain": {"holdout": "1d", "floor": 0.0},
}
TRAINED = 5  # days that the first models learn from


def signal(number: int, days: int) -> np.ndarray:
    """A rhythm with faults: over midnights, near each other, and a hole. float64 [rows, channels]."""
    values = fleets.signal(number, days * 48, 2 if number % 3 == 2 else 1)
    for day in range(TRAINED + 1, days, 4):
        values[day * 48 - 6 : day * 48 + 8] += 40.0
        values[(day + 1) * 48 + 30 : (day + 2) * 48 + 4, 0] -= 25.0
        values[day * 48 + 20 : day * 48 + 28] = np.nan
    return values


def make(folder: Path, sensors: int = 3, days: int = 10, **changes: dict[str, Any]) -> Fleet:
    """A fleet with history and champions for every sensor, and no scores yet."""
    merged = {name: {**CHANGES.get(name, {}), **changes.get(name, {})} for name in {*CHANGES, *changes}}
    settings = fleets.settings_of(folder, **merged)
    fleets.new_registry(settings)
    (folder / "settings.json").write_text(json.dumps(settings.to_dict()))  # for copies: `opened`
    for number in range(sensors):
        fleets.write_sensor(settings, f"s{number:02d}", signal(number, days))
    fleet = open_fleet(settings)
    train(fleet, TRAINED)
    fleet.registry.champions()
    return fleet


def opened(folder: str | Path) -> Fleet:
    """The fleet in a folder, which may have been copied there."""
    folder = Path(folder)
    plain = json.loads((folder / "settings.json").read_text())
    return open_fleet(Settings.from_dict({**plain, "folder": str(folder)}))


def names_of(fleet: Fleet) -> list[str]:
    return fleet.history.sensors().sensors


def day(number: int) -> date:
    """The `number`-th day of history."""
    return date.fromisoformat(fleets.night(number))


def moment(number: int) -> datetime:
    """The end of the `number`-th day, from 1."""
    return fleets.START + timedelta(days=number)


# -- the work ------------------------------------------------------------------------------------------------


def train(fleet: Fleet, days: int) -> list[Outcome]:
    """Retrain every sensor on the first `days` days."""
    champions = dict(fleet.registry.champions())
    return [
        retrain_sensor(fleet, name, moment(days), champions.get(name), "a test") for name in names_of(fleet)
    ]


def score(
    fleet: Fleet, *numbers: int, rescore: bool = False, resume: bool = False, sensors: list[str] | None = None
) -> list[Outcome]:
    """Score days, oldest first, shard by shard, as the tasks of the flow do."""
    names = sensors or names_of(fleet)
    days = [day(number) for number in numbers]
    shards = fix_shards(fleet, len(names), days)
    versions = dict(fleet.registry.champions(names))
    return [
        outcome
        for members in members_of(names, shards).values()
        for outcome in score_days(fleet, days, members, versions, rescore=rescore, resume=resume)
    ]


def patiently_score(fleet: Fleet, *numbers: int, tries: int = 4) -> list[Outcome]:
    """`score`, shard by shard, again while it is Transient, as Prefect repeats a task (without its waits)."""
    from paano.errors import Transient

    names = names_of(fleet)
    days = [day(number) for number in numbers]
    found: list[Outcome] = []
    for attempt in range(tries):
        try:
            shards = fix_shards(fleet, len(names), days)
            versions = dict(fleet.registry.champions(names))
            break
        except Transient:
            if attempt == tries - 1:
                raise
    for members in members_of(names, shards).values():
        for attempt in range(tries):
            try:
                found += score_days(fleet, days, members, versions)
                break
            except Transient as error:
                if attempt == tries - 1:
                    found += [Outcome(name, "failed", str(error)) for name in members]
    return found + absent_outcomes(absent_sensors(fleet, fleet.registry.champions()))  # as the flow does


def join_days(fleet: Fleet) -> None:
    """Compact the scores."""
    compact(fleet.scores, date(2100, 1, 1))


def as_version_01(fleet: Fleet, shards: int = 2) -> None:
    """Turn the scores into a store as version 0.1 left it: the only kind that is still joined."""
    table = fleet.scores
    rows = table.read_many(None, everything(fleet))
    for info in list(table.store.list()):
        table.store.delete(info.key)
    old_store.begin(table, shards)
    for key, part in rows.group_by(pl.col("ts").dt.date()):
        old_store.write(table, key[0], shards, part)


def everything(fleet: Fleet) -> Window:
    return Window(fleets.START - timedelta(days=2), fleets.START + timedelta(days=400))


# -- what is compared ----------------------------------------------------------------------------------------


def objects(folder: str | Path, *kinds: str) -> dict[str, str]:
    """Name and digest of every object under scores and events (or `kinds`)."""
    found = {}
    for kind in kinds or ("scores", "events"):
        root = Path(folder) / kind
        for path in sorted(root.rglob("*")):
            if path.is_file():
                found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def models(fleet: Fleet) -> dict[str, Any]:
    """What the registry says of each sensor: versions by number, with digest, aliases and tags."""
    found: dict[str, Any] = {}
    for name in names_of(fleet):
        for version in fleet.registry.versions(name):
            tags = {k: v for k, v in version.tags.items() if k not in ("paano.registry",)}
            found[f"{name} {version.version}"] = (version.digest, sorted(version.aliases), tags)
    return found


def artifact_files(folder: str | Path) -> dict[str, str]:
    """Files of the models; notes of ownership hold the moment they were written and are left out."""
    return {
        model: digest
        for name, digest in objects(folder, "mlflow/artifacts").items()
        if "/owners/" not in name and not name.endswith("registry.json")
        if (model := model_by_content(folder, name)) is not None
    }


def whole_objects(folder: str | Path) -> None:
    """Every Parquet object under scores and events can be read; nothing half-written lies among them."""
    for kind in ("scores", "events"):
        for path in (Path(folder) / kind).rglob("*"):
            if path.is_file():
                assert path.suffix == ".parquet" or path.name.startswith("_"), f"{path} lies among the data"
                pl.read_parquet(io.BytesIO(path.read_bytes()))


def versions_have_files(fleet: Fleet) -> None:
    """Nothing in the registry points to missing files: every version loads from the store, not the cache."""
    import shutil

    from paano import PaAno

    shutil.rmtree(fleet.registry.cache.folder / "models", ignore_errors=True)
    for name in names_of(fleet):
        for version in fleet.registry.versions(name):
            PaAno.load(fleet.registry.fetch(version), device="cpu")

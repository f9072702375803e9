"""Row 6: MLflow gone at scoring; killed between upload, version, alias and metrics; a foreign registry."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from storage.registry.places import folder_of, locate
from tests.faults import fleet_work, injected
from tests.faults.existing import run_tests
from tests.faults.processes import Died, in_process
from tests.faults.row_01_every_call import difference
from tests.faults.tally import Row, Tally, thorough

LATER = timedelta(days=3)
STEP = 9  # every so many moments of a retraining; `--thorough` takes each of them
BETWEEN = [f"after {call}" for call in ("store.put", "registry.create_model_version")]
BETWEEN.append("after registry.set_registered_model_alias")
AWAY = ("after a training", "after a night", "after a cold start")


def prepare(root: Path) -> None:
    fleet = fleet_work.make(root / "first", sensors=3, days=9)
    fleet_work.score(fleet, 5)


def next_night(folder: str, when: str, away: bool) -> tuple[list[str], bool, dict[str, str]]:
    """The night after `when`, with the database of the registry gone or not: outcomes, stale, objects."""
    fleet = fleet_work.opened(folder)
    if when == "after a training":
        fleet_work.train(fleet, 6)
    if when == "after a night":  # here: what was seen of a registry holds for its own address only
        fleet_work.score(fleet, 6)
    if when == "after a cold start":
        fleet_work.fleets.write_sensor(fleet.settings, "new", fleet_work.signal(7, 9))
        fleet = fleet_work.opened(folder)
        fleet_work.score(fleet, 6)
    database = Path(folder) / "mlflow" / "mlflow.db"
    if away:
        database.rename(database.with_suffix(".away"))
    tonight = fleet_work.opened(folder)
    outcomes = fleet_work.score(tonight, 7)
    stale = tonight.registry.champions().stale
    return [f"{o.sensor} {o.state}" for o in outcomes], stale, fleet_work.objects(folder)


def away(tally: Tally, root: Path, when: str) -> None:
    found = {}
    for gone in (False, True):
        folder = root / f"{when} {gone}"
        shutil.copytree(root / "first", folder)
        found[gone] = in_process(next_night, str(folder), when, gone)
    with tally.trial("nights with the SQLite registry gone", when):
        (said, stale, objects), (said_away, stale_away, objects_away) = found[False], found[True]
        assert said_away == said and all(text.endswith(" ok") for text in said), said_away
        assert stale_away and not stale, "it is not said that the models may be old"
        assert objects_away == objects, difference(objects_away, objects)


def retrain(folder: str, where: int | str) -> list[str]:
    """Retrain, killed at the moment of this number (0: none) or the first of this name."""
    fault = injected.begin(injected.kill_at(where))
    fleet_work.train(fleet_work.opened(folder), 7)
    injected.end()
    return fault.names


def check_registry(folder: str) -> None:
    """No version without files; what no version points to is found by sweep, and nothing else is."""
    fleet = fleet_work.opened(folder)
    fleet_work.versions_have_files(fleet)
    registry = fleet.registry
    places = {p for info in registry.artifacts.list(registry.fleet) if (p := folder_of(info.key))}
    known = {
        locate(registry.artifacts, registry.fleet, v)
        for s in fleet_work.names_of(fleet)
        for v in registry.versions(s)
    }
    swept = registry.sweep(now=datetime.now(UTC) + LATER, share=1.0, claim=True)
    assert set(swept.folders) == places - known, f"{swept} of {sorted(places - known)}"
    registry.sweep(dry_run=False, now=datetime.now(UTC) + LATER, share=1.0, claim=True)
    fleet_work.versions_have_files(fleet_work.opened(folder))


def killed(tally: Tally, root: Path, short: bool) -> None:
    folder = root / "copy"
    shutil.copytree(root / "first", folder)
    names = in_process(retrain, str(folder), 0)
    shutil.rmtree(folder)
    moments = [
        n
        for n, name in enumerate(names, 1)
        if name in ("after store.put", "after placing a file") or name.startswith("after registry.")
    ]
    for where in BETWEEN if short else [*BETWEEN, *moments[:: 1 if thorough() else STEP]]:
        shutil.copytree(root / "first", folder)
        name = where if isinstance(where, str) else f"moment {where}, {names[where - 1]}"
        with tally.trial("kills between upload, version, alias and metrics", name):
            try:
                in_process(retrain, str(folder), where)
                raise AssertionError("it was not killed")
            except Died as died:
                assert died.code == -9, died
            in_process(check_registry, str(folder))
        shutil.rmtree(folder)


def sweep_of_another(folder: str, later: Any) -> tuple[bool, list[str], str]:
    """Sweep with another registry that sees the same files; (champions still load, what went, refusal)."""
    fleet = fleet_work.opened(folder)
    database = Path(folder) / "mlflow" / "mlflow.db"
    before = sorted(info.key for info in fleet.registry.artifacts.list())
    database.rename(database.with_suffix(".kept"))
    fleet_work.fleets.new_registry(fleet.settings)
    shutil.rmtree(fleet.registry.cache.folder)
    other = fleet_work.opened(folder)
    said = ""
    try:
        other.registry.sweep(dry_run=False, now=datetime.now(UTC) + later, share=1.0)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    database.unlink()
    database.with_suffix(".kept").rename(database)
    fleet = fleet_work.opened(folder)
    after = {info.key for info in fleet.registry.artifacts.list()}
    fleet_work.versions_have_files(fleet)
    return True, [key for key in before if key not in after], said


def run(tally: Tally, root: Path, short: bool) -> None:
    in_process(prepare, root)
    for when in AWAY[2:] if short else AWAY:
        away(tally, root, when)
    killed(tally, root, short)
    shutil.copytree(root / "first", root / "foreign")
    with tally.trial("sweeps by an empty registry that sees the same files"):
        _, gone, _ = in_process(sweep_of_another, str(root / "foreign"), LATER)
        assert not gone, f"files of another registry were removed: {gone[:3]}"
    if not short:
        away_tests = "tests/storage/test_storage_registry_away.py"
        run_tests(
            tally,
            "tests of a registry that is away or half made (HTTP, SQLite, PostgreSQL)",
            away_tests,
            slow=True,
        )
        run_tests(tally, "tests of sweep and retire", "tests/storage/test_storage_sweep.py")
        run_tests(
            tally,
            "tests of crashes while registering",
            "tests/storage/test_storage_registry.py",
            keyword="crash or down or away",
        )


ROW = Row(
    6,
    "MLflow gone at scoring (HTTP, SQLite, PostgreSQL; first night, after a cold start); killed between "
    "upload, version, alias, metrics; sweep against a foreign registry",
    "cached champion used and flagged; no alias to missing files; sweep finds all orphans",
    run,
)

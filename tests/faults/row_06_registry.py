"""Row 6: MLflow gone at scoring; killed between upload, version, alias and metrics; a foreign registry."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from storage.registry.places import folder_of, locate
from tests.faults import fleet_work, injected
from tests.faults.existing import run_tests
from tests.faults.processes import Died, in_process
from tests.faults.row_01_every_call import difference
from tests.faults.tally import Row, Tally, thorough
from tests.servers import mlflow_server, postgres, postgres_bin

LATER = timedelta(days=3)
STEP = 9  # every so many moments of a retraining; `--thorough` takes each of them
BETWEEN = [f"after {call}" for call in ("store.put", "registry.create_model_version")]
BETWEEN.append("after registry.set_registered_model_alias")
AWAY = ("the first night after a training", "the night after a night", "the night after a cold start")
PATIENCE = 90  # seconds for a night of two sensors without its registry


def prepare(root: Path) -> None:
    fleet = fleet_work.make(root / "first", sensors=3, days=9)
    fleet_work.score(fleet, 5)


@contextmanager
def sqlite(folder: Path) -> Iterator[str]:
    """A registry in a file of its own, which is gone at the end of the block."""
    folder.mkdir()
    database = folder / "mlflow.db"
    database.write_bytes(fleet_work.fleets.empty_database())
    yield f"sqlite:///{database}"
    database.rename(database.with_suffix(".away"))


def http(folder: Path) -> AbstractContextManager[str]:
    folder.mkdir()
    return mlflow_server(folder)


KINDS: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "SQLite": sqlite,
    "HTTP": http,
    "PostgreSQL": postgres,
}


def before(folder: str, uri: str, when: str) -> None:
    """A fleet on the registry at `uri`, and what came before the night."""
    number = AWAY.index(when)
    registry = {"tracking_uri": uri}
    fleet = fleet_work.make(Path(folder), 2, 9, fleet={"name": f"tiny-{number}"}, registry=registry)
    if when == "the first night after a training":
        fleet_work.train(fleet_work.opened(folder), 6)
    else:
        fleet_work.score(fleet, 5)
    if when == "the night after a night":
        fleet_work.score(fleet_work.opened(folder), 6)
    if when == "the night after a cold start":
        fleet_work.fleets.write_sensor(fleet.settings, "new", fleet_work.signal(7, 9))
        fleet_work.score(fleet_work.opened(folder), 6)


def tonight(folder: str) -> tuple[list[str], bool, dict[str, str], float]:
    """The night: outcomes, whether the champions may be old, the objects, and how long it took."""
    began = time.monotonic()
    fleet = fleet_work.opened(folder)
    outcomes = fleet_work.score(fleet, 7)
    took = time.monotonic() - began
    stale = fleet.registry.champions().stale
    return [f"{o.sensor} {o.state}" for o in outcomes], stale, fleet_work.objects(folder), took


def away(tally: Tally, root: Path, kind: str, cases: tuple[str, ...]) -> None:
    """The same nights with the registry there, and with it gone."""
    folders = {when: root / f"{kind}-{AWAY.index(when)}" for when in cases}
    there = {}
    with KINDS[kind](root / f"registry-{kind}") as uri:
        for when, folder in folders.items():
            in_process(before, str(folder), uri, when)
            shutil.copytree(folder, kept := folder.with_suffix(".kept"))
            there[when] = in_process(tonight, str(folder))
            shutil.rmtree(folder)
            kept.rename(folder)  # the night has not been
    longest = 0.0
    for when, folder in folders.items():
        with tally.trial(f"nights with a registry that is gone ({kind})", when):
            (said, stale, objects, _), found = there[when], in_process(tonight, str(folder))
            longest = max(longest, found[3])
            assert found[0] == said and all(text.endswith(" ok") for text in said), found[0]
            assert found[1] and not stale, "it is not said that the models may be old"
            assert found[2] == objects, difference(found[2], objects)
            assert found[3] < PATIENCE, f"the night took {found[3]:.0f} s"
    tally.notes.append(f"a night without its registry ({kind}) took {longest:.0f} s at most")


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
    for kind in list(KINDS)[:1] if short else KINDS:
        if kind == "PostgreSQL" and postgres_bin() is None:
            tally.notes.append("PostgreSQL is not installed here and was not tried")
        else:
            away(tally, root, kind, AWAY[2:] if short else AWAY)
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

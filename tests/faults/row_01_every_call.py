"""Row 1: fail, then SIGKILL, at every k-th call of a scoring, a retraining, a compaction and a rescore."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.run.fleet import Fleet
from paano.errors import PaanoError
from tests.faults import fleet_work, injected
from tests.faults.processes import Died, in_process
from tests.faults.tally import Row, Tally, thorough

# Every so many calls; a retraining has hundreds and takes seconds. `--thorough` takes each of them.
STEPS = {"scoring": 3, "retraining": 17, "compaction": 2, "rescore": 4}
LATE = 8  # the day that is scored, retrained before, or rescored


def do_score(folder: str) -> None:
    fleet_work.score(fleet_work.opened(folder), LATE)


def do_rescore(folder: str) -> None:
    fleet_work.score(fleet_work.opened(folder), LATE - 1, LATE, rescore=True)


def do_retrain(folder: str) -> None:
    fleet_work.train(fleet_work.opened(folder), LATE)


def do_compact(folder: str) -> None:
    fleet_work.join_days(fleet_work.opened(folder))


WORK: dict[str, Callable[[str], None]] = {
    "scoring": do_score,
    "retraining": do_retrain,
    "compaction": do_compact,
    "rescore": do_rescore,
}


def prepare(root: Path) -> None:
    """Fleets just before each kind of work."""
    first = fleet_work.make(root / "first", sensors=2, days=10)
    for kind in WORK:
        shutil.copytree(first.settings.folder, root / kind)
        prepare_one(fleet_work.opened(root / kind), kind)


def prepare_one(fleet: Fleet, kind: str) -> None:
    fleet_work.score(fleet, *range(5, LATE + (kind in ("compaction", "rescore"))))
    if kind == "rescore":  # late data and another model
        values = fleet_work.signal(0, 10)
        values[(LATE - 1) * 48 + 4 : LATE * 48] += 3.0
        fleet_work.fleets.write_sensor(fleet.settings, "s00", values)
        fleet_work.train(fleet, LATE)
    if kind == "compaction":
        fleet_work.as_version_01(fleet)


def disturbed(folder: str, kind: str, how: str, where: int | str) -> tuple[list[str], set[tuple[str, str]]]:
    """The work with a fault at a moment (0: none); the moments, and the objects it wrote by name."""
    fault = injected.begin({"fail": injected.fail_at, "SIGKILL": injected.kill_at}[how](where))
    try:
        WORK[kind](folder)
    except PaanoError:
        if not where:
            raise  # an undisturbed run has no errors
    finally:
        injected.end()
    here = f"{folder}/"
    return fault.names, {(url.removeprefix(here), digest) for url, digest in fault.written}


@dataclass(frozen=True)
class State:
    """All that is kept, as it is compared."""

    objects: dict[str, str]
    models: dict[str, Any]
    files: dict[str, str]


def state_of(folder: str) -> State:
    fleet = fleet_work.opened(folder)
    return State(fleet_work.objects(folder), fleet_work.models(fleet), fleet_work.artifact_files(folder))


def rows_of(folder: str) -> list[list[Any]]:
    fleet = fleet_work.opened(folder)
    return fleet.scores.read_many(None, fleet_work.everything(fleet)).to_dict(as_series=False)["score"]


def check_after_kill(folder: str, kind: str, known: set[tuple[str, str]], rows: Any) -> None:
    """Old or new, never a part; and no version, so no alias, without files."""
    fleet_work.whole_objects(folder)
    if kind == "compaction":
        assert rows_of(folder) == rows, "readers lost or doubled rows"
    else:
        for name, digest in fleet_work.objects(folder).items():
            assert (name, digest) in known, f"{name} is neither the old nor the new object"
    fleet_work.versions_have_files(fleet_work.opened(folder))


def one(
    copy: str, kind: str, how: str, where: int | str, known: set[tuple[str, str]], after: State, rows: Any
) -> None:
    """One fault in a process of its own, then the checks and the rerun in another."""
    try:
        in_process(disturbed, copy, kind, how, where)
        assert how == "fail", "it should have been killed"
    except Died as died:
        assert how == "SIGKILL" and died.code == -9, f"the process ended with {died.code}"
    in_process(finish, copy, kind, known, after, rows)


def finish(copy: str, kind: str, known: set[tuple[str, str]], after: State, rows: Any) -> None:
    check_after_kill(copy, kind, known, rows)
    WORK[kind](copy)
    found = state_of(copy)
    assert found.objects == after.objects, difference(found.objects, after.objects)
    assert found.models == after.models, difference(found.models, after.models)
    assert found.files == after.files, difference(found.files, after.files)


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    keys = [key for key in sorted({*found, *wanted}) if found.get(key) != wanted.get(key)]
    return "; ".join(f"{key}: {found.get(key)!r} and not {wanted.get(key)!r}" for key in keys[:3])[:800]


MADE = "after registry.create_model_version"


def few(every: list[int], names: list[str]) -> list[int | str]:
    """A moment for the short part: right after a version was made, or else two thirds on."""
    return [MADE] if MADE in names else [every[2 * len(every) // 3]]


def some(every: list[int], names: list[str], step: int) -> list[int | str]:
    """Every `step`-th moment, and the first after each kind of call."""
    first = {names[where - 1]: where for where in reversed(every)}
    return sorted({*every[::step], *first.values()})


def run(tally: Tally, root: Path, short: bool) -> None:
    in_process(prepare, root)
    for kind in WORK:
        source, copy = root / kind, root / "copy"
        before = in_process(state_of, str(source))
        shutil.copytree(source, copy)
        names, written = in_process(disturbed, str(copy), kind, "fail", 0)
        known = written | set(before.objects.items())
        after = in_process(state_of, str(copy))
        rows = in_process(rows_of, str(copy))
        if kind == "scoring":
            with tally.trial("undisturbed runs that store what they compute", kind):
                assert len(rows) > len(in_process(rows_of, str(source))), "no scores were stored"
        shutil.rmtree(copy)
        moments = {"fail": injected.fail_moments(names), "SIGKILL": injected.kill_moments(names)}
        for how, every in moments.items():
            step = 1 if thorough() else STEPS[kind]
            for where in few(every, names) if short else some(every, names, step):
                shutil.copytree(source, copy)
                name = where if isinstance(where, str) else f"moment {where}, {names[where - 1]}"
                with tally.trial(f"{how} in a {kind}", name):
                    one(str(copy), kind, how, where, known, after, rows)
                shutil.rmtree(copy)


ROW = Row(
    1,
    "fail, then SIGKILL, at every k-th storage and registry call of a scoring, a retraining, a compaction "
    "and a rescore",
    "old or new object, never a part; the rerun equals an undisturbed run byte for byte",
    run,
)

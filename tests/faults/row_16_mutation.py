"""Row 16: the product is broken on purpose, in a copy of the sources; the suite must go red each time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.faults.tally import Row, Tally

ROOT = Path(__file__).resolve().parents[2]
TREES = ("paano", "storage", "flows", "tests")


@dataclass(frozen=True)
class Mutation:
    """One change of the sources, and the row whose short part must notice it."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]  # (what is there, what takes its place)
    row: int


MUTATIONS = [
    Mutation(
        "the hash of a model's files is not compared",
        "paano/artifact.py",
        (('known.get("sha256") != _sha256(data)', "False"),),
        10,
    ),
    Mutation(
        "commit order: a version comes before its files",
        "storage/registry/registration.py",
        (
            ("        _upload(registry, place, files)\n", ""),
            (", tags, text, begun)\n", ", tags, text, begun)\n        _upload(registry, place, files)\n"),
        ),
        6,
    ),
    Mutation(
        "a conditional write does not look whether others wrote",
        "storage/objects/local.py",
        (("if if_match is not None and (", "if False and ("),),
        3,
    ),
    Mutation(
        "the error of a sensor is swallowed",
        "flows/run/outcome.py",
        (("        outcome = failed(sensor, error)\n", "        outcome = skipped(sensor, '')\n"),),
        8,
    ),
    Mutation(
        "commit order: an object is written in its place, not beside it and renamed",
        "storage/objects/local.py",
        (
            (
                "                _write_and_place(self.aside / name, path, data)\n",
                "                path.parent.mkdir(parents=True, exist_ok=True)\n"
                "                path.write_bytes(data)\n",
            ),
        ),
        7,
    ),
    Mutation(
        "the tail of a day is not scored again when the next day is in, nor are rows around late data",
        "flows/work/night/rows.py",
        (("_inside(both, rescore) | _outside(both)", "_inside(both, rescore)"),),
        2,
    ),
    Mutation(
        "commit order: events are committed and scores are not",
        "flows/work/night/night.py",
        (("fleet.scores.update(", "(lambda *_: None)("),),
        1,
    ),
    Mutation(
        "a run that was cut before an alias was set is not finished",
        "flows/work/model/training.py",
        (("fleet.registry.set_challenger(version.sensor, number)", "pass"),),
        1,
    ),
]


def copy_of(root: Path, mutation: Mutation) -> Path:
    """The sources with the mutation; AssertionError if what it changes is no longer there."""
    tree = root / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name in TREES:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    apply(tree, mutation)
    return tree


def apply(tree: Path, mutation: Mutation) -> None:
    path = tree / mutation.file
    text = path.read_text()
    for old, new in mutation.edits:
        assert old in text, f"{mutation.file} no longer holds {old!r}"
        text = text.replace(old, new)
    path.write_text(text)


def short_row(tree: Path, number: int) -> tuple[int, dict[str, str]]:
    """(tried, failures) of the short part of a row, run on the sources in `tree`."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--row", str(number), "--short", "--json"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return 0, {"the row itself": done.stderr[-1000:]}
    found = json.loads(lines[-1])
    return found["tried"], found["failures"]


def run(tally: Tally, root: Path, short: bool) -> None:
    for mutation in MUTATIONS:
        with tally.trial("mutations that still apply", mutation.name):
            text = (ROOT / mutation.file).read_text()
            assert all(old in text for old, _ in mutation.edits), f"{mutation.file} has changed"
    for mutation in MUTATIONS[:1] if short else MUTATIONS:
        with tally.trial("mutations noticed by the short part of a row", mutation.name):
            tree = copy_of(root, mutation)
            tried, failures = short_row(tree, mutation.row)
            assert tried and failures, f"row {mutation.row} stayed green"
            assert "the row itself" not in failures or tried > 1, f"the row broke: {failures}"
            tally.notes.append(f"{mutation.name}: row {mutation.row} has {len(failures)} of {tried} in red")


ROW = Row(
    16,
    "mutation: break the commit order, drop the hash check, swallow an exception, skip the rescore of a tail",
    "the suite goes red each time",
    run,
)

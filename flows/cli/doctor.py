"""`paano doctor`: look at everything a fleet needs and say how to mend what is wrong."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.settings.duration import spell
from flows.settings.fleet_file import PREFIX, Settings
from paano.errors import Conflict, PaanoError
from storage.secrets import clean, public

if TYPE_CHECKING:
    from storage.history.reader import History


class Grade(StrEnum):
    """How good a finding is."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


OK, WARN, BAD = Grade

# Combinations that were seen to break: package, from version (and below version), what happens.
KNOWN_BAD = [
    ("fastapi", "0.155", "", "the Prefect server does not import"),
    ("fastapi", "0.151", "0.155", "`prefect deploy` ends with HTTP 422"),
    ("sqlalchemy", "2.1", "", "the Prefect server never creates a scheduled run"),
    ("prefect", "3.9", "", "not tried with this release"),
    ("mlflow", "3.18", "", "not tried with this release"),
    ("polars", "3", "", "not tried with this release"),
]
NEEDED = ["numpy", "torch", "scikit-learn", "polars", "prefect", "mlflow", "s3fs", "safetensors"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    state: Grade
    says: str
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {key: clean(value) for key, value in asdict(self).items()}


def examine(fleet_file: str) -> list[Finding]:
    """Every finding, the fleet file first; without a readable one only what does not depend on it."""
    findings = [*versions(), *packages(), *variables()]
    try:
        settings = Settings.load(fleet_file)
    except PaanoError as error:
        remedy = "correct the keys named, or begin with `paano init`"
        return [Finding("fleet file", BAD, str(error), remedy), *findings]
    from flows.cli.console import prepare

    prepare(settings)
    findings.insert(0, Finding("fleet file", OK, f"{fleet_file}: fleet {settings.fleet.name}"))
    for check in (history, scores, events, registry, prefect, device, space):
        findings += _careful(check, settings)
    return findings


def _careful(check: Callable[[Settings], Iterator[Finding]], settings: Settings) -> list[Finding]:
    """The findings of one check; its failure is a finding too."""
    name = check.__name__
    try:
        return list(check(settings))
    except PaanoError as error:
        return [Finding(name, BAD, str(error), "see the message")]
    except (OSError, ImportError, RuntimeError) as error:
        return [Finding(name, BAD, f"{type(error).__name__}: {error}", "see the message")]


def versions(installed: Callable[[str], str] = version) -> Iterator[Finding]:
    """Packages that are missing, or known not to work together."""
    from packaging.version import Version

    found = {}
    for package in dict.fromkeys([*NEEDED, *(name for name, *_ in KNOWN_BAD)]):
        try:
            found[package] = Version(installed(package))
        except PackageNotFoundError:
            yield Finding(
                "versions", BAD, f"{package} is not installed", "pip install -c constraints.txt -e ."
            )
    wrong = False
    for package, low, high, effect in KNOWN_BAD:
        have = found.get(package)
        if have and have >= Version(low) and not (high and have >= Version(high)):
            wrong = True
            remedy = f"pip install '{package}<{low}', or `make setup`, which uses constraints.txt"
            yield Finding("versions", BAD, f"{package} {have}: {effect}", remedy)
    if not wrong:
        yield Finding("versions", OK, ", ".join(f"{name} {number}" for name, number in found.items()))


def variables() -> Iterator[Finding]:
    """PAANO_… variables that mean nothing are most likely misspelt."""
    import difflib

    from flows.settings.variables import KNOWN_VARIABLES

    ours = sorted(name for name in os.environ if name.startswith(PREFIX))
    for name in ours:
        if name not in KNOWN_VARIABLES:
            near = difflib.get_close_matches(name, KNOWN_VARIABLES, n=1)
            remedy = f"did you mean {near[0]}?" if near else "unset it; the fleet file lists what there is"
            yield Finding("variables", WARN, f"{name} is set and means nothing", remedy)
    known = [name for name in ours if name in KNOWN_VARIABLES]
    yield Finding("variables", OK, f"set: {', '.join(known)}" if known else "no PAANO_… variable is set")


def packages(here: Path | None = None) -> Iterator[Finding]:
    """A folder `flows`, `storage` or `paano` of somebody else's that Python would import instead of ours."""
    here = (here or Path.cwd()).resolve()
    ours = Path(__file__).resolve().parents[2]
    foreign = (
        [name for name in ("flows", "storage", "paano") if (here / name).is_dir()] if here != ours else []
    )
    if foreign:
        says = f"{here} has folders with the names of our packages: {', '.join(foreign)}"
        remedy = "start Prefect workers in another folder; `paano serve` does so itself"
        yield Finding("packages", WARN, says, remedy)
    else:
        yield Finding("packages", OK, f"ours are in {ours}")


def history(settings: Settings) -> Iterator[Finding]:
    """How many sensors there are, and what is seen of one of each kind: rows, interval, channels, newest."""
    from flows.run.fleet import open_history
    from paano.errors import HistoryError

    where = settings.place(settings.history.url)
    opened = open_history(settings)
    try:
        names = opened.sensors().sensors
    except HistoryError as error:
        yield Finding("history", BAD, str(error), "correct the object or the setting that it names")
        return
    stray = opened.layout.misplaced(opened.store)
    if stray:
        says = (
            f"Parquet in {where} that history.path = {opened.layout.path!r} never reads: {', '.join(stray)}"
        )
        remedy = 'write every level into history.path, such as "{site}/{line}/{sensor}", or move them away'
        yield Finding("history", BAD, says, remedy)
    if not names:
        remedy = "correct history.url, history.layout or history.path; docs/your-data.md shows the layouts"
        yield Finding("history", BAD, f"no sensors in {where}", remedy)
        return
    yield Finding("history", OK, f"{len(names)} sensors in {where}")
    strange = sorted(set(settings.alarms.thresholds) - set(names))
    if strange:
        remedy = "correct or remove them; `paano sensors` lists the ids"
        says = f"alarms.thresholds names sensors that are not in the history: {', '.join(strange[:5])}"
        yield Finding("alarms", BAD, says, remedy)
    for names_alike in _kinds(settings, opened, names):
        yield _one_sensor(settings, opened, names_alike)


MOST_KINDS = 8


def _kinds(settings: Settings, opened: History, names: list[str]) -> list[list[str]]:
    """The sensors by kind: those with the same settings and group, and the same id but for its digits."""
    from flows.run.fleet import catalog_row
    from flows.settings.per_sensor import own_settings

    kinds: dict[tuple[str, str], list[str]] = {}
    for name in names:
        row = catalog_row(settings, opened, name)
        said = own_settings(settings.sensors, name, row).given()
        alike = (row.group if row is not None and row.group else re.sub(r"\d+", "#", name), repr(said))
        kinds.setdefault(alike, []).append(name)
    return sorted(kinds.values(), key=len, reverse=True)[:MOST_KINDS]


def _one_sensor(settings: Settings, opened: History, alike: list[str]) -> Finding:
    """What a week of one sensor looks like."""
    from storage.window import Window

    name = alike[0]
    kind = f"{name} (and {len(alike) - 1} like it)" if len(alike) > 1 else name
    remedy = "see docs/your-data.md, what is repaired and what is refused"
    try:
        newest = opened.newest(name)
        if newest is None:
            return Finding(
                "history", WARN, f"{kind}: no rows", "is it a sensor? history.path says where they are"
            )
        week = Window(newest - timedelta(days=7), newest + timedelta(microseconds=1))
        reading = opened.read(name, week)
    except PaanoError as error:
        return Finding("history", BAD, str(error), remedy)
    says = (
        f"{kind}: {reading.rows} rows in its last week, every {spell(reading.interval)}, channels "
        f"{', '.join(reading.channels)}, newest {newest:%Y-%m-%d %H:%M} UTC"
    )
    counted = ", ".join(f"{what} {n}" for what, n in sorted(reading.repaired.items()))
    says += f"; repaired: {counted}" if counted else ""
    if reading.left_out:
        return Finding("history", WARN, f"{says}; {reading.note}", "name what to read in history.channels")
    if not reading.rows:
        return Finding("history", WARN, says, remedy)
    return Finding("history", OK, says)


def scores(settings: Settings) -> Iterator[Finding]:
    yield from _store("scores", settings, settings.scores.url)


def events(settings: Settings) -> Iterator[Finding]:
    yield from _store("events", settings, settings.events.url)


def _store(name: str, settings: Settings, url: str) -> Iterator[Finding]:
    """Write, read, write on a condition, and remove an object of our own."""
    from flows.run.fleet import storage_options
    from storage.objects.store import open_store

    store = open_store(settings.place(url), storage_options(settings))
    key = f".paano/doctor-{secrets.token_hex(6)}"
    try:
        etag = store.put(key, b"paano", if_absent=True)
        if store.get(key) != b"paano":
            yield Finding(
                name, BAD, f"{store.url}: reads something else than was written", "use another store"
            )
        refused = [_refused(store, key, if_absent=True), _refused(store, key, if_match="0" * 32)]
        store.put(key, b"again", if_match=etag)
    finally:
        store.delete(key)
    if all(refused):
        yield Finding(name, OK, f"{store.url}: read, write, conditional write")
    else:
        remedy = "use a store that knows If-Match and If-None-Match, or let only one run write at a time"
        yield Finding(name, BAD, f"{store.url}: ignores conditions on writes", remedy)


def _refused(store: Any, key: str, **condition: Any) -> bool:
    try:
        store.put(key, b"other", **condition)
    except Conflict:
        return True
    return False


PYFUNCS = 8  # champions of which it is looked whether what MLflow runs is as it was registered


def registry(settings: Settings) -> Iterator[Finding]:
    from flows.run.fleet import open_registry

    began = time.perf_counter()
    opened = open_registry(settings)
    champions = opened.champions()
    took = time.perf_counter() - began
    if champions.stale:
        remedy = "start the MLflow server or correct registry.tracking_uri; scoring goes on from the cache"
        yield Finding("registry", WARN, f"away ({champions.reason}); models as of {champions.seen}", remedy)
    else:
        yield Finding(
            "registry", OK, f"{public(settings.tracking_uri)}: {len(champions)} champions in {took:.1f} s"
        )
        for champion in islice(champions.values(), PYFUNCS):
            if not opened.pyfunc_is_as_registered(champion):
                says = (
                    f"{champion.sensor}: what MLflow runs of its version {champion.version} (scoring.py or a "
                    "file beside it) was changed after it was registered; our flows never run it"
                )
                remedy = (
                    "do not load this version as a pyfunc, look who can write to registry.artifacts, and "
                    f"`paano retrain {champion.sensor}`"
                )
                yield Finding("registry", WARN, says, remedy)


def prefect(settings: Settings) -> Iterator[Finding]:
    address = os.environ.get("PREFECT_API_URL")
    if not address:
        yield Finding("prefect", OK, f"embedded, data in {os.environ['PREFECT_HOME']}")
        if settings.run.engine != "local":
            remedy = "`prefect server start`, then set PREFECT_API_URL"
            says = f"run.engine = {settings.run.engine} on other machines needs a server of its own"
            yield Finding("prefect", WARN, says, remedy)
        return
    try:
        urllib.request.urlopen(f"{address.rstrip('/')}/health", timeout=5).close()
        yield Finding("prefect", OK, f"{public(address)} answers")
    except OSError as error:
        remedy = "start it, correct PREFECT_API_URL, or unset it for the embedded server"
        yield Finding("prefect", BAD, f"{public(address)} does not answer: {error}", remedy)


def device(settings: Settings) -> Iterator[Finding]:
    import torch

    from flows.run.workers import cores
    from paano.device import pick_device

    run = settings.run
    place = pick_device(run.device)
    workers = run.workers or cores(run.threads)
    yield Finding(
        "device", OK, f"{place}, torch {torch.__version__}, {workers} workers of {run.threads} threads"
    )
    if place.type == "cpu" and workers * run.threads > max(1, os.cpu_count() or 1):
        says = f"{workers} workers of {run.threads} torch threads on {os.cpu_count()} cores"
        yield Finding(
            "device", WARN, says, "lower run.workers or run.threads: together they should equal the cores"
        )


def space(settings: Settings) -> Iterator[Finding]:
    free = shutil.disk_usage(settings.folder).free / 2**30
    need = settings.registry.cache_gb
    if free < min(need, 1.0):
        yield Finding("space", BAD, f"{free:.1f} GB free at {settings.folder}", "make room")
    elif free < need:
        remedy = "lower registry.cache_gb or make room"
        yield Finding("space", WARN, f"{free:.1f} GB free, the model cache may take {need:g} GB", remedy)
    else:
        yield Finding("space", OK, f"{free:.0f} GB free at {settings.folder}")

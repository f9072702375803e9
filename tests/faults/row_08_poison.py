"""Row 8: poisoned history, models and registry entries among a hundred healthy sensors."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from flows.run.fleet import Fleet
from flows.run.outcome import Outcome, attempt
from flows.work.model.due import check_shard
from flows.work.model.training import retrain_sensor
from storage.history.paths import folder_of
from storage.registry.places import locate
from storage.window import Window
from tests.attacks import attacks
from tests.faults import fleet_work
from tests.faults.processes import in_process
from tests.faults.tally import Row, Tally
from tests.storage import test_storage_hostile_versions as hostile_versions
from tests.storage.test_storage_hostile_history import HOSTILE

NIGHT = 6
ROWS = 8 * 48
STAMPS = np.datetime64(fleet_work.fleets.START.replace(tzinfo=None), "us") + np.arange(ROWS) * np.timedelta64(
    30, "m"
)
VALUES = 20 + 5 * np.sin(np.arange(ROWS) / 7)


def written(columns: dict[str, Any], **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


def valued(values: Any) -> Callable[[], bytes]:
    return lambda: written({"ts": STAMPS, "c0": values})


def stamped(times: Any) -> Callable[[], bytes]:
    return lambda: written({"ts": times, "c0": VALUES[: len(times)]})


CHANCE = np.random.default_rng(8)
HISTORY: dict[str, Callable[[], bytes]] = {
    **{f"hostile-{name}": made for name, (made, _) in HOSTILE.items()},
    "all-missing": valued(np.full(ROWS, np.nan)),
    "all-null": valued(pa.nulls(ROWS, pa.float64())),
    "constant": valued(np.full(ROWS, 42.0)),
    "zero": valued(np.zeros(ROWS)),
    "minus-infinite": valued(np.full(ROWS, -np.inf)),
    "some-infinite": valued(np.where(np.arange(ROWS) % 50 == 0, np.inf, VALUES)),
    "largest-double": valued(np.full(ROWS, np.finfo(float).max)),
    "both-largest": valued(np.where(np.arange(ROWS) % 2 == 0, 1, -1) * np.finfo(float).max),
    "smallest-double": valued(np.full(ROWS, 5e-324)),
    "beyond-float32": valued(VALUES * 1e200),
    "alternating-missing": valued(np.where(np.arange(ROWS) % 2 == 0, np.nan, VALUES)),
    "mostly-missing": valued(np.where(np.arange(ROWS) % 40 == 0, VALUES, np.nan)),
    "largest-integers": valued(np.full(ROWS, 2**63 - 1)),
    "unsigned-largest": valued(pa.array([2**64 - 1] * ROWS, pa.uint64())),
    "bytes": valued(pa.array([b"\xff\xfe"] * ROWS)),
    "booleans": valued(np.arange(ROWS) % 2 == 0),
    "text-numbers": valued([f"{v:.3f}" for v in VALUES]),
    "text-mixed": valued(["warm" if n % 3 else "1.0" for n in range(ROWS)]),
    "text-nul": valued(["\0"] * ROWS),
    "dates-as-values": valued(STAMPS),
    "durations-as-values": valued(STAMPS - STAMPS[0]),
    "structs-as-values": valued([{"a": 1.0}] * ROWS),
    "maps-as-values": valued(pa.array([[("a", 1.0)]] * ROWS, pa.map_(pa.string(), pa.float64()))),
    "half-floats": valued(VALUES.astype(np.float16)),
    "random-bits": valued(CHANCE.bytes(8 * ROWS) and np.frombuffer(CHANCE.bytes(8 * ROWS), np.float64)),
    "reversed-time": stamped(STAMPS[::-1]),
    "shuffled-time": stamped(CHANCE.permutation(STAMPS)),
    "one-moment": stamped(np.repeat(STAMPS[:1], ROWS)),
    "two-moments": stamped(np.repeat(STAMPS[:2], ROWS // 2)),
    "one-row": stamped(STAMPS[-1:]),
    "two-rows": stamped(STAMPS[-2:]),
    "jitter": stamped(STAMPS + CHANCE.integers(-800, 800, ROWS) * np.timedelta64(1, "s")),
    "odd-steps": stamped(STAMPS[0] + np.cumsum(CHANCE.integers(1, 10**10, ROWS)) * np.timedelta64(1, "us")),
    "microsecond-steps": stamped(STAMPS[300] + np.arange(ROWS) * np.timedelta64(1, "us")),
    "year-steps": stamped(np.datetime64("1900-01-01", "us") + np.arange(ROWS) * np.timedelta64(365, "D")),
    "century-ahead": stamped(STAMPS + np.timedelta64(100 * 365, "D")),
    "far-zone": lambda: written(
        {"ts": pa.array(STAMPS).cast(pa.timestamp("us", "Pacific/Kiritimati")), "c0": VALUES}
    ),
    "unknown-zone": lambda: written(
        {"ts": pa.array(STAMPS).cast(pa.timestamp("us", "Mars/Olympus")), "c0": VALUES}
    ),
    "nanoseconds": lambda: written({"ts": pa.array(STAMPS.astype("datetime64[ns]")), "c0": VALUES}),
    "null-stamps": lambda: written(
        {"ts": pa.array([None if n % 3 else s for n, s in enumerate(STAMPS.tolist())]), "c0": VALUES}
    ),
    "date-column": lambda: written({"ts": pa.array(STAMPS).cast(pa.date32()), "c0": VALUES}),
    "uncompressed": lambda: written({"ts": STAMPS, "c0": VALUES}, compression="none"),
    "brotli": lambda: written({"ts": STAMPS, "c0": VALUES}, compression="brotli"),
    "lz4": lambda: written({"ts": STAMPS, "c0": VALUES}, compression="lz4"),
    "tiny-row-groups": lambda: written({"ts": STAMPS, "c0": VALUES}, row_group_size=1),
    "no-columns": lambda: written({"ts": STAMPS}),
    "hundred-channels": lambda: written({"ts": STAMPS, **{f"c{n}": VALUES for n in range(100)}}),
    "empty-name": lambda: written({"ts": STAMPS, "": VALUES}),
    "name-of-markup": lambda: written({"ts": STAMPS, "<script>[red]{x}%s": VALUES}),
    "name-twice": lambda: two_columns(),
    "half-a-file": lambda: written({"ts": STAMPS, "c0": VALUES})[:600],
    "zeros": lambda: b"\0" * 5000,
    "marks-and-zeros": lambda: b"PAR1" + b"\0" * 5000 + b"PAR1",
    "an-html-page": lambda: b"<html><body>403 Forbidden</body></html>",
    "a-pickle": lambda: b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94.",
    "a-zip": lambda: b"PK\x03\x04" + b"\0" * 100,
}


def two_columns() -> bytes:
    out = io.BytesIO()
    names = ["ts", "c0", "c0"]
    pq.write_table(pa.Table.from_arrays([pa.array(STAMPS), pa.array(VALUES), pa.array(VALUES)], names), out)
    return out.getvalue()


def poison_history(fleet: Fleet, kinds: list[str]) -> list[str]:
    """A sensor for each kind; their names."""
    for kind in kinds:
        folder = fleet.settings.folder / "history" / folder_of(f"bad-{kind}")
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_bytes(HISTORY[kind]())
    return [f"bad-{kind}" for kind in kinds]


def spoil_history(fleet: Fleet, spoilt: dict[str, str]) -> None:
    """The history of sensors that have a champion, in place of what it learnt from. {sensor: kind}"""
    for sensor, kind in spoilt.items():
        folder = fleet.settings.folder / "history" / folder_of(sensor)
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "part-0.parquet").write_bytes(HISTORY[kind]())


def poison_places(fleet: Fleet) -> list[str]:
    """Objects that are no regular files."""
    root = fleet.settings.folder / "history"
    for name in ("bad-fifo", "bad-device", "bad-folder", "bad-loop"):
        (root / name).mkdir()
    os.mkfifo(root / "bad-fifo" / "part-0.parquet")
    (root / "bad-device" / "part-0.parquet").symlink_to("/dev/zero")
    (root / "bad-folder" / "part-0.parquet").mkdir()
    (root / "bad-loop" / "part-0.parquet").symlink_to("part-0.parquet")
    return ["bad-fifo", "bad-device", "bad-folder", "bad-loop"]


# -- models and registry entries -----------------------------------------------------------------------------

TAGS = {
    "no digest": {"paano.digest": ""},
    "a digest of nothing": {"paano.digest": "0" * 64},
    "a digest that leaves": {"paano.digest": "../../../../etc"},
    "a long digest": {"paano.digest": "f" * 4000},
    "another sensor": {"paano.sensor": "s00"},
    "another fleet": {"paano.fleet": "other"},
    "interval as text": {"paano.interval_seconds": "soon"},
    "interval of zero": {"paano.interval_seconds": "0"},
    "an endless window": {"paano.window_end": "9" * 30},
    "a negative figure": {"paano.vus_pr": "-1"},
    "figure as text": {"paano.vus_pr": "good"},
    "a wrong recommendation": {"paano.recommendation": "yes!"},
    "a wrong kind": {"paano.kind": "magic"},
}
SOURCES = [
    "http://169.254.169.254/latest/meta-data",
    "s3://another-bucket/x",
    "file://elsewhere.example/x",
    "/etc",
    "file:///etc/shadow",
    "models:/tiny.s00/1",
    "../../x",
]
# Settings of a giant model are refused by their size; these two write 17 and 100 MB, once is enough.
LARGE = {"long_header", "huge_json"}


def model_kinds() -> list[tuple[str, str]]:
    kinds = [("attack", attack.__name__) for attack in attacks.ALL if attack.__name__ not in LARGE]
    kinds += [("note", name) for name in hostile_versions.NOTES]
    kinds += [("tags", name) for name in TAGS]
    return kinds + [("source", source) for source in SOURCES]


def poison_model(fleet: Fleet, sensor: str, kind: str, name: str) -> None:
    """Make the champion of `sensor` a hostile one, as somebody who can write to registry and store could."""
    registry = fleet.registry
    version = registry.champions([sensor])[sensor]
    artifacts = Path(registry.artifacts.url)
    old = artifacts / locate(registry.artifacts, registry.fleet, version)
    source, tags = version.source, dict(version.tags)
    if kind in ("attack", "note"):
        work = artifacts.parent / "work"
        shutil.copytree(old, work)
        note = work / "model" / "model.json"
        if kind == "attack":
            {a.__name__: a for a in attacks.ALL}[name](work / "model")
        else:
            note.write_text(hostile_versions.NOTES[name](note.read_text()))
        digest = hashlib.sha256(note.read_bytes() if note.is_file() else b"").hexdigest()
        place = artifacts / "tiny" / sensor / digest[:32]
        if place.exists():
            shutil.rmtree(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        work.rename(place)
        source, tags["paano.digest"] = place.as_uri(), digest
    elif kind == "tags":
        tags |= TAGS[name]
    else:
        source = name
    client = registry.client.client._get_registry_client().store  # past MLflow's own checks of a source
    from mlflow.entities.model_registry import ModelVersionTag

    made = client.create_model_version(
        version.name, source, tags=[ModelVersionTag(key, value[:4900]) for key, value in tags.items()]
    )
    registry.client.call(
        version.name, "set_registered_model_alias", version.name, "champion", made.version, write=True
    )


def prepare(root: Path, sensors: int) -> None:
    """A fleet with champions for all; the history or the champions of the last ones will be hostile."""
    fleet_work.make(root / "first", sensors=sensors, days=8)


def score_clean(folder: str) -> None:
    fleet_work.score(fleet_work.opened(folder), NIGHT)


def score_poisoned(
    folder: str,
    kinds: list[str],
    places: bool,
    spoilt: dict[str, str],
    entries: list[tuple[str, str, str]],
) -> tuple[list[Outcome], list[str]]:
    logging.disable(logging.CRITICAL)
    fleet = fleet_work.opened(folder)
    bad = poison_history(fleet, kinds) + (poison_places(fleet) if places else [])
    spoil_history(fleet, spoilt)
    for sensor, kind, name in entries:
        poison_model(fleet, sensor, kind, name)
    shutil.rmtree(fleet.registry.cache.folder)
    return fleet_work.score(fleet_work.opened(folder), NIGHT), bad


def look_and_train(folder: str, sensors: list[str]) -> tuple[dict[str, str], list[Outcome]]:
    """Who of all needs a new model, {sensor: why}; and what became of training `sensors`."""
    logging.disable(logging.CRITICAL)
    fleet = fleet_work.opened(folder)
    champions = dict(fleet.registry.champions())
    moment = fleet_work.moment(NIGHT + 1)
    checks = check_shard(fleet, fleet_work.names_of(fleet), champions, moment)

    def train_one(sensor: str) -> Outcome:
        return retrain_sensor(fleet, sensor, moment, champions.get(sensor), "a test")

    return {check.sensor: check.why for check in checks}, [attempt(train_one, sensor) for sensor in sensors]


def rows_by_sensor(folder: Path) -> dict[str, pl.DataFrame]:
    fleet = fleet_work.opened(folder)
    window = Window.day(fleet_work.day(NIGHT))
    # The version of a model is a number of the registry, not of the scores.
    found = fleet.scores.read_many(None, window).drop("model_version")
    return {str(key[0]): part for key, part in found.group_by("sensor")}


def named(said: dict[str, Outcome], sensor: str) -> None:
    """The sensor has an outcome; if it was not served, with a reason of ours."""
    assert sensor in said, "it is not named"
    text = said[sensor].text
    assert said[sensor].state == "ok" or (said[sensor].reason and "unexpected" not in text), text


def run(tally: Tally, root: Path, short: bool) -> None:
    healthy = 6 if short else 100
    kinds = list(HISTORY)[3::20] if short else list(HISTORY)
    every = model_kinds()[5::25] if short else model_kinds()
    in_process(prepare, root, healthy + len(every) + len(kinds))
    entries = [(f"s{healthy + n:02d}", kind, name) for n, (kind, name) in enumerate(every)]
    spoilt = {f"s{healthy + len(every) + n:02d}": kind for n, kind in enumerate(kinds)}
    clean, poisoned = root / "clean", root / "poisoned"
    shutil.copytree(root / "first", clean)
    shutil.copytree(root / "first", poisoned)
    in_process(score_clean, str(clean))
    outcomes, bad = in_process(score_poisoned, str(poisoned), kinds, not short, spoilt, entries)
    said = {outcome.sensor: outcome for outcome in outcomes}
    want, have = rows_by_sensor(clean), rows_by_sensor(poisoned)
    for number in range(healthy):
        name = f"s{number:02d}"
        with tally.trial("healthy sensors beside them", name):
            assert said[name].state == "ok", said[name].text
            assert have[name].equals(want[name]), "its rows have changed"
    for name in bad:
        with tally.trial("kinds of poisoned history of a new sensor", name):
            named(said, name)
    for name, kind in spoilt.items():
        with tally.trial("kinds of poisoned history of a sensor with a model", kind):
            named(said, name)
    for sensor, kind, name in entries:
        with tally.trial("kinds of hostile models and registry entries", f"{kind} {name}"):
            outcome = said[sensor]
            if outcome.state == "ok":  # harmless: then it is scored as ever
                assert sensor in have and have[sensor].equals(want[sensor]), f"other rows: {outcome.text}"
            else:
                named(said, sensor)
    sick = [*bad, *spoilt, *(sensor for sensor, _, _ in entries)]
    looked, trained = in_process(look_and_train, str(poisoned), sick)
    for name in said:
        with tally.trial("looks whether a sensor needs a new model", name):
            assert name in looked, "it was not looked at"
            assert "unexpected" not in looked[name], looked[name]
    tried = {outcome.sensor: outcome for outcome in trained}
    for name in sick:
        with tally.trial("trainings of poisoned sensors", name):
            named(tried, name)


ROW = Row(
    8,
    "80 kinds of poisoned history, 80 of models and registry entries, among 100 healthy sensors",
    "the healthy ones identical, each poisoned one named",
    run,
)

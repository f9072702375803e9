"""One bad sensor of each kind among forty: the others are scored as if it were not there, byte for byte."""

from __future__ import annotations

from datetime import date, timedelta

import fleets
import numpy as np
import polars as pl
import pytest

from flows.run.fleet import fix_shards, open_fleet
from flows.run.outcome import count
from flows.run.plan import plan_shards
from flows.work.night.batches import score_shards
from storage.history.paths import folder_of
from storage.window import Window

HEALTHY, ROWS, NIGHT = 31, 6 * 48, 5


def only_nan(settings, name):
    fleets.write_sensor(settings, name, np.full((ROWS, 1), np.nan))


def wrong_types(settings, name):
    write(settings, name, stamps(ROWS), pl.Series(["warm"] * ROWS))


def truncated(settings, name):
    write(settings, name, stamps(ROWS), pl.Series(np.arange(float(ROWS))))
    for path in file_of(settings, name).parent.glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-200])


def constant(settings, name):
    fleets.write_sensor(settings, name, np.full((ROWS, 1), 42.0))


def two_rows(settings, name):
    fleets.write_sensor(settings, name, np.ones((2, 1)), fleets.START + timedelta(days=NIGHT))


def future_stamps(settings, name):
    ahead = stamps(ROWS) + np.timedelta64(200 * 365, "D")
    both = np.concatenate([stamps(ROWS), ahead])
    write(settings, name, both, pl.Series(np.concatenate([fleets.signal(3, ROWS)[:, 0]] * 2)))


def ten_thousand_duplicates(settings, name):
    times = np.concatenate([stamps(ROWS), np.repeat(stamps(ROWS)[100:101], 10_000)])
    write(settings, name, times, pl.Series(np.arange(float(len(times)))))


def link_to_itself(settings, name):
    path = file_of(settings, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(path.name)


def healthy_but_hostile(settings, name):
    fleets.write_sensor(settings, name, fleets.signal(7, ROWS))


POISONS = {
    "link-to-itself": link_to_itself,
    "only-nan": only_nan,
    "wrong-types": wrong_types,
    "truncated": truncated,
    "constant": constant,
    "two-rows": two_rows,
    "future": future_stamps,
    "duplicates": ten_thousand_duplicates,
    "../../x": healthy_but_hostile,
}


def stamps(rows):
    first = np.datetime64(fleets.START.replace(tzinfo=None), "us")
    return first + np.arange(rows) * np.timedelta64(fleets.STEP)


def file_of(settings, name):
    return settings.folder / "history" / folder_of(name) / "part-0.parquet"


def write(settings, name, times, values):
    path = file_of(settings, name)
    path.parent.mkdir(parents=True)
    pl.DataFrame({"ts": times, "c0": values}).write_parquet(path)


def score_all(fleet):
    """Every batch of one night, as the flow's tasks do; the outcomes."""
    names = fleet.history.sensors().sensors
    night = date.fromisoformat(fleets.night(NIGHT))
    shards = fix_shards(fleet, len(names), [night])
    settings = fleet.settings.to_dict()
    return [
        outcome
        for batch in plan_shards(names, shards, 500)
        for outcome in score_shards(batch, settings, {}, [night], shards, [])
    ]


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """The same night of the fleet without and with the poisoned sensors: (fleet, outcomes) each."""
    folder = tmp_path_factory.mktemp("poison")
    changes = {
        "scores": {"shards": 100},
        "model": {"iterations": 0, "patch": 8, "width": 0.0625},
        "history": {"lookback": "5d"},
    }
    runs = []
    for kind in ("clean", "poisoned"):
        fleet = fleets.make(folder / kind / "fleet", sensors=HEALTHY, days=6, **changes)
        if kind == "poisoned":
            for name, poison in POISONS.items():
                poison(fleet.settings, name)
        fleet = open_fleet(fleet.settings)
        runs.append((fleet, score_all(fleet)))
    return runs


def test_the_other_sensors_have_the_same_rows(nights):
    (clean, _), (poisoned, outcomes) = nights
    window = Window.day(date.fromisoformat(fleets.night(NIGHT)))
    names = clean.history.sensors().sensors
    assert len(outcomes) == HEALTHY + len(POISONS) == 40
    expected = clean.scores.read_many(names, window)
    assert expected.height == HEALTHY * 48
    assert expected["score"].null_count() == 0
    assert poisoned.scores.read_many(names, window).equals(expected)


def test_objects_without_a_poisoned_sensor_have_the_same_bytes(nights):
    (clean, _), (poisoned, _) = nights
    touched = {f"shard-{poisoned.scores.shard_of(name):04d}.parquet" for name in POISONS}
    before, after = fleets.objects(clean), fleets.objects(poisoned)
    same = [name for name in before if name.rpartition("/")[2] not in touched]
    assert len(same) >= 20
    assert {name: after[name] for name in same} == {name: before[name] for name in same}


def test_every_poisoned_sensor_is_named_with_a_reason(nights):
    _, (_, outcomes) = nights
    said = {outcome.sensor: outcome.text for outcome in outcomes if outcome.sensor in POISONS}
    assert set(said) == set(POISONS)
    assert said["only-nan"].startswith("skipped: no_model")
    assert said["two-rows"].startswith("skipped: no_model")
    assert said["wrong-types"].startswith("failed: ") and "number" in said["wrong-types"], said["wrong-types"]
    assert said["truncated"].startswith("failed: ") and "damaged" in said["truncated"], said["truncated"]
    assert said["link-to-itself"].startswith("failed: ") and "ELOOP" in said["link-to-itself"]
    for fine in ("constant", "future", "duplicates", "../../x"):
        assert said[fine].startswith("ok"), said[fine]
    assert count(outcomes) == {"ok": HEALTHY + 4, "skipped": 2, "failed": 3}


def test_a_hostile_name_writes_nothing_outside_the_fleet(nights):
    _, (poisoned, _) = nights
    beside = sorted(path.name for path in poisoned.settings.folder.parent.iterdir())
    assert beside == ["fleet"]
    assert poisoned.scores.read("../../x", Window.day(date.fromisoformat(fleets.night(NIGHT)))).height == 48

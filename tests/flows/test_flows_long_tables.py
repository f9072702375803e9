"""Long tables through the flows: read once for all tasks, with the scores of a prefix per sensor."""

from __future__ import annotations

from datetime import timedelta

import fleets
import numpy as np
import polars as pl
import pytest

from flows.run.fleet import open_fleet
from flows.score import score
from flows.work.model.training import retrain_sensor
from paano.errors import RunFailed
from storage.history.reader import write_history
from storage.objects.store import open_store

SENSORS = 6


def frame(number):
    values = fleets.signal(number, fleets.DAYS * 48)
    first = np.datetime64(fleets.START.replace(tzinfo=None), "us")
    return pl.DataFrame(
        {"ts": first + np.arange(len(values)) * np.timedelta64(fleets.STEP), "c0": values[:, 0]}
    ).with_columns(pl.col("ts").dt.replace_time_zone("UTC"), sensor=pl.lit(f"s{number:02d}"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    settings = fleets.settings_of(
        tmp_path_factory.mktemp("long") / "fleet",
        history={"layout": "long", "lookback": "8d"},
        run={"sensor_tasks": 0},
    )
    fleets.new_registry(settings)
    fleet = open_fleet(settings)
    rows = pl.concat([frame(number) for number in range(SENSORS)])
    write_history(settings.place(settings.history.url), rows, fleet.history.layout)
    for name in fleet.history.sensors().sensors:
        retrain_sensor(fleet, name, fleets.START + timedelta(days=6), None, "a test")
    return fleet


def in_shards(trained, folder, shards):
    """A copy of the fleet whose nights have so many shards."""
    fleet = fleets.copy(trained, folder)
    scores = fleet.settings.scores.model_copy(update={"shards": shards})
    return open_fleet(fleet.settings.model_copy(update={"scores": scores}))


def test_more_tasks_read_no_more_of_a_long_table(trained, tmp_path, monkeypatch):
    reads, rows = {}, {}
    for shards in (4, 60):
        fleet = in_shards(trained, tmp_path / f"{shards}", shards)
        reads[shards] = count_reads(monkeypatch, fleet)
        report = score(fleet_file=fleets.write_fleet_file(fleet.settings), day=fleets.night(8))
        assert report.counts["ok"] == SENSORS
        rows[shards] = fleet.scores.read_many(None, fleets.window_of(8))
    assert reads[4] == reads[60] and any(fleets.night(8) in key for key in reads[4])
    assert rows[4].height and rows[4].equals(rows[60])


def count_reads(monkeypatch, fleet):
    """How often each object of the history is fetched."""
    root = fleet.history.store.url
    kind = type(fleet.history.store)
    got, real = {}, kind.get

    def get(self, key):
        if self.url == root:
            got[key] = got.get(key, 0) + 1
        return real(self, key)

    monkeypatch.setattr(kind, "get", get)
    return got


def test_a_damaged_table_is_the_outcome_of_its_sensors_and_not_the_end_of_the_run(trained, tmp_path):
    fleet = in_shards(trained, tmp_path / "damaged", 4)
    # An older day: the newest ones say which sensors there are.
    open_store(fleet.history.store.url).put(f"date={fleets.night(1)}/part-0000.parquet", b"PAR1 no more")
    with pytest.raises(RunFailed) as failed:
        score(fleet_file=fleets.write_fleet_file(fleet.settings), day=fleets.night(1))
    outcomes = failed.value.report.outcomes
    assert len(outcomes) == SENSORS and all("part-0000.parquet" in outcome.reason for outcome in outcomes)

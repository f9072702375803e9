"""The demo's fleet: made in a moment, with groups, and with faults that overlap within one."""

from __future__ import annotations

from itertools import combinations

import polars as pl

from flows.cli.demo import GROUPS, MARK, write_fleet_file, write_history_of
from flows.run.fleet import open_fleet
from paano.evaluation.synth import KINDS


def test_every_kind_of_sensor_has_a_group():
    assert sorted(kind for kinds in GROUPS.values() for kind in kinds) == sorted(KINDS)


def test_the_demo_has_groups_and_faults_that_make_an_incident_of_several_sensors(tmp_path):
    settings = write_fleet_file(tmp_path, {})
    write_history_of(settings, sensors=12)
    fleet = open_fleet(settings)
    names = fleet.history.sensors().sensors
    assert len(names) == 12
    assert {fleet.group_of(name) for name in names} == set(GROUPS)
    faults = pl.read_parquet(tmp_path / MARK).to_dicts()
    together = [
        (one["sensor"], other["sensor"])
        for one, other in combinations(faults, 2)
        if fleet.group_of(one["sensor"]) == fleet.group_of(other["sensor"])
        and one["sensor"] != other["sensor"]
        and one["start"] <= other["end"]
        and other["start"] <= one["end"]
    ]
    assert ("pump-01", "duty-01") in together or ("duty-01", "pump-01") in together

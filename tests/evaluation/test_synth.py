"""The made-up fleet: equal arguments give equal bits, and the truth is where it says."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from paano.errors import ConfigError
from paano.evaluation.synth import KINDS, SHORT_ROWS, make_fleet, truth

FIVE_MINUTES = timedelta(minutes=5)


@pytest.fixture(scope="module")
def fleet():
    return make_fleet(12, 21, FIVE_MINUTES, seed=0)


def test_there_is_one_sensor_of_each_kind(fleet):
    assert [sensor.kind for sensor in fleet] == list(KINDS)
    assert len({sensor.name for sensor in fleet}) == 12


def test_equal_arguments_give_equal_bits_and_another_seed_does_not(fleet):
    again, other = make_fleet(12, 21, FIVE_MINUTES, seed=0), make_fleet(12, 21, FIVE_MINUTES, seed=1)
    for a, b, c in zip(fleet, again, other, strict=True):
        assert a.values.tobytes() == b.values.tobytes()
        assert a.faults == b.faults
        assert a.values.tobytes() != c.values.tobytes()


def test_a_sensor_does_not_depend_on_how_many_others_there_are(fleet):
    many = make_fleet(40, 21, FIVE_MINUTES, seed=0)
    assert all(np.array_equal(a.values, b.values, equal_nan=True) for a, b in zip(fleet, many, strict=False))
    assert len({sensor.name for sensor in many}) == 40


def test_all_end_together_on_an_even_grid(fleet):
    assert len({sensor.ts[-1] for sensor in fleet}) == 1
    for sensor in fleet:
        assert (np.diff(sensor.ts) == np.timedelta64(FIVE_MINUTES)).all()
        assert sensor.values.shape == (len(sensor.ts), len(sensor.channels))


def test_faults_lie_in_the_last_nights_apart_from_each_other(fleet):
    for sensor in fleet:
        for fault in sensor.faults:
            last = sensor.start + len(sensor.values) * FIVE_MINUTES
            assert last - timedelta(days=3) <= fault.start <= fault.end < last
            assert set(fault.channels) <= set(sensor.channels)
        for before, after in zip(sensor.faults, sensor.faults[1:], strict=False):
            assert after.start - before.end > 96 * FIVE_MINUTES
    kinds = {row["kind"] for row in truth(fleet)}
    assert {"spike", "shift", "flat", "noise", "lost_period", "drift", "broken_relation"} <= kinds


def test_without_faults_only_the_rows_of_the_faults_differ(fleet):
    # a fault of size 0 is none for these kinds, and the same numbers are drawn for it
    for hurt, well in zip(fleet, make_fleet(12, 21, FIVE_MINUTES, seed=0, size=0.0), strict=True):
        if {fault.kind for fault in hurt.faults} - {"spike", "shift", "drift", "noise"}:
            continue
        differs = ~np.isclose(hurt.values, well.values, equal_nan=True).all(axis=1)
        marked = np.zeros(len(differs), dtype=bool)
        for fault in hurt.faults:
            first, last = ((t - hurt.start) // FIVE_MINUTES for t in (fault.start, fault.end))
            marked[first : last + 1] = True
        assert not differs[~marked].any()


def test_the_odd_sensors_are_as_odd_as_promised(fleet):
    by_kind = {sensor.kind: sensor for sensor in fleet}
    assert len(by_kind["short"].values) == SHORT_ROWS
    assert np.ptp(by_kind["flat"].values) == 0
    assert np.isnan(by_kind["holes"].values).mean() > 0.01
    assert 864 < len(by_kind["new"].values) < len(by_kind["duty"].values) / 2
    assert by_kind["motor"].values.shape[1] == 5
    for kind in set(KINDS) - {"holes"}:
        assert np.isfinite(by_kind[kind].values).all()


@pytest.mark.parametrize("seconds", [1.0, 60.0, 3600.0, 86_400.0])
def test_any_interval_gives_a_fleet(seconds):
    days = 21 if seconds >= 60 else 1
    fleet = make_fleet(
        12, max(days, 2), seconds, seed=3, nights=1, kinds=["pump", "holes", "regimes", "short"]
    )
    assert len(fleet) == 12
    assert all(len(sensor.values) for sensor in fleet)


def test_what_makes_no_fleet_is_refused():
    for arguments in ({"days": 3}, {"interval": 0.0}, {"kinds": ["teapot"]}, {"kinds": []}):
        with pytest.raises(ConfigError):
            make_fleet(**{"sensors": 2, **arguments})
    assert make_fleet(0) == []

"""Normalisation against a slow and obvious twin."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.history.grid import EPOCH, Grid, infer_interval, micros, to_grid
from storage.window import Window

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def slow_grid(rows, window, interval, tolerance, phase):
    """{grid point: value} one row at a time: rows is [(stamp, value)] in file order."""
    points = []
    n = (window.start - EPOCH - phase) // interval - 2
    while True:
        point = EPOCH + phase + n * interval
        if point >= window.end:
            break
        if point >= window.start:
            points.append(point)
        n += 1
    reach = min(tolerance * interval, interval // 2)
    best = {}
    off_grid = repeated = 0
    for order, (stamp, value) in enumerate(rows):
        # the nearest point; a row exactly between two belongs to the later one
        n = (stamp - EPOCH - phase + interval // 2) // interval
        point = EPOCH + phase + n * interval
        if point not in points or not points[0] - reach <= stamp <= points[-1] + reach:
            continue
        if abs(stamp - point) > reach:
            off_grid += 1
            continue
        repeated += point in best
        if point not in best or (stamp, order) >= best[point][0]:
            best[point] = ((stamp, order), value)
    values = [best[p][1] if p in best else np.nan for p in points]
    values = [np.nan if np.isinf(v) else v for v in values]
    return (
        points,
        np.array(values),
        {"off_grid": off_grid, "repeated": repeated, "holes": len(points) - len(best)},
    )


def gridded(rows, window, interval, tolerance=0.5, phase=timedelta(0)):
    grid = Grid.of(window, interval, tolerance, phase)
    stamps = np.array([micros(t) for t, _ in rows], np.int64)
    values = np.array([v for _, v in rows], float).reshape(-1, 1)
    out, counts = to_grid(stamps, values, grid)
    return grid, out[:, 0], counts


values = st.floats(-10, 10) | st.sampled_from([np.nan, np.inf, -np.inf])
# whole grid points are frequent, so that stamps repeat
offsets = st.integers(-5, 25).map(lambda n: n * 60_000_000) | st.integers(-300_000_000, 1_500_000_000)
rows = st.lists(st.tuples(offsets.map(lambda us: START + timedelta(microseconds=us)), values), max_size=30)


@settings(max_examples=80, deadline=None)
@given(
    rows,
    st.sampled_from(
        [MINUTE, timedelta(seconds=7), timedelta(seconds=90), timedelta(microseconds=33_333_333)]
    ),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from([timedelta(0), timedelta(seconds=3), timedelta(seconds=-41)]),
    st.integers(0, 600),
)
def test_the_grid_is_that_of_the_slow_twin(rows, interval, tolerance, phase, seconds):
    window = Window(START + timedelta(seconds=seconds), START + timedelta(seconds=seconds + 900))
    grid, out, counts = gridded(rows, window, interval, tolerance, phase)
    points, expected, repaired = slow_grid(rows, window, interval, tolerance, phase)
    assert [micros(p) for p in points] == [grid.first + i * grid.interval for i in range(grid.count)]
    np.testing.assert_array_equal(out, expected)
    assert {name: counts[name] for name in repaired} == repaired


@settings(max_examples=40, deadline=None)
@given(rows, st.integers(0, 12), st.integers(1, 8))
def test_two_overlapping_windows_agree_on_every_point_they_share(rows, shift, length):
    wide = Window(START - 5 * MINUTE, START + 25 * MINUTE)
    narrow = Window(START + shift * MINUTE, START + (shift + length) * MINUTE)
    _, whole, _ = gridded(rows, wide, MINUTE)
    _, part, _ = gridded(rows, narrow, MINUTE)
    np.testing.assert_array_equal(part, whole[shift + 5 : shift + 5 + length])


def test_the_last_of_repeated_stamps_wins_and_is_counted():
    rows = [(START, 1.0), (START + MINUTE, 2.0), (START, 3.0)]
    _, out, counts = gridded(rows, Window(START, START + 2 * MINUTE), MINUTE)
    assert out.tolist() == [3.0, 2.0]
    assert counts["repeated"] == 1 and counts["unsorted"] == 1


def test_a_hole_and_an_infinite_value_are_missing_and_counted():
    rows = [(START, np.inf), (START + 2 * MINUTE, 1.0)]
    _, out, counts = gridded(rows, Window(START, START + 3 * MINUTE), MINUTE)
    assert np.isnan(out[:2]).all() and out[2] == 1.0
    assert counts["infinite"] == 1 and counts["holes"] == 1


def test_rows_after_the_window_are_not_used():
    _, out, _ = gridded([(START + 5 * MINUTE, 9.0)], Window(START, START + MINUTE), MINUTE)
    assert np.isnan(out).all()


@pytest.mark.parametrize("seconds", [1, 10, 60, 300, 900, 3600, 86400])
def test_an_interval_is_inferred_through_jitter_repeats_and_holes(seconds):
    rng = np.random.default_rng(seconds)
    stamps = np.arange(500) * seconds * 1_000_000 + rng.integers(-1, 2, 500) * seconds * 10_000
    stamps = np.concatenate([np.delete(stamps, rng.integers(0, 500, 60)), stamps[:20]])
    assert infer_interval(rng.permutation(stamps)) == timedelta(seconds=seconds)


def test_an_odd_interval_is_inferred_as_it_is():
    assert infer_interval(np.arange(50) * 37_000_000) == timedelta(seconds=37)


def test_too_few_rows_have_no_interval():
    assert infer_interval(np.array([1, 1, 1])) is None

"""The second look at a stretch: the faults in it, to the row."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paano import PaAno, PaAnoConfig
from paano.alarms.edges import (
    MOST,
    MOST_CHANNELS,
    SURE,
    _farthest_channels,
    _Look,
    _rows_of,
    find_edges,
    gap_of,
    join_rows,
    lengths_of,
    reach,
    row_oddness,
)
from paano.errors import SeriesError
from paano.evaluation.inject import put_fault
from paano.scoring.kept import keep_rows
from paano.series import read_series
from tests import oracle

PATCH = 24
CONFIG = PaAnoConfig.preset("default", patch=PATCH, iterations=0, width=0.0625, keep=4000)


def wave(rows: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    t = np.arange(rows)[:, None] + 7 * np.arange(channels)
    return 100 + np.sin(t * 2 * np.pi / 17) + 0.05 * rng.standard_normal((rows, channels))


@functools.cache
def model(channels: int = 1) -> PaAno:
    return PaAno(CONFIG, "cpu").fit(wave(1500, channels))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("fault", ["spike", "drop", "shift", "noise", "flat", "drift"])
def test_the_edges_of_a_fault_are_found_to_the_row_or_nearly(fault, channels):
    x = wave(400, channels, seed=1)
    rows = {"spike": 2, "drop": 8}.get(fault, 40)
    put_fault(x, fault, 200, rows, np.random.default_rng(3), channels=[0])
    spans = find_edges(model(channels), x, 150, 290)
    # a drift and a stuck value begin within what is normal
    near = {"flat": 6, "drift": 12, "noise": 2}.get(fault, 0)
    assert abs(spans[0][0] - 200) <= near
    assert abs(spans[-1][1] - (199 + rows)) <= near


def test_two_faults_are_two_spans_if_the_rows_between_them_are_normal():
    x = wave(400, seed=1)
    x[180:183] += 4
    x[183 + 2 * PATCH : 190 + 2 * PATCH] -= 4
    assert find_edges(model(), x, 150, 290) == [(180, 182), (183 + 2 * PATCH, 189 + 2 * PATCH)]
    for row in range(
        183, 183 + 2 * PATCH, gap_of(PATCH) + 1
    ):  # no break that is longer than one within a fault
        x[row] += 4
    assert find_edges(model(), x, 150, 290) == [(180, 189 + 2 * PATCH)]


def test_two_faults_nearer_than_the_longest_window_are_two_spans():
    x = wave(400, seed=1)
    x[180:183] += 4
    x[180 + PATCH // 2 : 183 + PATCH // 2] += 4
    assert max(lengths_of(PATCH)) > PATCH // 2 > gap_of(PATCH)
    assert find_edges(model(), x, 150, 290) == [(180, 182), (192, 194)]


def test_the_weak_beginning_of_a_fault_belongs_to_it():
    x = wave(400, seed=1)
    x[200:240, 0] += np.linspace(0, 1, 40)
    odd = np.flatnonzero(row_oddness(read_series(x, 0), model().kept, PATCH) > 1)
    ((first, last),) = find_edges(model(), x, 150, 290)
    assert 200 <= first < odd[0] - 2
    assert last == 239


def test_a_stretch_in_which_nothing_is_odd_has_no_fault():
    assert find_edges(model(), wave(400, seed=3), 150, 190) == []


def test_a_stretch_about_which_nothing_can_be_said_keeps_its_edges():
    x = wave(400, seed=3)
    x[np.arange(400) % 8 > 2] = np.nan  # holes too long to bridge, and no four rows between them
    assert find_edges(model(), x, 150, 190) == [(150, 190)]


def test_a_model_without_a_kept_history_keeps_the_edges():
    x = wave(400, seed=1)
    x[200] += 9
    plain = PaAno(CONFIG.replace(keep=0), "cpu").fit(wave(1500))
    assert plain.kept is None
    assert find_edges(plain, x, 150, 290) == [(150, 290)]


def test_rows_and_channels_that_do_not_fit_are_refused():
    with pytest.raises(SeriesError, match="rows 3 to 400"):
        find_edges(model(), wave(100), 3, 400)
    with pytest.raises(SeriesError, match="3 channels"):
        find_edges(model(), wave(100, 3), 3, 40)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 80), st.integers(0, 80))
def test_edges_do_not_depend_on_where_the_window_was_cut(seed, before, after):
    rng = np.random.default_rng(seed)
    x = wave(300, seed=seed)
    x[rng.random(300) < 0.03] = np.nan
    first, last = 100, 100 + int(rng.integers(1, 90))
    put_fault(x, rng.choice(["spike", "shift", "noise"]), 110, 20, rng)
    margin = reach(CONFIG)
    spans = find_edges(model(), x, first, last)
    low, high = max(0, first - margin - before), last + margin + after + 1
    cut = find_edges(model(), x[low:high], first - low, last - low)
    assert [(a + low, b + low) for a, b in cut] == spans
    assert all(first <= a <= b <= last for a, b in spans)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 2))
def test_oddness_equals_that_of_the_slow_twin(seed, channels):
    rng = np.random.default_rng(seed)
    past, x = wave(120, channels, seed), wave(40, channels, seed + 1)
    past[rng.random(120) < 0.02] = np.nan
    x[rng.integers(40)] += 5
    x[rng.integers(40)] = np.nan
    kept, series = keep_rows(read_series(past, 0), 1000), read_series(x, 0)
    look = _Look(series, kept)
    lengths = lengths_of(8)
    normal = [look.normal_distance(length, 8) for length in lengths]
    slow = oracle.row_oddness(look.x, series.usable, lengths, normal, look.past, kept.usable, SURE)
    # of two windows that are equally near, float32 may find either
    np.testing.assert_allclose(row_oddness(series, kept, 8), slow, rtol=1e-5)


@given(st.lists(st.booleans(), max_size=30))
def test_rows_beside_a_fault_are_counted_as_by_the_slow_twin(beyond):
    assert _rows_of(np.array(beyond, dtype=bool)) == oracle.rows_beside(beyond, MOST)


def test_of_many_channels_the_odd_ones_are_looked_at():
    rng = np.random.default_rng(0)
    past, x = rng.standard_normal((300, 80)), rng.standard_normal((120, 80))
    x[50:60, 71] += 30
    series, kept = read_series(x, 0), keep_rows(read_series(past, 0), 1000)
    narrow, past = _farthest_channels(series, slice(30, 90), kept)
    assert narrow.channels == past.values.shape[1] == MOST_CHANNELS
    odd = np.flatnonzero(row_oddness(narrow, past, 8) > SURE)
    assert (odd.min(), odd.max()) == (50, 59)


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 5))
def test_rows_are_joined_as_events_are(flags, gap):
    rows = np.flatnonzero(np.array(flags, dtype=bool))
    assert join_rows(rows, gap) == oracle.event_spans(flags, gap)

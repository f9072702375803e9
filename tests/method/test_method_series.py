"""Data as it comes: holes, infinities, types, lengths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paano.errors import SeriesError
from paano.series import read_series, valid_starts
from tests import oracle

numbers = st.one_of(
    st.just(np.nan), st.just(np.nan), st.floats(-5, 5), st.sampled_from([np.inf, -np.inf, 1e200])
)


@st.composite
def holey(draw):
    rows, channels = draw(st.integers(0, 40)), draw(st.integers(1, 3))
    values = draw(st.lists(numbers, min_size=rows * channels, max_size=rows * channels))
    dense = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    x = np.array(values, dtype=float).reshape(rows, channels)
    x[np.array(dense, dtype=bool)] = 1.5
    return x


@given(x=holey(), max_gap=st.integers(0, 6), patch=st.integers(2, 8))
@settings(max_examples=200, deadline=None)
def test_holes_are_bridged_and_patches_chosen_as_the_slow_twin_does(x, max_gap, patch):
    series = read_series(x, max_gap)
    columns = [oracle.slow_bridged(column, max_gap) for column in x.T]
    whole = np.array([all(c[i] is not None for c in columns) for i in range(len(x))], dtype=bool)
    assert (series.usable == whole).all()
    for c, column in enumerate(columns):
        want = [v for v, usable in zip(column, whole, strict=True) if usable]
        assert series.values[whole, c] == pytest.approx(want, rel=1e-12, abs=1e-12)
    assert np.isfinite(series.values).all()
    assert valid_starts(series.usable, patch).tolist() == oracle.slow_starts(x, patch, max_gap)
    assert series.infinite == int((np.abs(np.nan_to_num(x, nan=0.0)) > 1e150).sum())
    measured = (np.abs(x) <= 1e150).any(axis=1)  # false for NaN
    assert (series.missing == ~(measured & whole)).all()


def test_the_line_over_a_hole_is_straight():
    x = [1.0, np.nan, np.nan, np.nan, 5.0]
    assert read_series(x, 3).values[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert not read_series(x, 2).usable[1:4].any()


def test_a_hole_at_either_end_is_never_bridged():
    series = read_series([np.nan, 1, 2, np.nan], 3)
    assert series.usable.tolist() == [False, True, True, False]


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float16, np.float32, np.float64, bool])
def test_any_real_type_is_read_as_float64(dtype):
    series = read_series(np.array([0, 1, 1, 0], dtype=dtype), 0)
    assert series.values.dtype == np.float64
    assert series.values[:, 0].tolist() == [0, 1, 1, 0]


def test_lists_masked_arrays_and_strided_views_are_read():
    assert read_series([[1, 2], [3, 4]], 0).channels == 2
    masked = np.ma.masked_array([1, 2, 3], mask=[False, True, False])
    assert read_series(masked, 1).missing.tolist() == [False, True, False]
    assert read_series(np.arange(10)[::-3], 0).values[:, 0].tolist() == [9, 6, 3, 0]


def test_the_series_of_the_caller_is_not_changed():
    x = np.array([1.0, np.nan, np.inf, 4.0])
    before = x.copy()
    read_series(x, 3)
    assert np.array_equal(x, before, equal_nan=True)


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((2, 3, 4)),
        np.zeros((5, 0)),
        5.0,
        ["a", "b"],
        [[1, 2], [3]],
        np.array([1j, 2]),
        np.array(["2026-01-01"], dtype="datetime64[D]"),
        [object()],
        None,
    ],
    ids=["3d", "no channel", "a number", "text", "ragged", "complex", "dates", "objects", "nothing"],
)
def test_what_is_not_a_series_is_refused_by_name(bad):
    with pytest.raises(SeriesError, match=r"series (is|has)"):
        read_series(bad, 3)

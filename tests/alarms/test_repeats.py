"""A row that repeats the one before, and how long a sensor repeats itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paano.alarms.repeats import longest_repeats, repeating, runs

NONE = float("nan")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3], 0),
        ([1, 1, 1, 2], 2),
        ([1, 1, 2, 2, 2, 2], 3),  # two values that follow each other are two stretches
        ([1, 1, NONE, 1, 1], 4),  # a hole that is bridged is bridged here too
        ([1, 1, NONE, NONE, 1, 1], 1),
        ([1, 1, NONE, 2, 2], 1),
        ([NONE, NONE, NONE], 0),
        ([], 0),
    ],
)
def test_the_longest_repeat_of_a_series(values, expected):
    assert longest_repeats(np.array(values, float).reshape(-1, 1), max_gap=1) == [expected]


def test_a_row_repeats_only_if_every_channel_does():
    values = np.array([[1, 5], [1, 5], [1, 6], [1, 6]], float)
    assert repeating(values, 0).tolist() == [False, True, False, True]


def test_the_longest_repeat_is_counted_for_each_channel_alone():
    values = np.array([[1, 5], [1, 6], [1, 6], [1, NONE], [1, NONE], [2, 6]], float)
    assert longest_repeats(values, 0) == [4, 1]


@given(st.lists(st.booleans(), max_size=30))
def test_runs_are_the_stretches_of_true_rows(flags):
    again = np.zeros(len(flags), bool)
    for first, end in runs(np.array(flags, bool)):
        assert first < end and (end == len(flags) or not flags[end]) and (first == 0 or not flags[first - 1])
        again[first:end] = True
    assert again.tolist() == flags

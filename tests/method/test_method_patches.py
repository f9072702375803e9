"""Instance norm: exact at any height, blind to where the series was cut, defined where it is flat."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paano.config import PaAnoConfig
from paano.patches import take_patches, typical_deviation
from tests import oracle


def patches(x, starts, w, unit=None):
    values = torch.from_numpy(np.asarray(x, dtype=np.float64).reshape(len(x), -1))
    return take_patches(values, torch.tensor(starts), w, unit).numpy()


@given(
    seed=st.integers(0, 99),
    offset=st.sampled_from([0, 1, -1e3, 1e6, 1e9, -1e12]),
    w=st.integers(2, 20),
    C=st.integers(1, 3),
)
@settings(max_examples=60, deadline=None)
def test_patches_equal_exact_fractions_at_any_offset(seed, offset, w, C):
    x = np.random.default_rng(seed).normal(size=(w + 5, C)) + offset
    got = patches(x, [0, 3, 5], w)
    for p, start in enumerate([0, 3, 5]):
        for c in range(C):
            want = oracle.slow_standardised(x[start : start + w, c])
            assert got[p, :, c] == pytest.approx(want, abs=1e-6)


def test_a_small_signal_on_a_billion_is_kept():
    signal = np.sin(np.arange(200) / 5) * 1e-2
    low, high = patches(signal, [0, 50], 96), patches(signal + 1e9, [0, 50], 96)
    rounding = 2e-7 / 1e-2  # float64 holds 1e9 to 1.2e-7
    assert np.abs(low - high).max() < 2 * rounding


def test_a_flat_channel_becomes_zeros_and_leaves_the_others_alone():
    x = np.stack([np.full(50, 1e9), np.sin(np.arange(50.0))], axis=1)
    x[::2, 0] += 1.2e-7  # the last bit of float64 at this height: not a signal
    got = patches(x, [0], 32)
    assert (got[:, :, 0] == 0).all()
    assert got[:, :, 1].std() == pytest.approx(1, abs=1e-3)


def test_where_the_series_was_cut_changes_no_bit():
    x = np.random.default_rng(0).normal(size=(300, 2)).cumsum(axis=0) + 1e6
    assert np.array_equal(patches(x, [100, 150], 96), patches(x[100:], [0, 50], 96))


def test_a_thousand_channels_are_gathered_in_slices(monkeypatch):
    x = np.random.default_rng(0).normal(size=(40, 1000))
    whole = patches(x, list(range(20)), 16)
    monkeypatch.setattr("paano.patches.GATHER", 3 * 16 * 1000)
    assert np.array_equal(whole, patches(x, list(range(20)), 16))


def test_with_the_typical_unit_volts_and_millivolts_are_the_same():
    x = np.random.default_rng(0).normal(size=(400, 2)) * [1.0, 50.0]
    config = PaAnoConfig(patch=32, unit="typical")
    starts = np.arange(369)
    results = []
    for factor in (1.0, 1e-6, 1e6):
        values = torch.from_numpy(x * factor)
        unit = typical_deviation(values, starts, config)
        results.append(take_patches(values, torch.arange(20), 32, unit))
    assert torch.allclose(results[0], results[1], atol=1e-6)
    assert torch.allclose(results[0], results[2], atol=1e-6)


def test_with_the_raw_unit_eps_is_the_published_one():
    x = np.random.default_rng(0).normal(size=40) * 1e-3
    assert patches(x, [0], 32)[0, :, 0] == pytest.approx(oracle.slow_standardised(x[:32], eps=1e-5), abs=1e-6)


def test_a_channel_that_never_moves_has_a_unit_of_one():
    values = torch.zeros(100, 1, dtype=torch.float64)
    assert typical_deviation(values, np.arange(60), PaAnoConfig(patch=32, unit="typical")).tolist() == [1.0]


def test_where_most_patches_hold_noise_only_the_noise_is_not_the_unit():
    rng = np.random.default_rng(0)
    values = 1e-6 * rng.normal(size=(2_000, 1))  # a valve at rest …
    values[500:600] += np.sin(np.arange(100) / 5)[:, None]  # … that moves now and then
    config = PaAnoConfig(patch=32, unit="typical")
    starts = np.arange(2_000 - 32)
    unit = typical_deviation(torch.from_numpy(values), starts, config)
    assert 0.005 * values.std() < float(unit) < 0.02 * values.std()
    at_rest = take_patches(torch.from_numpy(values), torch.arange(100), 32, unit)
    assert at_rest.std() < 0.5  # near 1 it would look like structure

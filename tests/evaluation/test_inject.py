"""Faults: each does what its name says, where its labels say, and a better detector gets a better mark."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paano import PaAno, PaAnoConfig
from paano.errors import ConfigError, SeriesTooShort
from paano.evaluation.inject import KINDS, fault_test, inject, kinds_for, put_fault
from paano.model import remembering

ROWS = 3_000


def normal(channels: int = 1, seed: int = 0, rows: int = ROWS) -> np.ndarray:
    """A rhythm of 40 rows with a little noise; every channel follows the first with a lag."""
    rng = np.random.default_rng(seed)
    turn = 2 * np.pi * np.arange(rows) / 40
    waves = [(1 + c) * np.sin(turn + c) + 0.3 * np.sin(3 * turn) for c in range(channels)]
    return np.stack(waves, axis=1) + 0.05 * rng.standard_normal((rows, channels))


def put(kind: str, start: int = 1_000, length: int = 80, channels=None, **kwargs):
    x = normal(3)
    before = x.copy()
    put_fault(x, kind, start, length, np.random.default_rng(1), channels=channels, **kwargs)
    return before, x, slice(start, start + length)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_change_where_the_label_says_and_nowhere_else(kind):
    X = normal(3)
    kept = X.copy()
    faulty, labels = inject(X, kind, np.random.default_rng(2))
    changed = (faulty != X).any(axis=1)
    assert np.array_equal(X, kept)
    assert not changed[labels == 0].any()
    assert changed[labels == 1].mean() > 0.9
    assert np.isfinite(faulty).all()


@pytest.mark.parametrize("kind", KINDS)
def test_equal_seeds_give_equal_faults_and_others_do_not(kind):
    X = normal(2)
    first, second, other = (inject(X, kind, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("kind", KINDS)
def test_faults_are_a_patch_apart_and_the_first_patch_stays_normal(kind):
    for seed in range(10):
        labels = inject(normal(2), kind, np.random.default_rng(seed), patch=64)[1]
        starts = np.flatnonzero(np.diff(labels, prepend=0) == 1)
        ends = np.flatnonzero(np.diff(labels, append=0) == -1)
        assert starts[0] >= 64
        assert len(starts) == 8
        assert (starts[1:] - ends[:-1] > 64).all()


def test_one_channel_in_five_is_hurt_and_the_others_go_on():
    for kind in ("spike", "drop", "shift", "drift", "flat", "noise", "broken_relation"):
        X = normal(10)
        faulty, _ = inject(X, kind, np.random.default_rng(3), faults=1)
        assert (faulty != X).any(axis=0).sum() == 2


def test_a_shift_moves_the_level_by_two_to_three_deviations():
    before, after, rows = put("shift", channels=[1])
    moved = after[rows, 1] - before[rows, 1]
    assert np.allclose(moved, moved[0])
    assert 1.9 < abs(moved[0]) / before[:, 1].std() < 3.1


def test_a_drift_starts_from_nothing_and_only_grows():
    before, after, rows = put("drift", channels=[0])
    moved = np.abs(after[rows, 0] - before[rows, 0])
    assert moved[0] == 0
    assert (np.diff(moved) > 0).all()


def test_a_flat_line_repeats_the_last_good_value():
    before, after, rows = put("flat", channels=[2])
    assert (after[rows, 2] == before[rows.start, 2]).all()


def test_a_drop_goes_below_everything_seen_around_it():
    before, after, rows = put("drop", length=20, channels=[0])
    assert after[rows, 0].max() < before[:, 0].min()


def test_noise_adds_deviation_but_hardly_a_level():
    before, after, rows = put("noise", length=500, channels=[0])
    added = after[rows, 0] - before[rows, 0]
    assert 0.7 < added.std() / before[:, 0].std() < 1.6
    assert abs(added.mean()) < 0.3 * added.std()


def test_a_warp_keeps_its_ends_and_its_values():
    before, after, rows = put("warp", length=160)
    assert np.allclose(after[rows.start], before[rows.start])
    assert after[rows].max() <= before[rows].max()
    assert after[rows].min() >= before[rows].min()
    assert np.corrcoef(after[rows, 0], before[rows, 0])[0, 1] < 0.9


def test_a_lost_period_is_a_line_with_the_noise_of_the_sensor_on_it():
    before, after, rows = put("lost_period", length=40)
    rest = after[rows, 0] - np.linspace(before[rows.start, 0], before[rows.stop - 1, 0], 40)
    assert rest.std() < 0.3 * before[:, 0].std()
    assert rest.std() > 0


def test_a_broken_relation_keeps_the_channel_normal_but_not_its_company():
    before, after, rows = put("broken_relation", length=160, channels=[1])
    assert after[rows, 1].std() == pytest.approx(before[:, 1].std(), rel=0.2)
    assert abs(np.corrcoef(after[rows, 1], before[rows, 1])[0, 1]) < 0.5
    assert np.array_equal(after[:, [0, 2]], before[:, [0, 2]])


def test_a_fault_is_as_large_on_a_sensor_of_any_unit():
    X = normal(1)
    for kind in kinds_for(1):
        small, _ = inject(X, kind, np.random.default_rng(4))
        large, _ = inject(1e6 + 1e3 * X, kind, np.random.default_rng(4))
        assert np.allclose((large - 1e6) / 1e3, small, atol=1e-6)


def test_a_flat_sensor_can_still_be_hurt():
    X = np.full(ROWS, 7.0)
    for kind in ("spike", "drop", "shift", "drift", "noise"):
        faulty, labels = inject(X, kind, np.random.default_rng(5))
        assert faulty.shape == X.shape
        assert (faulty[labels == 1] != 7.0).mean() > 0.9


@pytest.mark.parametrize("kind", KINDS)
def test_missing_rows_stay_missing_and_spread_no_further(kind):
    X = normal(2)
    X[np.random.default_rng(6).random(X.shape) < 0.02] = np.nan
    faulty, labels = inject(X, kind, np.random.default_rng(7))
    assert np.array_equal(np.isnan(faulty), np.isnan(X))
    assert labels.any()


def test_what_cannot_be_done_is_refused():
    with pytest.raises(ConfigError, match="spike"):
        inject(normal(1), "spyke", np.random.default_rng(0))
    with pytest.raises(ConfigError, match="two channels"):
        inject(normal(1), "broken_relation", np.random.default_rng(0))
    with pytest.raises(SeriesTooShort, match="480"):
        inject(normal(1, rows=300), "spike", np.random.default_rng(0))
    assert "broken_relation" not in kinds_for(1)


# -- the test of a detector --


def test_a_perfect_detector_gets_nearly_one_and_a_blind_one_much_less():
    X = normal(2)

    def perfect(faulty):
        return (faulty != X).any(axis=1).astype(float)

    best = fault_test(perfect, X, seed=1)
    blind = fault_test(lambda x: np.random.default_rng(0).random(len(x)), X, seed=1)
    assert set(best) == {*KINDS, "mean"}
    assert best["mean"] > 0.9
    assert blind["mean"] < 0.4
    assert best["mean"] == pytest.approx(np.mean([best[kind] for kind in KINDS]))


def test_both_contestants_see_the_same_faults():
    seen = []

    def spy(x):
        seen.append(x.copy())
        return np.zeros(len(x))

    kinds = ("spike", "drift")
    fault_test(spy, normal(1), seed=3, kinds=kinds)
    fault_test(spy, normal(1), seed=3, kinds=kinds[::-1])  # one kind does not disturb another
    assert np.array_equal(seen[0], seen[3])
    assert np.array_equal(seen[1], seen[2])


def test_larger_faults_are_never_harder_for_a_detector_of_values():
    X = normal(1)

    def far(x):
        return np.abs(x[:, 0] if x.ndim == 2 else x)

    small, large = (fault_test(far, X, seed=4, kinds=("spike", "shift"), size=size) for size in (0.3, 2.0))
    assert small["mean"] < large["mean"]


@pytest.fixture(scope="module")
def model():
    return PaAno(PaAnoConfig.preset("untrained", patch=40), device="cpu").fit(normal(1, seed=8, rows=1_200))


def test_a_real_model_finds_most_faults_and_is_left_as_it_was(model):
    X = normal(1, seed=9, rows=1_000)
    before = model.score(X)
    found = fault_test(model, X, seed=5, patch=40, faults=4)
    assert found == fault_test(model, X, seed=5, patch=40, faults=4)
    assert found["mean"] > 0.6
    assert not any(math.isnan(value) for value in found.values())
    assert np.array_equal(model.score(X), before)


def test_what_is_remembered_of_a_series_changes_no_score_of_another(model):
    X = normal(1, seed=9, rows=600)
    faulty, _ = inject(X, "shift", np.random.default_rng(1), patch=40)
    lasting = remembering(model)
    assert remembering(lasting) is lasting
    for series in (X, faulty, X[100:], X):
        np.testing.assert_allclose(lasting.score(series), model.score(series), atol=1e-5)
    assert np.isnan(lasting.score(X[:20])).all()  # shorter than a patch


def test_a_patch_is_encoded_once(model):
    X = normal(1, seed=9, rows=600)
    lasting = remembering(model)
    lasting.score(X)
    known = len(lasting._remembered.known)
    fault_test(lasting, X, seed=5, patch=40, kinds=["spike"], faults=1)  # three rows of 600
    assert known < len(lasting._remembered.known) <= known + (3 + 39) // 4 + 1

"""The bank, the nearest of it, and the way from patches to points."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paano.scoring.bank import Bank, assign, bank_size, build_bank, kmeans, nearest_members, push
from paano.scoring.shape import nearest_distance, spread, strided
from tests import oracle


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def cloud(n, d=4, seed=0):
    return torch.rand(n, d, generator=seeded(seed))


# -- bank ----------------------------------------------------------------------------------------------------


def test_each_cluster_is_stood_for_by_its_real_member_nearest_the_centre():
    x = cloud(200)
    centres = kmeans(x, 12, seeded())
    distance = torch.cdist(x, centres)
    nearest, squared = assign(x, centres)
    assert nearest.tolist() == distance.argmin(dim=1).tolist()
    assert torch.allclose(squared.sqrt(), distance.min(dim=1).values, atol=1e-4)
    want = {
        min((i for i in range(200) if distance[i].argmin() == c), key=lambda i, c=c: distance[i, c])
        for c in range(12)
    }
    assert nearest_members(x, centres).tolist() == sorted(want)


def test_the_centres_are_means_of_their_clusters_when_nothing_moves_any_more(monkeypatch):
    monkeypatch.setattr("paano.scoring.bank.ROUNDS", 1000)
    monkeypatch.setattr("paano.scoring.bank.SETTLED", 0.0)
    x = cloud(120)
    centres = kmeans(x, 8, seeded())
    assigned, _ = assign(x, centres)
    for c in range(8):
        assert torch.allclose(centres[c], x[assigned == c].mean(dim=0), atol=1e-5)


def test_blocks_of_rows_change_nothing(monkeypatch):
    x = cloud(300)
    whole, starts = build_bank(x, np.arange(300), 30, seeded()), np.arange(300)
    scores = nearest_distance(x, whole, 3, starts=starts, exclude=5)
    monkeypatch.setattr("paano.scoring.bank.BLOCK", 30 * 7)
    monkeypatch.setattr("paano.scoring.shape.BLOCK", 30 * 7)
    again = build_bank(x, starts, 30, seeded())
    assert np.array_equal(whole.position, again.position)
    assert torch.allclose(scores, nearest_distance(x, again, 3, starts=starts, exclude=5), atol=1e-6)


def test_the_bank_covers_the_embeddings_better_than_as_many_drawn_at_random():
    x = torch.cat([cloud(900), cloud(100) * 0.1 + 3])  # a crowd and a small, distant group
    bank = build_bank(x, np.arange(1000), 30, seeded())
    drawn = x[torch.randperm(1000, generator=seeded(5))[:30]]
    far = [torch.cdist(x, chosen).min(dim=1).values.square().mean() for chosen in (x[bank.position], drawn)]
    assert far[0] < 0.8 * far[1]
    assert (bank.position >= 900).any()


def test_centres_placed_by_a_sample_cover_as_well_as_those_placed_by_all(monkeypatch):
    x = cloud(4000)
    spreads = []
    for sample in (32, 1000):
        monkeypatch.setattr("paano.scoring.bank.SAMPLE", sample)
        spreads.append(assign(x, kmeans(x, 40, seeded()))[1].sum().item())
    assert spreads[0] < 1.15 * spreads[1]


def test_no_block_is_larger_than_its_limit(monkeypatch):
    """Never rows × bank: the widest product that K-means and scoring make stays below BLOCK."""
    largest = 0
    for name in ("addmm", "matmul"):
        real = getattr(torch, name)

        def spy(*args, real=real, **kwargs):
            nonlocal largest
            out = real(*args, **kwargs)
            largest = max(largest, out.numel())
            return out

        monkeypatch.setattr(torch, name, spy)
    monkeypatch.setattr("paano.scoring.bank.BLOCK", 2_000)
    x = cloud(5_000)
    build_bank(x, np.arange(5_000), 100, seeded())
    assert 0 < largest <= 2_000


def test_equal_patches_are_kept_once_per_cluster_and_the_bank_is_sorted():
    x = torch.ones(50, 3)
    bank = build_bank(x, np.arange(50) * 2, 10, seeded())
    assert 1 <= len(bank) <= 10
    assert (np.diff(bank.position) > 0).all()


def test_a_bank_as_large_as_the_patches_holds_them_all():
    bank = build_bank(cloud(7), np.arange(7), 10, seeded())
    assert bank.position.tolist() == list(range(7))
    assert torch.allclose(bank.vectors.norm(dim=1), torch.ones(7))


@pytest.mark.parametrize(
    ("patches", "share", "cap", "size"),
    [(1, 0.1, 5000, 1), (1000, 0.1, 5000, 100), (100_000, 0.1, 5000, 5000), (5, 1.0, 2, 2), (11, 0.1, 99, 2)],
)
def test_the_size_is_a_share_of_the_patches_up_to_a_cap(patches, share, cap, size):
    assert bank_size(patches, share, cap) == size


def test_new_vectors_go_in_and_as_many_of_the_oldest_leave():
    bank = Bank(torch.eye(4), np.array([3, 5, 8, 9]))
    new = push(bank, torch.tensor([[0.6, 0.8, 0, 0]]))
    assert new.position.tolist() == [5, 8, 9, -1]
    assert torch.equal(new.vectors[-1], torch.tensor([0.6, 0.8, 0, 0]))
    assert len(push(bank, torch.eye(4).repeat(3, 1))) == 4


# -- nearest -------------------------------------------------------------------------------------------------


@given(
    n=st.integers(1, 20),
    size=st.integers(1, 15),
    k=st.integers(1, 6),
    exclude=st.one_of(st.none(), st.integers(0, 12)),
    seed=st.integers(0, 1000),
    zeros=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_patch_scores_equal_the_slow_twin(n, size, k, exclude, seed, zeros):
    x, vectors = cloud(n, seed=seed), cloud(size, seed=seed + 1)
    if zeros:
        x[0], vectors[-1] = 0, 0
    starts, position = np.arange(n) * 2, np.arange(size) * 3
    bank = Bank(torch.nn.functional.normalize(vectors, dim=1), position)
    got = nearest_distance(x, bank, k, starts=starts, exclude=exclude)
    want = [oracle.slow_nearest(x[i], vectors, k, starts[i], position, exclude) for i in range(n)]
    assert got.numpy() == pytest.approx(want, abs=1e-6, nan_ok=True)


def test_a_tiny_distance_keeps_its_digits():
    angle = 1e-4
    bank = Bank(torch.tensor([[1.0, 0.0]]), np.array([0]))
    got = nearest_distance(
        torch.tensor([[np.cos(angle), np.sin(angle)]], dtype=torch.float32), bank, 1
    ).item()
    assert got == pytest.approx(1 - np.cos(angle), rel=1e-3)  # 5e-9, far below the rounding of 1 in float32


def test_a_patch_never_matches_itself_or_its_neighbours():
    x = cloud(40)
    bank = Bank(torch.nn.functional.normalize(x, dim=1), np.arange(40))
    assert nearest_distance(x, bank, 1).max() < 1e-6
    assert nearest_distance(x, bank, 1, starts=np.arange(40), exclude=5).min() > 1e-9
    assert torch.isnan(nearest_distance(x, bank, 1, starts=np.arange(40), exclude=40)).all()


# -- points --------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 12).flatmap(
        lambda w: st.tuples(
            st.just(w),
            st.integers(w, 40),
            st.sets(st.integers(0, 39), max_size=20),
            st.integers(0, 1000),
        )
    )
)
@settings(max_examples=100, deadline=None)
def test_point_scores_are_means_over_the_patches_that_contain_the_point(case):
    w, rows, starts, seed = case
    starts = np.array(sorted(s for s in starts if s + w <= rows), dtype=np.int64)
    rng = np.random.default_rng(seed)
    scores = rng.random(len(starts))
    scores[rng.random(len(starts)) < 0.2] = np.nan
    points, coverage = spread(scores, starts, rows, w)
    want = oracle.slow_points(scores, starts, rows, w)
    assert points == pytest.approx([p for p, _ in want], abs=1e-9, nan_ok=True)
    assert coverage.tolist() == [c for _, c in want]


@given(starts=st.sets(st.integers(0, 80), max_size=60), stride=st.integers(1, 9), origin=st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_a_stride_leaves_no_point_out_that_a_patch_could_cover(starts, stride, origin):
    w = 10
    starts = np.array(sorted(starts), dtype=np.int64)
    chosen = strided(starts, stride, origin)
    assert set(chosen) <= set(starts)
    assert len(chosen) <= len(starts)
    covered = spread(np.zeros(len(starts)), starts, 100, w)[1] > 0
    assert ((spread(np.zeros(len(chosen)), chosen, 100, w)[1] > 0) == covered).all()


def test_a_stride_counts_from_the_start_of_the_whole_series():
    whole, window = strided(np.arange(100), 7), strided(np.arange(60), 7, origin=40)
    inner = slice(1, -1)  # the ends are always kept
    assert set(window[inner] + 40) <= set(whole) | {99 - 0}
    assert [s for s in whole if 40 < s < 99] == [s + 40 for s in window[inner]]

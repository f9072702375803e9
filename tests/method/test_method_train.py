"""The loop: what it draws, what it encodes, and that it learns."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paano.config import PaAnoConfig
from paano.errors import SeriesTooShort
from paano.model import PaAno
from paano.network.encoder import Encoder
from paano.network.train import AdamW, draw_minibatches, learning_rate, pick


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@given(
    runs=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 20)), min_size=1, max_size=4),
    M=st.integers(2, 40),
    shift=st.integers(1, 3),
    w=st.integers(4, 12),
)
@settings(max_examples=80, deadline=None)
def test_every_patch_of_a_minibatch_exists_and_is_where_it_should_be(runs, M, shift, w):
    starts, row = [], 0
    for length, gap in runs:
        starts += range(row, row + length)
        row += length + gap
    if len(starts) < 2:
        return
    config = PaAnoConfig(patch=w, minibatch=M, shift=shift)
    exists = set(starts)
    seen = []
    for batch in itertools.islice(draw_minibatches(np.array(starts), config, seeded()), 5):
        anchors = batch.anchor.tolist()
        assert len(anchors) == len(set(anchors)) == min(M, len(starts))  # never a small last one, no repeats
        assert set(anchors) <= exists
        for a, p, has in zip(anchors, batch.positive.tolist(), batch.has_positive.tolist(), strict=True):
            neighbours = {a + s for s in range(-shift, shift + 1) if s} & exists
            assert (p in neighbours) if has else (not neighbours and p == a)
        for a, b, has in zip(anchors, batch.before.tolist(), batch.has_before.tolist(), strict=True):
            assert b == (a - w if a - w in exists else a)
            assert has == (a - w in exists)
        seen.append(anchors)
    per_epoch = len(starts) // min(M, len(starts))
    first_epoch = [a for anchors in seen[:per_epoch] for a in anchors]
    assert len(first_epoch) == len(set(first_epoch))  # without replacement until used up


def test_the_positive_takes_every_shift_in_time():
    config = PaAnoConfig(patch=8, minibatch=400, shift=2)
    batches = itertools.islice(draw_minibatches(np.arange(400), config, seeded()), 3)
    shifts = {int(s) for batch in batches for s in batch.positive - batch.anchor}
    assert shifts == {-2, -1, 1, 2}


def test_the_triplet_loss_is_positive_at_the_start_and_falls():
    wave = np.sin(np.arange(800) / 7) + 0.1 * np.random.default_rng(0).normal(size=800)
    config = PaAnoConfig(patch=64, width=0.125, minibatch=64, iterations=25, pretext_weight=0.0)
    losses = [step["contrast"] for step in PaAno(config, "cpu").fit(wave).losses]
    assert losses[0] > 0.01
    assert all(np.isfinite(losses))
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_the_pretext_loss_falls_when_it_is_all_there_is(wave):
    config = PaAnoConfig(
        patch=16,
        width=0.125,
        minibatch=64,
        iterations=40,
        learning_rate=1e-3,
        contrast="none",
        pretext_ratio=1.0,
        pretext_schedule="constant",
    )
    losses = [step["pretext"] for step in PaAno(config, "cpu").fit(wave).losses]
    assert losses[0] == pytest.approx(2 * np.log(2), abs=0.3)  # a coin for each of the two terms
    assert np.mean(losses[-5:]) < losses[0]


def test_predecessors_are_encoded_only_while_they_are_needed(wave, monkeypatch):
    sizes = []
    forward = Encoder.forward
    monkeypatch.setattr(Encoder, "forward", lambda self, x: sizes.append(len(x)) or forward(self, x))
    PaAno(PaAnoConfig(patch=16, width=0.0625, minibatch=32, iterations=10), "cpu").fit(wave)
    assert sizes == [3 * 32] * 2 + [2 * 32] * 8  # one pass a step: batch norm sees all of them together


def test_no_missing_value_reaches_the_encoder(wave, small, monkeypatch):
    wave[[50, 51, 200]] = np.nan
    wave[300:330] = np.nan
    seen = []
    forward = Encoder.forward
    monkeypatch.setattr(Encoder, "forward", lambda self, x: seen.append(x) or forward(self, x))
    model = PaAno(small, "cpu").fit(wave)
    assert all(torch.isfinite(x).all() for x in seen)
    assert all(torch.isfinite(v).all() for v in model._weights.values())


@pytest.mark.parametrize(
    "setting",
    [
        {"negative": "median"},
        {"negative": "closest"},
        {"negative": "random"},
        {"contrast": "infonce"},
        {"contrast": "none"},
        {"pretext_weight": 0.0},
        {"pretext_ratio": 1.0, "pretext_schedule": "constant"},
        {"depth": 3},
        {"depth": 5},
        {"width": 0.125},
        {"minibatch": 65_536},
        {"shift": 15},
        {"bank_share": 0.01},
        {"neighbours": 10},
        {"bank_share": 1.0},
        {"unit": "typical"},
        {"precision": "mixed"},
        {"stride": 7},
        {"level": "tail"},
    ],
    ids=str,
)
def test_every_sensitivity_of_the_paper_is_a_setting_that_runs(setting, small, wave):
    model = PaAno(small.replace(**setting), "cpu").fit(wave)
    assert np.isfinite(model.score(wave)).all()
    assert all(np.isfinite(step["loss"]) for step in model.losses)


def test_training_needs_two_patches_and_says_so(small):
    with pytest.raises(SeriesTooShort, match="at least 2"):
        PaAno(small, "cpu").fit(np.arange(16.0))
    PaAno(small, "cpu").fit(np.arange(17.0))


def test_patches_with_no_neighbour_have_no_positive_and_still_train(small):
    x = np.random.default_rng(0).normal(size=200)
    x[16::17] = np.nan  # runs of exactly one patch
    model = PaAno(small.replace(max_gap=0), "cpu").fit(x)
    assert all(step["contrast"] == 0 for step in model.losses)
    assert np.isfinite(model.score(x)[:16]).all()


def test_the_optimiser_takes_the_steps_of_torchs_own():
    start = [
        torch.randn(5, 3, generator=seeded()),
        torch.randn(4, generator=seeded(1)),
    ]  # the second is unused
    ours, theirs = ([t.clone().requires_grad_() for t in start] for _ in range(2))
    own, reference = AdamW(ours, 0.1), torch.optim.AdamW(theirs, lr=0.01, weight_decay=0.1)
    for step in range(5):
        grads = [torch.randn(5, 3, generator=seeded(10 + step)), None]
        for p, g in zip(theirs, grads, strict=True):
            p.grad = g
        own.step(grads, 0.01)
        reference.step()
    assert torch.allclose(ours[0], theirs[0], atol=1e-6)
    assert torch.equal(ours[1], start[1])


def test_the_learning_rate_falls_to_a_tenth_along_a_cosine():
    config = PaAnoConfig(learning_rate=1e-3, iterations=101)
    assert learning_rate(config, 0) == pytest.approx(1e-3)
    assert learning_rate(config, 50) == pytest.approx(0.55e-3)
    assert learning_rate(config, 100) == pytest.approx(1e-4)


def test_pick_gathers_along_the_patches():
    v = torch.arange(12.0).view(2, 3, 2)
    assert pick(v, torch.tensor([[2, 0], [1, 1]])).tolist() == [[[4, 5], [0, 1]], [[8, 9], [8, 9]]]
    assert pick(v, torch.zeros(2, 3, 4, dtype=torch.int64)).shape == (2, 3, 4, 2)

"""Both losses by hand, and every choice of a negative."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paano.network.losses import (
    choose_negatives,
    draw_others,
    infonce_loss,
    pretext_loss,
    pretext_weight,
    triplet_loss,
)
from tests import oracle

ALL = torch.ones(1, 2)


def test_triplet_loss_by_hand():
    # anchor (1,0): positive (3,4) has cosine 0.6, negative (4,3) has 0.8  →  0.4 − 0.2 + 0.1 = 0.3
    # anchor (0,1): positive (0,2) has cosine 1, negative (1,0) has 0      →  0 − 1 + 0.1 < 0, so 0
    z = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    positive = torch.tensor([[[3.0, 4.0], [0.0, 2.0]]])
    negative = torch.tensor([[[4.0, 3.0], [1.0, 0.0]]])
    assert triplet_loss(z, positive, negative, 0.1, ALL).item() == pytest.approx(0.15, abs=1e-7)
    first_only = torch.tensor([[1.0, 0.0]])
    assert triplet_loss(z, positive, negative, 0.1, first_only).item() == pytest.approx(0.3, abs=1e-7)


def test_pretext_loss_by_hand():
    # logit ln 3 is probability 3/4, logit 0 is 1/2, logit −ln 3 is 1/4
    # anchor 1: −ln 3/4 − (ln 1/2 + ln 3/4) / 2;  anchor 2 has no predecessor: − (ln 1/2 + ln 1/2) / 2
    ln3 = math.log(3)
    before = torch.tensor([[ln3, 5.0]])
    random = torch.tensor([[[0.0, -ln3], [0.0, 0.0]]])
    want = (-math.log(0.75) - (math.log(0.5) + math.log(0.75)) / 2 - math.log(0.5)) / 2
    loss = pretext_loss(before, torch.tensor([[1.0, 0.0]]), random)
    assert loss.item() == pytest.approx(want, abs=1e-6)
    assert want == pytest.approx(0.735622, abs=1e-6)


def test_infonce_loss_by_hand():
    # temperature 1; anchor (1,0): positive cosine 0.6, the other anchor 0 → ln(e^0.6 + e^0) − 0.6
    #                anchor (0,1): positive cosine 0.8, the other 0        → ln(e^0.8 + e^0) − 0.8
    z = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    positive = torch.tensor([[[3.0, 4.0], [3.0, 4.0]]])
    want = (math.log(1 + math.exp(-0.6)) + math.log(1 + math.exp(-0.8))) / 2
    assert infonce_loss(z, positive, 1.0, ALL).item() == pytest.approx(want, abs=1e-6)


vectors = st.integers(2, 9).flatmap(
    lambda m: st.tuples(st.just(m), st.integers(0, 10_000), st.lists(st.booleans(), min_size=m, max_size=m))
)


@given(vectors)
@settings(max_examples=40, deadline=None)
def test_losses_equal_their_slow_twins(case):
    m, seed, counted = case
    g = torch.Generator().manual_seed(seed)
    z, positive, negative = torch.randn(3, 1, m, 4, generator=g).unbind(0)
    counts = torch.tensor([counted], dtype=torch.float32)
    got = triplet_loss(z, positive, negative, 0.5, counts).item()
    assert got == pytest.approx(oracle.slow_triplet(z[0], positive[0], negative[0], 0.5, counted), abs=1e-5)
    got = infonce_loss(z, positive, 0.5, counts).item()
    assert got == pytest.approx(oracle.slow_infonce(z[0], positive[0], 0.5, counted), abs=1e-4)
    logits, others = torch.randn(1, m, generator=g), torch.randn(1, m, 3, generator=g)
    got = pretext_loss(logits, counts, others).item()
    assert got == pytest.approx(oracle.slow_pretext(logits[0], counted, others[0].tolist()), abs=1e-5)


@pytest.mark.parametrize("how", ["farthest", "median", "closest"])
@pytest.mark.parametrize("count", [2, 3, 8, 9])
def test_the_negative_is_chosen_by_distance_in_the_embedding_space_and_is_never_the_anchor(how, count):
    h = torch.rand(2, count, 5, generator=torch.Generator().manual_seed(count))
    got = choose_negatives(h, how, [])
    assert got.tolist() == [[oracle.slow_negative(one, i, how) for i in range(count)] for one in h]


def test_random_negatives_are_others_and_all_of_them_in_time():
    generators = [torch.Generator().manual_seed(s) for s in (0, 1)]
    drawn = draw_others(4, 200, generators)
    for g in range(2):
        for anchor in range(4):
            assert set(drawn[g, anchor].tolist()) == set(range(4)) - {anchor}
    assert not torch.equal(drawn[0], drawn[1])


def test_no_gradient_flows_through_the_choice_of_the_negative():
    h = torch.rand(1, 5, 3, requires_grad=True)
    assert not choose_negatives(h, "farthest", []).requires_grad


def test_the_weight_of_the_pretext_loss_falls_to_zero_over_its_share_of_the_iterations():
    linear = [pretext_weight(step, 100, 1.0, 0.2, "linear") for step in range(100)]
    assert linear[0] == 1 and linear[10] == 0.5 and linear[19] == pytest.approx(0.05)
    assert linear[20:] == [0] * 80
    constant = [pretext_weight(step, 10, 0.7, 0.5, "constant") for step in range(10)]
    assert constant == [0.7] * 5 + [0] * 5

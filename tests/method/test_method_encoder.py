"""The networks: sizes as published, and three ways to compute the same function."""

import numpy as np
import pytest
import torch

from paano.config import PaAnoConfig
from paano.network.encoder import Encoder, Heads, embedding_size, layer_shapes, multiply_adds
from paano.network.unlocked import encode_patches, unlocked
from paano.patches import take_patches
from tests import oracle


def generator():
    return torch.Generator().manual_seed(7)


def make(channels=2, dtype=torch.float32, **settings):
    encoder = Encoder(PaAnoConfig(**settings), channels, generator()).to(dtype)
    with torch.no_grad():  # statistics and affine parts that are not 0 and 1
        for norm in encoder.norms:
            for tensor, low in ((norm.weight, 0.5), (norm.bias, -0.5), (norm.running_mean, -0.3)):
                tensor.uniform_(low, low + 1, generator=generator())
            norm.running_var.uniform_(0.5, 2, generator=generator())
    return encoder


@pytest.mark.parametrize(
    ("settings", "thousands"),
    [({}, 371), ({"width": 0.5}, 147), ({"width": 2.0}, 1250), ({"depth": 3}, 297), ({"depth": 5}, 1126)],
)
def test_parameters_are_as_many_as_the_paper_reports(settings, thousands):
    config = PaAnoConfig(**settings)
    modules = Encoder(config, 1, generator()), Heads(embedding_size(config), generator())
    assert sum(p.numel() for m in modules for p in m.parameters()) // 1000 == thousands


def test_one_patch_costs_the_multiply_adds_of_the_design():
    assert multiply_adds(PaAnoConfig(), 1) == 96 * (7 * 128 + 5 * 128 * 256 + 3 * 256 * 128 + 3 * 128 * 64)
    assert multiply_adds(PaAnoConfig(), 1) == pytest.approx(27.6e6, rel=0.001)


def test_width_multiplies_every_layer_and_the_embedding():
    assert [shape.outputs for shape in layer_shapes(PaAnoConfig(width=0.5), 3)] == [64, 128, 64, 32]
    assert embedding_size(PaAnoConfig(width=0.0625)) == 4


def test_the_encoder_is_the_slow_twin():
    encoder = make(width=0.0625, depth=4).eval()
    x = torch.randn(2, 9, 2, generator=generator())
    layers = [
        [t.detach().numpy() for t in (c.weight, n.weight, n.bias, n.running_mean, n.running_var)]
        for c, n in zip(encoder.convs, encoder.norms, strict=True)
    ]
    want = [oracle.slow_encode(patch, layers) for patch in x.numpy()]
    assert np.allclose(encoder(x).detach().numpy(), want, atol=1e-5)
    assert np.allclose(encoder.folded()(x).numpy(), want, atol=1e-5)


@pytest.mark.parametrize("depth", [3, 4, 5])
@pytest.mark.parametrize("channels", [1, 3, 20])
def test_training_in_blocks_is_the_plain_function_and_its_gradient(depth, channels, monkeypatch):
    monkeypatch.setattr("paano.network.blocked.BLOCK", 16)
    blocked, plain = (make(channels, torch.float64, width=0.125, depth=depth).train() for _ in range(2))
    x = torch.randn(45, 24, channels, generator=generator(), dtype=torch.float64)
    weights = torch.randn(45, 8, generator=generator(), dtype=torch.float64)
    h, want = blocked(x), plain.plain(x)
    assert torch.allclose(h, want, atol=1e-12)
    (h * weights).sum().backward()
    (want * weights).sum().backward()
    for p, q in zip(blocked.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(p.grad, q.grad, rtol=1e-8, atol=1e-10)
    for p, q in zip(blocked.norms, plain.norms, strict=True):
        assert torch.allclose(p.running_mean, q.running_mean)
        assert torch.allclose(p.running_var, q.running_var)


def test_a_very_wide_series_is_trained_in_smaller_blocks(monkeypatch):
    encoder, x = make(40, width=0.0625).train(), torch.randn(10, 12, 40, generator=generator())
    h = encoder(x)
    monkeypatch.setattr("paano.network.blocked.WIDEST", 1)
    assert torch.allclose(h, encoder(x), atol=1e-5)


def test_folding_batch_norm_changes_nothing():
    encoder = make(1, width=0.25).eval()
    x = torch.randn(50, 96, 1, generator=generator())
    assert torch.allclose(encoder(x), encoder.folded()(x), atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3, 20])
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_outside_pythons_lock_the_numbers_are_the_same_to_the_last_bit(channels, chunk):
    folded = make(channels, width=0.125).eval().folded()
    values = torch.randn(150, channels, generator=generator(), dtype=torch.float64).cumsum(0)
    values[40:80, 0] = 3.5  # flat
    starts, unit = torch.arange(0, 130, 3), torch.full((channels,), 0.7, dtype=torch.float64)
    weights, biases = [list(some) for some in zip(*folded.layers, strict=True)]
    arguments = (values, starts, 16, unit, weights, biases, chunk)
    with torch.inference_mode():
        for _ in range(3):  # the interpreter changes its plan after the first calls
            assert torch.equal(unlocked()(*arguments), encode_patches(*arguments))
        plain = folded(take_patches(values, starts, 16, unit))
    assert torch.allclose(folded.on_cpu(values, starts, 16, unit, chunk), plain, atol=1e-5)


def test_no_patches_have_no_embeddings():
    folded, none = make(2, width=0.125).eval().folded(), torch.empty(0, dtype=torch.int64)
    values, unit = torch.zeros(40, 2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    assert folded.on_cpu(values, none, 16, unit, 64).shape == (0, 8)


def test_weights_are_drawn_from_the_generator_and_from_nothing_else():
    before = torch.get_rng_state()
    one, two = (Encoder(PaAnoConfig(width=0.125), 1, generator()) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(p, q) for p, q in zip(one.parameters(), two.parameters(), strict=True))

"""Several sensors trained at once, as on a GPU: grouped by shape, halved if memory is short, none spoilt."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from paano import PaAno, PaAnoConfig
from paano.errors import PaanoError
from paano.network import together
from paano.network.together import fit_together, in_halves

CONFIG = PaAnoConfig.preset("light", patch=16, width=0.125, iterations=3, minibatch=8)


def series(seed: int, channels: int = 1, rows: int = 120) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(rows, channels))
    return np.sin(np.arange(rows) / 5)[:, None] + 0.1 * noise


def jobs(*channels: int) -> list:
    return [(CONFIG.replace(seed=n), series(n, c)) for n, c in enumerate(channels)]


def same(model: PaAno, config: PaAnoConfig, values: np.ndarray) -> bool:
    return np.allclose(
        model.score(values), PaAno(config, "cpu").fit(values).score(values), atol=1e-4, equal_nan=True
    )


def test_models_trained_together_are_those_trained_alone_whatever_their_shapes():
    work = jobs(1, 2, 1, 1)
    for model, (config, values) in zip(fit_together(work, "cpu", fused=True), work, strict=True):
        assert same(model, config, values)


def test_on_a_cpu_each_is_trained_by_itself_bit_for_bit():
    for model, (config, values) in zip(fit_together(jobs(1, 1), "cpu"), jobs(1, 1), strict=True):
        alone = PaAno(config, "cpu").fit(values)
        assert np.array_equal(model.score(values), alone.score(values), equal_nan=True)


def test_a_series_that_cannot_be_trained_on_does_not_spoil_its_group():
    work = jobs(1, 1, 1)
    work[1] = (work[1][0], np.full((120, 1), np.nan))
    first, bad, last = fit_together(work, "cpu", fused=True)
    assert isinstance(bad, PaanoError)
    assert same(first, *work[0]) and same(last, *work[2])


def test_a_group_that_does_not_fit_the_gpu_is_trained_in_halves(monkeypatch):
    tried, real = [], together._fit

    def small_gpu(some, device, fused):
        tried.append(len(some))
        if len(some) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(some, device, fused)

    monkeypatch.setattr(together, "_fit", small_gpu)
    work = jobs(1, 1, 1, 1, 1)
    found = fit_together(work, "cpu", fused=True)
    assert tried == [5, 2, 3, 1, 2]
    assert all(same(model, *job) for model, job in zip(found, work, strict=True))


def test_one_item_that_does_not_fit_alone_is_reported():
    def train(items):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        in_halves(train, [1, 2])

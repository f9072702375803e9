"""Small models on one torch thread, on every device this machine has."""

import numpy as np
import pytest
import torch

from paano.config import PaAnoConfig
from paano.device import compute_threads

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(autouse=True)
def one_thread():
    with compute_threads(1):
        yield


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_cuda)])
def device(request):
    return request.param


@pytest.fixture
def small():
    """Settings that fit in a fraction of a second."""
    return PaAnoConfig(patch=16, width=0.0625, minibatch=32, iterations=6, bank_cap=200)


@pytest.fixture
def wave():
    """400 rows of a noisy wave."""
    rng = np.random.default_rng(0)
    return np.sin(np.arange(400) / 4) + 0.1 * rng.normal(size=400)

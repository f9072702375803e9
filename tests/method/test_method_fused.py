"""Several models at once come out as if each had been trained alone."""

import numpy as np
import pytest

from paano import PaAno, PaAnoConfig
from paano.errors import SeriesError
from paano.network.fused import fit_many


@pytest.fixture
def several():
    rng = np.random.default_rng(0)
    return [np.sin(np.arange(n) / (3 + i)) + 0.1 * rng.normal(size=n) for i, n in enumerate((300, 340, 400))]


@pytest.mark.parametrize(
    "setting",
    [{}, {"contrast": "infonce"}, {"negative": "random", "pretext_ratio": 1.0}, {"depth": 3, "width": 0.125}],
    ids=str,
)
def test_fused_training_equals_one_by_one_within_a_ten_thousandth(setting, device, small, several):
    config = small.replace(iterations=12, **setting)
    together = fit_many(config, several, device, fused=True)
    for model, x in zip(together, several, strict=True):
        alone = PaAno(config, device).fit(x)
        for p, q in zip(model._weights.values(), alone._weights.values(), strict=True):
            assert (p - q).abs().max().item() < 1e-4
        starts = np.arange(0, len(x) - config.patch, 7)
        a, b = model.embed(x, starts), alone.embed(x, starts)
        assert np.abs(a - b).max() < 1e-4 * max(1.0, np.abs(b).max())
        for one, other in zip(model.losses, alone.losses, strict=True):
            assert one == pytest.approx(other, abs=1e-4)
        assert model.calibration is not None and set(model.seconds) == {"train", "bank", "calibrate"}


def test_models_with_their_own_seed_and_several_channels_train_together(small):
    x = np.random.default_rng(0).normal(size=(200, 3))
    configs = [small.replace(seed=s) for s in (1, 2)]
    one, two = fit_many(configs, [x, x], "cpu", fused=True)
    assert np.abs(one.score(x) - PaAno(configs[0], "cpu").fit(x).score(x)).max() < 1e-4
    assert not np.allclose(one.score(x), two.score(x))


def test_a_cpu_keeps_the_plain_path(small, several):
    models = fit_many(small, several, "cpu")
    alone = [PaAno(small, "cpu").fit(x) for x in several]
    assert all(np.array_equal(m.score(x), a.score(x)) for m, a, x in zip(models, alone, several, strict=True))
    assert fit_many(small, []) == []


def test_models_of_different_shapes_are_refused(small, several):
    with pytest.raises(SeriesError, match="equal channels"):
        fit_many(small, [several[0], np.zeros((300, 2))], "cpu", fused=True)
    with pytest.raises(SeriesError, match="seed only"):
        fit_many([small, PaAnoConfig()], several[:2], "cpu")

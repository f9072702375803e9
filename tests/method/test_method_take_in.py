"""What a person calls normal is quiet afterwards, and nothing else becomes so."""

from __future__ import annotations

import numpy as np
import pytest

from paano import PaAno, PaAnoConfig


@pytest.fixture(scope="module", params=["none", "both"])
def case(request):
    rng = np.random.default_rng(3)
    series = np.sin(np.arange(900) / 5)[:, None] + 0.05 * rng.standard_normal((900, 1))
    strange = series[-300:].copy()
    strange[100:130] = 4 + rng.standard_normal((30, 1))
    strange[220:250] = -4 + rng.standard_normal((30, 1))
    level = PaAnoConfig().level if request.param == "both" else "none"
    config = PaAnoConfig(patch=16, width=0.125, iterations=2, minibatch=16, level=level)
    return PaAno(config, device="cpu").fit(series[:600]), strange


def test_rows_taken_in_are_quiet_and_others_stay_as_strange_as_they_were(case, tmp_path):
    model, strange = case
    before = model.score(strange)
    model.save(tmp_path)
    taught = PaAno.load(tmp_path, device="cpu").take_in(strange, np.arange(100, 130))
    after = taught.score(strange)
    usual = np.nanquantile(before[:80], 0.99)
    assert before[100:130].min() > usual and after[100:130].max() <= usual
    assert after[225:245].min() > usual
    taught.save(tmp_path)
    again = PaAno.load(tmp_path, device="cpu")
    np.testing.assert_allclose(again.score(strange), after, rtol=1e-5, atol=1e-6)
    assert len(again.take_in(strange, np.arange(100, 130)).bank) == len(taught.bank)


def test_taking_in_rows_without_a_whole_patch_changes_nothing(case):
    model, strange = case
    size = len(model.bank)
    assert len(model.take_in(strange[:8], [1, 2]).bank) == size

"""The kept history: the newest rows, in two bytes each."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from paano import PaAno, PaAnoConfig
from paano.errors import ArtifactError
from paano.scoring import kept as module
from paano.scoring.kept import Kept, keep_rows
from paano.series import read_series

CONFIG = PaAnoConfig.preset("default", patch=8, iterations=0, width=0.0625)
NUMBERS = st.one_of(st.just(np.nan), st.floats(-1e6, 1e6))


@given(arrays(np.float64, st.tuples(st.integers(1, 30), st.integers(1, 3)), elements=NUMBERS))
def test_a_kept_value_is_within_half_a_step_and_a_missing_row_stays_missing(x):
    series = read_series(x, 0)
    kept = keep_rows(series, 100)
    assert len(kept) == len(x)
    np.testing.assert_array_equal(kept.usable, series.usable)
    assert np.isnan(kept.values[~series.usable]).all()
    off = np.abs(kept.values - series.values)[series.usable]
    assert (off <= 0.51 * kept.step + 1e-9 * np.abs(kept.low)).all()


def test_only_the_newest_rows_are_kept_and_many_channels_keep_fewer(monkeypatch):
    x = np.arange(50.0)[:, None]
    np.testing.assert_allclose(keep_rows(read_series(x, 0), 10).values, x[-10:], atol=1e-3)
    monkeypatch.setattr(module, "MOST_NUMBERS", 40)
    assert len(keep_rows(read_series(np.zeros((50, 8)), 0), 10)) == 5


def test_what_follows_is_parted_by_a_hole_and_leaves_out_what_was_not_normal():
    kept = keep_rows(read_series(np.arange(6.0), 0), 10)
    normal = np.array([True, False, True])
    longer = kept.followed_by(read_series(np.array([7.0, 99.0, 8.0]), 0), normal, keep=8)
    np.testing.assert_allclose(longer.values[:, 0], [2, 3, 4, 5, np.nan, 7, np.nan, 8], atol=1e-3)


def test_a_model_keeps_rows_and_update_goes_on_with_them(tmp_path):
    rng = np.random.default_rng(0)
    x = np.sin(np.arange(400) / 3) + 0.01 * rng.standard_normal(400)
    model = PaAno(CONFIG.replace(keep=300), "cpu").fit(x)
    np.testing.assert_allclose(model.kept.values[:, 0], x[-300:], atol=1e-4)
    model.update(np.sin(np.arange(50) / 3))
    assert len(model.kept) == 300
    assert model.kept.usable[-40:].any()
    model.save(tmp_path)
    loaded = PaAno.load(tmp_path, "cpu").kept
    np.testing.assert_array_equal(loaded.codes, model.kept.codes)
    np.testing.assert_array_equal(loaded.values, model.kept.values)


def test_a_kept_history_that_does_not_fit_together_is_refused():
    codes = np.array([[1, 2], [module.MISSING, 3]], dtype=np.int16)
    tensors = {"kept.codes": codes, "kept.low": np.zeros(2), "kept.step": np.ones(2)}
    with pytest.raises(ArtifactError, match="fitted again"):
        Kept.from_tensors(tensors)
    with pytest.raises(ArtifactError, match="fitted again"):
        Kept.from_tensors({**tensors, "kept.codes": codes[:1], "kept.step": -np.ones(2)})


def test_a_model_written_before_there_was_a_kept_history_is_read(tmp_path):
    x = np.sin(np.arange(300) / 3)
    model = PaAno(CONFIG.replace(keep=0), "cpu").fit(x)
    model.save(tmp_path)
    text = json.loads((tmp_path / "model.json").read_text())
    del text["config"]["keep"], text["kept_rows"]
    (tmp_path / "model.json").write_text(json.dumps(text))
    before = PaAno.load(tmp_path, "cpu")
    assert before.kept is None
    np.testing.assert_array_equal(before.score(x), model.score(x))


def test_the_digests_of_settings_that_models_were_written_with_have_not_changed():
    digests = {name: PaAnoConfig.preset(name, keep=0).digest for name in ("paper", "light", "untrained")}
    assert digests == {
        "paper": "a0c506aca6f1a8da",
        "light": "2c7ee478eae5ecc5",
        "untrained": "97d288a4d89280df",
    }

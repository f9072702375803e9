"""Models that version 0.1.0 saved load, and score, alarm and go on as they did there.

`models_of_0_1/` holds two of them, presets `default` and `paper` of that version made small, each with the
answers that it gave: `answers.json`.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from paano import PaAno

MODELS = Path(__file__).parent / "models_of_0_1"


@pytest.fixture(params=["default", "paper"])
def former(request):
    """A model, and what it answered when it was made."""
    folder = MODELS / request.param
    answers = json.loads((folder / "answers.json").read_text())
    return PaAno.load(folder, device="cpu"), {"preset": request.param, **answers}


def numbers(answers, name):
    """A list of numbers; missing ones are NaN."""
    return np.array([np.nan if value is None else value for value in answers[name]])


def close(found, expected, rtol=1e-4):
    """Equal but for the rounding of another processor."""
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-6)


def test_a_former_model_scores_as_it_did(former):
    model, answers = former
    found = model.detect(numbers(answers, "values"))
    for name in ("score", "shape", "level"):
        close(getattr(found, name), numbers(answers, name))
    assert np.isnan(found.next_value).all()
    assert found.status.tolist() == answers["status"]
    assert found.coverage.tolist() == answers["coverage"]


def test_a_former_model_has_the_threshold_it_had(former):
    model, answers = former
    assert model.calibration.threshold(3.0, 300.0) == pytest.approx(answers["threshold"], rel=1e-9)
    assert model.facts.sensor == "pump-1" and model.facts.channel_names == ("flow",)


def test_a_former_model_is_saved_as_the_same_tensors(former, tmp_path):
    model, answers = former
    model.save(tmp_path)
    for name in ("encoder.safetensors", "bank.safetensors"):
        assert (tmp_path / name).read_bytes() == (MODELS / answers["preset"] / name).read_bytes()
    assert PaAno.load(tmp_path, device="cpu").config == model.config


def test_the_bank_of_a_former_model_follows_as_it_did(former):
    model, answers = former
    model.update(numbers(answers, "later"))
    close(model.score(numbers(answers, "values")), numbers(answers, "score_after_update"))


def test_the_settings_of_a_former_model_still_train_the_same_one(former):
    model, answers = former
    again = PaAno(model.config, device="cpu").fit(numbers(answers, "training"))
    close(again.score(numbers(answers, "values")), numbers(answers, "score"), rtol=1e-3)

"""Settings: one frozen object with a digest; what is unknown, contradictory or out of range is refused."""

import dataclasses

import pytest

from paano.config import CHOICES, PRESETS, RANGES, PaAnoConfig
from paano.errors import ConfigError


def test_the_paper_preset_is_the_paper():
    c = PaAnoConfig.preset("paper")
    assert (c.patch, c.depth, c.width, c.iterations, c.minibatch) == (96, 4, 1.0, 100, 512)
    assert (c.shift, c.margin, c.contrast_weight, c.pretext_negatives, c.pretext_ratio) == (
        2,
        0.1,
        0.1,
        5,
        0.2,
    )
    assert (c.bank_share, c.neighbours, c.learning_rate, c.weight_decay) == (0.1, 3, 1e-4, 1e-4)
    assert (c.negative, c.contrast, c.unit, c.level, c.stride) == ("farthest", "triplet", "raw", "none", 1)
    assert c.bank_cap == RANGES["bank_cap"][1]  # as good as none


def test_light_is_half_as_wide_with_a_quarter_of_the_minibatch_and_untrained_does_not_train():
    light, untrained = PaAnoConfig.preset("light"), PaAnoConfig.preset("untrained")
    assert (light.width, light.minibatch, light.iterations) == (0.5, 128, 100)
    assert untrained.iterations == 0


@pytest.mark.parametrize("name", PRESETS)
def test_presets_survive_a_round_trip_and_take_changes(name):
    config = PaAnoConfig.preset(name, seed=3)
    assert config.seed == 3
    assert PaAnoConfig.from_dict(config.to_dict()) == config
    assert PaAnoConfig.from_dict(config.to_dict()).digest == config.digest


def test_every_setting_changes_the_digest():
    base = PaAnoConfig()
    for field in dataclasses.fields(PaAnoConfig):
        value = getattr(base, field.name)
        if field.name in CHOICES:
            other = next(choice for choice in CHOICES[field.name] if choice != value)
        else:
            low, high = RANGES[field.name]
            other = low if value != low else high
        changes = {field.name: other, "patch": 4096} if field.name == "stride" else {field.name: other}
        if field.name == "patch":
            other = changes["patch"] = 100
        if field.name == "next_value":  # needs the level
            base, changes["level"] = base.replace(level="tail"), "tail"
        if field.name == "still":  # bounds the level
            base, changes["level"] = base.replace(level="tail"), "tail"
        if field.name == "plain":  # needs the level and the rows kept
            base = base.replace(level="tail", keep=100)
        assert base.replace(**changes).digest != base.digest, field.name


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PaAnoConfig().patch = 5


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"pach": 96}, r"did you mean model\.patch"),
        ({"patch": 3}, "outside 4 to 4096"),
        ({"patch": 96.5}, "not a whole number"),
        ({"patch": True}, "not a whole number"),
        ({"patch": "96"}, "not a whole number"),
        ({"width": float("nan")}, "not a finite number"),
        ({"negative": "nearest"}, '"farthest", "median", "closest", "random"'),
        ({"depth": 6}, "3, 4, 5"),
        ({"shift": 96}, r"smaller than model\.patch"),
        ({"stride": 97}, "uncovered"),
        ({"contrast": "none", "pretext_weight": 0.0}, "nothing to train"),
        ({"bank_share": 0.0}, "outside"),
    ],
    ids=str,
)
def test_bad_settings_are_refused_with_what_is_allowed(settings, says):
    with pytest.raises(ConfigError, match=says):
        PaAnoConfig.from_dict(settings)


def test_an_unknown_preset_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"did you mean light\? Allowed: default, light, paper, untrained"):
        PaAnoConfig.preset("lite")


def test_whole_floats_and_ints_are_taken_for_what_is_meant():
    assert PaAnoConfig(patch=64.0).digest == PaAnoConfig(patch=64).digest
    assert PaAnoConfig(width=1).digest == PaAnoConfig(width=1.0).digest

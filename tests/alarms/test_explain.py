"""Explanations: the channel with the fault is the one that is named."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from paano import PaAno, PaAnoConfig
from paano.alarms.explain import TRIED, channel_shares, explain, reach
from paano.errors import SeriesError
from paano.evaluation.inject import put_fault

PATCH = 32
FAULTS = {"broken_relation": 40, "flat": 30, "shift": 25, "noise": 20, "spike": 2, "drift": 40}


def machine(rows: int, channels: int = 5, seed: int = 0) -> np.ndarray:
    """Channels that share one rotation, each with its own phase and overtone."""
    rng = np.random.default_rng(seed)
    step = 1 + 0.05 * np.repeat(rng.standard_normal(rows // 8 + 1), 8)[:rows]
    turn = 2 * np.pi * np.cumsum(step) / 20
    waves = [np.sin(turn + 1.3 * c) + 0.4 * np.sin(2 * turn + 0.7 * c) for c in range(channels)]
    return np.stack(waves, axis=1) * (1 + np.arange(channels)) + 0.05 * rng.standard_normal((rows, channels))


@pytest.fixture(scope="module", params=["none", "tail"])
def model(request):
    config = PaAnoConfig.preset("untrained", patch=PATCH, width=0.25, level=request.param)
    return PaAno(config, device="cpu").fit(machine(1_500))


def with_fault(kind: str, channel: int, seed: int = 1) -> np.ndarray:
    X = machine(500, seed=seed)
    put_fault(X, kind, 330, FAULTS[kind], np.random.default_rng(seed), channels=[channel])
    return X


def peak_of(model, X) -> int:
    return 300 + int(np.nanargmax(model.score(X)[300:400]))


@pytest.mark.parametrize("kind", FAULTS)
def test_the_channel_with_the_fault_among_five_is_named_first(model, kind):
    right = 0
    for channel in range(5):
        X = with_fault(kind, channel)
        answer = channel_shares(model, X, peak_of(model, X))
        right += answer[0][0] == channel
    assert right >= 4


def test_shares_fall_are_positive_and_sum_to_one(model):
    X = with_fault("flat", 2)
    answer = channel_shares(model, X, peak_of(model, X), top=5)
    shares = [share for _, share in answer]
    assert shares == sorted(shares, reverse=True)
    assert min(shares) > 0
    assert sum(shares) == pytest.approx(1)
    assert channel_shares(model, X, peak_of(model, X), top=1) == answer[:1]


def test_the_answer_does_not_depend_on_where_the_window_was_cut(model):
    X = with_fault("broken_relation", 3)
    row = peak_of(model, X)
    before, after = reach(model.config)
    whole = explain(model, X, row)
    cut = explain(model, X[row - before : row + after + 1], before)
    assert [channel for channel, _ in cut.channels] == [channel for channel, _ in whole.channels]
    assert [share for _, share in cut.channels] == pytest.approx(
        [share for _, share in whole.channels], abs=1e-4
    )
    assert cut.cause == whole.cause


def test_a_row_without_a_score_has_no_channels(model):
    X = machine(200)
    X[80:120] = np.nan
    assert channel_shares(model, X, 100) == []


def test_a_first_day_without_a_past_is_explained_too(model):
    X = with_fault("noise", 1)[325:370]
    assert channel_shares(model, X, 15)[0][0] in range(5)


def test_holes_in_the_past_do_no_harm(model):
    X = with_fault("flat", 4)
    X[200:260, 1] = np.nan
    assert channel_shares(model, X, peak_of(model, X))[0][0] == 4


def test_a_row_outside_the_series_is_refused(model):
    with pytest.raises(SeriesError):
        channel_shares(model, machine(100), 100)


def test_one_channel_has_the_whole_share():
    config = PaAnoConfig.preset("untrained", patch=PATCH, width=0.125, level="tail")
    X = machine(600, channels=1)
    single = PaAno(config, device="cpu").fit(X)
    X[400:] += 50.0
    answer = explain(single, X, 405)
    assert answer.channels == [(0, 1.0)]
    assert answer.cause == "level"


def test_many_channels_are_screened_and_the_right_one_is_still_found():
    config = PaAnoConfig.preset("untrained", patch=PATCH, width=0.125)
    channels = 4 * TRIED
    many = PaAno(config, device="cpu").fit(machine(400, channels=channels))
    X = machine(400, channels=channels, seed=2)
    encoded = []
    embed = many.embed
    many.embed = lambda x, starts: encoded.append(len(starts)) or embed(x, starts)
    put_fault(X, "broken_relation", 250, 60, np.random.default_rng(3), channels=[77])
    assert channel_shares(many, X, 280)[0][0] == 77
    assert len(encoded) == 2  # the past, and all substitutes together
    assert encoded[1] <= TRIED


def test_an_answer_does_not_need_encoder_and_bank_on_one_device(model):
    """As on an Apple GPU: the networks are there, series, embeddings and bank on the CPU."""
    X = with_fault("flat", 2)
    apart = copy.copy(model)
    apart.device = torch.device("meta")  # what is sent there cannot be computed with
    apart.embed, apart.detect = model.embed, model.detect
    peak = peak_of(model, X)
    assert explain(apart, X, peak) == explain(model, X, peak)

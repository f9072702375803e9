"""The model as a person uses it."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import paano
from paano import Detection, PaAno, PaAnoConfig
from paano.errors import ConfigError, NotFitted, SeriesError, SeriesTooShort
from paano.estimator import Estimator
from paano.series import read_series, valid_starts
from tests import oracle

W = 16


@pytest.fixture
def fitted(small, wave):
    return PaAno(small, "cpu").fit(wave)


@pytest.fixture(scope="module")
def shared():
    """One fitted model for tests that only read it."""
    rng = np.random.default_rng(0)
    x = np.sin(np.arange(400) / 4) + 0.1 * rng.normal(size=400)
    config = PaAnoConfig(patch=W, width=0.0625, minibatch=32, iterations=6)
    return PaAno(config, "cpu").fit(x), x


# -- the public surface --------------------------------------------------------------------------------------


def test_the_public_names_are_these():
    assert paano.__all__ == ["Detection", "PaAno", "PaAnoConfig"]
    names = {name for name in vars(PaAno) if not name.startswith("_")}
    assert names == {
        "fit",
        "prepare",
        "finish",
        "score",
        "detect",
        "update",
        "embed",
        "expected",
        "take_in",
        "save",
        "load",
        "training_scores",
    }
    conventions = {name for name in vars(Estimator) if not name.startswith("_")}
    assert conventions - {"fit"} == {
        "get_params",
        "set_params",
        "offset_",
        "score_samples",
        "decision_function",
        "predict",
        "fit_predict",
    }


def test_settings_and_errors_are_there_without_waiting_for_torch():
    code = "import sys, paano, paano.config, paano.errors; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_unknown_name_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="PaAnu"):
        _ = paano.PaAnu


# -- fit, score, detect --------------------------------------------------------------------------------------


def test_an_anomaly_scores_higher_than_anything_normal(device):
    rng = np.random.default_rng(0)
    train, test = (np.sin(np.arange(n) / 4) + 0.05 * rng.normal(size=n) for n in (800, 400))
    test[200:220] = rng.normal(size=20)
    config = PaAnoConfig(patch=32, width=0.25, minibatch=64, iterations=20)
    score = PaAno(config, device).fit(train).score(test)
    assert score.dtype == np.float32 and score.shape == (400,)
    far = np.r_[score[:160], score[260:]]
    assert score[200:220].min() > far.max()


def test_detect_gives_one_entry_per_row(shared):
    model, x = shared
    found = model.detect(x)
    assert isinstance(found, Detection)
    assert [a.dtype for a in (found.score, found.coverage, found.shape, found.level)] == [
        np.float32,
        np.uint16,
        np.float32,
        np.float32,
    ]
    assert found.coverage[:W].tolist() == list(range(1, W + 1))
    assert found.coverage.max() == W
    assert set(found.status[: -(W - 1)]) == {"ok"} and set(found.status[-(W - 1) :]) == {"provisional"}
    assert np.array_equal(found.score, model.score(x))


@st.composite
def holes(draw):
    """90 rows of a wave with holes, some at the end."""
    x = np.sin(np.arange(90) / 4)
    for at, length in draw(st.lists(st.tuples(st.integers(0, 89), st.integers(1, 12)), max_size=4)):
        x[at : at + length] = np.nan
    if draw(st.booleans()):
        x[-draw(st.integers(1, 8)) :] = np.nan
    return x


@given(x=holes())
@settings(max_examples=25, deadline=None)
def test_missing_rows_have_no_score_and_provisional_rows_are_those_that_more_data_would_change(shared, x):
    model, _ = shared
    found = model.detect(x)
    assert ((found.status == "no_data") == np.isnan(found.score)).all()
    assert (found.status[np.isnan(x)] == "no_data").all()
    assert (found.coverage[found.status == "no_data"] == 0).all()
    starts = oracle.slow_starts(x[:, None], W, 3)
    coverage = np.array([c for _, c in oracle.slow_points([0.0] * len(starts), starts, len(x), W)])
    scored = found.status != "no_data"
    assert (scored == ((coverage > 0) & ~np.isnan(x))).all()
    assert (found.coverage[scored] == coverage[scored]).all()
    later = np.r_[x, np.zeros(2 * W)]
    starts = oracle.slow_starts(later[:, None], W, 3)
    gains = np.array([c for _, c in oracle.slow_points([0.0] * len(starts), starts, len(later), W)])[: len(x)]
    assert ((found.status[scored] == "provisional") == (gains[scored] > coverage[scored])).all()


def test_a_row_with_one_channel_bridged_is_ok_and_with_none_measured_is_no_data(small):
    x = np.random.default_rng(0).normal(size=(200, 2))
    model = PaAno(small, "cpu").fit(x)
    x[50, 0] = np.nan
    x[60] = np.nan
    found = model.detect(x)
    assert found.status[50] == "ok" and found.status[60] == "no_data"
    assert found.coverage[59] == W  # patches across a bridged row are scored


@given(start=st.integers(0, 150), length=st.integers(1, 100))
@settings(max_examples=25, deadline=None)
def test_a_window_with_its_context_scores_as_the_whole_series_does(shared, start, length):
    model, x = shared
    x = x.copy()
    x[[70, 71, 130]] = np.nan
    x[180:190] = np.nan
    whole, c = model.detect(x), model.config.context
    low, high = max(0, start - c), min(len(x), start + length + c)
    part = model.detect(x[low:high])
    cut = slice(start - low, start - low + length)
    inside = slice(start, start + length)
    assert np.allclose(part.score[cut], whole.score[inside], atol=1e-6, equal_nan=True)
    assert (part.coverage[cut] == whole.coverage[inside]).all()
    if high < len(x):
        assert (part.status[cut] == whole.status[inside]).all()


@pytest.mark.parametrize("stride", [2, 5, W])
def test_with_a_stride_a_window_needs_only_its_origin(shared, stride):
    model, x = shared
    other = PaAno(model.config.replace(stride=stride), "cpu").fit(x)
    whole, c = other.detect(x), other.config.context
    part = other.detect(x[101 - c : 200 + c], origin=101 - c)
    assert np.allclose(part.score[c : c + 99], whole.score[101:200], atol=1e-6)
    assert (part.coverage[c : c + 99] == whole.coverage[101:200]).all()
    assert np.isfinite(whole.score).all()


@given(chunk=st.integers(1, 500))
@settings(max_examples=12, deadline=None)
def test_another_chunk_size_agrees_within_a_millionth(shared, chunk):
    model, x = shared
    other = PaAno(model.config.replace(chunk=chunk), "cpu")
    other.__dict__.update({k: v for k, v in vars(model).items() if k != "config"})
    assert np.abs(other.score(x) - model.score(x)).max() < 1e-6


# -- determinism ---------------------------------------------------------------------------------------------


def test_the_same_seed_settings_and_data_give_the_same_bits_whatever_runs_beside(small, wave):
    alone = PaAno(small, "cpu").fit(wave)
    torch.manual_seed(999)
    np.random.seed(999)
    results = {}

    def work(i):
        results[i] = PaAno(small.replace(seed=i % 2), "cpu").fit(wave)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, model in results.items():
        same = i % 2 == small.seed
        assert np.array_equal(alone.score(wave), model.score(wave)) == same
        assert torch.equal(alone.bank.vectors, model.bank.vectors) == same
    assert alone.losses == results[0].losses


def test_fitting_leaves_the_global_generators_alone(small, wave):
    before, np_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    PaAno(small, "cpu").fit(wave).update(wave)
    assert torch.equal(before, torch.get_rng_state())
    assert (np_before == np.random.get_state()[1]).all()


def test_fitting_again_starts_anew(small, wave):
    model = PaAno(small, "cpu").fit(np.cos(np.arange(100.0)))
    assert np.array_equal(model.fit(wave).score(wave), PaAno(small, "cpu").fit(wave).score(wave))


# -- data as it comes ----------------------------------------------------------------------------------------


def test_too_short_a_series_is_refused_with_the_remedy(small):
    for x in ([], np.zeros(W - 1), np.full(100, np.nan)):
        with pytest.raises(SeriesTooShort, match=r"a patch needs 16 in a row.*model\.patch"):
            PaAno(small, "cpu").fit(x)


@pytest.mark.parametrize("rows", [0, 1, W - 1])
def test_scoring_less_than_a_patch_is_no_data_and_not_an_error(shared, rows):
    found = shared[0].detect(np.zeros(rows))
    assert len(found.score) == rows and (found.status == "no_data").all()


def test_exactly_one_patch_is_enough_for_an_untrained_model(small):
    x = np.sin(np.arange(W) / 2)
    model = PaAno(small.replace(iterations=0), "cpu").fit(x)
    assert len(model.bank) == 1
    assert np.abs(model.score(x)).max() < 1e-6
    assert np.isnan(model.training_scores()).all()  # its only match is itself


def test_fewer_patches_than_neighbours_and_bank_give_what_there_is(small):
    x = np.random.default_rng(0).normal(size=W + 3)
    model = PaAno(small.replace(neighbours=10, bank_share=1.0), "cpu").fit(x)
    assert len(model.bank) == 4
    assert np.isfinite(model.score(x)).all()


@pytest.mark.parametrize("iterations", [0, 6])
def test_a_constant_series_is_normal_and_a_moving_one_is_not(small, iterations):
    model = PaAno(small.replace(iterations=iterations), "cpu").fit(np.full(200, 1e9))
    flat, moving = model.score(np.full(100, 5.0)), model.score(np.sin(np.arange(100.0)))
    assert np.abs(flat).max() < 1e-6
    assert np.isfinite(moving).all()
    if iterations == 0:
        assert moving.min() > 0.5


def test_a_constant_channel_does_not_hide_the_others(small):
    rng = np.random.default_rng(0)
    x = np.stack([np.full(400, 3.0), np.sin(np.arange(400) / 4) + 0.05 * rng.normal(size=400)], axis=1)
    y = x.copy()
    y[200:216, 1] = rng.normal(size=16)
    score = PaAno(small.replace(iterations=20), "cpu").fit(x).score(y)
    assert np.argmax(score) in range(180, 236)


def test_a_thousand_channels_work(small):
    x = np.random.default_rng(0).normal(size=(60, 1000))
    model = PaAno(small.replace(iterations=2, minibatch=8), "cpu").fit(x)
    assert model.channels == 1000 and np.isfinite(model.score(x)).all()


def test_a_billion_of_offset_changes_the_scores_by_its_rounding_only(shared):
    model, x = shared
    assert np.abs(model.score(x) - model.score(x + 1e9)).max() < 1e-6
    lifted = PaAno(model.config, "cpu").fit(x + 1e9)
    for ours, theirs in zip(model._weights.values(), lifted._weights.values(), strict=True):
        assert (ours - theirs).abs().max().item() < 1e-4


@pytest.mark.parametrize("scale", [1e-9, 1e-4, 1e6])
def test_by_default_the_unit_of_a_sensor_does_not_change_its_scores(scale, wave):
    config = PaAnoConfig.preset("default", patch=32, width=0.125, iterations=3)
    in_volts = PaAno(config, "cpu").fit(wave).score(wave)
    in_others = PaAno(config, "cpu").fit(wave * scale).score(wave * scale)
    np.testing.assert_allclose(in_others, in_volts, rtol=1e-3, atol=1e-4)


def test_integers_score_as_their_floats(small):
    x = np.random.default_rng(0).integers(0, 9, size=200)
    assert np.array_equal(
        PaAno(small, "cpu").fit(x).score(x), PaAno(small, "cpu").fit(x * 1.0).score(x * 1.0)
    )


def test_infinities_are_missing(shared):
    model, x = shared
    bad, missing = x.copy(), x.copy()
    bad[100:110], missing[100:110] = np.inf, np.nan
    bad[200], missing[200] = -1e200, np.nan
    assert np.array_equal(model.score(bad), model.score(missing), equal_nan=True)


def test_another_number_of_channels_is_refused(shared):
    with pytest.raises(SeriesError, match="2 channels, the model was fitted on 1"):
        shared[0].score(np.zeros((50, 2)))


def test_an_unfitted_model_says_so(small, tmp_path):
    model = PaAno(small, "cpu")
    for call in (lambda: model.score([1.0]), lambda: model.save(tmp_path), lambda: model.update([1.0])):
        with pytest.raises(NotFitted, match="not fitted"):
            call()
    with pytest.raises(NotFitted, match="after fit"):
        model.training_scores()


# -- training scores, embeddings, update ---------------------------------------------------------------------


def test_training_scores_never_match_within_a_patch_length(shared):
    model, x = shared
    starts = valid_starts(read_series(x, 3).usable, W)
    h, bank = model.embed(x, starts), model.bank
    vectors = bank.vectors.numpy()
    rows = [0, 5, 100, 383]
    patch_scores = [oracle.slow_nearest(h[s], vectors, 3, s, bank.position, W) for s in range(len(starts))]
    want = oracle.slow_points(patch_scores, starts, len(x), W)
    assert model.training_scores()[rows] == pytest.approx([want[r][0] for r in rows], abs=1e-5)


def test_embed_gives_the_embeddings_that_scoring_uses(shared):
    model, x = shared
    h = model.embed(x, model.bank.position)
    unit = h / np.linalg.norm(h, axis=1, keepdims=True)
    assert np.abs(unit - model.bank.vectors.numpy()).max() < 1e-5
    with pytest.raises(SeriesError, match="starts at row 399"):
        model.embed(x, [0, 399])


def test_update_takes_in_what_is_normal_and_leaves_out_what_is_not(fitted, wave):
    before, odd = fitted.bank, np.sign(np.sin(np.arange(200) * 1.1)) * np.arange(200)
    size = len(before)
    fitted.update(odd)
    kept_out = (fitted.bank.position == -1).sum()
    fitted.update(wave)
    assert len(fitted.bank) == size
    taken_in = (fitted.bank.position == -1).sum()
    assert taken_in > kept_out
    assert np.array_equal(
        fitted.bank.position[: size - taken_in], before.position[taken_in:]
    )  # the oldest left


def test_update_leaves_the_encoder_and_an_empty_series_leaves_everything(fitted, wave):
    weights = [p.clone() for p in fitted._weights.values()]
    assert fitted.update(wave) is fitted
    assert all(torch.equal(p, q) for p, q in zip(weights, fitted._weights.values(), strict=True))
    bank = fitted.bank
    assert fitted.update(np.full(100, np.nan)).bank is bank


# -- keeping -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting", [{}, {"iterations": 0}, {"depth": 3, "unit": "typical"}, {"level": "tail"}], ids=str
)
def test_a_loaded_model_scores_the_same_bits(setting, small, wave, tmp_path):
    model = PaAno(small.replace(**setting), "cpu").fit(wave)
    model.update(wave[:100])
    model.save(tmp_path / "m", facts={"sensor": "pump-17", "figures": [1, 2.5, None]})
    loaded = PaAno.load(tmp_path / "m", "cpu")
    assert np.array_equal(loaded.score(wave), model.score(wave))
    assert loaded.facts == {"sensor": "pump-17", "figures": [1, 2.5, None]}
    assert loaded.config == model.config and loaded.calibration == model.calibration
    assert loaded.losses == model.losses and loaded.channels == 1
    assert np.array_equal(loaded.update(wave).score(wave), model.update(wave).score(wave))


def test_the_same_model_is_saved_as_the_same_bytes(small, wave, tmp_path):
    for name in ("a", "b"):
        PaAno(small, "cpu").fit(wave).save(tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["bank.safetensors", "encoder.safetensors", "model.json"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_other_readers_of_safetensors_read_our_files(fitted, tmp_path):
    from safetensors.numpy import load_file

    fitted.save(tmp_path)
    assert np.array_equal(load_file(tmp_path / "bank.safetensors")["vectors"], fitted.bank.vectors.numpy())


# -- devices -------------------------------------------------------------------------------------------------


def test_an_unknown_or_absent_device_is_refused():
    with pytest.raises(ConfigError, match="auto, cpu, cuda, mps"):
        PaAno(device="tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no CUDA"):
            PaAno(device="cuda")
    assert PaAno(device="auto").device.type in ("cpu", "cuda", "mps")


def test_out_of_memory_halves_the_chunk_and_goes_on(shared):
    model, x = shared
    sizes, folded = [], model._folded
    values, rows = torch.from_numpy(x.reshape(len(x), -1)), torch.arange(200)
    want = model._encode(values, rows.numpy())

    def greedy(patches):
        sizes.append(len(patches))
        if len(patches) > 20:
            raise torch.OutOfMemoryError("out of memory")
        return folded(patches)

    model._folded = greedy
    try:
        assert torch.allclose(model._encode_on_device(values, rows, model._unit, 64), want, atol=1e-6)
        assert sizes[:3] == [64, 32, 16]
        model._folded = lambda patches: (_ for _ in ()).throw(torch.OutOfMemoryError("always"))
        with pytest.raises(torch.OutOfMemoryError):
            model._encode_on_device(values, rows, model._unit, 64)
    finally:
        model._folded = folded


def test_devices_agree(device, small, wave):
    """The same patches are drawn on every device; only rounding differs."""
    here, there = PaAno(small, "cpu").fit(wave), PaAno(small, device).fit(wave)
    assert here.losses[0]["loss"] == pytest.approx(there.losses[0]["loss"], abs=1e-4)
    assert np.abs(here.score(wave) - there.score(wave)).max() < 1e-3

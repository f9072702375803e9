"""Every attack of the README is refused, by name, without memory being taken for it."""

import re
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest

from paano import PaAno, PaAnoConfig
from paano.errors import ArtifactError, PaanoError
from tests.attacks import attacks


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good") / "model"
    config = PaAnoConfig(patch=16, width=0.0625, iterations=0)
    PaAno(config, "cpu").fit(np.sin(np.arange(200) / 3)).save(folder)
    return folder


def test_the_good_model_loads(good):
    assert PaAno.load(good, "cpu").channels == 1


@pytest.mark.parametrize("attack", attacks.ALL, ids=lambda attack: attack.__name__)
def test_the_attack_is_refused(attack, good, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    monkeypatch.chdir(tmp_path)
    attack(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ArtifactError, match=re.escape(str(folder))):
        PaAno.load(folder, "cpu")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KB
    assert not (tmp_path / "PWNED").exists()


def test_every_attack_is_in_the_readme_and_every_line_of_it_is_an_attack():
    text = (Path(__file__).parent / "README.md").read_text()
    named = set(re.findall(r"^\| ([a-z_]+) \|", text, re.MULTILINE)) - {"attack"}
    assert named == {attack.__name__ for attack in attacks.ALL}


@pytest.mark.parametrize("name", ["encoder.safetensors", "bank.safetensors", "model.json"])
def test_a_flipped_byte_anywhere_is_refused_or_harmless(name, good, tmp_path):
    """Never another kind of error, and never another number in a tensor."""
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    data = (good / name).read_bytes()
    want = PaAno.load(good, "cpu")
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(data), size=60):
        broken = bytearray(data)
        broken[at] ^= 1 << int(rng.integers(0, 8))
        (folder / name).write_bytes(broken)
        try:
            model = PaAno.load(folder, "cpu")
        except PaanoError:
            continue
        assert name == "model.json"  # a digit of a fact or of the calibration, which no hash covers
        assert np.array_equal(model.bank.vectors.numpy(), want.bank.vectors.numpy())


def test_facts_that_are_not_json_are_refused_when_saving(good, tmp_path):
    model = PaAno.load(good, "cpu")
    for facts in ({"x": float("nan")}, {"x": object()}, {"x": "y" * 17_000_000}):
        with pytest.raises(ArtifactError, match="facts"):
            model.save(tmp_path / "m", facts=facts)
        assert not (tmp_path / "m" / "model.json").exists()

"""Every attack of the README is refused, by name, without memory being taken for it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paano import PaAno, PaAnoConfig
from paano.errors import ArtifactError, PaanoError
from tests.attacks import attacks

ROOT = Path(__file__).resolve().parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="the memory limit is Linux's")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good") / "model"
    config = PaAnoConfig(patch=16, width=0.0625, iterations=0)
    PaAno(config, "cpu").fit(np.sin(np.arange(200) / 3)).save(folder)
    return folder


@pytest.fixture(scope="module")
def answers(good, tmp_path_factory):
    """What loading said for each (reader, folder), all in processes with a memory limit, and the folders."""
    folders = {"good": good}
    for attack in attacks.ALL:
        folders[attack.__name__] = folder = tmp_path_factory.mktemp(attack.__name__) / "model"
        shutil.copytree(good, folder)
        attack(folder)
    jobs = [("load", name) for name in folders] + [("careless", name) for name in ("good", "long_header")]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.attacks.loader"],
        input="".join(json.dumps([reader, str(folders[name])]) + "\n" for reader, name in jobs),
        capture_output=True,
        text=True,
        timeout=300,  # a reader that waits for the named pipe would wait for ever
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    said = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(said) == len(jobs), ran.stderr
    return dict(zip(jobs, said, strict=True)), folders


@linux
def test_the_good_model_loads(answers):
    said, _ = answers
    assert said["load", "good"] is None


@linux
@pytest.mark.parametrize("attack", attacks.ALL, ids=lambda attack: attack.__name__)
def test_the_attack_is_refused(attack, answers):
    said, folders = answers
    folder = folders[attack.__name__]
    kind, text = said["load", attack.__name__]
    assert kind == "ArtifactError" and str(folder) in text  # and not a MemoryError
    assert not (folder.parent / "PWNED").exists()


@linux
def test_the_memory_limit_stops_a_reader_that_takes_whatever_is_there(answers):
    said, _ = answers
    assert said["careless", "good"] is None
    assert said["careless", "long_header"][0] == "MemoryError"


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


@pytest.mark.parametrize("spaces", range(8))
def test_a_header_of_any_length_gives_the_same_scores(spaces, good, tmp_path):
    """Tensors are views of the file's bytes, at places that a processor may not read numbers from."""
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    for name in ("encoder.safetensors", "bank.safetensors"):
        attacks.change_header(
            folder, name, lambda _: None, text=lambda header: json.dumps(header) + " " * spaces
        )
    series = np.sin(np.arange(300) / 3)
    want, found = (PaAno.load(place, "cpu") for place in (good, folder))
    assert np.array_equal(want.score(series), found.score(series), equal_nan=True)


def test_facts_that_are_not_json_are_refused_when_saving(good, tmp_path):
    model = PaAno.load(good, "cpu")
    for facts in ({"x": float("nan")}, {"x": object()}, {"x": "y" * 17_000_000}):
        with pytest.raises(ArtifactError, match="facts"):
            model.save(tmp_path / "m", facts=facts)
        assert not (tmp_path / "m" / "model.json").exists()

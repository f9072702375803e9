"""Damaged and hostile registry entries: refused by name, before anything large is read, and alone."""

import hashlib
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from paano import PaAno, PaAnoConfig
from paano.errors import ArtifactError, PaanoError, RegistryError, StorageError
from storage.registry import package
from storage.registry.places import locate
from storage.registry.registry import Registry


@pytest.fixture(scope="module")
def registered(tmp_path_factory, empty_database):
    """A registry with a healthy and a bad sensor; a copy of its files is beside it."""
    home = tmp_path_factory.mktemp("hostile")
    series = np.sin(np.arange(1200) / 9) + 0.1 * np.random.default_rng(0).normal(size=1200)
    model = PaAno(PaAnoConfig.preset("untrained", patch=16, width=0.125), device="cpu").fit(series)
    shutil.copy(empty_database, home / "mlflow.db")
    made = Registry(f"sqlite:///{home}/mlflow.db", home / "artifacts", "plant", home / "cache")
    for sensor in ("good", "bad"):
        facts = {"sensor": sensor, "interval_seconds": 60.0, "channel_names": ["value"]}
        model.save(home / sensor, facts=facts)
        made.register(sensor, home / sensor, alias="champion")
    shutil.copytree(home / "artifacts", home / "whole")
    return made, home


@pytest.fixture
def registry(registered):
    """The registry with its files as they were, and nothing in its cache. No test writes to its database."""
    made, home = registered
    shutil.rmtree(home / "artifacts")
    shutil.copytree(home / "whole", home / "artifacts")
    shutil.rmtree(made.cache.models, ignore_errors=True)
    return made


def rewrite(registry, change):
    """`model.json` of the sensor `bad` changed, and the digest of its version adapted to it."""
    version = registry.champions()["bad"]
    old = locate(registry.artifacts, "plant", version)
    text = change(registry.artifacts.get(f"{old}/model/model.json").decode())
    digest = hashlib.sha256(text.encode()).hexdigest()
    new = f"plant/bad/{digest[:32]}"
    shutil.copytree(registry.artifacts.root / old, registry.artifacts.root / new)
    registry.artifacts.put(f"{new}/model/model.json", text.encode())
    return replace(version, digest=digest, source=registry.source(new))


def edited(**values):
    def change(text):
        note = json.loads(text)
        for path, value in values.items():
            *way, last = path.split("__")
            inner = note
            for step in way:
                inner = inner[step]
            if value is None:
                inner.pop(last)
            else:
                inner[last] = value
        return json.dumps(note)

    return change


def sized(size, name="encoder.safetensors"):
    def change(text):
        note = json.loads(text)
        note["files"][name]["bytes"] = "SIZE"
        return json.dumps(note).replace('"SIZE"', size)

    return change


NOTES = {
    "Infinity as a size": sized("Infinity"),
    "minus Infinity": sized("-Infinity"),
    "NaN as a size": sized("NaN"),
    "a size of 1e400": sized("1e400"),
    "text as a size": sized('"many"'),
    "a negative size": sized("-5"),
    "a size of 6 GB": sized("6000000000"),
    "a bank of 6 GB": sized("6000000000", "bank.safetensors"),
    "a size that is true": sized("true"),
    "no sizes": edited(files=None),
    "sizes as a list": edited(files=[1, 2]),
    "no sha256": edited(files={"encoder.safetensors": {"bytes": 5}, "bank.safetensors": {"bytes": 5}}),
    "no settings": edited(config=None),
    "settings of another kind": edited(config=[1]),
    "an unknown setting": edited(config__patches=5),
    "a giant patch": edited(config__patch=10**9),
    "no channels": edited(channels=None),
    "a million channels": edited(channels=10**9),
    "a giant bank": edited(bank_size=10**12),
    "facts missing": edited(facts=None),
    "facts as a list": edited(facts=[1]),
    "another sensor": edited(facts__sensor="good"),
    "a sensor that is a number": edited(facts__sensor=5),
    "a list": lambda text: "[]",
    "no JSON": lambda text: "{",
    "nested too deep": lambda text: "[" * 100_000,
    "empty": lambda text: "",
    "a pickle": lambda text: "\x80\x04.",
}


def outcome(registry, version):
    """What becomes of a healthy sensor and of `version`, fetched and loaded together."""
    fetched = registry.fetch_many([registry.champions()["good"], version])
    assert PaAno.load(fetched["good"]), "the healthy one is served"
    return fetched["bad"]


@pytest.mark.parametrize("what", NOTES)
def test_a_hostile_model_note_is_that_sensors_error_only(registry, what):
    found = outcome(registry, rewrite(registry, NOTES[what]))
    assert isinstance(found, ArtifactError), what


@pytest.mark.parametrize(
    "facts",
    [
        {"interval_seconds": None},
        {"interval_seconds": "soon"},
        {"interval_seconds": 1e300},
        {"interval_seconds": 0},
    ],
    ids=["missing", "text", "huge", "none"],
)
def test_an_impossible_interval_is_an_error_of_ours_when_it_is_used(registry, facts):
    version = rewrite(registry, edited(**{f"facts__{name}": value for name, value in facts.items()}))
    folder = outcome(registry, version)
    with pytest.raises(PaanoError):
        _ = PaAno.load(folder, device="cpu").facts.interval


@pytest.mark.parametrize(
    "source",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://elsewhere.example/plant/bad/{digest}",
        "https://elsewhere.example/plant/.mlflow/models/m-{digest}/artifacts",
        "s3://another-bucket/plant/.mlflow/models/m-{digest}/artifacts",
        "/etc/another/.mlflow/models/m-{digest}/artifacts",
        "/etc/plant/.mlflow/models/../artifacts",
        "s3://another-bucket/plant/bad/{digest}",
        "s3a://another-bucket/plant/bad/{digest}",
        "gs://bucket/plant/bad/{digest}",
        "memory://plant/bad/{digest}",
        "ftp://elsewhere.example/plant/bad/{digest}",
        "file://elsewhere.example/plant/bad/{digest}",
        "github://owner:repo@/plant",
        "/etc/passwd",
        "/etc",
        "../../plant/bad/{digest}",
        "file:///etc/shadow",
        "models:/plant.good/1",
        "runs:/abc/model",
        "",
        "\0",
        "s3://",
        "x" * 5000,
    ],
)
def test_a_source_outside_the_fleets_own_store_is_refused_without_any_request(registry, monkeypatch, source):
    champions = registry.champions()
    version = champions["bad"]
    version = replace(version, source=source.format(digest=version.digest[:32]))

    def never(*_arguments, **_named):
        raise AssertionError("a request was made")

    with monkeypatch.context() as patch:
        for name in ("get", "head", "list", "get_with_etag"):
            patch.setattr(registry.artifacts, name, never)
        patch.setattr("socket.socket.connect", never)
        with pytest.raises(RegistryError):
            registry.fetch(version)
    assert isinstance(outcome(registry, version), RegistryError)


def test_an_encoder_of_six_gigabytes_is_refused_by_its_size(registry, monkeypatch):
    version = registry.champions()["bad"]
    path = (
        registry.artifacts.root / f"{locate(registry.artifacts, 'plant', version)}/model/encoder.safetensors"
    )
    with path.open("r+b") as file:
        file.truncate(6 * 2**30)  # sparse: it takes no room
    read, original = [], registry.artifacts.get
    monkeypatch.setattr(registry.artifacts, "get", lambda key: (read.append(key), original(key))[1])
    with pytest.raises(ArtifactError, match=r"6442450944 bytes, .* not read"):
        registry.fetch(version)
    assert not any(key.endswith("encoder.safetensors") for key in read)
    assert isinstance(outcome(registry, version), ArtifactError)


@pytest.mark.parametrize("name", package.FILES)
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "longer", "another", "folder"])
def test_damaged_files_are_that_sensors_error_only(registry, name, damage):
    version = registry.champions()["bad"]
    path = registry.artifacts.root / f"{locate(registry.artifacts, 'plant', version)}/model/{name}"
    data = path.read_bytes()
    if damage in ("missing", "folder"):
        path.unlink()
    if damage == "folder":
        path.mkdir()
    if damage in ("empty", "cut", "longer", "another"):
        new = {"empty": b"", "cut": data[:-1], "longer": data + b"x", "another": data[:-1] + b"\0"}
        path.write_bytes(new[damage] if new[damage] != data else data[:-1] + b"\1")
    assert isinstance(outcome(registry, version), ArtifactError | StorageError)


def test_another_sensors_model_with_an_adapted_digest_is_refused(registry):
    champions = registry.champions()
    good, bad = champions["good"], champions["bad"]
    shutil.copytree(
        registry.artifacts.root / locate(registry.artifacts, "plant", good),
        registry.artifacts.root / f"plant/bad/{good.digest[:32]}",
    )
    swapped = replace(bad, digest=good.digest, source=registry.source(f"plant/bad/{good.digest[:32]}"))
    with pytest.raises(ArtifactError, match="the model of another sensor, 'good'"):
        registry.fetch(swapped)
    assert isinstance(outcome(registry, swapped), ArtifactError)
    pointing = replace(bad, digest=good.digest, source=good.source)
    assert "of another sensor" in str(outcome(registry, pointing))


def test_an_unexpected_error_of_one_version_is_that_sensors_outcome(registry, monkeypatch):
    version = registry.champions()["bad"]
    original = package.check_sensor

    def check(folder, sensor):
        if sensor == "bad":
            raise ZeroDivisionError("odd")
        original(folder, sensor)

    monkeypatch.setattr(package, "check_sensor", check)
    assert "ZeroDivisionError: odd" in str(outcome(registry, version))

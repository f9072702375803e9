"""A registered version as MLflow serves it: time counts, answers come back in the caller's order."""

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest

from paano import PaAno, PaAnoConfig
from storage.registry.places import locate
from storage.registry.registry import Registry

ROWS, STEP = 400, timedelta(minutes=5)
BASE = Path(os.environ.get("FORMER_FLEET", "none"))  # a demo fleet made by the release before


@pytest.fixture(scope="module")
def registry(tmp_path_factory, empty_database):
    home = tmp_path_factory.mktemp("served")
    shutil.copy(empty_database, home / "mlflow.db")
    return Registry(f"sqlite:///{home}/mlflow.db", home / "artifacts", "plant", home / "cache")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    home = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(0)
    series = np.stack([np.sin(np.arange(1500) / 9), np.cos(np.arange(1500) / 7)], 1)
    made = PaAno(PaAnoConfig.preset("untrained", patch=16, width=0.125), device="cpu")
    made.fit(series + 0.1 * rng.normal(size=series.shape))
    facts = {"sensor": "a", "interval_seconds": 300.0, "channel_names": ["flow", "heat"]}
    made.save(home, facts=facts)
    return home


@pytest.fixture(scope="module")
def served(registry, model):
    name = registry.register("a", model, alias="champion").name
    mlflow.set_tracking_uri(registry.tracking_uri)
    return mlflow.pyfunc.load_model(f"models:/{name}@champion")


@pytest.fixture
def frame():
    flow, heat = np.sin(np.arange(ROWS) / 9), np.cos(np.arange(ROWS) / 7)
    flow[200:205] += 3
    ts = pd.date_range("2026-01-01", periods=ROWS, freq="5min")
    return pd.DataFrame({"ts": ts, "flow": flow, "heat": heat})


def test_shuffled_rows_give_the_same_answer_in_the_callers_order(served, frame):
    ordered = served.predict(frame)
    shuffled = frame.sample(frac=1, random_state=3)
    answer = served.predict(shuffled)
    assert list(answer.index) == list(shuffled.index) and list(answer["ts"]) == list(shuffled["ts"])
    pd.testing.assert_frame_equal(answer.sort_index(), ordered)
    assert ordered["score"].max() < 50


def test_a_hole_stays_a_hole(served, frame):
    kept = pd.concat([frame[:120], frame[220:]])
    answer = served.predict(kept)
    blank = frame.copy()
    blank.loc[120:219, ["flow", "heat"]] = np.nan
    expected = served.predict(blank).loc[kept.index]
    pd.testing.assert_frame_equal(answer, expected)


def test_the_scores_are_those_of_the_flows(served, registry, frame):
    model = PaAno.load(registry.fetch(registry.champions()["a"]), device="cpu")
    origin = (datetime(2026, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // STEP
    found = model.detect(frame[["flow", "heat"]].to_numpy(), origin=origin)
    answer = served.predict(frame)
    np.testing.assert_array_equal(answer["score"], found.score)
    threshold = model.calibration.threshold(1.0, 300.0)
    np.testing.assert_allclose(answer["threshold"], threshold, rtol=1e-6)
    assert list(answer["anomaly"]) == [bool(s > np.float32(threshold)) for s in found.score]
    lower = served.predict(frame, params={"threshold": float(np.nanmedian(found.score))})
    assert lower["anomaly"].any() and not lower["anomaly"].all()
    assert list(answer["status"]) == list(found.status)


def test_a_budget_or_a_threshold_can_be_given(served, frame):
    assert (served.predict(frame, params={"threshold": 0.5})["threshold"] == 0.5).all()
    many, few = (served.predict(frame, params={"budget": b})["threshold"][0] for b in (30.0, 0.1))
    assert many < few


def test_rows_repeated_and_off_the_grid_are_taken_as_in_a_history(served, frame):
    moved = frame.copy()
    moved["ts"] += pd.to_timedelta(np.random.default_rng(1).integers(-60, 60, ROWS), unit="s")
    first = moved.iloc[[10]].assign(flow=99.0)  # an earlier word on the same time
    answer = served.predict(pd.concat([first, moved]))
    assert len(answer) == ROWS + 1
    np.testing.assert_array_equal(answer["score"].iloc[1:], served.predict(frame)["score"])


@pytest.mark.parametrize("kind", ["aware", "text", "index", "dictionary", "whole numbers"])
def test_tables_of_several_kinds_are_read(served, frame, kind):
    expected = served.predict(frame)["score"].to_numpy()
    if kind == "aware":
        given = frame.assign(ts=frame["ts"].dt.tz_localize("UTC").dt.tz_convert("Europe/Rome"))
    elif kind == "text":
        given = frame.assign(ts=frame["ts"].dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    elif kind == "index":
        given = frame.set_index("ts")
    elif kind == "dictionary":
        given = {name: frame[name].tolist() for name in frame}
    else:
        given = frame.assign(flow=(frame["flow"] * 10).astype(int))
        expected = served.predict(given.assign(flow=given["flow"].astype(float)))["score"].to_numpy()
    np.testing.assert_array_equal(served.predict(given)["score"], expected)


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist])
def test_arrays_and_lists_are_neighbouring_rows(served, frame, kind):
    python_model = served.unwrap_python_model()
    values = frame[["flow", "heat"]]
    answer = python_model.predict(None, kind(values.to_numpy()))
    np.testing.assert_array_equal(answer["score"], python_model.predict(None, values)["score"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: f.drop(columns="heat"), "heat"),
        (lambda f: f.assign(flow="much"), "must hold numbers"),
        (lambda f: f.assign(ts=5), "holds numbers"),
        (lambda f: f.assign(ts="soon"), "not a time stamp"),
        (lambda f: f.assign(ts=f["ts"].where(f.index > 3)), "missing in 4 rows"),
        (lambda f: f.iloc[:0], "no rows"),
        (lambda f: np.zeros((5, 3)), "flow, heat"),
        (lambda f: np.zeros((2, 2, 2)), "flow, heat"),
        (lambda f: ["a", "b"], "numbers"),
        (lambda f: f.assign(ts=pd.to_datetime(["1700-01-01"] * (len(f) - 1) + ["2200-01-01"])), "spans"),
    ],
)
def test_what_cannot_be_scored_is_refused_with_a_reason(served, frame, change, says):
    with pytest.raises(ValueError, match=says):
        served.unwrap_python_model().predict(None, change(frame))


def test_a_version_has_a_signature_an_input_example_and_names_this_package(served, registry, model):
    info = served.metadata
    assert info.signature.inputs.input_names() == ["ts", "flow", "heat"]
    assert info.signature.outputs.input_names()[:3] == ["score", "threshold", "anomaly"]
    folder = registry.artifacts.root / locate(registry.artifacts, "plant", registry.champions()["a"])
    example = info.load_input_example(str(folder))
    assert list(example.columns) == ["ts", "flow", "heat"]
    assert len(served.predict(example)) == len(example)
    lines = (folder / "requirements.txt").read_text().split()
    assert any(line.startswith("paano-fleet==") for line in lines)
    assert "paano-fleet==" in (folder / "conda.yaml").read_text()


@pytest.mark.skipif(not BASE.exists(), reason="FORMER_FLEET names no demo fleet of the release before")
def test_versions_of_the_release_before_still_load(tmp_path):
    for part in ("mlflow", "cache"):
        shutil.copytree(BASE / part, tmp_path / part)
    registry = Registry(
        f"sqlite:///{tmp_path}/mlflow/mlflow.db", tmp_path / "mlflow/artifacts", "demo", tmp_path / "c"
    )
    champions = registry.champions()
    assert champions
    fetched = registry.fetch_many(champions.values())
    assert all(PaAno.load(folder, device="cpu").facts.sensor == sensor for sensor, folder in fetched.items())
    version = next(iter(champions.values()))
    folder = tmp_path / "mlflow/artifacts/demo" / version.name.removeprefix("demo.") / version.digest[:32]
    old = mlflow.pyfunc.load_model(str(folder))
    names = PaAno.load(fetched[version.sensor]).facts.channel_names
    answer = old.predict(pd.DataFrame({name: np.sin(np.arange(600) / 9) for name in names}))
    assert len(answer) == 600 and answer["score"].notna().any()
    assert registry.sweep(dry_run=False, now=datetime.now(UTC) + timedelta(days=400), share=1).folders == []

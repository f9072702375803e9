"""`paano evaluate --history`: a sensor without labels, judged by injected faults."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from flows.evaluation.history import read_table, split
from paano.config import PaAnoConfig
from paano.errors import ConfigError, HistoryError, SeriesTooShort


@pytest.fixture
def table() -> pl.DataFrame:
    t = np.arange(900)
    rng = np.random.default_rng(0)
    flow = np.sin(t / 4) + 0.05 * rng.normal(size=len(t))
    return pl.DataFrame(
        {
            "ts": [datetime(2026, 1, 1) + timedelta(minutes=5 * int(i)) for i in t],
            "flow": flow,
            "pressure": 2 * flow + 0.05 * rng.normal(size=len(t)),
        }
    )


def test_every_kind_of_fault_is_measured_for_paano_and_the_baselines(run, table, tmp_path):
    table.write_parquet(tmp_path / "pump.parquet")
    result = run("--history", tmp_path / "pump.parquet", "--preset", "light", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["sensor"] == "pump"
    assert answer["channels"] == ["flow", "pressure"]
    wanted = {"spike", "drop", "drift", "flat", "noise", "warp", "lost_period", "broken_relation"}
    assert wanted <= set(answer["faults"])
    for detectors in answer["faults"].values():
        assert set(detectors) == {"paano", "pca", "kmeans", "iforest"}
    mean = np.mean([row["paano"] for row in answer["faults"].values()])
    assert answer["mean"]["paano"] == pytest.approx(mean)


def test_the_table_says_what_was_fitted_and_leaves_its_figures(run, table, tmp_path):
    table.select("ts", "flow").write_csv(tmp_path / "pump.csv")
    result = run("--history", tmp_path / "pump.csv", "--preset", "light", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "fitted on 630 rows" in result.stdout
    assert "broken relation" not in result.stdout  # one channel has none
    assert pl.read_parquet(tmp_path / "out" / "faults.parquet")["vus_pr"].is_between(0, 1).all()


def test_a_row_that_is_missing_from_the_file_is_a_row_without_values(table, tmp_path):
    shuffled = pl.concat([table[:100], table[104:]]).sample(fraction=1, shuffle=True, seed=1)
    shuffled.write_parquet(tmp_path / "pump.parquet")
    sensor = read_table(tmp_path / "pump.parquet")
    assert sensor.values.shape == (900, 2)
    assert np.flatnonzero(np.isnan(sensor.values[:, 0])).tolist() == [100, 101, 102, 103]
    np.testing.assert_allclose(sensor.values[200:, 0], table["flow"][200:])


def test_labels_are_no_channel(tmp_path):
    pl.DataFrame({"x": [1.0, 2.0], "Label": [0, 1]}).write_csv(tmp_path / "a.csv")
    assert read_table(tmp_path / "a.csv").channels == ["x"]


def test_a_history_that_cannot_be_used_is_refused_by_name(tmp_path):
    with pytest.raises(HistoryError, match="no such file"):
        read_table(tmp_path / "gone.csv")
    with pytest.raises(ConfigError, match=r"a\.xlsx"):
        read_table(tmp_path / "a.xlsx")
    (tmp_path / "bad.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(HistoryError, match=r"bad\.parquet"):
        read_table(tmp_path / "bad.parquet")
    pl.DataFrame({"name": ["a", "b"]}).write_csv(tmp_path / "words.csv")
    with pytest.raises(HistoryError, match="no column of numbers"):
        read_table(tmp_path / "words.csv")


def test_a_short_history_says_how_many_rows_it_needs():
    with pytest.raises(SeriesTooShort, match="672"):
        split(600, PaAnoConfig(patch=96))
    assert split(1000, PaAnoConfig(patch=96)) == (520, 480)


def test_a_sensor_of_a_fleet_is_judged_on_the_newest_of_its_history(run, table, tmp_path):
    from storage.history.reader import write_history

    rows = table.with_columns(pl.lit("pump-17").alias("sensor"), pl.col("ts").dt.replace_time_zone("UTC"))
    write_history(str(tmp_path / "history"), rows)
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('[history]\nurl = "history"\nlookback = "2d"\n')

    answer = run(
        "--history", fleet, "--sensor", "pump-17", "--as-of", "2026-01-04", "--preset", "light", "--json"
    )
    assert answer.exit_code == 0, answer.output
    facts = json.loads(answer.stdout)
    assert facts["sensor"] == "pump-17"
    assert facts["train_rows"] + facts["test_rows"] == 2 * 288

    unnamed = run("--history", fleet, "--preset", "light")
    assert unnamed.exit_code == 2
    assert "pump-17" in unnamed.output

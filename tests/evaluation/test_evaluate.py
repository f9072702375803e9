"""`paano evaluate FOLDER`: what it prints and leaves, how it goes on, and that workers change nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flows.evaluation import published
from flows.evaluation.command import configured
from flows.evaluation.run import Job, Kept, plan, run_job, run_jobs
from paano.errors import ConfigError
from paano.evaluation.metrics import MEASURES
from tests.evaluation.conftest import ROOT, TINY, write_series

FILE_KEYS = {"file", "subset", "seed", *MEASURES, "fit_s", "score_s"}
TINY_CONFIG = configured("light", TINY)


def tiny_jobs(folder: Path, seeds: int = 1) -> list[Job]:
    files = sorted(folder.glob("*.csv"))
    return plan(files, TINY_CONFIG, seeds=seeds, baselines=(), max_rows=None, device="cpu")[0]


def test_json_is_one_object_with_files_and_their_means(run, series_folder):
    result = run(series_folder, "--preset", "light", "--seeds", 2, "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert [set(row) for row in answer["files"]] == [FILE_KEYS] * 6  # 3 good files, 2 seeds
    assert {row["seed"] for row in answer["files"]} == {0, 1}
    for name in (*MEASURES, "fit_s", "score_s"):
        mean = sum(row[name] for row in answer["files"]) / 6
        assert answer["summary"][name] == pytest.approx(mean)


def test_a_damaged_file_is_named_and_skipped(run, series_folder):
    result = run(series_folder, "--preset", "light", "--json")
    skipped = json.loads(result.stdout)["skipped"]
    assert [skip["file"] for skip in skipped] == ["004_MSL_id_1_Sensor_tr_150_1st_9.csv"]
    assert "zero" in skipped[0]["reason"]
    assert result.exit_code == 0


def test_nothing_but_damaged_files_is_a_failure(run, series_folder):
    result = run(series_folder, "--files", "MSL", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["files"] == []


def test_tables_show_files_subsets_and_published_figures_marked_as_such(run, series_folder):
    text = run(series_folder, "--preset", "light", "--baseline").stdout
    for word in ("001_NAB_id_1_Traffic", "NAB (TSB-AD-U)", "SMD (TSB-AD-M)", "published", "kmeans"):
        assert word in text
    assert f"{published.of_subset('TSB-AD-U', 'NAB')['vus_pr']:.3f}" in text
    assert "other series of the same source" in text
    assert "skipped 004_MSL_id_1" in text


def test_a_subset_that_the_paper_does_not_cover_has_no_published_figures(run, tmp_path):
    write_series(tmp_path / "own", "boiler_tr_150.csv")
    result = run(tmp_path / "own", "--preset", "light")
    assert result.exit_code == 0, result.output
    assert "published" not in result.stdout
    answer = json.loads(run(tmp_path / "own", "--preset", "light", "--json").stdout)
    assert answer["published"] == []
    assert answer["subsets"][0]["published"] is None


@pytest.mark.parametrize("collection", published.collections())
def test_the_published_subsets_add_up_to_the_published_mean(collection):
    for name, mean in published.overall(collection).items():
        weighted = sum(
            published.of_subset(collection, subset)[name] * published.series_of(collection, subset)
            for subset in published.collections()[collection].subsets
        )
        assert weighted / published.series_of(collection) == pytest.approx(mean, abs=2e-3)


def test_a_setting_can_be_changed_and_a_wrong_one_is_refused_with_the_allowed_ones(run, series_folder):
    assert configured("light", ["model.width=0.25", "model.negative=median"]).negative == "median"
    with pytest.raises(ConfigError, match=r"model\.NAME=VALUE"):
        configured("light", ["width=0.5"])
    result = run(series_folder, "--set", "model.widht=0.5")
    assert result.exit_code == 2
    assert "model.width" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "no such folder"),
        ([], "either a FOLDER"),
        (["{folder}", "--files", "*KDD*"], "matches none of the 4 files"),
        (["{folder}", "--preset", "huge"], "light"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(run, series_folder, arguments, said):
    result = run(*(word.format(folder=series_folder) for word in arguments))
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_max_rows_cuts_each_file_and_says_so(run, series_folder):
    result = run(series_folder, "--preset", "light", "--files", "*00[12]*", "--max-rows", 300)
    assert "300*" in result.stdout
    assert "skipped 002_NAB" in result.stdout  # its anomaly comes later
    assert "no anomaly" in result.stdout


def test_a_finished_file_is_kept_and_belongs_to_its_content_and_settings(series_folder, tmp_path):
    kept = Kept(tmp_path / "kept")
    path = series_folder / "001_NAB_id_1_Traffic_tr_150_1st_280.csv"
    jobs = tiny_jobs(series_folder)[:1]
    assert jobs[0].path == str(path)
    again = []
    run_jobs(jobs, kept, workers=1)
    run_jobs(jobs, kept, workers=1, done=lambda job, row, was_kept: again.append(was_kept))
    assert again == [True]
    assert kept.get(tiny_jobs(series_folder, seeds=2)[1].key) is None  # another seed
    path.write_text(path.read_text() + "0.1,0\n")
    assert kept.get(tiny_jobs(series_folder)[0].key) is None  # other content


def test_a_damaged_kept_result_is_made_anew(series_folder, tmp_path):
    kept = Kept(tmp_path / "kept")
    job = tiny_jobs(series_folder)[0]
    row = run_job(job, kept.folder)
    (kept.folder / f"{job.key}.json").write_text('{"file": "001')
    assert kept.get(job.key) is None
    [(_, made)], _ = run_jobs([job], kept, workers=1)
    assert {name: made[name] for name in MEASURES} == {name: row[name] for name in MEASURES}


def test_a_run_of_two_workers_that_was_killed_goes_on_where_it_was_with_the_same_results(tmp_path):
    folder, out = tmp_path / "series", tmp_path / "out"
    for i in range(6):
        write_series(folder, f"{i:03}_NAB_id_{i}_X_tr_150_1st_280.csv", rows=3000, seed=i)
    settings = [word for setting in TINY for word in ("--set", setting)]
    command = [
        sys.executable,
        "-m",
        "flows.evaluation.command",
        str(folder),
        "--preset",
        "light",
        "--device",
        "cpu",
    ]
    command += ["--out", str(out), "--workers", "2", *settings]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        deadline = time.monotonic() + 120
        while not list(out.glob("kept/*.json")) and time.monotonic() < deadline:
            time.sleep(0.01)
        first.kill()
    time.sleep(0.5)  # its workers end by themselves

    kept, jobs, again = Kept(out / "kept"), tiny_jobs(folder), {}
    before = {job.file: kept.get(job.key) for job in jobs if kept.get(job.key)}
    assert before
    rows, skipped = run_jobs(
        jobs, kept, workers=1, done=lambda job, _, was_kept: again.setdefault(job.file, was_kept)
    )
    assert not skipped
    assert [job.file for job, _ in rows] == [job.file for job in jobs]
    assert {file for file, was_kept in again.items() if was_kept} == set(before)

    alone, _ = run_jobs(jobs, Kept(tmp_path / "alone"), workers=1)
    for job, row in alone:
        if job.file in before:
            assert {name: row[name] for name in MEASURES} == {
                name: before[job.file][name] for name in MEASURES
            }
            np.testing.assert_array_equal(kept.scores(job.key), Kept(tmp_path / "alone").scores(job.key))


def test_a_worker_that_dies_costs_only_its_own_file(tmp_path, monkeypatch):
    """A worker is killed as the kernel kills one when memory is short."""
    folder = tmp_path / "series"
    write_series(folder, "000_NAB_id_0_X_tr_150_1st_280.csv", rows=420)
    write_series(folder, "001_NAB_id_1_X_tr_150_1st_280.csv")
    monkeypatch.setattr("flows.evaluation.run.run_job", die_on_the_first_file)
    rows, skipped = run_jobs(tiny_jobs(folder), Kept(tmp_path / "kept"), workers=2)
    assert [job.file for job, _ in rows] == ["001_NAB_id_1_X_tr_150_1st_280.csv"]
    assert "died" in skipped[0].reason
    assert skipped[0].fault


def die_on_the_first_file(job: Job, folder: Path):
    if job.file.startswith("000"):
        os.kill(os.getpid(), signal.SIGKILL)
    return {"file": job.file, "vus_pr": 0.5}


def test_out_gets_results_and_scores_that_another_engine_reads(run, series_folder, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    out = tmp_path / "out"
    result = run(series_folder, "--preset", "light", "--baseline", "--out", out, "--json")
    assert result.exit_code == 0, result.output
    results = pl.read_parquet(out / "results.parquet")
    assert set(results["detector"]) == {"paano", "pca", "kmeans", "iforest"}
    scores = f"'{out}/scores.parquet'"
    query = f"select count(distinct file), count(score), sum(label::int) from {scores} where detector = 'pca'"
    assert duckdb.sql(query).fetchall() == [(3, 400 + 450 + 400, 3 * 15)]
    assert not list(out.glob("*.part"))


def test_a_real_series_is_scored_far_better_than_by_chance(run, data):
    folder = data / "TSB-AD-U-Tuning"
    result = run(
        folder, "--files", "300_TODS", "--preset", "untrained", "--max-rows", 3000, "--json", tiny=False
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["summary"]["auc_roc"] > 0.8

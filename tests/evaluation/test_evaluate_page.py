"""The page that `--out` leaves: complete, offline, safe, and drawn by a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from flows.evaluation.page import STRETCHES, _thinned


@pytest.fixture
def page(run, series_folder, tmp_path):
    out = tmp_path / "out"
    result = run(series_folder, "--preset", "light", "--baseline", "--out", out)
    assert result.exit_code == 0, result.output
    return out / "report.html"


def facts_of(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def test_the_page_holds_every_file_with_series_labels_and_scores(page):
    facts = facts_of(page.read_text(encoding="utf-8"))
    assert [row["file"][:7] for row in facts["files"]] == ["001_NAB", "002_NAB", "003_SMD"]
    for picture in facts["pictures"].values():
        assert picture["bands"]
        assert set(picture["scores"]) == {"paano", "pca", "kmeans", "iforest"}
    assert len(facts["pictures"]["003_SMD_id_1_Facility_tr_150_1st_280.csv"]["series"]) == 3
    assert "004_MSL" in facts["skipped"][0]
    assert facts["published"][0]["paano"]["vus_pr"] == 0.5296


def test_the_page_loads_nothing_from_elsewhere(page):
    text = page.read_text(encoding="utf-8")
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)\s*=\s*["\']?(?:https?:)?//', text)
    assert len(text) > 1_000_000  # plotly is inside


def test_a_name_cannot_break_out_of_the_page(run, series_folder):
    bad = series_folder / "005_<script>alert(1)<_id_1_X_tr_150_1st_280.csv"
    shutil.copy(series_folder / "001_NAB_id_1_Traffic_tr_150_1st_280.csv", bad)
    out = series_folder.parent / "out"
    assert run(series_folder, "--preset", "light", "--out", out).exit_code == 0
    assert "<script>alert(1)" not in (out / "report.html").read_text(encoding="utf-8")


def test_thinning_keeps_every_peak_and_the_order():
    values = np.random.default_rng(0).normal(size=100_000)
    values[77_777], values[5] = 50, np.nan
    thin = _thinned(values)
    assert len(thin["x"]) <= 2 * STRETCHES
    assert thin["x"] == sorted(thin["x"])
    assert 77_777 in thin["x"]
    assert max(y for y in thin["y"] if y is not None) == 50


def test_a_short_series_is_not_thinned_and_missing_values_stay_missing():
    assert _thinned(np.array([1.0, np.nan, 3.0])) == {"x": [0, 1, 2], "y": [1.0, None, 3.0]}


@pytest.mark.slow
def test_a_real_browser_draws_the_page_without_an_error(page, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on this machine")
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    options += ["--virtual-time-budget=30000", "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom"]
    drawn = subprocess.run(
        [browser, *options, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=180,
    ).stdout
    assert 'data-ready="yes"' in drawn  # the last line of the script was reached
    assert drawn.count('<tr class="file ') == 3 + 1  # each file, and the script itself
    assert drawn.count("main-svg") >= 2  # both pictures
    assert "labelled anomaly" in drawn

"""Prefect's own page of a night's run, in a real browser: what failed and why, and where to look further."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import fleets
import pytest
from chromium import requests, wait_for
from selenium.webdriver.common.by import By

from flows.processes.servers import prefect_server

pytestmark = pytest.mark.slow  # a server with pages takes half a minute to start

TEXT = "return document.body.innerText"
MODELS = "http://127.0.0.1:5000"  # only linked to


@pytest.fixture(scope="module")
def run_page(browser, tmp_path_factory):
    """The page of a run over three sensors: s00 has events, the history of s01 is damaged."""
    home = tmp_path_factory.mktemp("prefect-page")
    made = fleets.make(
        home / "fleet",
        sensors=3,
        fleet={"name": "plant"},
        run={"tolerated_failures": 0.5},
        registry={"page": MODELS},
        alarms={"thresholds": {"s00": 0.0}},
    )
    for path in (made.settings.folder / "history" / "s01").rglob("*.parquet"):
        path.write_bytes(b"not parquet")
    words = ["score", "--day", fleets.night(7), "-f", fleets.write_fleet_file(made.settings)]
    inherited = {name: value for name, value in os.environ.items() if name != "PREFECT_LOGGING_LEVEL"}
    with prefect_server(home / "prefect") as api:
        environment = {**inherited, "PREFECT_API_URL": api}
        subprocess.run([sys.executable, "-m", "flows.cli.app", *words], env=environment, check=True)
        asked = Request(f"{api}/flow_runs/filter", b"{}", {"Content-Type": "application/json"})
        with urlopen(asked) as answer:
            [run] = json.load(answer)
        yield f"{api.removesuffix('/api')}/runs/flow-run/{run['id']}"


def open_run(browser, address: str, awaited: str) -> str:
    """The text of a page of Prefect, once it says `awaited`; nothing was asked of another server."""
    requests(browser)
    browser.get(address)
    wait_for(browser, f"{TEXT}.includes({awaited!r})", 120)
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(address))
    assert all(each.startswith(origin) for each in requests(browser) if each.startswith("http"))
    return browser.execute_script(TEXT)


def artifacts_of(browser, address: str) -> dict[str, str]:
    """Key and address of every artifact on the page of a run."""
    open_run(browser, address, "Artifacts")
    browser.find_element(By.ID, "artifacts").click()
    wait_for(browser, f"{TEXT}.includes('paano-plant-score-night')")
    cards = browser.find_elements(By.CSS_SELECTOR, "a[href*='/artifacts/artifact/']")
    return {card.text.split("\n")[1]: card.get_attribute("href") for card in cards}


def links(browser) -> list[str]:
    return [each.get_attribute("href") for each in browser.find_elements(By.CSS_SELECTOR, "a[href]")]


def test_the_page_of_a_run_says_at_once_what_failed_and_why(browser, run_page):
    text = open_run(browser, run_page, "3 sensors: 2 ok, 0 skipped, 1 failed; failed: s01: ")
    assert f"plant: score {fleets.night(7)}" in text
    said = text.partition("1 failed; failed: s01: ")[2]
    assert "part-0000.parquet is empty or damaged" in said and "s01: s01" not in text
    assert f"the report of {fleets.night(7)}: " in said


def test_the_artifacts_of_a_run_are_of_this_fleet_and_lead_to_the_report_and_to_the_versions(
    browser, run_page
):
    found = artifacts_of(browser, run_page)
    assert {key for key in found if not key.endswith("-progress")} == {
        "paano-plant-score-night", "paano-plant-score-outcomes", "paano-plant-score-summary",
    }  # fmt: skip
    assert all(key.startswith("paano-plant-score-") for key in found)

    text = open_run(browser, found["paano-plant-score-summary"], "Worst sensors")
    assert "1 failed" in text and "is empty or damaged" in text
    assert f"{MODELS}/#/models/plant.s00/versions/1" in links(browser)

    text = open_run(browser, found["paano-plant-score-night"], "the fleet hour by hour")
    [report] = [link for link in links(browser) if link.startswith("file:")]
    assert report in text, "a browser does not follow it from here, so it can be read and copied"
    assert Path(unquote(urlsplit(report).path)).is_file()


def test_the_outcome_table_has_the_figures_of_all_sensors_though_one_failed(browser, run_page):
    text = open_run(browser, artifacts_of(browser, run_page)["paano-plant-score-outcomes"], "3 Items")
    head, _, rows = text.partition("3 Items")[2].partition("s01")
    assert {"sensor", "outcome", "events", "severity", "version"} <= set(head.split())
    assert rows.index("is empty or damaged") < rows.index("s00"), "what failed comes first"

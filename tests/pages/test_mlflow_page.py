"""MLflow's own pages of a version, in a real browser: what a reviewer sees without a word about paano."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from chromium import requests, wait_for
from hostile import HOSTILE

from flows.pages import pictures
from flows.work.model.review_test import run_review_test
from paano import PaAno
from storage.registry.figures import VersionFigures
from storage.registry.places import locate, logged_model_of
from storage.registry.registry import Registry
from storage.window import Window
from tests.servers import mlflow_server

TEXT = "return document.body.innerText"


@pytest.fixture(scope="module")
def registered(fleet, tmp_path_factory):
    """A version of the hostile sensor with a description, figures and all its pictures."""
    import fleets

    home = tmp_path_factory.mktemp("mlflow-page")
    newest = fleet.history.read(HOSTILE, Window(fleets.window_of(4).start, fleets.window_of(9).end))
    model = PaAno(fleet.settings.config(), device="cpu").fit(newest.values)
    model.save(home / "model", facts={"channel_names": list(newest.channels)})
    test = run_review_test(model, newest, fleet.settings, 0)
    registry = Registry(f"sqlite:///{home}/mlflow.db", home / "artifacts", "plant", home / "cache")
    version = registry.register(
        HOSTILE,
        home / "model",
        {"paano.kind": "trained"},
        "It passed the review test.",
        attachments=pictures.review(model, model, newest, test, test, fleet.settings),
        figures=VersionFigures(vus_pr=0.75, faults=test.faults, alarms=1.5, params={"preset": "light"}),
    )
    return home, registry, version


@pytest.fixture(scope="module")
def mlflow_page(registered):
    """The address of an MLflow server over that registry, as `paano demo` says to start it."""
    home = registered[0]
    with mlflow_server(home, backend=f"sqlite:///{home}/mlflow.db") as address:
        yield address


def open_mlflow(browser, address: str, awaited: str) -> str:
    """The text of a page of MLflow, once it says `awaited`."""
    requests(browser)
    browser.get("about:blank")
    browser.get(address)
    wait_for(browser, f"{TEXT}.includes({awaited!r})", 120)
    return browser.execute_script(TEXT)


def test_mlflows_page_of_a_version_shows_its_description_and_a_picture(browser, mlflow_page, registered):
    version = registered[2]
    name = quote(version.name, safe="")
    open_mlflow(
        browser, f"{mlflow_page}/#/models/{name}/versions/{version.version}", "It passed the review test."
    )
    seen = "return [...document.images].filter(i => i.src.includes('review') && i.naturalWidth > 100).length"
    assert wait_for(browser, seen, 60) >= 1
    assert browser.title != "hacked"
    asked = [each for each in requests(browser) if each.startswith("http")]
    assert all(each.startswith(mlflow_page) for each in asked)


def test_mlflows_page_of_the_logged_model_shows_metrics_settings_and_files(browser, mlflow_page, registered):
    _, registry, version = registered
    model = logged_model_of(locate(registry.artifacts, registry.fleet, version))
    page = f"{mlflow_page}/#/experiments/{registry.experiment}/models/{model}"
    text = open_mlflow(browser, page, "vus_pr.spike")
    assert "0.75" in text and "preset" in text and "light" in text
    open_mlflow(browser, page + "/artifacts", "review")
    assert browser.title != "hacked"

"""Debian's Chromium, driven by Selenium, without a screen and without a way out."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


def why_not() -> str:
    """Why no browser can be started here, or nothing."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed: `make setup` installs it"
    if not (BROWSER and DRIVER):
        return "no Chromium here: `apt-get install chromium chromium-driver`, or `make test-all`, installs it"
    return ""


@contextmanager
def chromium(folder: Path, width: int = 1280, height: int = 900) -> Iterator[Any]:
    """A browser with a profile of its own in `folder`; every name but this machine's is unknown to it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = BROWSER
    for flag in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
        "--disable-default-apps", "--lang=en-GB", "--force-prefers-reduced-motion",
        f"--window-size={width},{height}",
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", f"--user-data-dir={folder}",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield browser
    finally:
        browser.quit()


def open_page(browser: Any, url: str, seconds: float = 60.0) -> None:
    """Open a page and wait until its script has reached its last line."""
    browser.get(url)
    wait_for(browser, "return document.body && document.body.dataset.ready === 'yes'", seconds)


def wait_for(browser: Any, script: str, seconds: float = 60.0) -> Any:
    """The first true answer of `script`."""
    end = time.monotonic() + seconds
    while not (answer := browser.execute_script(script)):
        if time.monotonic() > end:
            raise AssertionError(f"not true within {seconds} s: {script}; {browser.get_log('browser')}")
        time.sleep(0.05)
    return answer


def complaints(browser: Any) -> list[str]:
    """Errors and warnings of the console since the last call."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] != "INFO"]


def requests(browser: Any) -> list[str]:
    """The addresses that pages asked for since the last call."""
    found = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            found.append(message["params"]["request"]["url"])
    return found

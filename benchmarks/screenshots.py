"""The pictures that README and docs show: `python -m benchmarks.screenshots demo/fleet.toml docs`.

The night report, the pages of the live view and the sheet of a version, as headless Chromium draws them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.pages import live_view
from flows.cli.console import load_fleet
from flows.pages.views import events, last_day, window_of
from tests.pages.chromium import chromium, open_page, wait_for, why_not

WIDTH, TALLEST = 1280, 1500


def pages_of(fleet_file: str) -> dict[str, str]:
    """File name and path of every page that is shown; of one sensor, that with the worst event."""
    fleet = load_fleet(fleet_file)
    if last_day(fleet) is None:
        raise SystemExit("no night is scored; `make demo` makes a fleet with some")
    found = events(fleet, window_of(fleet, "", "", days=3))
    many = [event for event in found if len(event.channels) > 1]
    sensor = (many or found)[0].sensor if found else fleet.history.sensors().sensors[0]
    return {
        "sensor": "/sensor?" + urlencode({"id": sensor}),
        "week": "/overview?days=7",
        "compare": "/group",
        "review": "/review",
        "sheet": "/review/sheet?" + urlencode({"id": sensor}),
    }


def take(browser: Any, address: str, path: Path, dark: bool = False) -> None:
    """One picture, as tall as the page but no taller than TALLEST."""
    if path.stem.startswith("sheet"):  # it has no script that could say when it is ready
        browser.get(address)
    else:
        open_page(browser, address)
    if "/sensor?" in address:
        wait_for(browser, "return document.body.dataset.parts === 'yes'")
    if dark:
        browser.execute_script("keepTheme('dark'); redrawAll()")
    height = browser.execute_script("return document.documentElement.scrollHeight")
    browser.set_window_size(WIDTH, min(TALLEST, height + 140))
    time.sleep(0.8)  # the pictures of events are drawn when they come into sight
    browser.save_screenshot(str(path))
    if dark:
        browser.execute_script("keepTheme('light')")
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("fleet_file", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    if reason := why_not():
        raise SystemExit(reason)
    given.folder.mkdir(parents=True, exist_ok=True)
    pages = pages_of(str(given.fleet_file))
    report = (given.fleet_file.parent / "reports" / "latest.html").resolve()
    with (
        tempfile.TemporaryDirectory(prefix="paano-screenshots-") as profile,
        chromium(Path(profile), WIDTH, 900) as browser,
        live_view(given.fleet_file) as address,
    ):
        take(browser, report.as_uri(), given.folder / "night-report.png")
        for name, path in pages.items():
            browser.set_window_size(WIDTH, 900)
            take(browser, address + path, given.folder / f"{name}.png")
        browser.set_window_size(WIDTH, 900)
        take(browser, address + pages["sensor"], given.folder / "sensor-dark.png", dark=True)


if __name__ == "__main__":
    main()

"""The pictures that README and docs show: `python -m benchmarks.screenshots demo/fleet.toml docs`.

The night report, the pages of the live view and the sheet of a version, as headless Chromium draws them. For
the operator's morning: an incident, its first sensor, and verdicts, which are given in a copy of the fleet.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image

from benchmarks.pages import live_view
from flows.cli.console import load_fleet
from flows.pages.night_report import write_report
from flows.pages.series import milliseconds
from flows.pages.views import events, last_day, window_of
from flows.run.days import day_of, day_window
from flows.run.fleet import Fleet
from flows.work.night.incidents import incidents_of
from flows.work.operations import judge_events
from storage.operations.verdicts import Verdict
from tests.pages.chromium import chromium, open_page, wait_for, why_not

WIDTH, TALLEST = 1280, 1500
COLOURS = 256


def pages_of(fleet: Fleet) -> dict[str, str]:
    """File name and path of every page that is shown; of one sensor, that with the worst event."""
    if last_day(fleet) is None:
        raise SystemExit("no night is scored; `make demo` makes a fleet with some")
    found = events(fleet, window_of(fleet, "", "", days=3))
    many = [event for event in found if len(event.channels) > 1]
    sensor = (many or found)[0].sensor if found else fleet.history.sensors().sensors[0]
    group = {"name": fleet.group_of(sensor)} if fleet.group_of(sensor) else {}
    return {
        "sensor": "/sensor?" + urlencode({"id": sensor}),
        "week": "/overview?days=7",
        "compare": "/group?" + urlencode(group),
        "review": "/review",
        "sheet": "/review/sheet?" + urlencode({"id": sensor}),
        **incident_pages(fleet),
    }


def incident_pages(fleet: Fleet) -> dict[str, str]:
    """The incident with the most sensors: these side by side, and the first to move, near its event."""
    window = window_of(fleet, "", "", days=3)
    rows = incidents_of(fleet, window).to_dicts()
    if not rows:
        return {}
    worst = max(rows, key=lambda row: (len(row["sensors"]), row["severity"] or 0.0))
    first, last = (day_of(fleet.settings, worst[name]) for name in ("start", "end"))
    days = {"since": str(first), "until": str(last)}
    [event] = [
        event for event in events(fleet, window, [worst["sensor"]]) if event.event_id == worst["events"][0]
    ]
    room = max(event.end - event.start, timedelta(hours=3))
    span = f"{milliseconds(event.start - room)},{milliseconds(event.end + room)}"
    sensors = [("id", sensor) for sensor in worst["sensors"]]
    return {
        "incident": "/group?" + urlencode([*sensors, *days.items()]),
        "expected": "/sensor?" + urlencode({"id": worst["sensor"], **days}) + f"#{span}",
    }


def judged_report(fleet_file: Path, folder: Path) -> str:
    """The report of the last night after two verdicts, in a copy of the fleet; its address."""
    shutil.copytree(fleet_file.parent, folder)
    fleet = load_fleet(str(folder / fleet_file.name))
    day = last_day(fleet)
    assert day is not None, "pages_of has looked"
    found = events(fleet, day_window(fleet.settings, day))
    for event, verdict in zip((found[0], found[-1]), (Verdict.CONFIRMED, Verdict.DISMISSED), strict=True):
        judge_events(fleet, [event.event_id], verdict, datetime.now(UTC), by="operator")
    return Path(write_report(fleet, day).address).resolve().as_uri()


def take(browser: Any, address: str, path: Path, dark: bool = False, only: str = "") -> None:
    """One picture, as tall as the page but no taller than TALLEST, or of the element that `only` selects."""
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
    part = browser.find_elements("css selector", only) if only else []
    (part[0].screenshot if part else browser.save_screenshot)(str(path))
    if dark:
        browser.execute_script("keepTheme('light')")
    with Image.open(path) as picture:  # of a page few colours are enough: half the size
        every, rare = picture.convert("RGB"), Image.Quantize.MAXCOVERAGE  # keeps the colours of thin lines
        few = every.quantize(COLOURS, rare, kmeans=1, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("fleet_file", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    if reason := why_not():
        raise SystemExit(reason)
    given.folder.mkdir(parents=True, exist_ok=True)
    pages = pages_of(load_fleet(str(given.fleet_file)))
    report = (given.fleet_file.parent / "reports" / "latest.html").resolve()
    with (
        tempfile.TemporaryDirectory(prefix="paano-screenshots-") as home,
        chromium(Path(home) / "profile", WIDTH, 900) as browser,
        live_view(given.fleet_file) as address,
    ):
        take(browser, report.as_uri(), given.folder / "night-report.png")
        for name, path in pages.items():
            browser.set_window_size(WIDTH, 900)
            take(browser, address + path, given.folder / f"{name}.png")
        browser.set_window_size(WIDTH, 900)
        take(browser, address + pages["sensor"], given.folder / "sensor-dark.png", dark=True)
        browser.set_window_size(WIDTH, 900)
        judged = judged_report(given.fleet_file, Path(home) / "judged")
        take(browser, judged, given.folder / "verdicts.png", only="section[aria-labelledby=events-title]")


if __name__ == "__main__":
    main()

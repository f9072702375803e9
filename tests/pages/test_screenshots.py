"""The pictures of README and docs can be made again: every one, from any scored fleet."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit
from urllib.request import url2pathname

import fleets
import polars as pl

from benchmarks.screenshots import judged_report, pages_of
from flows.run.fleet import open_fleet
from flows.work.night.incidents import incidents_of, update_incidents
from storage.window import Window

ROOT = Path(__file__).parents[2]
ALWAYS = {"night-report", "sensor-dark", "verdicts"}  # beside the pages of the live view


def with_incidents(fleet, folder):
    """A copy of the fleet as one group, with its incidents found."""
    copy = fleets.copy(fleet, folder)
    names = fleet.history.sensors().sensors
    pl.DataFrame({"sensor": names, "group": ["line-1"] * len(names)}).write_csv(folder / "catalog.csv")
    settings = copy.settings.model_copy(
        update={"history": copy.settings.history.model_copy(update={"catalog": "catalog.csv"})}
    )
    fleets.write_fleet_file(settings)
    grouped = open_fleet(settings)
    update_incidents(grouped, Window(fleets.window_of(7).start, fleets.window_of(9).end))
    return grouped


def test_every_picture_that_the_docs_show_is_one_that_make_screenshots_makes(fleet, tmp_path):
    made = {*pages_of(with_incidents(fleet, tmp_path / "fleet")), *ALWAYS}
    texts = [path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]]
    shown = {Path(name).stem for text in texts for name in re.findall(r"!\[[^]]*\]\(([^)]+\.png)\)", text)}
    assert shown and shown <= made, f"no command makes {shown - made}"


def test_an_incident_is_shown_by_its_sensors_and_by_the_first_of_them(fleet, tmp_path):
    grouped = with_incidents(fleet, tmp_path / "fleet")
    rows = incidents_of(grouped, Window(fleets.window_of(7).start, fleets.window_of(9).end)).to_dicts()
    pages = pages_of(grouped)
    asked = parse_qsl(urlsplit(pages["incident"]).query)
    assert [value for name, value in asked if name == "id"] in [row["sensors"] for row in rows]
    assert dict(parse_qsl(urlsplit(pages["expected"]).query))["id"] in {row["sensor"] for row in rows}
    assert "name=line-1" in pages["compare"]


def test_verdicts_for_the_picture_are_given_in_a_copy_only(fleet, tmp_path):
    grouped = with_incidents(fleet, tmp_path / "fleet")
    before = fleets.objects(grouped, "operations", "reports")
    report = judged_report(grouped.settings.folder / "fleet.toml", tmp_path / "judged")
    page = Path(url2pathname(urlsplit(report).path)).read_text()
    assert '"verdict":"confirmed"' in page and '"verdict":"dismissed"' in page
    assert fleets.objects(grouped, "operations", "reports") == before

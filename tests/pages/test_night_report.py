"""The report of a night: what it says, that it holds everything it shows, and that data cannot act in it."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import numpy as np
import pytest
from hostile import HOSTILE
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from flows.pages.night_facts import gather_night, level_of
from flows.pages.night_report import BINS, LATEST, report_of_run, small, write_report
from flows.pages.place import Place, file_name
from flows.pages.series import kept_rows, pack, runs_of, unpack


def data_of(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


@pytest.fixture(scope="module")
def page(fleet, last_night, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    written = write_report(fleet, last_night, out=str(out))
    return out / f"{last_night}.html", written


def test_the_facts_of_a_night_name_who_has_events_no_data_and_no_model(fleet, last_night):
    facts = gather_night(fleet, last_night)
    assert {event.sensor for event in facts.events} >= {HOSTILE, "s00"}
    assert [concern.sensor for concern in facts.no_data] == ["silent"]
    assert [concern.sensor for concern in facts.no_model] == ["young"]
    assert {concern.sensor for concern in facts.due} >= {"s00", "s01"}, "untrained models are due"
    numbers = {figure.name: figure for figure in facts.figures}
    assert numbers["events"].now == len(facts.events)
    assert numbers["sensors"].before >= 1, "the night before had events too"
    assert numbers["no_data"].now == 1


def test_a_sensor_that_has_left_the_fleet_keeps_its_events_in_the_report(fleet, last_night, tmp_path):
    import shutil

    import fleets

    copy = fleets.copy(fleet, tmp_path / "fleet")
    shutil.rmtree(copy.settings.folder / "history" / "s00")
    written, note = report_of_run(copy, last_night)
    assert written is not None, note
    data = data_of((copy.settings.folder / "reports" / f"{last_night}.html").read_text())
    assert {"s00", HOSTILE} <= {event["sensor"] for event in data["events"]}
    assert "s00" not in data["links"], "it has no page"


def test_every_figure_of_a_night_stands_beside_the_night_before_and_the_usual(fleet, last_night, tmp_path):
    from dataclasses import replace

    from flows.pages.night_facts import FEWEST
    from flows.run.report import run_store
    from storage.tables.runs import RunRow
    from storage.window import Window

    settings = fleet.settings.model_copy(
        update={"run": fleet.settings.run.model_copy(update={"url": str(tmp_path / "runs")})}
    )
    for back in range(1, FEWEST + 1):
        night = last_night - timedelta(days=back)
        rows = [
            RunRow("s00", "ok", figures={"rows": 48, "missing": 12}),
            RunRow("silent", "ok", figures={"rows": 48, "missing": 48}),
            RunRow("young", "skipped", "no_model: too young"),
            RunRow("s01", "failed" if back == 1 else "ok", figures={"rows": 48, "missing": 0}),
        ]
        run_store(settings, "score").keep(rows, Window.day(night).start, str(night))
    numbers = {f.name: f for f in gather_night(replace(fleet, settings=settings), last_night).figures}
    assert (numbers["scored"].before, numbers["scored"].usual) == (1, 2)
    assert numbers["missing"].before == numbers["missing"].usual == pytest.approx(60 / 144)
    assert (numbers["no_data"].before, numbers["no_model"].before) == (1, 1)
    assert (numbers["failed"].before, numbers["failed"].usual) == (1, 0)
    assert numbers["scored"].now == 4, "a sensor without a model or without values is not scored"


def test_the_map_has_a_mark_for_every_sensor_and_hour(fleet, last_night):
    rows = {row.sensor: row for row in gather_night(fleet, last_night).rows}
    assert set(rows) == set(fleet.history.sensors().sensors)
    assert all(len(row.cells) == 24 for row in rows.values())
    assert set(rows["silent"].cells) == {"x"}
    assert set(rows["young"].cells) <= {"m", "p"}
    assert set(rows["s00"].cells) <= set("012345") and set(rows["s00"].cells) & set("12345")
    worst = [row.worst for row in rows.values()]
    assert worst == sorted(worst, reverse=True)


def test_the_page_holds_everything_it_shows_and_lets_no_request_leave(page):
    text = page[0].read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)[1]
    assert "default-src &#39;none&#39;" in policy
    assert not re.findall(r'<(?:link|img|iframe|script)[^>]+(?:src|href)="(?!data:)', text)
    assert page[1].bytes == len(text.encode()) < 300_000


def test_a_hostile_name_is_text_in_the_page(page):
    text = page[0].read_text()
    assert "<img" not in text and "\x1b" not in text
    assert HOSTILE in {event["sensor"] for event in data_of(text)["events"]}


def test_links_of_the_report_lead_to_pages_beside_it(page):
    path, written = page
    links = data_of(path.read_text())["links"]
    assert set(links) >= {HOSTILE, "s00"}
    assert written.sensors == len(links)
    for link in links.values():
        other = path.parent / link
        assert other.is_file()
        assert f"../{path.name}" in other.read_text()
        assert "<img" not in other.read_text()


def test_links_lead_to_the_live_view_where_the_settings_name_it():
    place = Place(base="http://plant:8750")
    assert place.sensor("a/b ?<", None) == "http://plant:8750/sensor?id=a%2Fb+%3F%3C"
    assert Place.file().sensor("pump") == ""


def test_a_report_can_be_one_named_file(fleet, last_night, tmp_path):
    from flows.cli.app import app

    out = tmp_path / "deep" / "night.html"
    words = [
        "report",
        "--day",
        str(last_night),
        "--out",
        str(out),
        "-f",
        str(fleet.settings.folder / "fleet.toml"),
    ]
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["address"] == str(out)
    assert out.is_file() and (out.parent / "night").is_dir()


def test_the_newest_report_is_also_the_latest(fleet, last_night):
    folder = fleet.settings.folder / "reports"
    for day in (last_night, last_night - timedelta(days=1)):
        write_report(fleet, day)
    assert (folder / LATEST).read_bytes() == (folder / f"{last_night}.html").read_bytes()


def test_a_report_that_cannot_be_written_is_a_note_and_not_the_end_of_a_night(fleet, last_night, tmp_path):
    from dataclasses import replace

    (tmp_path / "taken").write_text("a file where a folder should be")
    settings = fleet.settings.model_copy(
        update={"report": fleet.settings.report.model_copy(update={"url": str(tmp_path / "taken")})}
    )
    written, note = report_of_run(replace(fleet, settings=settings), last_night)
    assert written is None
    assert note.startswith(f"the report of {last_night} could not be written")


@given(st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(float("nan"))), max_size=400))
def test_packing_keeps_values_to_a_four_thousandth_and_missing_ones_missing(values):
    array = np.array(values, dtype=float)
    known = array[np.isfinite(array)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    back = unpack(pack(array, low, high))
    assert np.array_equal(np.isnan(back), np.isnan(array))
    assert np.allclose(
        back, array, atol=(high - low or 1.0) / 4000 + 1e-5 * max(abs(low), abs(high)), equal_nan=True
    )


@given(st.integers(0, 3000), st.integers(0, 2**32 - 1))
def test_thinning_keeps_the_greatest_and_the_least_value(count, seed):
    values = np.random.default_rng(seed).normal(size=count)
    rows = kept_rows(values, stretches=50)
    assert len(rows) <= max(100, 1) or count <= 100
    if count:
        assert values[rows].max() == values.max() and values[rows].min() == values.min()
        thin = small(values)
        assert len(thin) <= 2 * BINS
        assert np.nanmax(thin) == values.max() and np.nanmin(thin) == values.min()


@given(st.lists(st.booleans()))
def test_runs_cover_exactly_the_true_values(flags):
    array = np.array(flags, dtype=bool)
    back = np.zeros(len(array), dtype=bool)
    for first, last in runs_of(array):
        assert first < last
        back[first:last] = True
    assert np.array_equal(back, array)


def test_file_names_of_sensors_are_safe_and_their_own():
    names = [file_name(sensor) for sensor in ("a/b", "a_b", "../../x", HOSTILE, "ß" * 300, ".", "")]
    assert len(set(names)) == len(names)
    assert all(
        re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*\.html", name) and len(name) < 100 for name in names
    )


def test_every_picture_of_the_report_has_the_expected_normal(fleet, last_night, tmp_path):
    """Also those of sensors that get no page of their own."""
    from dataclasses import replace

    settings = fleet.settings.model_copy(
        update={"report": fleet.settings.report.model_copy(update={"sensors": 0})}
    )
    write_report(replace(fleet, settings=settings), last_night, out=str(tmp_path / "night.html"))
    drawn = [
        event for event in data_of((tmp_path / "night.html").read_text())["events"] if event.get("picture")
    ]
    assert drawn and all("mid" in event["picture"] for event in drawn if event["cause"] != "silent")


def test_what_is_opened_is_an_address_that_a_browser_takes(page):
    assert page[1].link == page[0].as_uri()


def test_levels_of_severity_rise():
    assert [level_of(severity) for severity in (0.3, 1, 2, 3.5, 5, 7.9, 12)] == [1, 1, 2, 3, 4, 4, 5]

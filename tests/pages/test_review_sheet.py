"""The sheet of a new version: figures that show what they say, and names that cannot act."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import matplotlib.dates
import numpy as np
import pytest
from hostile import HOSTILE

from flows.pages import pictures
from flows.pages.review.figures import draw
from flows.pages.review.svg import Bars, Line, bars, numbers, plot
from flows.work.model.review_test import run_review_test
from paano import PaAno
from storage.window import Window


@pytest.fixture(scope="module")
def files(fleet):
    """What is put beside a version of the hostile sensor."""
    import fleets

    window = Window(fleets.window_of(4).start, fleets.window_of(9).end)
    newest = fleet.history.read(HOSTILE, window)
    model = PaAno(fleet.settings.config(), device="cpu").fit(newest.values)
    test = run_review_test(model, newest, fleet.settings, 0)
    return pictures.review(model, model, newest, test, test, fleet.settings)


def test_a_version_gets_pictures_and_a_sheet_with_all_of_them(files):
    assert {"scores.png", "faults.png", "review.html", "scores.svg", "faults.svg", "calibration.svg"} <= set(
        files
    )
    assert {"training.svg", "map.svg", "series.svg", "comparison.svg", "expected.svg"} <= set(files)
    sheet = files["review.html"].decode()
    assert sheet.count("<svg") == len([name for name in files if name.endswith(".svg")])
    assert "review test" in sheet and "champion" in sheet


def test_every_figure_is_well_formed_and_hostile_names_are_text(files):
    for name, data in files.items():
        if name.endswith(".svg"):
            ElementTree.fromstring(data)
        if not name.endswith(".png"):
            assert b"<img" not in data and b"\x1b" not in data
    assert "&lt;img" in files["review.html"].decode()
    assert "script-src &#39;none&#39;" in files["review.html"].decode()


def test_a_line_is_broken_where_values_are_missing():
    text = draw(plot("a", Line([0, 1, 2, 3], [1, 2, np.nan, 4], "score")))
    path = re.search(r'<path d="([^"]+)"', text)[1]
    assert path.count("M") == 2


def test_a_bar_is_as_long_as_its_value():
    text = draw(bars("a", Bars(["x", "y", "z"], [0.5, 1.0, float("nan")], "score")))
    wide = [float(each) for each in re.findall(r'<rect[^>]+ width="([\d.]+)"', text)]
    assert len(wide) == 2, "no bar for what is not known"
    assert wide[0] == pytest.approx(wide[1] / 2, rel=0.01)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 17.0), (1e-6, 2e-6), (1e9, 1.001e9)])
def test_numbers_of_an_axis_are_round_and_inside(low, high):
    found = numbers(low, high)
    assert 3 <= len(found) <= 11
    slack = 1e-6 * (high - low)
    assert all(low - slack <= value <= high + slack for value in found)


def test_a_legend_stays_within_its_figure():
    figure = plot("a", *(Line([0, 1], [0, 1], "score", "a name of some length " * 3) for _ in range(9)))
    assert all(x + 22 + 6 * len(text) <= figure.width for x, _, _, text, _ in figure.keys)
    assert figure.whole > max(y for _, y, *_ in figure.keys)


@pytest.mark.parametrize("value", [0.0, 2.0**63, -(2.0**64), 1e300, np.finfo(float).max])
def test_a_line_that_never_moves_can_be_drawn_at_any_height(value):
    plot("flat", Line(np.arange(5.0), np.full(5, value), "a"))


def test_a_figure_without_values_can_be_drawn():
    ElementTree.fromstring(draw(plot("nothing", Line([0.0], [np.nan], "score"))))


def test_the_picture_of_a_sensor_has_its_times_in_the_fleets_zone(fleet, last_night, monkeypatch):
    from flows.pages.views import sensor_view
    from flows.run.days import day_window

    drawn = []
    monkeypatch.setattr(pictures, "_png", lambda figure: drawn.append(figure) or b"")
    window = day_window(fleet.settings, last_night)
    view = sensor_view(fleet, "s00", window)
    pictures.night(fleet.history.read("s00", window), view.scores, view.events, fleet.settings.zone)
    drawn[0].draw_without_rendering()
    axis = drawn[0].axes[1].xaxis
    assert axis.get_label_text() == "Europe/Rome"
    first = axis.get_major_formatter()(matplotlib.dates.date2num(window.start))
    assert first.endswith("00") and "23" not in first.split()[-1], "the day begins at midnight in Rome"

"""A sensor with several channels: its page says how much of an event each of them made."""

from __future__ import annotations

from datetime import date

import fleets
import pytest
from chromium import complaints, wait_for
from selenium.webdriver.common.by import By

from flows.pages.place import Place
from flows.pages.sensor_page import gather, page_data, write_page
from flows.pages.views import sensor_view
from flows.run.fleet import fix_shards
from flows.work.night.night import score_days
from storage.window import Window

GUILTY, ALSO = "c1", "c2"
NIGHT = 9


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    """`three` has three channels: in the last night c1 leaves its range by far and c2 by a little."""
    fleet = fleets.make(tmp_path_factory.mktemp("shares") / "fleet", sensors=0, model={"level": "tail"})
    values = fleets.signal(3, 10 * 48, 3)
    fault = slice(NIGHT * 48 + 20, NIGHT * 48 + 28)
    values[fault, 1] += 60.0
    values[fault, 2] += 8.0
    fleets.write_sensor(fleet.settings, "three", values)
    one = fleets.signal(4, 10 * 48)
    one[fault] += 60.0
    fleets.write_sensor(fleet.settings, "one", one)
    fix_shards(fleet, 2)
    nights = [date.fromisoformat(fleets.night(number)) for number in (7, 8, NIGHT)]
    versions: dict = {}
    for name in ("three", "one"):
        score_days(fleet, nights, [name], versions)
    return fleet


def faulty(facts):
    """The event that the planted fault made: the most severe one."""
    return max(facts.view.events, key=lambda event: event.severity)


def test_the_channel_with_the_fault_has_the_largest_share_and_shares_are_parts_of_one(plant):
    facts = gather(plant, "three", fleets.window_of(NIGHT))
    shares = facts.shares[faulty(facts).event_id]
    assert sum(shares.values()) == pytest.approx(1.0, abs=0.01)
    ranked = sorted(shares, key=lambda name: -shares[name])
    assert ranked[:2] == [GUILTY, ALSO] and shares[GUILTY] > 0.5
    assert faulty(facts).channels[0] == GUILTY, "the stored event names it first too"
    data = page_data(plant, facts, Place.file())
    assert data["channels"][0]["name"] == GUILTY, "and it is drawn first"


def test_a_sensor_with_one_channel_has_no_shares_to_show(plant):
    facts = gather(plant, "one", fleets.window_of(NIGHT))
    assert facts.view.events and facts.shares == {}


def test_the_page_writes_the_share_beside_the_channel_and_in_the_list_of_events(plant, browser, tmp_path):
    window = Window(fleets.window_of(7).start, fleets.window_of(NIGHT).end)
    page = tmp_path / "three.html"
    write_page(plant, sensor_view(plant, "three", window), page)
    facts = gather(plant, "three", window)
    share = f"{round(100 * facts.shares[faulty(facts).event_id][GUILTY])} %"
    complaints(browser)
    browser.get(page.as_uri())
    wait_for(browser, "return document.body && document.body.dataset.ready === 'yes'")
    rows = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "td.name")]
    assert any(f"{GUILTY} {share}" in row for row in rows), rows
    titles = browser.execute_script("return DATA.channels.map(titleOf)")
    assert f"{GUILTY} · largest share, {share} of the event" in titles[0], titles
    assert complaints(browser) == []

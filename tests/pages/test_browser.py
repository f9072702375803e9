"""The pages in a real browser: they draw, filter, zoom, obey the keyboard, and nothing leaves them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from chromium import complaints, open_page, requests, wait_for
from hostile import HOSTILE
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from flows.pages.night_report import write_report

# The contrast of every text of the page with what it stands on, as the accessibility guidelines count it.
CONTRAST = """
  const part = v => v / 255 <= .04045 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
  const light = text => { const [r, g, b] = text.match(/[\\d.]+/g).map(part);
    return .2126 * r + .7152 * g + .0722 * b; };
  const paper = light(getComputedStyle(document.querySelector('section')).backgroundColor);
  const texts = 'section .soft, section h2, section a, .facts, .event .sev';
  return [...document.querySelectorAll(texts)].map(e => {
    const own = getComputedStyle(e), ink = light(own.color);
    const under = e.classList.contains('sev') ? light(own.backgroundColor) : paper;
    return (Math.max(ink, under) + .05) / (Math.min(ink, under) + .05); })"""


@pytest.fixture(scope="module")
def report(fleet, last_night, tmp_path_factory):
    """The report of the last night; its address as a file."""
    out = tmp_path_factory.mktemp("browser")
    write_report(fleet, last_night, out=str(out))
    return (out / f"{last_night}.html").as_uri()


@pytest.fixture(autouse=True)
def quiet(browser):
    """Whatever a test does, the console stays empty and every request stays with the page's origin."""
    complaints(browser), requests(browser)
    yield
    assert complaints(browser) == []
    for address in requests(browser):
        assert address.startswith(("file:///", "http://127.0.0.1:", "data:", "blob:")), address
    assert browser.title != "hacked"


def shown(browser) -> list[str]:
    return [each.get_attribute("data-sensor") for each in browser.find_elements(By.CSS_SELECTOR, ".event")]


def range_of(browser) -> tuple[int, int]:
    chart = browser.find_element(By.ID, "chart")
    return int(chart.get_attribute("data-from")), int(chart.get_attribute("data-to"))


def painted(browser, selector: str) -> int:
    """How many different colours a canvas shows."""
    return browser.execute_script(
        "const c = document.querySelector(arguments[0]);"
        "const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);"
        "return new Set(d).size",
        selector,
    )


def test_the_report_shows_events_pictures_and_the_map(browser, report):
    open_page(browser, report)
    assert set(shown(browser)) >= {HOSTILE, "s00"}
    wait_for(browser, "return document.querySelector('.event canvas').width > 0")
    assert painted(browser, ".event canvas") > 3
    assert painted(browser, "#map canvas") > 5
    assert browser.find_element(By.ID, "map").get_attribute("data-rows") == "6"


def test_a_hostile_name_is_text_and_does_nothing(browser, report):
    open_page(browser, report)
    names = [each.text for each in browser.find_elements(By.CSS_SELECTOR, ".event .who a")]
    assert any(name.startswith("<img src=x onerror=") for name in names)
    assert browser.execute_script("return document.images.length") == 0


def test_events_can_be_searched_and_filtered(browser, report):
    open_page(browser, report)
    everything = len(shown(browser))
    browser.find_element(By.TAG_NAME, "body").send_keys("/")
    search = browser.switch_to.active_element
    assert search.get_attribute("id") == "search"
    search.send_keys("s00")
    assert set(shown(browser)) == {"s00"}
    assert browser.find_element(By.ID, "map").get_attribute("data-rows") == "1"
    search.clear()
    search.send_keys("nothing is called this")
    assert shown(browser) == []
    assert "No event matches" in browser.find_element(By.ID, "events").text
    search.clear()
    search.send_keys(" ")
    assert len(shown(browser)) == everything
    least = browser.find_element(By.ID, "least")
    least.send_keys("severity 8")
    assert len(shown(browser)) < everything


def test_events_can_be_walked_with_the_keyboard_and_opened(browser, report):
    open_page(browser, report)
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys("j")
    first = browser.switch_to.active_element.get_attribute("data-sensor")
    assert first == shown(browser)[0]
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    wait_for(browser, "return document.getElementById('chart') !== null && document.body.dataset.ready")
    assert browser.execute_script("return DATA.sensor") == first


def test_a_sensor_is_opened_zoomed_and_moved(browser, report):
    open_page(browser, report)
    browser.find_element(By.CSS_SELECTOR, ".event .who a").click()
    wait_for(browser, "return document.getElementById('chart') !== null && document.body.dataset.ready")
    browser.find_element(By.ID, "all").click()
    whole = range_of(browser)
    browser.find_element(By.ID, "in").click()
    near = range_of(browser)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.01)
    chart = browser.find_element(By.ID, "chart")
    chart.send_keys("0")
    assert range_of(browser) == whole
    chart.send_keys("+")
    before = range_of(browser)
    chart.send_keys(Keys.ARROW_RIGHT)
    assert range_of(browser)[0] > before[0]
    browser.find_element(By.ID, "all").click()
    canvas = chart.find_element(By.TAG_NAME, "canvas")
    wide = canvas.size["width"]
    drag = ActionChains(browser).move_to_element_with_offset(canvas, -wide // 4, 0).click_and_hold()
    drag.move_by_offset(wide // 4, 5).release().perform()
    dragged = range_of(browser)
    assert whole[0] < dragged[0] < dragged[1] < whole[1]
    assert painted(browser, "#chart canvas") > 10
    ActionChains(browser).double_click(canvas).perform()
    assert range_of(browser) == whole
    assert browser.find_element(By.LINK_TEXT, "the night's report").get_attribute("href").endswith(".html")


def test_an_event_of_a_sensor_is_shown_when_it_is_chosen(browser, report):
    open_page(browser, report)
    browser.find_element(By.CSS_SELECTOR, ".event .who a").click()
    wait_for(browser, "return document.getElementById('chart') !== null && document.body.dataset.ready")
    browser.find_element(By.ID, "all").click()
    whole = range_of(browser)
    browser.find_element(By.CSS_SELECTOR, "#events button").click()
    event = browser.execute_script("return DATA.events[0]")
    seen = range_of(browser)
    assert seen[0] <= event["start"] and event["end"] <= seen[1]
    assert seen != whole or event["end"] - event["start"] > (whole[1] - whole[0]) / 3


def test_times_are_in_the_fleets_zone_with_utc_beside_them(browser, report):
    open_page(browser, report)
    moment = browser.find_element(By.CSS_SELECTOR, ".event time")
    hour = int(moment.text.split(", ")[1][:2])
    utc = int(moment.get_attribute("title").split()[1][:2])
    assert hour == (utc + 1) % 24, "Rome is an hour ahead in March"
    assert moment.get_attribute("title").endswith("UTC")


@pytest.mark.parametrize("severity", [1.0, 2.0, 3.0, 5.0, 9.0])
def test_a_severity_can_be_read_on_its_colour(browser, report, severity):
    open_page(browser, report)
    add = "document.querySelector('.event').replaceChildren(severityBadge(arguments[0]))"
    for _ in ("light", "dark"):
        browser.execute_script(add, severity)
        assert min(browser.execute_script(CONTRAST)) >= 4.5
        browser.find_element(By.ID, "theme").click()


def test_a_page_can_be_light_or_dark_and_text_stays_readable(browser, report):
    open_page(browser, report)
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = browser.execute_script(ground)
    browser.find_element(By.ID, "theme").click()
    dark = browser.execute_script(ground)
    assert light != dark
    assert min(browser.execute_script(CONTRAST)) >= 4.5
    browser.find_element(By.ID, "theme").click()
    open_page(browser, report)
    assert min(browser.execute_script(CONTRAST)) >= 4.5


def test_the_live_view_shows_a_night_a_sensor_and_its_parts(browser, live_view):
    open_page(browser, live_view + "/")
    assert HOSTILE in shown(browser)
    browser.find_element(By.CSS_SELECTOR, ".event .who a").click()
    wait_for(browser, "return document.body.dataset.parts === 'yes'")
    assert "part shape" in browser.find_element(By.ID, "legend").text
    whole = range_of(browser)
    browser.find_element(By.ID, "in").click()
    assert range_of(browser) != whole
    assert browser.execute_script("return document.images.length") == 0


def test_the_live_view_draws_the_expected_normal_under_the_events(browser, live_view):
    open_page(browser, live_view + "/")
    wait_for(browser, "return document.body.dataset.expected === 'yes'")
    assert "expected normal" in browser.find_element(By.ID, "picture-legend").text


@pytest.mark.parametrize("path", ["/", "/sensor?id=s00", "/overview?days=30", "/group", "/review"])
def test_a_page_fits_a_narrow_screen(browser, live_view, path):
    narrow = {"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    try:
        open_page(browser, live_view + path)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_night_leads_to_the_nights_beside_it_and_says_when_it_is_not_scored(browser, live_view, last_night):
    open_page(browser, f"{live_view}/night?day={last_night}")
    browser.find_element(By.CSS_SELECTOR, "[rel=next]").click()
    wait_for(
        browser, "return document.querySelector('.event') === null && document.body.dataset.ready === 'yes'"
    )
    assert str(last_night + timedelta(days=1)) in browser.current_url
    assert "This night is not scored" in browser.find_element(By.ID, "events").text
    browser.find_element(By.CSS_SELECTOR, "[rel=prev]").click()
    wait_for(
        browser, "return document.querySelector('.event') !== null && document.body.dataset.ready === 'yes'"
    )
    assert str(last_night) in browser.current_url


def test_a_bar_of_the_week_leads_to_its_night_also_with_the_keyboard(browser, live_view, last_night):
    open_page(browser, live_view + "/overview?days=7")
    bars = browser.find_elements(By.CSS_SELECTOR, "#nights a")
    events = browser.execute_script("return DATA.nights.map(night => night.reduce((a, b) => a + b, 0))")
    assert len(bars) == 7 and bars[-1].get_attribute("title") == f"{last_night}: {events[-1]} events"
    heights = [sum(each.size["height"] for each in bar.find_elements(By.TAG_NAME, "i")) for bar in bars]
    assert heights[-1] == pytest.approx(100, abs=1) and heights[0] == 0
    bars[-1].send_keys(Keys.ENTER)
    wait_for(browser, "return location.pathname === '/night' && document.body.dataset.ready === 'yes'")


def test_a_sheet_leads_back_to_the_sensor(browser, live_view):
    browser.get(live_view + "/review/sheet?id=s00")
    browser.find_element(By.LINK_TEXT, "sensor s00").click()
    wait_for(browser, "return location.pathname === '/sensor' && document.body.dataset.ready === 'yes'")


def test_a_sensor_says_which_rows_have_no_score(browser, live_view):
    open_page(browser, live_view + "/sensor?id=silent")
    without, rows = browser.execute_script("return [DATA.score.no_data, DATA.score.rows]")
    assert 0 < without < rows
    assert f"No data: {without} of {rows} rows" in browser.find_element(By.ID, "more").text
    assert "no value, or no score" in browser.find_element(By.ID, "legend").text


def test_the_live_view_has_weeks_groups_and_reviews(browser, live_view):
    for name in ("week", "month", "compare", "review"):
        open_page(browser, live_view + "/")
        browser.find_element(By.LINK_TEXT, name).click()
        wait_for(browser, "return document.body.dataset.ready === 'yes' && location.pathname !== '/'")
        assert browser.find_element(By.CSS_SELECTOR, "[aria-current]").text == name
    assert "untrained" in browser.find_element(By.ID, "rows").text


def test_a_cell_of_the_map_is_chosen_with_the_keyboard(browser, live_view, last_night):
    open_page(browser, live_view + "/overview?days=7")
    fleet_map = browser.find_element(By.ID, "map")
    fleet_map.send_keys(Keys.ARROW_DOWN, *[Keys.ARROW_RIGHT] * 6)
    first = browser.execute_script("return DATA.rows[0][0]")
    day = str(last_night - timedelta(days=1))
    said = fleet_map.get_attribute("aria-label").split("\n")
    assert said[0] == first and said[1] == day and said[2].startswith("severity")
    assert browser.find_element(By.CSS_SELECTOR, ".tip").text.split("\n")[1:] == said[1:]
    fleet_map.send_keys(Keys.ENTER)
    wait_for(browser, "return location.pathname === '/sensor' && document.body.dataset.ready === 'yes'")
    assert f"until={day}" in browser.current_url


def test_a_day_of_the_month_leads_to_the_sensor(browser, live_view):
    open_page(browser, live_view + "/overview?days=7")
    browser.find_element(By.ID, "map").send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    wait_for(browser, "return location.pathname === '/sensor' && document.body.dataset.ready === 'yes'")

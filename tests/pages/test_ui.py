"""The live view: what it answers, to whom, and that it only reads."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from urllib.parse import urlencode

import httpx
import pytest
from hostile import HOSTILE
from typer.testing import CliRunner

from flows.pages.ui import make_app
from paano.errors import ConfigError

PAGES = ["/", "/night", "/overview?days=30", "/sensor?id=s00", "/group", "/group?id=s00&id=s01", "/review"]


class Visitor:
    """A browser without a screen: asks the application, keeps cookies, follows redirects."""

    def __init__(self, app, base_url):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url=base_url)

    def request(self, method, path, **options):
        options.setdefault("follow_redirects", True)
        return asyncio.run(self.client.request(method, path, **options))

    def get(self, path, **options):
        return self.request("GET", path, **options)


@pytest.fixture(scope="module")
def view(fleet):
    return Visitor(make_app(fleet.settings), base_url="http://127.0.0.1")


def data_of(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_answered_and_holds_all_it_needs(view, path):
    answer = view.get(path)
    assert answer.status_code == 200
    assert not re.findall(r'<(?:link|img|iframe|script)[^>]+(?:src|href)="(?!data:)', answer.text)
    assert "<img" not in answer.text and "\x1b" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"


def test_a_hostile_sensor_has_a_page(view):
    answer = view.get("/sensor?" + urlencode({"id": HOSTILE}))
    assert answer.status_code == 200
    assert data_of(answer.text)["sensor"] == HOSTILE
    assert "<img" not in answer.text


def test_the_page_of_a_sensor_has_series_scores_events_and_versions(view):
    data = data_of(view.get("/sensor?id=s02").text)
    assert [channel["name"] for channel in data["channels"]] == ["c0", "c1", "c2"]
    assert data["score"]["rows"] == 3 * 48
    assert data["zone"] == "Europe/Rome"
    data = data_of(view.get("/sensor?id=s00").text)
    assert data["events"] and data["versions"][0]["version"] == 1


def test_parts_of_the_score_come_after_the_page(view):
    answer = view.get("/api/parts?id=s01").json()
    assert {"shape", "level"} <= set(answer["parts"])
    assert answer["notes"] == []


def test_a_zoomed_stretch_is_answered_in_full(view):
    whole = data_of(view.get("/sensor?id=s01").text)["channels"][0]["series"]
    begin = whole["t0"] + 100 * whole["step"]
    query = urlencode({"id": "s01", "from": int(begin), "to": int(begin + 20 * whole["step"])})
    fine = view.get(f"/api/series?{query}").json()["channels"]["c0"]
    assert len(fine["v"]) == 20
    assert fine["t0"] == begin


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("/sensor?id=s0x", 404, "did you mean"),
        ("/sensor", 400, "names no sensor"),
        ("/sensor?id=s00&since=garbage", 400, "write YYYY-MM-DD"),
        ("/night?day=<script>alert(1)</script>", 400, "&lt;script&gt;"),
        ("/overview?days=100000", 400, "too many"),
        ("/overview?days=x", 400, "not a number"),
        ("/api/series?id=s00&from=a&to=b", 400, "milliseconds"),
        ("/api/series?id=s00&from=5&to=1", 400, "end after"),
        ("/group?name=nosuch", 400, "no group"),
        ("/nowhere", 404, ""),
    ],
)
def test_what_cannot_be_shown_is_said(view, path, code, text):
    answer = view.get(path)
    assert answer.status_code == code
    assert text in answer.text
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_but_reading_is_answered(view, method):
    assert view.request(method, "/").status_code == 405


def test_days_are_those_of_the_fleets_zone(view, fleet, last_night):
    """Rome is ahead of UTC: its days begin on the date before."""
    text = view.get("/overview?days=7").text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    assert data["days"][-1] == str(last_night) and len(data["days"]) == 7
    cells = {row[0]: row[2] for row in data["rows"]}
    assert set(cells["s00"][:4]) == {"p"} and set(cells["s00"][-3:]) <= set("012345")
    week = last_night - timedelta(days=6)
    for path in (
        f"/sensor?id=s00&since={week}&until={last_night}",
        f"/group?since={week}&until={last_night}",
    ):
        shown = re.findall(r'name="(?:since|until)" value="([^"]+)"', view.get(path).text)
        assert shown == [str(week), str(last_night)], "the form names the days that are shown"


def test_earlier_and_later_are_ranges_of_the_same_length(view, last_night):
    since, step = last_night - timedelta(days=7), timedelta(days=8)
    shown = f"since={since}&until={last_night}"
    for path in (f"/sensor?id=s00&{shown}", f"/group?id=s00&id=s01&{shown}"):
        links = dict(re.findall(r'href="([^"]+)" rel="(prev|next)"', view.get(path).text))
        for link, rel in links.items():
            by = step if rel == "next" else -step
            assert link.replace("&amp;", "&") == path.replace(
                shown, f"since={since + by}&until={last_night + by}"
            )
        assert len(links) == 2
    text = view.get(f"/overview?days=8&until={last_night}").text
    assert f'href="/overview?days=8&amp;until={last_night - step}" rel="prev"' in text


def test_a_sheet_in_the_live_view_leads_back(view):
    text = view.get("/review/sheet?id=s00").text
    assert 'href="/review"' in text and 'href="/sensor?id=s00"' in text


def test_looking_writes_nothing(view, fleet):
    import fleets

    kinds = ("scores", "events", "history", "runs")
    before = fleets.objects(fleet, *kinds)
    for path in PAGES:
        view.get(path)
    assert fleets.objects(fleet, *kinds) == before


def test_another_name_for_this_machine_is_refused(fleet):
    """A page of another origin could otherwise read the view by a name it points here."""
    other = Visitor(make_app(fleet.settings), base_url="http://evil.example")
    assert other.get("/").status_code == 400


def test_another_address_is_served_only_with_a_token(fleet):
    with pytest.raises(ConfigError, match="--token"):
        make_app(fleet.settings, host="0.0.0.0")
    view = Visitor(make_app(fleet.settings, "sesame", "0.0.0.0"), base_url="http://plant")
    assert view.get("/review").status_code == 401
    assert view.get("/review?token=wrong").status_code == 401
    assert view.get("/review", headers={"authorization": "Bearer sesame"}).status_code == 200
    assert view.get("/review").status_code == 401, "a header is not kept"
    answer = view.get("/review?token=sesame", follow_redirects=False)
    assert answer.status_code == 307
    assert answer.headers["location"] == "/review", "the token leaves the address"
    assert "httponly" in answer.headers["set-cookie"].lower()
    assert view.get("/review").status_code == 200, "the cookie is enough from now on"


def test_what_needs_a_look_is_listed_the_worst_first(fleet):
    from flows.cli.app import app

    file = str(fleet.settings.folder / "fleet.toml")
    result = CliRunner().invoke(app, ["review", "-f", file, "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    whys = [row["why"] for row in rows]
    assert {"untrained", "no model"} <= set(whys)
    assert whys.index("untrained") < whys.index("no model")
    assert next(row["sensor"] for row in rows if row["why"] == "no model") == "young"
    text = CliRunner().invoke(app, ["review", "-f", file, "--quick"]).stdout
    assert "young" in text and "\x1b[31m" not in text


def test_the_sheet_of_a_version_can_be_written(fleet, tmp_path):
    from flows.cli.app import app

    out = tmp_path / "deep" / "sheet.html"
    file = str(fleet.settings.folder / "fleet.toml")
    result = CliRunner().invoke(app, ["review", "show", HOSTILE, "--out", str(out), "-f", file])
    assert result.exit_code == 0, result.output
    assert "&lt;img src=x" in out.read_text() and "<img src=x" not in out.read_text()

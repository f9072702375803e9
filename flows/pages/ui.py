"""`paano ui`: the pages over the stores, read-only.

On this machine alone by default. On another address every request needs the token: once in the address, then
kept in a cookie that scripts cannot read. Only GET is answered, nothing is written, and no page asks another
host for anything.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from flows.pages.html import environment, read_asset, render
from flows.pages.night_facts import gather_night
from flows.pages.night_report import pictures_of, render_night
from flows.pages.overview import render_group, render_overview
from flows.pages.place import Place
from flows.pages.review.needs_review import needs_review
from flows.pages.review.sheet import chosen_version, read_sheet
from flows.pages.sensor_page import gather, render_sensor
from flows.pages.series import EPOCH, page_series
from flows.pages.views import last_day, window_of
from flows.run.fleet import Fleet, open_fleet
from flows.settings.fleet_file import Settings
from paano.errors import ConfigError, PaanoError, Transient, UnknownSensor
from storage.window import Window, read_day

LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "paano-token"
FRESH = 60.0  # seconds for which the list of sensors is kept
WEEK = 7
LIVE = Place(live=True)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class OpenFleet:
    """The stores, opened again after a while: then new sensors and new credentials are seen."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._fleet: Fleet | None = None
        self._opened = 0.0

    def get(self) -> Fleet:
        with self._lock:
            if self._fleet is None or time.monotonic() - self._opened > FRESH:
                self._fleet, self._opened = open_fleet(self.settings), time.monotonic()
            return self._fleet


def make_app(settings: Settings, token: str = "", host: str = "127.0.0.1") -> Starlette:
    """The live view of a fleet.

    Args:
        settings: of the fleet.
        token: that every request must carry; empty only on this machine's own address.
        host: the address that is served.

    Raises:
        ConfigError: another address without a token.
    """
    if host not in LOOPBACK and not token:
        raise ConfigError(f"{host} can be reached by others; serve it with --token, or on 127.0.0.1")
    fleet = OpenFleet(settings)
    # A page of another origin must not reach the view by a name that leads to this machine.
    middleware = (
        []
        if token
        else [Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]"])]
    )
    middleware.append(Middleware(Guard, token=token))

    def page(make: Callable[[Fleet, Request], str]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            return HTMLResponse(make(fleet.get(), request))

        return answer

    def data(make: Callable[[Fleet, Request], dict[str, Any]]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            return JSONResponse(make(fleet.get(), request))

        return answer

    async def refuse(request: Request, error: Exception) -> Response:
        return error_page(settings, error)

    return Starlette(
        routes=[
            Route("/", page(show_night)),
            Route("/night", page(show_night)),
            Route("/overview", page(show_overview)),
            Route("/sensor", page(show_sensor)),
            Route("/group", page(show_group)),
            Route("/review", page(show_review)),
            Route("/review/sheet", page(show_sheet)),
            Route("/api/series", data(series_data)),
            Route("/api/parts", data(parts_data)),
            Route("/api/pictures", data(picture_data)),
        ],
        middleware=middleware,
        exception_handlers={PaanoError: refuse},
    )


class Guard:
    """Asks for the token where there is one, and adds the headers of every answer."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
            await send(message)

        answer: Callable[..., Awaitable[None]] = self.app
        if self.token:
            given = request.query_params.get("token", "")
            if self.matches(given):  # once in the address, then out of it
                rest = request.url.remove_query_params("token")
                kept = RedirectResponse(f"{rest.path}?{rest.query}" if rest.query else rest.path)
                kept.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
                answer = kept
            elif not (self.matches(request.cookies.get(COOKIE, "")) or self.matches(bearer(request))):
                answer = Response("A token is needed: ?token=… as `paano ui` printed it.", 401)
        await answer(scope, receive, send_guarded)

    def matches(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def bearer(request: Request) -> str:
    """The token of an Authorization header."""
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    return given if kind.lower() == "bearer" else ""


def error_page(settings: Settings, error: Exception) -> Response:
    """What went wrong, as a page with the links of all pages."""
    codes: list[tuple[type[Exception], int, str]] = [
        (UnknownSensor, 404, "There is no such sensor"),
        (ConfigError, 400, "This cannot be shown"),
        (Transient, 503, "A store does not answer"),
    ]
    code, heading = next(
        ((code, text) for kind, code, text in codes if isinstance(error, kind)), (500, "This failed")
    )
    text = render(
        "pages/error.html",
        {"zone": settings.zone},
        (read_asset("pages/draw.js"),),
        live=True,
        fleet=settings.fleet.name,
        heading=heading,
        message=str(error),
        place=LIVE,
    )
    return HTMLResponse(text, code)


# -- what is shown -------------------------------------------------------------------------------------------


def asked_day(fleet: Fleet, text: str) -> date:
    """The day in the address, or the last that is scored."""
    day = read_day(text) if text else last_day(fleet)
    if day is None:
        raise ConfigError("no night is scored yet; `paano score` scores one")
    return day


def asked_window(fleet: Fleet, request: Request, days: int = WEEK) -> Window:
    given = request.query_params
    window = window_of(fleet, given.get("since", ""), given.get("until", ""), days=days)
    if window.length > timedelta(days=400):
        raise ConfigError("more than 400 days are too many for a page")
    return window


def asked_sensor(request: Request) -> str:
    sensor = request.query_params.get("id", "")
    if not sensor:
        raise ConfigError("the address names no sensor: ?id=…")
    return sensor


def show_night(fleet: Fleet, request: Request) -> str:
    day = asked_day(fleet, request.query_params.get("day", ""))
    return render_night(fleet, gather_night(fleet, day), LIVE)


def show_overview(fleet: Fleet, request: Request) -> str:
    given = request.query_params
    days = given.get("days", str(WEEK))
    if not days.isdecimal():
        raise ConfigError(f"{days!r} is not a number of days")
    return render_overview(fleet, asked_day(fleet, given.get("until", "")), int(days), LIVE)


def show_sensor(fleet: Fleet, request: Request) -> str:
    """The page at once; the parts of the score and the expected normal are asked for by the page."""
    facts = gather(fleet, asked_sensor(request), asked_window(fleet, request), explain=False)
    return render_sensor(fleet, facts, LIVE)


def show_group(fleet: Fleet, request: Request) -> str:
    given = request.query_params
    sensors = list(dict.fromkeys(each for each in given.getlist("id") if each))
    return render_group(fleet, given.get("name", ""), sensors, asked_window(fleet, request), LIVE)


def show_review(fleet: Fleet, request: Request) -> str:
    rows = [row.to_dict() for row in needs_review(fleet, drift=False)]
    return render(
        "pages/review.html",
        {"zone": fleet.settings.zone, "rows": rows},
        (read_asset("pages/draw.js"), read_asset("pages/review.js")),
        live=True,
        fleet=fleet.settings.fleet.name,
        heading="What needs a look",
        place=LIVE,
        current="review",
    )


def show_sheet(fleet: Fleet, request: Request) -> str:
    """The sheet as it is kept, with links back to the pages that lead to it."""
    number = request.query_params.get("version", "")
    version = chosen_version(fleet, asked_sensor(request), int(number) if number.isdecimal() else None)
    links = environment().get_template("pages/sheet_links.html").render(place=LIVE, version=version)
    return read_sheet(fleet, version.sensor, version.version).replace("<main>", f"<main>\n{links}", 1)


def series_data(fleet: Fleet, request: Request) -> dict[str, Any]:
    """A shorter stretch of a sensor in full, for a page that was zoomed."""
    sensor, given = asked_sensor(request), request.query_params
    try:
        begin, end = (EPOCH + timedelta(milliseconds=int(given.get(name, ""))) for name in ("from", "to"))
    except (ValueError, OverflowError):
        raise ConfigError("?from= and ?to= are milliseconds since 1970") from None
    window = Window(begin, min(end, datetime.now(UTC) + timedelta(days=366)))
    reading = fleet.history.read(sensor, window)
    scores = fleet.scores.read(sensor, window, ["ts", "score"])
    answer: dict[str, Any] = {
        "channels": {
            name: page_series(reading.start, reading.interval, reading.values[:, column])
            for column, name in enumerate(reading.channels)
        },
        "score": None,
    }
    if scores.height > 1:
        values = scores["score"].fill_null(float("nan")).to_numpy().astype(np.float64)
        step = (scores["ts"][-1] - scores["ts"][0]) / (scores.height - 1)
        answer["score"] = page_series(scores["ts"][0], step, values)
    return answer


def parts_data(fleet: Fleet, request: Request) -> dict[str, Any]:
    """The parts of the score and the expected normal, for a page that is already there."""
    facts = gather(fleet, asked_sensor(request), asked_window(fleet, request))
    parts = {
        name: page_series(facts.scored.start, facts.scored.interval, values)
        for name, values in facts.parts.items()
        if facts.scored is not None
    }
    expected = {name: facts.expected.of(name) if facts.expected else None for name in facts.reading.channels}
    return {"parts": parts, "expected": expected, "shares": facts.shares, "notes": facts.notes}


def picture_data(fleet: Fleet, request: Request) -> dict[str, Any]:
    """The pictures of a sensor's events with the expected normal, for a night that is already there."""
    return pictures_of(fleet, asked_sensor(request), asked_day(fleet, request.query_params.get("day", "")))

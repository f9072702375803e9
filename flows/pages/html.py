"""Pages from Jinja2 templates: everything from data is escaped, and a page makes no request.

A page is one file: its styles and scripts stand inside it, its data as JSON in a script element. A policy in
its head (Content-Security-Policy) lets only these scripts run and no request leave, so that a text that got
past the escaping could still do nothing.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from flows.pages.escape import json_script, plain

PACKAGES = ("flows.pages", "flows.evaluation")


def read_asset(name: str) -> str:
    """A `.html`, `.css` or `.js` file of the package, as `pages/night.html` or `evaluation/page.js`."""
    folder, _, file = name.partition("/")
    package = f"flows.{folder}"
    if package not in PACKAGES or "/" in file or file.startswith("."):
        raise FileNotFoundError(f"{name} is not a file of the pages")
    return files(package).joinpath("web", file).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """The templates: an unknown name in one is an error, and every value is escaped."""
    found = Environment(
        loader=FunctionLoader(read_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Control characters have no place on a page, wherever a text comes from.
        finalize=lambda value: value if isinstance(value, Markup) else plain(value),
    )
    found.globals["asset"] = lambda name: Markup(read_asset(name))  # ours, not data
    return found


def render(
    template: str, data: Any = None, scripts: tuple[str, ...] = (), live: bool = False, **facts: Any
) -> str:
    """A whole page as text.

    Args:
        template: the page, as `pages/night.html`.
        data: what the scripts draw, as JSON in the element `data`.
        scripts: the texts of scripts that run, in order; nothing else can.
        live: the page may ask the server that it came from.
        facts: names that the template uses.
    """
    return (
        environment()
        .get_template(template)
        .render(
            data=Markup(json_script(data)),
            scripts=[Markup(script) for script in scripts],
            policy=policy(scripts, live),
            **facts,
        )
    )


def policy(scripts: tuple[str, ...], live: bool = False) -> str:
    """The Content-Security-Policy of a page with these scripts inside."""
    marks = " ".join(f"'sha256-{_digest(script)}'" for script in scripts) or "'none'"
    own = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {marks}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"base-uri 'none'; form-action {own}; connect-src {own}"
    )


@cache
def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

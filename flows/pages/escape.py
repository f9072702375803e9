"""Text from data on its way to a person: one function for each medium.

Sensor ids, channel names, reasons and file names come from data and can hold anything. HTML needs no function
here: every page is a Jinja2 template that escapes by itself (`flows.pages.html`).
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

# C0 without tab and line feed, DEL, C1, and the marks that turn the direction of writing.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&-])")


def plain(text: object) -> str:
    """Text that moves no cursor, changes no colour and hides nothing: control characters become `\\x1b`."""
    return _UNSEEN.sub(lambda found: _spelled(found[0]), str(text))


def one_line(text: object) -> str:
    """`plain` on one line: an id with a line feed in it cannot add a line of its own to a table."""
    return plain(text).replace("\n", "\\n").replace("\t", "\\t")


def markdown(text: object) -> str:
    """Text that Markdown shows as it is: in a paragraph, a list and a cell of a table."""
    return _MARKDOWN.sub(r"\\\1", " ".join(plain(text).split()))


def markdown_code(text: object) -> str:
    """Text as Markdown code, also in a cell of a table; a backtick cannot end it."""
    inside = " ".join(plain(text).split())
    fence = "`" * (max((len(run) for run in re.findall("`+", inside)), default=0) + 1)
    room = " " if inside.startswith("`") or inside.endswith("`") else ""
    return f"{fence}{room}{inside}{room}{fence}".replace("|", "\\|")


def json_line(value: Any) -> str:
    """JSON for a terminal or a pipe: readable, and without characters that a terminal obeys."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", _json(value, ensure_ascii=False))


def json_script(value: Any) -> str:
    """JSON to stand inside a script element of a page: it cannot end the element."""
    text = _json(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _json(value: Any, **form: Any) -> str:
    try:
        return json.dumps(value, default=str, allow_nan=False, **form)
    except ValueError:  # there is such a number: to look at each costs more than to write them
        return json.dumps(finite(value), default=str, allow_nan=False, **form)


def finite(value: Any) -> Any:
    """The same value with null for every number that JSON cannot hold (NaN, infinity)."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value


def _spelled(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"

"""Spans of time as people write them in the fleet file: `5min`, `1h`, `28d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|h|d|w)\s*")
_WORDS = 'a length of time such as "30s", "5min", "1h", "28d" or "2w"'


def parse(text: Any) -> timedelta:
    """The span that `text` names; ValueError says how to write one."""
    if isinstance(text, timedelta):
        return text
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not {_WORDS}")
    return timedelta(seconds=float(match[1]) * UNITS[match[2]])


def spell(span: timedelta) -> str:
    """`span` in the largest unit that gives a whole number."""
    micros = round(span.total_seconds() * 1e6)
    for unit in ("d", "h", "min", "s", "ms", "us"):
        size = round(UNITS[unit] * 1e6)
        if micros % size == 0:
            return f"{micros // size}{unit}"
    raise AssertionError("a timedelta is a whole number of microseconds")


Duration = Annotated[
    timedelta, BeforeValidator(parse), PlainSerializer(spell, return_type=str, when_used="always")
]

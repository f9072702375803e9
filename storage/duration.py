"""Lengths of time as people write them: `30s`, `5min` (or `5m`), `1h`, `28d`."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

MICROS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|m|h|d|w)\s*")
_WORDS = 'a length of time such as "30s", "5min", "1h", "28d" or "2w"'


def parse(value: object) -> timedelta:
    """The length of time that `value` names: a duration, or a number with a unit; `m` is minutes.

    Raises:
        ValueError: it is neither; the message says how to write one.
    """
    if isinstance(value, timedelta):
        return value
    match = _FORM.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not {_WORDS}")
    try:
        return timedelta(microseconds=round(Decimal(match[1]) * MICROS[match[2]]))
    except OverflowError as error:
        raise ValueError(f"{value!r} is longer than any calendar") from error


def spell(length: timedelta) -> str:
    """`length` in the largest unit that gives a whole number; `parse` gives it back."""
    micros = length // timedelta(microseconds=1)
    for unit in ("d", "h", "min", "s", "ms"):
        if micros % MICROS[unit] == 0:
            return f"{micros // MICROS[unit]}{unit}"
    return f"{micros}us"

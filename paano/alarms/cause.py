"""The cause of a score: which of its parts raised it."""

from __future__ import annotations

import math
from enum import StrEnum


class Cause(StrEnum):
    """A part of the score."""

    SHAPE = "shape"  # the patches are unlike those of the bank
    LEVEL = "level"  # height or movement are unlike those of the training series
    NEXT_VALUE = "next value"  # values are unlike what the values before them announced


MOST, SOME = 2 / 3, 1 / 4  # of a score: a part above the first is the cause alone, below the second no cause


def cause_of(shape: float, level: float, next_value: float = math.nan) -> str:
    """The part with more than two thirds of the score, or all that have a quarter of it.

    >>> cause_of(1.2, 9.0)
    'level'
    >>> cause_of(1.0, 2.0, 2.0)
    'level and next value'
    """
    found = {
        cause: part if math.isfinite(part) else 0.0
        for cause, part in zip(Cause, (shape, level, next_value), strict=True)
    }
    total = max(sum(found.values()), 1e-12)
    largest = max(found, key=found.__getitem__)
    if found[largest] > MOST * total:
        return largest.value
    causes = [cause.value for cause, part in found.items() if part >= SOME * total] or [largest.value]
    return " and ".join([", ".join(causes[:-1]), causes[-1]] if len(causes) > 1 else causes)

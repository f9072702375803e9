"""Trying again: one rule for every call that may work in a moment."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from paano.errors import Conflict, Transient

T = TypeVar("T")


def on_condition(call: Callable[[], T]) -> T:
    """`call()`, which reads an object, changes it and writes it back on the condition that nobody else did.

    Who meets another's write reads again; after a lost answer the next look shows whether it was written.
    """
    return patiently(call, (Conflict, Transient), attempts=50, first=0.02, longest=1.0)


def patiently(
    call: Callable[[], T],
    errors: type[Exception] | tuple[type[Exception], ...],
    *,
    attempts: int = 3,
    first: float = 0.2,
    longest: float = 2.0,
    seconds: float = 120.0,
) -> T:
    """`call()`, again after a pause while it raises one of `errors`; the last of these is raised at the end.

    Pauses double from `first` to `longest` seconds and are cut at random to between a half and the whole, so
    that two who disturb each other do not meet again.

    Args:
        call: what to do; only something that may be repeated.
        errors: what is worth another try.
        attempts: how often it is called at most.
        first: the longest first pause, in seconds.
        longest: the longest pause of all.
        seconds: after these no further try is begun.
    """
    deadline = time.monotonic() + seconds
    pause = first
    for _ in range(attempts - 1):
        try:
            return call()
        except errors:
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, longest)
    return call()

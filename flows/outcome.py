"""What became of each sensor in a run: `ok`, `skipped: …` or `failed: …`, with its figures."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from paano.errors import PaanoError, SeriesTooShort, Transient

log = logging.getLogger("paano.flows")


@dataclass(frozen=True)
class Outcome:
    """One sensor's row in the outcome table. Everything in it is plain, so that any engine can carry it."""

    sensor: str
    state: str  # ok, skipped, failed
    reason: str = ""
    batch: int = 0
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else self.state

    def to_dict(self) -> dict[str, Any]:
        return {"sensor": self.sensor, "outcome": self.text, "batch": self.batch, **self.figures}


def ok(sensor: str, reason: str = "", **figures: Any) -> Outcome:
    return Outcome(sensor, "ok", reason, figures=figures)


def skipped(sensor: str, reason: str, **figures: Any) -> Outcome:
    return Outcome(sensor, "skipped", reason, figures=figures)


def failed(sensor: str, error: BaseException | str) -> Outcome:
    """The sensor failed; an unexpected error carries its type, as it is ours to mend."""
    if isinstance(error, str | PaanoError):
        return Outcome(sensor, "failed", str(error))
    return Outcome(sensor, "failed", f"unexpected {type(error).__name__}: {error}")


def attempt(work: Callable[[str], Outcome], sensor: str, batch: int = 0) -> Outcome:
    """`work(sensor)`; whatever goes wrong with this one sensor becomes its outcome and stops no other.

    What may work in a while is raised, for the whole batch to be tried again. An unexpected error is logged
    with its traceback.
    """
    try:
        outcome = work(sensor)
    except Transient:
        raise
    except SeriesTooShort as error:  # a young sensor is nothing to mend
        outcome = skipped(sensor, f"no_model: {error}")
    except PaanoError as error:
        log.warning("%s (batch %d) failed: %s", sensor, batch, error)
        outcome = failed(sensor, error)
    except Exception as error:
        log.error("%s (batch %d) failed unexpectedly:\n%s", sensor, batch, traceback.format_exc())
        outcome = failed(sensor, error)
    return replace(outcome, batch=batch)


def count(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many ended in each state."""
    totals = {"ok": 0, "skipped": 0, "failed": 0}
    for outcome in outcomes:
        totals[outcome.state] += 1
    return totals

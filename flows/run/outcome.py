"""What became of each sensor in a run: `ok`, `skipped: …` or `failed: …`, with its figures."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypedDict, Unpack

from paano.errors import PaanoError, SeriesTooShort, Transient
from storage.secrets import clean

log = logging.getLogger("paano.flows")


class State(StrEnum):
    """How the work on one sensor ended."""

    OK = "ok"
    SKIPPED = "skipped"  # there was nothing to do, or not yet; the reason says which
    FAILED = "failed"


BY_BADNESS = (State.FAILED, State.SKIPPED, State.OK)


class Figures(TypedDict, total=False):
    """The figures of an outcome: columns of the outcome table. It is a plain dict for every engine."""

    # a night
    rows: int  # time steps of the night
    missing: int  # of them without data
    anomalies: int  # of them over the threshold
    highest: float | None  # score
    threshold: float
    repaired: str  # what was repaired in the history, with counts
    events: int  # that end in the night
    severity: float  # the highest of them
    # a model
    version: int | None
    champion: int | None
    kind: str
    why: str
    vus_pr: float | None
    champion_vus_pr: float | None
    alarms: float | None  # per 30 days
    champion_alarms: float | None
    channels: str  # of which it is made, and what was left out
    trained_to: str
    seconds: float
    # a check whether a model is due
    age_days: float
    ks: float | None
    psi: float | None
    alarm_days: int
    gaps: float | None
    note: str


@dataclass(frozen=True)
class Outcome:
    """One sensor's row in the outcome table. Everything in it is plain, so that any engine can carry it."""

    sensor: str
    state: State
    reason: str = ""
    batch: int = 0
    figures: Figures = field(default_factory=Figures)

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", State(self.state))

    @property
    def text(self) -> str:
        """The state with its reason, as tables show it."""
        return f"{self.state}: {self.reason}" if self.reason else str(self.state)

    def to_dict(self) -> dict[str, Any]:
        """The row of the outcome table."""
        return {"sensor": self.sensor, "outcome": self.text, "batch": self.batch, **self.figures}


def ok(sensor: str, reason: str = "", **figures: Unpack[Figures]) -> Outcome:
    """The work on `sensor` was done; `reason` is a remark."""
    return Outcome(sensor, State.OK, reason, figures=figures)


def skipped(sensor: str, reason: str, **figures: Unpack[Figures]) -> Outcome:
    """There was nothing to do for `sensor`, or not yet."""
    return Outcome(sensor, State.SKIPPED, reason, figures=figures)


def failed(sensor: str, error: BaseException | str) -> Outcome:
    """The sensor failed; an unexpected error carries its type, as it is ours to mend."""
    if isinstance(error, str | PaanoError):  # many an error begins with the sensor, as its row does
        return Outcome(sensor, State.FAILED, str(error).removeprefix(f"{sensor}: "))
    return Outcome(sensor, State.FAILED, clean(f"unexpected {type(error).__name__}: {error}"))


def attempt(work: Callable[[str], Outcome], sensor: str, batch: int = 0) -> Outcome:
    """`work(sensor)`; whatever goes wrong with this one sensor becomes its outcome and stops no other.

    What may work in a while is raised, for the whole batch to be tried again. An unexpected error is logged
    with its traceback.

    Raises:
        Transient: as `work` raised it.
    """
    try:
        outcome = work(sensor)
    except Transient:
        raise
    except SeriesTooShort as error:  # a young sensor is nothing to mend
        outcome = skipped(sensor, f"no_model: {error}")
    except PaanoError as error:
        outcome = failed(sensor, error)
        log.warning("%s (batch %d) failed: %s", sensor, batch, outcome.reason)
    except Exception as error:
        log.error("%s (batch %d) failed unexpectedly:\n%s", sensor, batch, traceback.format_exc())
        outcome = failed(sensor, error)
    return replace(outcome, batch=batch)


def count(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many ended in each state."""
    totals = {str(state): 0 for state in State}
    for outcome in outcomes:
        totals[outcome.state] += 1
    return totals

"""The label-free review: how well a model finds faults put into recent normal data, and how often it alarms.

Champion and challenger are tried on the same data with the same faults. The data is the newest history, which
the challenger was not trained on.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from flows.settings import Settings
from paano import PaAno
from paano.events import find_events
from paano.inject import fault_test
from storage.history import Reading


@dataclass(frozen=True)
class Trial:
    """What one model showed."""

    faults: dict[str, float] = field(default_factory=dict)  # VUS-PR by kind of fault
    vus_pr: float = math.nan  # their mean
    events: int = 0  # in the data as it was
    days: float = 0.0  # of data that had a score

    @property
    def alarms(self) -> float:
        """Events per 30 days."""
        return self.events * 30 / self.days if self.days else math.nan

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "alarms": self.alarms}


@dataclass(frozen=True)
class Verdict:
    """Whether a challenger is good enough, and why."""

    passed: bool
    reason: str


def try_model(model: PaAno, reading: Reading, settings: Settings, seed: int) -> Trial:
    """The review test of `model` on `reading`."""
    seconds = reading.interval.total_seconds()
    found = model.detect(reading.values)
    threshold = model.calibration.threshold(settings.alarms.budget, seconds)
    events = find_events(
        reading.ts,
        found.score,
        found.status,
        threshold,
        sensor=reading.sensor,
        merge=model.calibration.merge,
        interval=reading.interval,
    )
    scored = int(np.isfinite(found.score).sum())
    faults = fault_test(model, reading.values, seed=seed, patch=model.config.patch)
    return Trial(faults, faults.pop("mean"), len(events), scored * seconds / 86_400)


def judge(challenger: Trial, champion: Trial | None, settings: Settings) -> Verdict:
    """Not worse than the champion in finding faults and in alarms; a first model must reach the floor."""
    rules = settings.retrain
    if math.isnan(challenger.vus_pr):
        return Verdict(False, "the newest history is too short for the review test")
    figure = f"review test VUS-PR {challenger.vus_pr:.3f}"
    if champion is None or math.isnan(champion.vus_pr):
        passed = challenger.vus_pr >= rules.floor
        return Verdict(passed, f"{figure}, a first model needs {rules.floor:g}")
    figure += f" against {champion.vus_pr:.3f}, events {challenger.events} against {champion.events}"
    if challenger.vus_pr < champion.vus_pr - rules.worse:
        return Verdict(False, f"finds injected faults worse: {figure}")
    expected = math.ceil(settings.alarms.budget * challenger.days / 30)
    if challenger.events > max(champion.events, expected):
        return Verdict(False, f"alarms more often: {figure}")
    return Verdict(True, f"not worse: {figure}")

"""The review test, without labels: how well a model finds injected faults, and how often it alarms.

Champion and challenger are tested on the same data with the same faults. The data is the newest history, that
the challenger was not trained on. Events are counted by the rule that scoring uses, its second look at the
values included, so a recommendation is about the alarms that people would get.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from flows.settings.fleet_file import Settings
from flows.work.alarm_rule import alarm_rule, faults_between
from paano import PaAno
from paano.alarms.events import find_events
from paano.evaluation.inject import fault_test
from paano.model import remembering
from storage.history.reader import Reading

SHOWN = 3  # objections in a reason


@dataclass(frozen=True)
class ReviewTest:
    """The result of one model."""

    faults: dict[str, float] = field(default_factory=dict)  # VUS-PR by kind of fault
    vus_pr: float = math.nan  # their mean
    events: int = 0  # in the data as it was
    days: float = 0.0  # of data that had a score
    objections: tuple[str, ...] = ()  # where it contradicts what people said of the past
    # of each row of the data as it was, for the pictures
    scores: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32), repr=False, compare=False)

    @property
    def alarms(self) -> float:
        """Events per 30 days."""
        return self.events * 30 / self.days if self.days else math.nan


@dataclass(frozen=True)
class Recommendation:
    """Whether a challenger is good enough, and why."""

    passed: bool
    reason: str


def run_review_test(model: PaAno, reading: Reading, settings: Settings, seed: int) -> ReviewTest:
    """The review test of `model` on `reading`; `seed` decides where the faults are put."""
    model = remembering(model)  # the faults change a part of the rows only
    found = model.detect(reading.values)
    rule = alarm_rule(settings, reading.sensor, model.calibration, reading.interval)
    events = find_events(
        reading.ts,
        found.score,
        found.status,
        rule.threshold,
        sensor=reading.sensor,
        merge=rule.merge,
        interval=reading.interval,
        longest=rule.longest,
        edges=lambda start, end, _version: faults_between(model, reading, start, end),
    )
    scored = int(np.isfinite(found.score).sum())
    faults = fault_test(model, reading.values, seed=seed, patch=model.config.patch)
    mean = faults.pop("mean")
    days = scored * reading.interval.total_seconds() / 86_400
    return ReviewTest(faults, mean, len(events), days, scores=found.score)


def recommend(challenger: ReviewTest, champion: ReviewTest | None, settings: Settings) -> Recommendation:
    """In line with what people said, and not worse than the champion in finding faults and in alarms.

    A first model must reach retrain.floor.
    """
    rules = settings.retrain
    if math.isnan(challenger.vus_pr):
        return Recommendation(False, "the newest history is too short for the review test")
    if challenger.objections:
        more = len(challenger.objections) - SHOWN
        shown = "; ".join(challenger.objections[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
        return Recommendation(False, f"contradicts what people said: {shown}")
    figure = f"review test VUS-PR {challenger.vus_pr:.3f}"
    if champion is None or math.isnan(champion.vus_pr):
        passed = challenger.vus_pr >= rules.floor
        return Recommendation(passed, f"{figure}, a first model needs {rules.floor:g}")
    figure += f" against {champion.vus_pr:.3f}, events {challenger.events} against {champion.events}"
    if challenger.vus_pr < champion.vus_pr - rules.worse:
        return Recommendation(False, f"finds injected faults worse: {figure}")
    expected = math.ceil(settings.alarms.budget * challenger.days / 30)
    if challenger.events > max(champion.events, expected):
        return Recommendation(False, f"alarms more often: {figure}")
    return Recommendation(True, f"not worse: {figure}")

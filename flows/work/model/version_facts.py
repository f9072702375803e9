"""What a version says of itself: the facts in model.json, the tags and the description in MLflow.

People can edit tags in the MLflow pages, so what a run depends on is read from model.json, which the digest
of the version covers. `storage.registry.tags` reads tags.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from flows.settings.fleet_file import Settings
from flows.work.alarm_rule import alarm_rule
from paano.alarms.repeats import longest_repeats
from paano.config import PaAnoConfig
from paano.facts import ModelFacts
from storage.history.reader import Reading
from storage.registry.figures import VersionFigures
from storage.registry.registry import Version
from storage.registry.tags import NOT_PASSED, PASSED

if TYPE_CHECKING:  # torch takes seconds to import, and who looks at a fleet needs the kinds only
    from flows.work.model.review_test import Recommendation, ReviewTest
    from paano import PaAno


class Kind(StrEnum):
    """How a version was made."""

    UNTRAINED = "untrained"
    TRAINED = "trained"
    REFRESHED = "refreshed"
    RENAMED = "renamed"


def recipe(kind: str, reading: Reading, config: PaAnoConfig, *more: Any) -> str:
    """Sixteen digits that stand for all that decides a version."""
    decisive = [str(kind), reading.digest, config.digest, *map(str, more)]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]


def facts_of(
    reading: Reading, kind: str, config: PaAnoConfig, former: ModelFacts | None = None
) -> ModelFacts:
    """The facts of a model that is made from `reading`, and of a `former` one that it goes on with."""
    repeats = longest_repeats(reading.values, config.max_gap)
    if former is not None and former.longest_repeats:
        repeats = [max(pair) for pair in zip(repeats, former.longest_repeats, strict=True)]
    return ModelFacts.of(
        sensor=reading.sensor,
        kind=str(kind),
        interval=reading.interval,
        channel_names=reading.channels,
        window_start=reading.start,
        window_end=reading.end,
        data_digest=reading.digest,
        longest_repeats=repeats,
    )


def tags_of(facts: ModelFacts, config: PaAnoConfig, mark: str) -> dict[str, str]:
    """The tags that every version has; `mark` is its recipe."""
    tags = {
        "kind": facts.kind,
        "interval_seconds": str(facts.interval_seconds),
        "window_start": facts.window_start.isoformat(),
        "window_end": facts.window_end.isoformat(),
        "data_digest": facts.data_digest,
        "channels": str(len(facts.channel_names)),
        "config_digest": config.digest,
        "recipe": mark,
    }
    return {f"paano.{key}": value for key, value in tags.items()}


def figures_of(
    model: PaAno, facts: ModelFacts, settings: Settings, test: ReviewTest | None = None
) -> VersionFigures:
    """What MLflow's table of models shows of a version; `settings` are those of its sensor."""
    preset = PaAnoConfig.preset(settings.model.preset).to_dict()
    differs = {key: value for key, value in model.config.to_dict().items() if value != preset[key]}
    params = {
        "preset": str(settings.model.preset),
        **{f"model.{key}": str(value) for key, value in sorted(differs.items())},
        "window_start": facts.window_start.isoformat(),
        "window_end": facts.window_end.isoformat(),
    }
    return VersionFigures(
        vus_pr=test.vus_pr if test else None,
        faults=test.faults if test else {},
        alarms=test.alarms if test else None,
        threshold=alarm_rule(settings, facts.sensor, model.calibration, facts.interval).threshold,
        losses=[step["loss"] for step in model.losses] if facts.kind == Kind.TRAINED else [],
        fit_seconds=sum(model.seconds.values()) if model.seconds else None,
        params=params,
        data_digest=facts.data_digest,
    )


def review_tags(
    recommendation: Recommendation, test: ReviewTest, champion: Version | None, why: str
) -> dict[str, str]:
    """The tags of a version that went through a review test."""
    tags = {
        "recommendation": PASSED if recommendation.passed else NOT_PASSED,
        "reason": recommendation.reason,
        "why": why,
        "vus_pr": f"{test.vus_pr:.4f}",
        "alarms": f"{test.alarms:.2f}",
        "previous": str(champion.version) if champion else "",
    }
    tags |= {f"vus_pr.{fault}": f"{value:.4f}" for fault, value in test.faults.items()}
    return {f"paano.{key}": value for key, value in tags.items()}


def describe(
    kind: str,
    why: str,
    recommendation: Recommendation,
    test: ReviewTest,
    against: ReviewTest | None,
    champion: Version | None,
) -> str:
    """The version's description in MLflow, in Markdown."""
    other = f"champion (version {champion.version})" if champion and against else "champion"
    lines = [
        f"**{'Passed' if recommendation.passed else 'Not passed'}**: {recommendation.reason}.",
        "",
        f"A {kind} model. Why it was made: {why}.",
        "",
        f"| review test | this version | {other} |",
        "|---|---|---|",
        _line("VUS-PR, mean", test.vus_pr, against.vus_pr if against else None),
        *(
            _line(f"VUS-PR, {fault}", value, against.faults.get(fault) if against else None)
            for fault, value in test.faults.items()
        ),
        _line("alarms per 30 days", test.alarms, against.alarms if against else None),
    ]
    return "\n".join(lines)


def _line(title: str, this: float, other: float | None) -> str:
    return f"| {title} | {this:.3f} | {'–' if other is None else f'{other:.3f}'} |"

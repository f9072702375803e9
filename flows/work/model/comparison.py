"""Champion and challenger through the review test again, on the newest history."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from flows.run.fleet import Fleet
from flows.run.outcome import Outcome, ok, skipped
from flows.run.plan import sensor_seed
from flows.work.known_periods import leave_out, taught
from flows.work.model.review_test import recommend, run_review_test
from flows.work.model.training import open_model
from flows.work.model.training_history import SMALLEST_REVIEW, begun, hold_out
from flows.work.model.verdict_test import objections
from paano.device import compute_threads
from storage.registry.registry import Version
from storage.window import Window


def compare(
    fleet: Fleet, sensor: str, as_of: datetime, challenger: Version, champion: Version | None
) -> Outcome:
    """The review test of both on the history that a training as of `as_of` would hold out."""
    settings = fleet.settings_for(sensor)
    model = open_model(fleet, challenger)
    step = model.facts.interval
    window = Window(as_of - settings.history.lookback, as_of)
    raw = begun(fleet.history.read(sensor, window, step, model.facts.channel_names))
    said = taught(fleet, sensor, window, step)
    whole = begun(leave_out(raw, said.left_out, model.config.max_gap))
    past, newest = hold_out(whole, settings, model.config)
    need = SMALLEST_REVIEW * model.config.patch
    if len(newest) < need:
        return skipped(
            sensor,
            f"too short a history for a review test: {whole.rows} points before {as_of:%Y-%m-%d %H:%M}, of "
            f"which the newest third must have {need}; widen history.lookback or give a later --as-of",
            version=challenger.version,
        )
    former = open_model(fleet, champion) if champion else None
    if former is not None and former.channels != model.channels:
        former = None  # the sensor got or lost channels: there is nothing to compare with
    seed = sensor_seed(settings.fleet.seed, sensor)
    with compute_threads(settings.run.threads):
        test = dataclasses.replace(
            run_review_test(model, newest, settings, seed),
            objections=objections(model, model.facts, raw, said, settings),
        )
        against = run_review_test(former, newest, settings, seed) if former else None
    recommendation = recommend(test, against, settings)
    passes = "passes" if recommendation.passed else "does not pass"
    outcome = ok(
        sensor,
        f"version {challenger.version} {passes}: {recommendation.reason}",
        version=challenger.version,
        champion=champion.version if champion else None,
        vus_pr=round(test.vus_pr, 4),
        champion_vus_pr=round(against.vus_pr, 4) if against else None,
        alarms=round(test.alarms, 2),
        champion_alarms=round(against.alarms, 2) if against else None,
    )
    if model.facts.window_end > past.end:
        outcome.figures["note"] = "the challenger was trained on a part of this history"
    return outcome

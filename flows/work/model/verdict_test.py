"""The part of the review test that people wrote: a new model stays quiet where they dismissed an event, and
finds what they confirmed."""

from __future__ import annotations

import numpy as np

from flows.settings.fleet_file import Settings
from flows.work.alarm_rule import alarm_rule, stuck_rows
from flows.work.known_periods import Taught, rows_of
from paano import PaAno, PaAnoConfig
from paano.alarms.events import anomalous
from paano.alarms.repeats import longest_repeats
from paano.facts import ModelFacts
from storage.history.reader import Reading
from storage.window import Window


def around(whole: Reading, part: Window, config: PaAnoConfig) -> Reading:
    """As much of `whole` as makes the scores of `part` exact."""
    lead = 2 * config.context * whole.interval
    return whole.cut(part.widen(lead, lead))


def rings(model: PaAno, whole: Reading, part: Window, settings: Settings) -> bool | None:
    """Whether `model` alarms in `part` of `whole`; None where no row of it can be scored."""
    near = around(whole, part, model.config)
    rows = rows_of(near, part)
    if not len(rows) or not near.rows:
        return None
    found = model.detect(near.values)
    rule = alarm_rule(settings, whole.sensor, model.calibration, whole.interval)
    if np.isnan(found.score[rows]).all():
        return None
    return bool(anomalous(found.score[rows], found.status[rows], rule.threshold).any())


def repeats(model: PaAno, facts: ModelFacts, whole: Reading, part: Window, settings: Settings) -> bool:
    """Whether a channel of a sensor with this model is stuck in `part`, by the rule of `alarms.stuck`."""
    limits = stuck_rows(settings, model.config, facts)
    if not limits:
        return False
    near = whole.cut(part.widen(before=whole.interval))  # with the row that the first one repeats
    found = zip(near.channels, longest_repeats(near.values, model.config.max_gap), strict=True)
    return any(channel in limits and rows >= limits[channel] for channel, rows in found)


def objections(
    model: PaAno, facts: ModelFacts, whole: Reading, said: Taught, settings: Settings
) -> tuple[str, ...]:
    """Where `model` contradicts what people said, a sentence each; none for a model that agrees."""
    found = [
        f"alarms on {part.start:%Y-%m-%d %H:%M}, which was dismissed"
        for part in said.dismissed
        if rings(model, whole, part, settings)
    ]
    found += [
        f"misses the fault of {part.start:%Y-%m-%d %H:%M}, which was confirmed"
        for part in said.confirmed
        if rings(model, whole, part, settings) is False and not repeats(model, facts, whole, part, settings)
    ]
    return tuple(found)

"""When scores of a sensor are an alarm: one rule for scoring, the review test and the check who is due."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from flows.settings.fleet_file import Settings
from paano import PaAnoConfig
from paano.alarms.calibrate import Calibration
from paano.alarms.edges import find_edges
from paano.facts import ModelFacts
from storage.history.reading import Reading

if TYPE_CHECKING:
    from paano import PaAno


@dataclass(frozen=True)
class AlarmRule:
    """A score above `threshold` is an anomaly; anomalies become events by `merge` and `longest`."""

    threshold: float
    merge: int  # rows of a break that still belongs to an event
    longest: timedelta  # a longer event is cut into several


def alarm_rule(settings: Settings, sensor: str, calibration: Calibration, interval: timedelta) -> AlarmRule:
    """The rule for `sensor` with a model of this calibration: as set in [alarms], else as calibrated."""
    alarms = settings.alarms
    threshold = alarms.thresholds.get(sensor)
    if threshold is None:
        threshold = calibration.threshold(alarms.budget, interval.total_seconds())
    merge = calibration.merge if alarms.merge is None else alarms.merge // interval
    return AlarmRule(threshold, merge, alarms.longest)


def stuck_rows(settings: Settings, config: PaAnoConfig, facts: ModelFacts) -> dict[str, int]:
    """How many rows in a row that repeat the one before make a channel stuck, by channel.

    It is a patch at least: less is no form that could be missed. Empty: `alarms.stuck` is off, or the model
    does not say how long its sensor repeated itself in training.
    """
    if not settings.alarms.stuck or facts.longest_repeats is None:
        return {}
    longest = zip(facts.channel_names, facts.longest_repeats, strict=False)
    return {name: max(config.patch, math.ceil(settings.alarms.stuck * rows)) for name, rows in longest}


def faults_between(
    model: PaAno, reading: Reading, start: datetime, end: datetime
) -> list[tuple[datetime, datetime]]:
    """First and last moment of each fault in a stretch of `reading` that was over the threshold."""
    first, last = ((moment - reading.start) // reading.interval for moment in (start, end))
    faults = find_edges(model, reading.values, first, last)
    return [(reading.start + a * reading.interval, reading.start + b * reading.interval) for a, b in faults]

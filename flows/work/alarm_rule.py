"""When scores of a sensor are an alarm: one rule for scoring, the review test and the check who is due."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

from flows.settings.fleet_file import Settings
from paano import PaAnoConfig
from paano.alarms.calibrate import Calibration


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


def stuck_rows(settings: Settings, config: PaAnoConfig, longest: int | None) -> int | None:
    """How many rows that repeat the one before make a sensor stuck, of which `longest` did so in training.

    It is a patch at least: less is no form that could be missed. None: `alarms.stuck` is off, or `longest` is
    not known.
    """
    if not settings.alarms.stuck or longest is None:
        return None
    return max(config.patch, math.ceil(settings.alarms.stuck * longest))

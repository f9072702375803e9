"""When scores of a sensor are an alarm: one rule for scoring, the review test and the check who is due."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from flows.settings.fleet_file import Settings
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

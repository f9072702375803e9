"""The status of a row: whether it has a score, and why not."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """What is known about one time step of a sensor. Members are equal to their texts, as stored."""

    OK = "ok"  # it has a score that nothing will change
    PROVISIONAL = "provisional"  # it has a score; patches that are still to come may change it
    NO_DATA = "no_data"  # the value is missing, in a gap too long to bridge, or in no whole patch
    NO_MODEL = "no_model"  # the sensor has no champion
    MUTED = "muted"  # a person declared that this stretch of time gives no alarm


SCORED = (Status.OK, Status.PROVISIONAL)  # rows with a score that may be an alarm

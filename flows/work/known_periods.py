"""Known periods and verdicts at work: rows that make no alarm, rows that nothing is learned from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import polars as pl

from flows.run.fleet import Fleet
from paano.errors import ConfigError
from paano.status import Status
from storage.history.reader import Reading
from storage.operations.calendar import join
from storage.operations.verdicts import Verdict, stretches
from storage.window import Window

# -- muting --------------------------------------------------------------------------------------------------


def muted_stretches(fleet: Fleet, sensors: Iterable[str], window: Window) -> dict[str, list[Window]]:
    """The muted stretches of `window` by sensor; sensors without one are left out."""
    if fleet.known.problem or not fleet.known.calendar.periods:
        return {}
    found = {sensor: fleet.known.muted(sensor, fleet.group_of(sensor), window) for sensor in sensors}
    return {sensor: some for sensor, some in found.items() if some}


def muted_of(fleet: Fleet, sensor: str, window: Window) -> list[Window]:
    """The muted stretches of `window` of one sensor."""
    return muted_stretches(fleet, [sensor], window).get(sensor, [])


def mute_rows(rows: pl.DataFrame, muted: Mapping[str, Sequence[Window]]) -> pl.DataFrame:
    """Score rows of many sensors, those in a muted stretch marked so: they keep their score and never alarm.

    A row that is not final yet stays `provisional`, without a threshold: it cannot alarm either, and the run
    that finishes it marks it.
    """
    if not muted:
        return rows
    inside = pl.any_horizontal(
        pl.lit(False),
        *(
            (pl.col("sensor") == sensor) & pl.col("ts").is_between(part.start, part.end, closed="left")
            for sensor, parts in muted.items()
            for part in parts
        ),
    )
    final, waiting = pl.col("status") == str(Status.OK), pl.col("status") == str(Status.PROVISIONAL)
    return rows.with_columns(
        status=pl.when(inside & final).then(pl.lit(str(Status.MUTED))).otherwise("status"),
        threshold=pl.when(inside & waiting).then(None).otherwise("threshold"),
        anomaly=pl.col("anomaly") & ~inside,
    )


# -- learning ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taught:
    """What people said of one sensor's past, for a model that is about to be made."""

    left_out: list[Window] = dataclasses.field(default_factory=list)  # nothing is learned from it
    confirmed: list[Window] = dataclasses.field(default_factory=list)  # faults that a model must find
    dismissed: list[Window] = dataclasses.field(default_factory=list)  # a model must stay quiet there
    expected: list[Window] = dataclasses.field(default_factory=list)  # normal from now on

    @property
    def normal(self) -> list[Window]:
        """Stretches that people called normal."""
        return join([*self.dismissed, *self.expected])

    def marks(self) -> list[str]:
        """What of it decides a model beside the values that are left out; nothing for nothing."""
        return [f"normal {part}" for part in self.normal]


def taught(fleet: Fleet, sensor: str, window: Window, interval: timedelta) -> Taught:
    """What was said of `sensor` within `window`.

    Raises:
        ConfigError: the calendar cannot be read, so nobody knows what must not be learned from.
        StorageError: a verdict is damaged.
    """
    known = fleet.known
    if known.problem:
        raise ConfigError(f"{sensor}: nothing is learned while the calendar cannot be read: {known.problem}")
    said = {
        verdict: [
            common
            for part in stretches(known.verdicts, sensor, verdict, interval)
            if (common := part.common(window)) is not None
        ]
        for verdict in Verdict
    }
    planned = known.calendar.not_learned(sensor, fleet.group_of(sensor), window)
    return Taught(
        join([*planned, *said[Verdict.CONFIRMED]]),
        said[Verdict.CONFIRMED],
        said[Verdict.DISMISSED],
        said[Verdict.EXPECTED],
    )


def leave_out(reading: Reading, parts: Sequence[Window], max_gap: int) -> Reading:
    """The reading with holes where nothing may be learned from.

    A hole of at most `max_gap` rows would be bridged, so a shorter stretch takes rows beside it along.
    """
    if not parts:
        return reading
    values = reading.values.copy()
    for part in parts:
        rows = rows_of(reading, part)
        if len(rows):
            short = max(0, max_gap + 1 - len(rows))
            first = max(0, int(rows[0]) - (short + 1) // 2)
            values[first : first + max(len(rows) + short, int(rows[-1]) + 1 - first)] = np.nan
    return dataclasses.replace(reading, values=values)


def rows_of(reading: Reading, part: Window) -> np.ndarray:
    """The numbers of the rows of `reading` that lie in `part`."""
    start, end = (np.datetime64(moment.replace(tzinfo=None), "us") for moment in (part.start, part.end))
    return np.flatnonzero((reading.ts >= start) & (reading.ts < end))

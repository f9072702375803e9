"""The models that gave the rows of a run, and the history around a moment: opened when asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from flows.run.fleet import Fleet
from flows.work.night.compute import Scored
from flows.work.night.load import Champion, open_champion
from paano.alarms.calibrate import Calibration
from storage.history.reader import Reading
from storage.window import Window


class Models:
    """The champion of each sensor, and former ones where rows are theirs."""

    def __init__(self, fleet: Fleet, scored: Mapping[str, Scored]) -> None:
        self.fleet, self.scored = fleet, scored
        self.open: dict[tuple[str, int], Champion] = {}

    def model(self, sensor: str, version: int | None) -> Champion:
        """The model of `version` (None: of the champion), opened when first asked for."""
        known = self.scored[sensor]
        if known.version is None:
            raise ValueError(f"{sensor} has no model")
        number = known.version.version if version is None else version
        if known.champion is not None and number == known.version.version:
            return known.champion
        if (sensor, number) not in self.open:
            of = known.version
            if number != of.version:
                of = self.fleet.registry.version(sensor, number)
            self.open[sensor, number] = open_champion(self.fleet, of, self.fleet.registry.fetch(of))
        return self.open[sensor, number]

    def calibration(self, sensor: str, version: int) -> Calibration:
        """The calibration that a row was judged by; rows of a former champion keep theirs."""
        known = self.scored[sensor]
        if known.calibration is not None and known.version and version == known.version.version:
            return known.calibration
        return self.model(sensor, version).model.calibration

    def values(self, champion: Champion, window: Window) -> Reading:
        """The history of `window` on the model's grid, up to the last measured row.

        It is that of the run if it holds all of the window, else it is read.

        Raises:
            HistoryError: the history is gone or damaged.
        """
        sensor, reading = champion.version.sensor, self.scored[champion.version.sensor].reading
        inside = reading and reading.start <= window.start and window.end <= reading.end
        if reading is None or not inside or reading.interval != champion.interval:
            channels = champion.model.facts.channel_names
            reading = self.fleet.history.read(sensor, window, champion.interval, channels)
        return measured(reading.cut(window))


def measured(reading: Reading) -> Reading:
    """The reading up to its last measured row."""
    there = np.flatnonzero(~np.isnan(reading.values).all(axis=1))
    return dataclasses.replace(reading, values=reading.values[: int(there[-1]) + 1 if len(there) else 0])

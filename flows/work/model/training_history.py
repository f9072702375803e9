"""What a model learns from: how much history is enough, and what of it is held out for the review test."""

from __future__ import annotations

import dataclasses

import numpy as np

from flows.run.plan import sensor_seed
from flows.settings.fleet_file import Settings
from paano import PaAnoConfig
from storage.history.reader import Reading
from storage.window import Window

SMALLEST_REVIEW = 5  # patches of newest history that the review test needs for one fault


def sensor_config(settings: Settings, sensor: str) -> PaAnoConfig:
    """The model settings of one sensor: the fleet's, with a seed of its own."""
    return settings.config(sensor_seed(settings.fleet.seed, sensor))


def begun(reading: Reading) -> Reading:
    """The reading from its first measured row on."""
    there = np.flatnonzero(~np.isnan(reading.values).all(axis=1))
    first = int(there[0]) if len(there) else len(reading)
    return dataclasses.replace(
        reading, start=reading.start + first * reading.interval, values=reading.values[first:]
    )


def enough_points(settings: Settings) -> int:
    """How many measured points a sensor needs before it gets a model."""
    return settings.retrain.enough or 5 * settings.config().patch


def when_enough(settings: Settings, reading: Reading) -> str:
    """How much history there is, and the date on which there will be enough."""
    have, need = reading.rows, enough_points(settings)
    if need * reading.interval > settings.history.lookback:
        room = settings.history.lookback // reading.interval
        return (
            f"a model needs {need} points and history.lookback holds {room}; "
            "widen it, or lower retrain.enough or model.patch"
        )
    if have == 0:
        return f"no points yet, {need} are needed"
    ready = reading.end + max(0, need - have) * reading.interval
    return f"{have} of {need} points, enough on {ready:%Y-%m-%d} if it keeps reporting"


def hold_out(whole: Reading, settings: Settings, config: PaAnoConfig) -> tuple[Reading, Reading]:
    """History to learn from, and the newest part for the review test (with context before it)."""
    end = whole.end
    # A short history gives what the review test needs, and a third at most.
    least = SMALLEST_REVIEW * config.patch * whole.interval
    kept = min(max(settings.retrain.holdout, least), len(whole) // 3 * whole.interval)
    lead = min(config.context * whole.interval, end - kept - whole.start)
    return whole.cut(Window(whole.start, end - kept)), whole.cut(Window(end - kept - lead, end))

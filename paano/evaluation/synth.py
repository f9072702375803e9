"""A made-up fleet with planted faults, for the demo, tests and benchmarks. Equal arguments give equal bits.

Rhythms of a day and of a week are in hours; those of machines are in rows, so that any sampling interval has
something to learn within a patch. Faults are planted in the last nights only, and `truth` lists them.

>>> fleet = make_fleet(sensors=12, days=21, interval=timedelta(minutes=10), seed=0)
>>> truth(fleet)[0]
{'sensor': 'daily-01', 'start': datetime(…), 'end': datetime(…), 'kind': 'shift'}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from paano.errors import ConfigError
from paano.evaluation.inject import put_fault

DAY = 86_400.0
FIRST_DAY = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday
SHORT_ROWS = 40  # fewer than a patch
LEAST = 6  # rows to score, or there is no room for a fault
APART = 400  # rows that a fault needs around it to be distinct from the next one
NEW_PATCHES = 6  # history of a brand-new sensor before the first scored night, in patches of 96


@dataclass(frozen=True)
class Fault:
    """Something that was planted. Times are UTC; `end` is the last faulty row."""

    start: datetime
    end: datetime
    kind: str
    channels: tuple[str, ...]


@dataclass(frozen=True)
class SynthSensor:
    """One sensor of a made-up fleet on an even grid of time, NaN = missing."""

    name: str
    kind: str
    start: datetime
    interval: timedelta
    values: np.ndarray  # float64 [N, C]
    channels: tuple[str, ...]
    faults: tuple[Fault, ...]

    @property
    def ts(self) -> np.ndarray:
        """datetime64[us] [N], UTC."""
        first = np.datetime64(self.start.replace(tzinfo=None), "us")
        return first + np.arange(len(self.values)) * np.timedelta64(self.interval)


def make_fleet(
    sensors: int = 12,
    days: int = 21,
    interval: timedelta | float = timedelta(minutes=10),
    seed: int = 0,
    *,
    start: datetime = FIRST_DAY,
    nights: int = 3,
    kinds: Sequence[str] | None = None,
    size: float = 1.0,
) -> list[SynthSensor]:
    """`sensors` sensors over `days` days, with faults in the last `nights`; `kinds` are taken in turn.

    `interval` is a timedelta or seconds. A sensor depends on its number and on the arguments, not on how many
    others there are. `size` scales the faults.
    """
    interval = interval if isinstance(interval, timedelta) else timedelta(seconds=float(interval))
    kinds = tuple(KINDS) if kinds is None else tuple(kinds)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise ConfigError(f"unknown sensor kind {unknown}. Allowed: {', '.join(KINDS)}")
    if sensors < 0 or days <= nights or nights < 0 or interval <= timedelta(0):
        raise ConfigError("a fleet needs 0 or more sensors, a positive interval, and more days than nights")
    return [
        _make_sensor(
            kinds[i % len(kinds)], i // len(kinds) + 1, days, interval, [seed, i], start, nights, size
        )
        for i in range(sensors)
    ]


def truth(fleet: Sequence[SynthSensor]) -> list[dict[str, Any]]:
    """The planted faults as rows: sensor, start, end, kind."""
    return [
        {"sensor": sensor.name, "start": fault.start, "end": fault.end, "kind": fault.kind}
        for sensor in fleet
        for fault in sensor.faults
    ]


# -- time and noise --


@dataclass(frozen=True)
class Clock:
    """What a signal may depend on: the row, the hour of the day and the day of the week."""

    rows: np.ndarray
    hour: np.ndarray
    weekday: np.ndarray  # 0 = Monday

    @classmethod
    def of(cls, start: datetime, rows: int, interval: timedelta) -> Clock:
        number = np.arange(rows)
        midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
        seconds = (start - midnight).total_seconds() + number * interval.total_seconds()
        return cls(number, seconds % DAY / 3600, (start.weekday() + seconds // DAY) % 7)


Rng = np.random.Generator


def _noise(n: int, rng: Rng, memory: float = 0.0) -> np.ndarray:
    """Noise of unit variance that keeps a share `memory` of the row before."""
    white = rng.standard_normal(n)
    if memory:
        white[1:] *= math.sqrt(1 - memory**2)
        for i in range(1, n):
            white[i] += memory * white[i - 1]
    return white


def _day(clock: Clock, rng: Rng) -> np.ndarray:
    """A smooth day: low at night, a morning and an evening hump."""
    hour = clock.hour - rng.uniform(-1, 1)
    hump = np.exp(-(((hour - 8) % 24 - 12) ** 2) / 40) * 0.3  # night
    return (
        -np.cos(2 * math.pi * (hour - 3) / 24)
        + rng.uniform(0.3, 0.6) * np.cos(4 * math.pi * (hour - 8) / 24)
        - hump
    )


def _cycle(clock: Clock, period: float, rng: Rng, jitter: float = 0.0) -> np.ndarray:
    """The phase of a machine's cycle in turns; with jitter the cycles are not quite equally long."""
    step = np.full(len(clock.rows), 1 / period)
    if jitter:
        step *= 1 + jitter * np.repeat(rng.standard_normal(len(step) // 16 + 1), 16)[: len(step)]
    return rng.random() + np.cumsum(np.maximum(step, 0.1 / period))


# -- the kinds: channel names and values [N, C] --


def _daily(clock: Clock, rng: Rng) -> tuple[tuple[str, ...], np.ndarray]:
    ripple = np.sin(2 * math.pi * _cycle(clock, rng.uniform(20, 28), rng))
    x = 20 + 4 * _day(clock, rng) + 0.8 * ripple + 0.25 * _noise(len(clock.rows), rng, 0.5)
    return ("temperature",), x[:, None]


def _weekly(clock: Clock, rng: Rng) -> tuple[tuple[str, ...], np.ndarray]:
    work = np.where(clock.weekday < 5, 1.0, 0.55)
    ripple = np.sin(2 * math.pi * _cycle(clock, rng.uniform(28, 40), rng))
    x = 100 + work * (30 * _day(clock, rng) + 8 * ripple) + 2 * _noise(len(clock.rows), rng, 0.4)
    return ("load",), x[:, None]


def _pump(clock: Clock, rng: Rng) -> tuple[tuple[str, ...], np.ndarray]:
    """Pressure and power follow the flow, each in its own way."""
    turn = _cycle(clock, rng.uniform(30, 42), rng, 0.03)
    flow = 50 + 6 * _day(clock, rng) + 12 * np.sin(2 * math.pi * turn) + 4 * np.sin(4 * math.pi * turn + 1)
    flow += 0.8 * _noise(len(flow), rng, 0.6)
    pressure = 0.002 * flow**2 + 0.12 * _noise(len(flow), rng, 0.3)
    power = 2 + 0.3 * np.convolve(flow, np.ones(5) / 5, "same") + 0.3 * _noise(len(flow), rng)
    power[:2], power[-2:] = power[2], power[-3]
    return ("flow", "pressure", "power"), np.stack([flow, pressure, power], axis=1)


def _duty(clock: Clock, rng: Rng) -> tuple[tuple[str, ...], np.ndarray]:
    """A compressor that switches on and off; the reading follows with a lag."""
    on = (_cycle(clock, rng.uniform(36, 48), rng, 0.02) % 1 < 0.45).astype(float)
    x = np.empty(len(on))
    level = 0.0
    for i, target in enumerate(on):
        level += (target - level) * 0.35
        x[i] = level
    return ("current",), (3 + 9 * x + 0.25 * _noise(len(x), rng))[:, None]


def _noisy(clock: Clock, rng: Rng) -> tuple[tuple[str, ...], np.ndarray]:
    x = np.sin(2 * math.pi * _cycle(clock, rng.uniform(40, 56), rng)) + 0.35 * _noise(
        len(clock.rows), rng, 0.3
    )
    return ("vibration",), (0.5 + x)[:, None]


def _quiet(clock: Clock, rng: Rng) -> tuple[tuple[str, ...], np.ndarray]:
    turn = _cycle(clock, rng.uniform(44, 60), rng)
    x = np.sin(2 * math.pi * turn) + 0.5 * np.sin(6 * math.pi * turn + 0.7) + 0.02 * _noise(len(turn), rng)
    return ("level",), (1000 + 0.4 * x)[:, None]  # a large offset with a small signal on it


def _holes(clock: Clock, rng: Rng) -> tuple[tuple[str, ...], np.ndarray]:
    """A radio sensor: single rows are lost all the time, longer stretches now and then."""
    x = 60 + 8 * _day(clock, rng) + 3 * np.sin(2 * math.pi * _cycle(clock, rng.uniform(24, 32), rng))
    x += 0.5 * _noise(len(x), rng, 0.5)
    x[rng.random(len(x)) < 0.01] = np.nan
    for first in rng.integers(0, len(x), size=max(1, len(x) // 700)):
        x[first : first + int(rng.integers(5, 40))] = np.nan
    return ("humidity",), x[:, None]


def _regimes(clock: Clock, rng: Rng) -> tuple[tuple[str, ...], np.ndarray]:
    """Two ways of running that alternate every few hundred rows; both are normal."""
    slow = np.sin(2 * math.pi * _cycle(clock, 48, rng))
    fast = 0.6 * np.sign(np.sin(2 * math.pi * _cycle(clock, 16, rng)))
    n = len(slow)
    switches = np.cumsum(rng.integers(150, 300, size=n // 150 + 2))
    second = np.searchsorted(switches, np.arange(n), side="right") % 2
    x = np.where(second, 2 + fast, slow) + 0.08 * _noise(n, rng, 0.3)
    return ("speed",), (10 + 2 * x)[:, None]


def _motor(clock: Clock, rng: Rng) -> tuple[tuple[str, ...], np.ndarray]:
    """Five channels that share one rotation; heat is slow and follows the load."""
    turn = _cycle(clock, rng.uniform(26, 36), rng, 0.03)
    n = len(turn)
    load = 1 + 0.3 * np.sin(2 * math.pi * turn / 3)
    names = ("x", "y", "z", "torque", "heat")
    x = np.stack(
        [
            load * np.sin(2 * math.pi * turn) + 0.08 * _noise(n, rng),
            load * np.sin(2 * math.pi * turn + math.pi / 2) + 0.08 * _noise(n, rng),
            0.5 * np.sin(4 * math.pi * turn) + 0.06 * _noise(n, rng),
            5 * load + 0.6 * np.sin(2 * math.pi * turn + 1) + 0.15 * _noise(n, rng),
            40
            + 6 * np.convolve(np.pad(load, 12, "edge"), np.ones(25) / 25, "valid")
            + 0.1 * _noise(n, rng, 0.7),
        ],
        axis=1,
    )
    return names, x


def _flat(clock: Clock, rng: Rng) -> tuple[tuple[str, ...], np.ndarray]:
    return ("valve",), np.full((len(clock.rows), 1), round(float(rng.uniform(0, 100)), 1))


# Kind: how it looks, and what goes wrong with it, in the order in which it is planted.
KINDS: dict[str, tuple[Callable[[Clock, Rng], tuple[tuple[str, ...], np.ndarray]], tuple[str, ...]]] = {
    "daily": (_daily, ("shift", "spike")),
    "weekly": (_weekly, ("drift",)),
    "pump": (_pump, ("broken_relation", "shift")),
    "duty": (_duty, ("lost_period", "flat")),
    "noisy": (_noisy, ("noise",)),
    "quiet": (_quiet, ("spike", "warp")),
    "holes": (_holes, ("flat",)),
    "regimes": (_regimes, ("noise", "drop")),
    "motor": (_motor, ("broken_relation", "flat")),
    "flat": (_flat, ()),
    "short": (_daily, ()),
    "new": (_duty, ()),
}

# Rows of a planted fault; cut down when a night has fewer.
FAULT_ROWS = {
    "spike": 3,
    "drop": 20,
    "shift": 70,
    "drift": 120,
    "flat": 70,
    "noise": 50,
    "warp": 100,
    "lost_period": 90,
    "broken_relation": 110,
}


def _make_sensor(
    kind: str,
    number: int,
    days: int,
    interval: timedelta,
    seed: list[int],
    start: datetime,
    nights: int,
    size: float,
) -> SynthSensor:
    rng = np.random.default_rng(seed)
    rows = int(timedelta(days=days) / interval)
    scored = int(timedelta(days=nights) / interval)  # rows of the nights that get faults
    if kind == "short":
        rows = min(rows, SHORT_ROWS)
    if kind == "new":
        rows = min(rows, scored + NEW_PATCHES * 96)
    start = start + timedelta(days=days) - rows * interval
    signal, planned = KINDS[kind]
    channels, values = signal(Clock.of(start, rows, interval), rng)

    faults = []
    # a fault shows for a patch before and after it: with few rows, only one is planted
    planned = planned[: max(1, scored // APART)] if scored >= LEAST else ()
    share = scored // max(len(planned), 1)
    for i, fault in enumerate(planned):
        length = min(FAULT_ROWS[fault], share // 3)
        first = rows - scored + i * share
        # in the middle of its share, so that two faults of a sensor are apart and none touches the end
        first += int(rng.uniform(0.2, 0.7) * max(share - length, 0))
        faulty = [int(rng.integers(len(channels)))]
        put_fault(values, fault, first, length, rng, size=size, channels=faulty)
        names = channels if fault in ("warp", "lost_period") else tuple(channels[c] for c in faulty)
        faults.append(Fault(start + first * interval, start + (first + length - 1) * interval, fault, names))
    return SynthSensor(f"{kind}-{number:02d}", kind, start, interval, values, channels, tuple(faults))

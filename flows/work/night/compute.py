"""Score rows of sensors for a stretch of days. Computes only: nothing is written but a sensor's first model.

The rows of a stretch and of one context before and after it are exact, because history is read for two
contexts on either side, as far as it exists. What is `provisional` is so because the history ends there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from flows.run.fleet import Fleet
from flows.run.outcome import Outcome, State, attempt, ok, skipped
from flows.work.alarm_rule import AlarmRule
from flows.work.model.training_history import begun, enough_points, when_enough
from flows.work.night.load import Champion, Champions, Readings, open_champion
from flows.work.night.rows import NewRows, as_stamp
from paano import Detection
from paano.alarms.calibrate import Calibration
from paano.alarms.events import anomalous
from paano.alarms.settle import Settled
from paano.errors import HistoryError, PaanoError, RegistryUnavailable
from paano.status import SCORED, Status
from storage.duration import spell
from storage.history.reader import Reading
from storage.registry.registry import Version
from storage.window import Window

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FEWEST = 8  # measured points from which a change of the interval is told


@dataclass(frozen=True)
class Scored:
    """What was computed for one sensor. But for model and reading all of it is plain, for any engine."""

    sensor: str
    outcome: Outcome
    rows: list[NewRows] = field(default_factory=list)
    version: Version | None = None  # of the champion; None: it has none
    interval: timedelta | None = None
    rule: AlarmRule | None = None
    calibration: Calibration | None = None
    champion: Champion | None = None  # and what it was computed with and from, where that is at hand
    reading: Reading | None = None
    # what was read, by start of the day: the objects as they were listed, and the values (`late_data`)
    marks: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    channels: tuple[str, ...] = ()
    inputs: str | None = None  # a mark of all that the rows follow from (`unchanged`)
    stuck: dict[str, Settled] = field(default_factory=dict)  # by channel, where it may have repeated itself

    def carried(self) -> Scored:
        """Without model and reading, to be carried to another process."""
        return dataclasses.replace(self, champion=None, reading=None)


def compute_sensors(
    fleet: Fleet,
    days: Sequence[Window],
    sensors: Sequence[str],
    champions: Champions,
    readings: Readings,
    batch: int = 0,
) -> list[Scored]:
    """The rows of `sensors` for `days`, which follow each other; whatever one sensor raises is its outcome.

    A champion made on the way (a sensor's first) is added to `champions`.

    Raises:
        Transient: a store does not answer.
    """
    found: dict[str, Scored] = {}

    def score_one(sensor: str) -> Outcome:
        known, reading = champions.get(sensor), readings[sensor]
        if isinstance(known, PaanoError):
            raise known
        if isinstance(reading, PaanoError):
            raise reading
        found[sensor] = score_sensor(fleet, days, known, reading, champions)
        return found[sensor].outcome

    out = []
    for sensor in sensors:
        outcome = attempt(score_one, sensor, batch)
        scored = found.get(sensor) if outcome.state is not State.FAILED else None
        out.append(dataclasses.replace(scored or Scored(sensor, outcome), outcome=outcome))
    return out


def score_sensor(
    fleet: Fleet, days: Sequence[Window], champion: Champion | None, reading: Reading, champions: Champions
) -> Scored:
    """The rows of one sensor. Without a champion it gets an untrained one, if it has history enough."""
    window, before, note = Window(days[0].start, days[-1].end), [], ""
    if champion is None:
        first = first_model(fleet, days, reading)
        if isinstance(first, str):
            return without_model(reading, window, first)
        number, champion = first
        champions[reading.sensor] = champion
        note = f"first night, by an untrained model (version {champion.version.version})"
        if number:
            before = [rows_without_model(reading, Window(window.start, days[number].start))]
            window = Window(days[number].start, window.end)
        reading = fleet.history.read(
            reading.sensor, champion.reach(window), champion.interval, champion.model.facts.channel_names
        )
    rows, near = detect_rows(fleet, champion, reading, window)
    outcome = outcome_of(champion, rows, near, window, note)
    return Scored(
        reading.sensor,
        outcome,
        [*before, rows],
        champion.version,
        champion.interval,
        champion.rule,
        champion.model.calibration,
        champion,
        reading,
    )


def first_model(fleet: Fleet, days: Sequence[Window], reading: Reading) -> tuple[int, Champion] | str:
    """The first model of a sensor and the number of the day on which there is history enough, or why not."""
    settings = fleet.settings_for(reading.sensor)
    for number, day in enumerate(days):
        past = begun(reading.cut(Window(day.start - settings.history.lookback, day.start)))
        if past.rows < enough_points(settings):
            continue
        try:
            from flows.work.model.training import cold_start  # slow to import, and most nights need none

            version = cold_start(fleet, past)
        except RegistryUnavailable as error:  # the others have their models in the cache
            return f"its first model cannot be registered: {error}"
        return number, open_champion(fleet, version, fleet.registry.fetch(version))
    return when_enough(settings, reading)


def detect_rows(
    fleet: Fleet, champion: Champion, reading: Reading, window: Window
) -> tuple[NewRows, Reading]:
    """Rows in `window` and one context around it, and the history they were computed from."""
    near = as_far_as_it_goes(reading.cut(champion.reach(window)), window)
    if near.rows:
        check_channels(champion, near)
        found = champion.model.detect(near.values, origin=(near.start - EPOCH) // near.interval)
    else:
        found = nothing(len(near))
    around = window.widen(champion.context, champion.context)
    ts = near.ts
    kept = slice(*np.searchsorted(ts, [as_stamp(around.start), as_stamp(around.end)]))
    rows = NewRows(
        reading.sensor,
        ts[kept],
        found.score[kept],
        found.status[kept],
        found.coverage[kept],
        champion.rule.threshold,
        champion.version.version,
    )
    return rows, near


def as_far_as_it_goes(near: Reading, window: Window) -> Reading:
    """`near` without the rows after `window` that nothing was measured for yet: they are no hole."""
    there = np.flatnonzero(~np.isnan(near.values).all(axis=1))
    measured = near.start + (int(there[-1]) + 1) * near.interval if len(there) else near.start
    end = max(window.end, measured)
    return near.cut(Window(near.start, end)) if near.start < end < near.end else near


def check_channels(champion: Champion, reading: Reading) -> None:
    """HistoryError if the history no longer has the channels that the model was made for."""
    known = champion.model.facts.channel_names
    if tuple(reading.channels) != known:
        raise HistoryError(
            f"{reading.sensor}: channels are now {', '.join(reading.channels)} and its model was made for "
            f"{', '.join(known)}; set history.channels, or `paano retrain {reading.sensor}`"
        )


def nothing(rows: int) -> Detection:
    """What is detected in a reading without any value."""
    none = np.full(rows, np.nan, dtype=np.float32)
    status, coverage = np.full(rows, str(Status.NO_DATA)), np.zeros(rows, dtype=np.uint16)
    return Detection(none, status, coverage, none.copy(), none.copy(), none.copy())


def rows_without_model(reading: Reading, window: Window) -> NewRows:
    """`no_model` for every time step of `window`."""
    night = reading.cut(window)
    return NewRows(
        reading.sensor,
        night.ts,
        np.full(len(night), np.nan, np.float32),
        np.full(len(night), str(Status.NO_MODEL)),
        np.zeros(len(night), np.uint16),
        None,
        None,
    )


def without_model(reading: Reading, window: Window, reason: str) -> Scored:
    """A sensor that has no model and cannot have one yet."""
    rows = rows_without_model(reading, window)
    return Scored(reading.sensor, skipped(reading.sensor, f"no_model: {reason}", rows=len(rows)), [rows])


def outcome_of(champion: Champion, rows: NewRows, near: Reading, window: Window, note: str) -> Outcome:
    """The figures of a stretch, and a word for a sensor that sends nothing or at another interval."""
    inside = rows.within(window)
    status, score = rows.status[inside], rows.score[inside]
    scored = np.isin(status, [str(known) for known in SCORED])
    state = State.OK
    if word := silent(near, window) or interval_changed(champion, near, window):
        state, note = State.SKIPPED, word
    elif not scored.any():
        note = f"no whole patch of {champion.model.config.patch} points to score in this window"
    outcome = ok(
        near.sensor,
        note,
        version=champion.version.version,
        rows=int(inside.sum()),
        missing=int((status == str(Status.NO_DATA)).sum()),
        anomalies=int(anomalous(score, status, champion.rule.threshold).sum()),
        highest=float(np.nanmax(score)) if scored.any() else None,
        threshold=round(champion.rule.threshold, 6),
        repaired=" ".join(f"{name}={n}" for name, n in sorted(near.repaired.items()) if n),
    )
    return dataclasses.replace(outcome, state=state)


def silent(near: Reading, window: Window) -> str:
    """The word for a sensor that sent nothing in `window`; empty if it did."""
    night = near.cut(window)
    if night.rows:
        return ""
    there = np.flatnonzero(~np.isnan(near.values).all(axis=1))
    before = there[near.ts[there] < as_stamp(window.start)]
    since = near.start + (int(before[-1]) + 1) * near.interval if len(before) else None
    when = f"since {since:%Y-%m-%d %H:%M} UTC" if since else f"for longer than {window.start - near.start}"
    return f"silent: no data {when}; look after the sensor, or disable it in the catalog (history.catalog)"


def interval_changed(champion: Champion, near: Reading, window: Window) -> str:
    """The word for a sensor whose points no longer come at the interval of its model; empty if they do."""
    night = near.cut(window)
    there = np.flatnonzero(~np.isnan(night.values).all(axis=1))
    if len(there) < FEWEST:
        return ""
    step = int(np.median(np.diff(there)))
    seen = step * near.interval if step > 1 else near.seen_interval
    if seen is None or (step < 2 and 1.5 * seen > near.interval):
        return ""
    # Most of the lookback still has the former interval, so a training would find that one again.
    now, known = spell(seen), spell(champion.interval)
    return (
        f"interval changed: a point every {now} and its model was made for {known}; say "
        f'interval = "{now}" in [sensors."{near.sensor}"], then `paano retrain {near.sensor}`'
    )

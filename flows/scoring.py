"""Score one night for the sensors of a shard: load, compute, commit. Nothing here knows Prefect or the clock.

The night of day D reads the history from two contexts before D up to the end of D. A context is as many
points as make a score independent of where the series was cut, so the last context of points before D is
scored as exactly as D itself. With these the run finishes what earlier nights had to leave `provisional`.

What is written does not depend on how often or in which order a night is repeated:
- a row of day D is written unless it is only provisional and the stored one is already final;
- a row of an earlier day is written only in place of one that is not final.
So thirty nights equal one backfill of thirty days, and a second run of any night changes no object.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from flows.eventing import update_events
from flows.outcome import Outcome, attempt, ok, skipped
from flows.parts import Parts, pinned_intervals
from flows.training import begun, cold_start, enough_points, when_enough
from paano import Detection, PaAno
from paano.device import torch_threads
from paano.errors import HistoryError, PaanoError, RegistryUnavailable, Transient
from paano.events import anomalous
from paano.explain import reach as explain_reach
from storage.history import Reading
from storage.registry import Version
from storage.scores import SCORE_SCHEMA
from storage.window import Window

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FINAL = "ok"
SUMMED = ("rows", "missing", "anomalies", "events")


@dataclass(frozen=True)
class Champion:
    """A loaded model with what scoring needs to know of its version."""

    version: Version
    model: PaAno
    interval: timedelta
    threshold: float

    @property
    def tail(self) -> timedelta:
        """How far back before a night rows may still be provisional."""
        return self.model.config.context * self.interval

    @property
    def lead(self) -> timedelta:
        """How far before a night the series is scored, so that the tail is exact too."""
        return 2 * self.tail

    @property
    def memory(self) -> timedelta:
        """How far before a night history is read: an event's channels are judged by what came before."""
        return max(self.lead, self.tail + explain_reach(self.model.config)[0] * self.interval)


@dataclass(frozen=True)
class Night:
    """What was computed for one sensor: rows of the day and of the tail before it."""

    reading: Reading
    rows: pl.DataFrame
    champion: Champion | None = None  # None: no_model


def score_nights(
    parts: Parts,
    days: list[date],
    sensors: list[str],
    versions: dict[str, Version],
    batch: int = 0,
    resume: bool = False,
) -> list[Outcome]:
    """Nights in order for `sensors`, all of one shard; one outcome each for all nights together.

    With `resume`, nights that a run with the same champions has already finished are left out.
    """
    known = dict(versions)
    total: dict[str, Outcome] = {}
    for number, day in enumerate(days):
        if resume and is_scored(parts, day, sensors, known, last=number == len(days) - 1):
            tonight = [skipped(sensor, "every night was scored already") for sensor in sensors]
        else:
            tonight = score_shard(parts, day, sensors, known, batch)
        total = {outcome.sensor: add(total.get(outcome.sensor), outcome) for outcome in tonight}
    return list(total.values())


def is_scored(parts: Parts, day: date, sensors: list[str], versions: dict[str, Version], last: bool) -> bool:
    """Whether the night of `day` is written by the present champions and, but for the last one, final."""
    rows = parts.scores.read_many(sensors, Window.day(day), ["sensor", "status", "model_version"])
    found = {key[0]: part for key, part in rows.group_by("sensor")}
    return all(
        sensor in found
        and sensor in versions
        and (found[sensor]["model_version"] == versions[sensor].version).all()
        and (last or not (found[sensor]["status"] == "provisional").any())
        for sensor in sensors
    )


def score_shard(
    parts: Parts, day: date, sensors: list[str], versions: dict[str, Version], batch: int = 0
) -> list[Outcome]:
    """Scores and events of `sensors`, all of one shard, for the night of `day`; an outcome for each.

    `versions` are the champions; the first model of a new sensor is added to it.
    """
    window = Window.day(day)
    champions = load_champions(parts, sensors, versions)
    readings = read_night(parts, window, sensors, champions)
    nights: dict[str, Night] = {}

    def score_one(sensor: str) -> Outcome:
        known, reading = champions.get(sensor), readings[sensor]
        for problem in (known, reading):
            if isinstance(problem, PaanoError):
                raise problem
        outcome, nights[sensor] = score_sensor(parts, window, known, reading)
        return outcome

    outcomes = {sensor: attempt(score_one, sensor, batch) for sensor in sensors}
    for sensor, night in nights.items():
        if night.champion:
            versions[sensor] = night.champion.version
    covered, rows = commit_scores(parts, window, nights)
    for sensor, found in update_events(parts, window, covered, rows, nights, batch).items():
        outcomes[sensor] = join(outcomes[sensor], found)
    return list(outcomes.values())


# -- load ----------------------------------------------------------------------------------------------------


def load_champions(
    parts: Parts, sensors: list[str], versions: dict[str, Version]
) -> dict[str, Champion | PaanoError]:
    """The loaded champion, or what is wrong with it, for each sensor that has one."""
    known = [versions[sensor] for sensor in sensors if sensor in versions]
    found: dict[str, Champion | PaanoError] = {}
    for sensor, folder in parts.registry.fetch_many(known).items():
        if isinstance(folder, Transient):
            raise folder
        try:
            found[sensor] = (
                folder if isinstance(folder, PaanoError) else open_champion(parts, versions[sensor], folder)
            )
        except PaanoError as error:
            found[sensor] = error
    return found


def open_champion(parts: Parts, version: Version, folder: Any) -> Champion:
    settings = parts.settings
    model = PaAno.load(folder, device=settings.run.device)
    seconds = float(model.facts["interval_seconds"])
    threshold = settings.alarms.thresholds.get(version.sensor)
    if threshold is None:
        threshold = model.calibration.threshold(settings.alarms.budget, seconds)
    return Champion(version, model, timedelta(seconds=seconds), threshold)


def read_night(
    parts: Parts, window: Window, sensors: list[str], champions: dict[str, Champion | PaanoError]
) -> dict[str, Reading | PaanoError]:
    """The history each sensor needs for the night; sensors that need the same are read together."""
    groups: dict[tuple[timedelta, timedelta | None], list[str]] = {}
    readings: dict[str, Reading | PaanoError] = {}
    pinned = pinned_intervals(parts)
    for sensor in sensors:
        champion = champions.get(sensor)
        if isinstance(champion, PaanoError):
            readings[sensor] = champion
        elif champion is None:  # a first model needs the whole lookback
            key = (parts.settings.history.lookback, pinned.get(sensor))
            groups.setdefault(key, []).append(sensor)
        else:
            groups.setdefault((champion.memory, champion.interval), []).append(sensor)
    for (before, interval), members in groups.items():
        intervals = dict.fromkeys(members, interval) if interval else None
        readings |= parts.history.read_many(members, window.widen(before=before), intervals)
    for reading in readings.values():
        if isinstance(reading, Transient):
            raise reading
    return readings


# -- compute -------------------------------------------------------------------------------------------------


def score_sensor(
    parts: Parts, window: Window, champion: Champion | None, reading: Reading
) -> tuple[Outcome, Night]:
    """The night of one sensor. Without a champion it gets an untrained one, if it has history enough."""
    sensor, note = reading.sensor, ""
    if champion is None:
        past = begun(reading.cut(Window(reading.start, window.start)))
        if past.rows < enough_points(parts.settings):
            return without_model(reading, window, when_enough(parts.settings, reading))
        try:
            version = cold_start(parts, past)
        except RegistryUnavailable as error:  # the others of the shard have their models in the cache
            return without_model(reading, window, f"its first model cannot be registered: {error}")
        champion = open_champion(parts, version, parts.registry.fetch(version))
        note = f"first night, by an untrained model (version {version.version})"
    near = reading.cut(window.widen(before=champion.lead))
    if near.rows:
        check_channels(champion, near)
        with torch_threads(parts.settings.run.threads):
            found = champion.model.detect(near.values, origin=(near.start - EPOCH) // near.interval)
    else:
        found = nothing(len(near))
    rows = rows_of(champion, near, found, window)
    tonight = rows.filter(pl.col("ts") >= window.start)
    if tonight["score"].null_count() == tonight.height:
        note = "no data to score in this window"
    outcome = ok(
        sensor,
        note,
        version=champion.version.version,
        rows=tonight.height,
        missing=int((tonight["status"] == "no_data").sum()),
        anomalies=int(tonight["anomaly"].sum()),
        highest=tonight["score"].max(),
        threshold=round(champion.threshold, 6),
        repaired=" ".join(f"{name}={n}" for name, n in sorted(reading.repaired.items()) if n),
    )
    return outcome, Night(reading, rows, champion)


def check_channels(champion: Champion, reading: Reading) -> None:
    """HistoryError if the history no longer has the channels that the model was made for."""
    known = champion.model.facts["channel_names"]
    if list(reading.channels) != known:
        raise HistoryError(
            f"{reading.sensor}: channels are now {', '.join(reading.channels)} and its model was made for "
            f"{', '.join(known)}; set history.channels, or `paano retrain {reading.sensor}`"
        )


def nothing(rows: int) -> Detection:
    """What is detected in a reading without any value."""
    none = np.full(rows, np.nan, dtype=np.float32)
    return Detection(none, np.full(rows, "no_data"), np.zeros(rows, dtype=np.uint16), none, none)


def rows_of(champion: Champion, reading: Reading, found: Detection, window: Window) -> pl.DataFrame:
    """Score rows of a reading from the tail before `window` to its end."""
    first = np.datetime64((window.start - champion.tail).replace(tzinfo=None), "us")
    kept = reading.ts >= first
    score = found.score[kept]
    return pl.DataFrame(
        {
            "sensor": np.full(kept.sum(), reading.sensor, dtype=object),
            "ts": reading.ts[kept],
            "score": pl.Series(score, dtype=pl.Float32).fill_nan(None),
            "threshold": np.full(kept.sum(), champion.threshold, dtype=np.float32),
            "anomaly": anomalous(score, found.status[kept], champion.threshold),
            "status": found.status[kept].astype(object),
            "coverage": found.coverage[kept],
            "model_version": np.full(kept.sum(), champion.version.version, dtype=np.int32),
        },
        schema_overrides={"ts": pl.Datetime("us"), "sensor": pl.String, "status": pl.String},
    ).with_columns(pl.col("ts").dt.replace_time_zone("UTC"))


def without_model(reading: Reading, window: Window, why: str) -> tuple[Outcome, Night]:
    """The night of a sensor that cannot be scored yet."""
    rows = rows_without_model(reading.cut(window))
    return skipped(reading.sensor, f"no_model: {why}", rows=rows.height), Night(reading, rows)


def rows_without_model(reading: Reading) -> pl.DataFrame:
    """A row per time step that says there is no model yet."""
    return pl.DataFrame({"ts": reading.ts}, schema={"ts": pl.Datetime("us")}).select(
        sensor=pl.lit(reading.sensor),
        ts=pl.col("ts").dt.replace_time_zone("UTC"),
        score=pl.lit(None, pl.Float32),
        threshold=pl.lit(None, pl.Float32),
        anomaly=pl.lit(False),
        status=pl.lit("no_model"),
        coverage=pl.lit(0, pl.UInt16),
        model_version=pl.lit(None, pl.Int32),
    )


# -- commit --------------------------------------------------------------------------------------------------


def commit_scores(parts: Parts, window: Window, nights: dict[str, Night]) -> tuple[Window, pl.DataFrame]:
    """Write the new rows as the rules at the top say; the window that was touched and its rows now."""
    if not nights:
        return window, pl.DataFrame(schema=SCORE_SCHEMA)
    new = pl.concat([night.rows.select(list(SCORE_SCHEMA)) for night in nights.values()])
    tails = [night.champion.tail for night in nights.values() if night.champion]
    reach = window.widen(before=max(tails, default=timedelta(0)))
    stored = parts.scores.read_many(list(nights), reach)
    merged = merge_rows(stored, new, window)
    parts.scores.update(merged, reach, list(nights))
    return reach, merged


def merge_rows(stored: pl.DataFrame, new: pl.DataFrame, window: Window) -> pl.DataFrame:
    """`stored` with the rows of `new` that may take their place. Both hold the same sensors."""
    key = ["sensor", "ts"]
    old = stored.select(*key, old=pl.col("status"))
    tonight = pl.col("ts") >= window.start
    worthy = (
        pl.when(tonight)
        .then((pl.col("status") != "provisional") | (pl.col("old").fill_null("") != FINAL))
        .otherwise(pl.col("old").is_not_null() & (pl.col("old") != FINAL))
    )
    accepted = new.join(old, on=key, how="left").filter(worthy).drop("old")
    # Rows of this night at times that are no longer on the sensor's grid are dropped, earlier ones stay.
    kept = stored.join(accepted, on=key, how="anti")
    kept = pl.concat([kept.filter(~tonight), kept.join(new, on=key, how="semi").filter(tonight)])
    return pl.concat([accepted, kept]).sort(key)


def join(outcome: Outcome, events: Outcome) -> Outcome:
    """One outcome of scoring a sensor and of finding its events: the worse state wins."""
    figures = {**outcome.figures, **events.figures}
    if events.state == "failed":
        return dataclasses.replace(events, figures=figures)
    return dataclasses.replace(outcome, figures=figures)


def add(before: Outcome | None, tonight: Outcome) -> Outcome:
    """The outcome of several nights: failed if one failed, otherwise as the last that was scored."""
    if before is None:
        return tonight
    worse, other = (before, tonight) if _rank(before) > _rank(tonight) else (tonight, before)
    figures = {**other.figures, **worse.figures, **tonight.figures}
    both = [before.figures, tonight.figures]
    for name in SUMMED:
        if name in figures:
            figures[name] = sum(part.get(name, 0) for part in both)
    if "severity" in figures:
        figures["severity"] = max(part.get("severity", 0.0) for part in both)
    return dataclasses.replace(worse, figures=figures)


def _rank(outcome: Outcome) -> int:
    return ["skipped", "ok", "failed"].index(outcome.state)

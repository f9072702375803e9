"""The nights of sensors: load, compute, commit. Nothing here knows Prefect or the clock.

What is stored in the end depends on history and champions, not on the order or number of runs:

- A run computes every row that the data of its days can change (`night_compute`), from history on both sides
  of them, and `night_rows` decides which of these rows take the place of stored ones.
- A row that a former champion had to leave `provisional` is finished by that champion.
- Events follow from the stored rows (`night_events`).

So thirty nights equal one backfill of thirty days, in whichever order they come, and a second run of a night
changes no object.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Concatenate, ParamSpec, TypeVar, cast

import polars as pl

from flows.run.days import day_window
from flows.run.fleet import Fleet
from flows.run.outcome import Figures, Outcome, State, skipped
from flows.work.known_periods import mute_rows, muted_stretches
from flows.work.night.compute import Scored, compute_sensors, detect_rows
from flows.work.night.days import days_at_once, days_by_sensors, stretches
from flows.work.night.events import MICROSECOND, Written, update_events
from flows.work.night.late_data import Marks, marks_of, remember, remember_failed, with_reads
from flows.work.night.load import Champion, Champions, Readings, load_champions, load_night
from flows.work.night.models import Models
from flows.work.night.rows import KEY, NewRows, frame_of, merge_rows
from flows.work.night.silence import update_silence
from flows.work.night.stuck import update_stuck, with_stuck
from flows.work.night.unchanged import Inputs, inputs_of, is_quiet, unchanged
from paano.device import compute_threads
from paano.errors import PaanoError, Transient
from paano.status import Status
from storage.ahead import ahead
from storage.registry.registry import Version
from storage.window import Window

log = logging.getLogger("paano.flows")

DONE = "every night was scored already"
AT_ONCE = 16  # sensors that are loaded together, while those before them are computed
SUMMED = ("rows", "missing", "anomalies", "events")
GREATEST = ("severity", "highest")

A = TypeVar("A")
P = ParamSpec("P")


def score_days(
    fleet: Fleet,
    days: Sequence[date],
    sensors: Sequence[str],
    versions: Mapping[str, Version],
    *,
    batch: int = 0,
    rescore: bool = False,
    resume: bool = False,
    dates: Collection[date] = (),
) -> list[Outcome]:
    """Scores and events of `sensors` for `days` in order; one outcome each for all days together.

    Args:
        sensors: all of one shard, if each object is to have one writer.
        versions: the champions.
        batch: the number of the batch, for the outcomes.
        rescore: replace these days, also where a row becomes worse.
        resume: leave out what the same champions have scored already.
        dates: days of the fleet that have rows; with them, days missed within run.catch_up are scored too.

    Raises:
        Transient: a store or the registry does not answer.
    """
    total: dict[str, Outcome] = {}
    done_by = versions if resume else None
    for asked, some in days_by_sensors(fleet, days, sensors, dates=dates, done_by=done_by):
        champions = load_champions(fleet, some, versions) if len(asked) > 1 else None
        for stretch in stretches(asked, days_at_once(versions, len(some))):
            windows = [day_window(fleet.settings, day) for day in stretch]
            scored = compute(fleet, windows, some, versions, champions, batch, rescore)
            for found in commit(fleet, windows, scored, batch=batch, rescore=rescore):
                total[found.sensor] = add(total.get(found.sensor), found)
        total |= {sensor: caught_up(total[sensor], asked, days) for sensor in some}
    return [total.get(sensor) or skipped(sensor, DONE) for sensor in sensors]


def with_threads(work: Callable[Concatenate[Fleet, P], A]) -> Callable[Concatenate[Fleet, P], A]:
    """`work` on a fleet, with as many threads as its settings say: once for a batch, not for each sensor."""

    @functools.wraps(work)
    def limited(fleet: Fleet, /, *arguments: P.args, **named: P.kwargs) -> A:
        with compute_threads(fleet.settings.run.threads):
            return work(fleet, *arguments, **named)

    return limited


@with_threads
def compute(
    fleet: Fleet,
    days: Sequence[Window],
    sensors: Sequence[str],
    versions: Mapping[str, Version],
    champions: Champions | None = None,
    batch: int = 0,
    rescore: bool = False,
) -> list[Scored]:
    """The rows of `sensors` for `days`, which follow each other; nothing is stored.

    `champions` are those that are open already; the first model of a new sensor is added to them. A sensor
    whose stored rows are what would be computed comes without rows, unless `rescore` asks for them.
    """
    window = Window(days[0].start, days[-1].end)
    inputs: Mapping[str, Inputs] = inputs_of(fleet, days[0], sensors, versions) if len(days) == 1 else {}
    done = {} if rescore else unchanged(fleet, days[0], inputs, versions)
    if done:
        log.info("%d of %d sensors: nothing has changed since they were scored", len(done), len(sensors))
        sensors = [sensor for sensor in sensors if sensor not in done]
    # An object of a long table holds many sensors: they are read together.
    size = AT_ONCE if fleet.history.layout.kind == "sensor" else max(1, len(sensors))

    def load(some: Sequence[str]) -> tuple[Marks, Champions, Readings]:
        # before it is read: what comes meanwhile is seen later
        marks = marks_of(fleet, dict.fromkeys(some, days))
        return marks, *load_night(fleet, window, some, versions, champions)

    scored = [Scored(sensor, dataclasses.replace(outcome, batch=batch)) for sensor, outcome in done.items()]
    chunks = [sensors[first : first + size] for first in range(0, len(sensors), size)]
    for some, (marks, found, readings) in zip(chunks, ahead(load, chunks), strict=True):
        rows = compute_sensors(fleet, days, some, found, readings, batch)
        for one in with_stuck(fleet, rows, days):
            known = inputs.get(one.sensor)
            mark = known.mark if known and known.holds_for(one.champion) else None
            scored.append(dataclasses.replace(with_reads(one, days, marks), inputs=mark))
    return scored


# -- commit --------------------------------------------------------------------------------------------------


@with_threads
def commit(
    fleet: Fleet,
    days: Sequence[Window],
    scored: Iterable[Scored],
    *,
    batch: int = 0,
    rescore: bool = False,
) -> list[Outcome]:
    """Store what was computed, scores and events, for many sensors at once; an outcome for each."""
    window = Window(days[0].start, days[-1].end)
    every = {one.sensor: one for one in scored}
    outcomes = {sensor: one.outcome for sensor, one in every.items()}
    computed = {sensor: one for sensor, one in every.items() if one.rows}
    remember_failed(fleet, days, [name for name, found in outcomes.items() if found.state is State.FAILED])
    if computed:
        written, notes = commit_scores(fleet, days, computed, rescore)
        for sensor, found in update_events(fleet, window, written, computed, batch).items():
            outcomes[sensor] = join(outcomes[sensor], found)
        update_silence(fleet, written, computed)
        update_stuck(fleet, computed)
        for sensor, note in notes.items():
            outcomes[sensor] = remark(outcomes[sensor], note)
        for sensor, muted, figures in stored_figures(written.now, window):
            outcomes[sensor] = with_figures(outcomes[sensor], figures)
            if muted:
                outcomes[sensor] = remark(outcomes[sensor], f"{muted} rows are muted by the calendar")
            if fleet.known.problem:
                outcomes[sensor] = remark(outcomes[sensor], NOT_MUTED)
        calm = [sensor for sensor in computed.keys() - written.noisy() if is_quiet(outcomes[sensor])]
        remember(fleet, days, computed, {sensor: outcomes[sensor].figures for sensor in calm})
    return list(outcomes.values())


def commit_scores(
    fleet: Fleet, days: Sequence[Window], scored: Mapping[str, Scored], rescore: bool
) -> tuple[Written, dict[str, str]]:
    """Write the new rows as `night_rows` says; the rows before and now, and remarks on sensors."""
    parts = [rows for one in scored.values() for rows in one.rows if len(rows)]
    new = frame_of(parts)
    span = span_of(new, Window(days[0].start, days[-1].end))
    stored = fleet.scores.read_many(list(scored), span)
    finished, notes = finish_former(fleet, days, scored, stored)
    if finished:
        late = frame_of(finished)
        new = pl.concat([new.join(late, on=KEY, how="anti"), late])
    new = mute_rows(new, muted_stretches(fleet, scored, span))
    merged = merge_rows(stored, new, days, rescore)
    for part in changed_dates(stored, merged, span):
        inside = pl.col("ts").is_between(part.start, part.end, closed="left")
        fleet.scores.update(merged.filter(inside), part, list(scored))
    notes |= {sensor: KEPT for sensor in kept_instead(scored, merged, days)}
    return Written(span, stored, merged), notes


def stored_figures(rows: pl.DataFrame, window: Window) -> list[tuple[str, int, dict[str, object]]]:
    """For each sensor how many rows of `window` are muted, and its figures as the store now has them.

    They may differ from what was computed: better rows of an earlier run stay, and the calendar mutes some.
    """
    inside = rows.filter(pl.col("ts").is_between(window.start, window.end, closed="left"))
    status = pl.col("status")
    counts = inside.group_by("sensor").agg(
        muted=(status == str(Status.MUTED)).sum(),
        rows=pl.len(),
        missing=(status == str(Status.NO_DATA)).sum(),
        anomalies=pl.col("anomaly").sum(),
        highest=pl.col("score").max().cast(pl.Float64),
    )
    return [(row.pop("sensor"), row.pop("muted"), row) for row in counts.iter_rows(named=True)]


def with_figures(outcome: Outcome, figures: Mapping[str, object]) -> Outcome:
    """The outcome with these figures in place of its own of the same names."""
    some = {name: value for name, value in figures.items() if name in outcome.figures}
    return dataclasses.replace(outcome, figures=cast(Figures, {**outcome.figures, **some}))


def span_of(rows: pl.DataFrame, window: Window) -> Window:
    """`window`, widened so that all `rows` lie in it."""
    if not rows.height:
        return window
    first, last = (cast(datetime, moment) for moment in (rows["ts"].min(), rows["ts"].max()))
    return Window(min(first, window.start), max(last + MICROSECOND, window.end))


NOT_MUTED = "nothing was muted, because the calendar cannot be read"
KEPT = "the scores that were stored are better and were kept; `paano backfill --again` replaces them"


def kept_instead(scored: Mapping[str, Scored], merged: pl.DataFrame, days: Sequence[Window]) -> set[str]:
    """Sensors without a model for which scores of an earlier run stay."""
    without = [sensor for sensor, one in scored.items() if one.version is None]
    inside = pl.col("ts").is_between(days[0].start, days[-1].end, closed="left")
    rows = merged.filter(inside & pl.col("sensor").is_in(without) & pl.col("score").is_not_null())
    return set(rows["sensor"].unique())


def changed_dates(before: pl.DataFrame, now: pl.DataFrame, span: Window) -> list[Window]:
    """The parts of `span`, by date, in which rows differ: all other objects are left alone."""
    parts = []
    for day in span.days():
        part = span.common(Window.day(day))
        if part is None:
            continue
        inside = pl.col("ts").is_between(part.start, part.end, closed="left")
        if not before.filter(inside).equals(now.filter(inside)):
            parts.append(part)
    return parts


def finish_former(
    fleet: Fleet, days: Sequence[Window], scored: Mapping[str, Scored], stored: pl.DataFrame
) -> tuple[list[NewRows], dict[str, str]]:
    """Rows outside `days` that a former champion left provisional, computed by it as far as it can now.

    A former champion that cannot be had leaves them as they are; then a remark says so.
    """
    outside = ~pl.col("ts").is_between(days[0].start, days[-1].end, closed="left")
    waiting = stored.filter(outside & (pl.col("status") == str(Status.PROVISIONAL)))
    models = Models(fleet, scored)
    rows: list[NewRows] = []
    notes: dict[str, str] = {}
    for (sensor, number), part in waiting.group_by("sensor", "model_version", maintain_order=True):
        one = scored[cast(str, sensor)]
        if one.version is None or number is None or number == one.version.version:
            continue
        try:
            former = models.model(one.sensor, cast(int, number))
            rows.append(_finish(fleet, former, part))
        except Transient:
            raise
        except PaanoError as error:
            notes[one.sensor] = (
                f"rows of version {number} stay provisional: {error}; `paano backfill --again` replaces them"
            )
    return rows, notes


def _finish(fleet: Fleet, former: Champion, part: pl.DataFrame) -> NewRows:
    window = span_of(part, Window(part["ts"][0], part["ts"][0] + former.interval))
    reading = fleet.history.read(
        former.version.sensor, former.reach(window), former.interval, former.model.facts.channel_names
    )
    rows, _ = detect_rows(fleet, former, reading, window)
    inside = rows.within(window)
    return dataclasses.replace(
        rows,
        ts=rows.ts[inside],
        score=rows.score[inside],
        status=rows.status[inside],
        coverage=rows.coverage[inside],
    )


# -- outcomes ------------------------------------------------------------------------------------------------


def join(outcome: Outcome, events: Outcome) -> Outcome:
    """One outcome of scoring a sensor and of finding its events: the worse state wins."""
    figures = cast(Figures, {**outcome.figures, **events.figures})
    if events.state is State.FAILED:
        return dataclasses.replace(events, figures=figures)
    return dataclasses.replace(outcome, figures=figures)


def remark(outcome: Outcome, note: str) -> Outcome:
    """The outcome with one more remark."""
    return dataclasses.replace(outcome, reason="; ".join(part for part in (outcome.reason, note) if part))


def caught_up(outcome: Outcome, scored: Sequence[date], asked: Sequence[date]) -> Outcome:
    """The outcome with a remark on days that were scored without being asked for: its figures count them."""
    missed = [str(day) for day in scored if day not in asked]
    return remark(outcome, f"with {', '.join(missed)}, missed before") if missed else outcome


def add(before: Outcome | None, tonight: Outcome) -> Outcome:
    """The outcome of several stretches: failed if one failed, otherwise as the last that was scored."""
    if before is None:
        return tonight
    worse, other = (before, tonight) if _rank(before) > _rank(tonight) else (tonight, before)
    figures: dict[str, object] = {**other.figures, **worse.figures, **tonight.figures}
    both = [cast(dict[str, float], part.figures) for part in (before, tonight)]
    for name in SUMMED:
        if name in figures:
            figures[name] = sum(part.get(name, 0) for part in both)
    for name in GREATEST:
        known = [part[name] for part in both if part.get(name) is not None]
        if known:
            figures[name] = max(known)
    return dataclasses.replace(worse, figures=cast(Figures, figures))


def _rank(outcome: Outcome) -> int:
    return (State.SKIPPED, State.OK, State.FAILED).index(outcome.state)

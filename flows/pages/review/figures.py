"""The figures and the sheet of a new version, for a reviewer who would rather look than read."""

from __future__ import annotations

import math
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

import numpy as np

from flows.pages.html import environment, render
from flows.pages.review.svg import Area, Bars, Dots, Figure, Line, bars, plot, short
from flows.run.days import zone_of
from flows.work.alarm_rule import alarm_rule
from flows.work.model.review_test import recommend
from paano import PaAno
from paano.alarms.calibrate import DAYS_OF_BUDGET
from paano.series import read_series, valid_starts
from storage.history.reader import Reading

if TYPE_CHECKING:
    from flows.settings.fleet_file import Settings
    from flows.work.model.review_test import ReviewTest

BAR_LABEL = "VUS-PR"
PATCHES = 300  # of the newest history on the map
BANK = 500  # entries of the bank on the map
COMPARED = 600  # rows that champion and challenger are compared on


def review_files(
    model: PaAno,
    former: PaAno | None,
    newest: Reading,
    test: ReviewTest,
    against: ReviewTest | None,
    settings: Settings,
    scores: dict[str, np.ndarray],
) -> dict[str, bytes]:
    """{file name: SVG or HTML} for a new version: every figure, and `review.html` with all of them.

    `scores` are those of the newest history by "this version" and, if there is one, "champion".
    """
    named = figures_of(model, former, newest, test, against, settings, scores)
    recommendation = recommend(test, against, settings)
    sheet = render(
        "pages/sheet.html",
        fleet=settings.fleet.name,
        sensor=newest.sensor,
        recommendation=recommendation,
        test=test,
        numbers=numbers_of(model, former, newest, test, against, settings),
        figures=[(figure, note) for figure, note in named.values()],
        champion=against is not None,
        zone=settings.zone,
        since=f"{newest.start.astimezone(zone_of(settings)):%Y-%m-%d %H:%M}",
        until=f"{newest.end.astimezone(zone_of(settings)):%Y-%m-%d %H:%M}",
    )
    files = {f"{name}.svg": draw(figure).encode() for name, (figure, _) in named.items()}
    return {**files, "review.html": sheet.encode()}


def draw(figure: Figure) -> str:
    """A figure as an SVG file of its own."""
    template = environment().get_template("pages/figure.svg")
    return template.render(figure=figure, alone=True)


def figures_of(
    model: PaAno,
    former: PaAno | None,
    newest: Reading,
    test: ReviewTest,
    against: ReviewTest | None,
    settings: Settings,
    scores: dict[str, np.ndarray],
) -> dict[str, tuple[Figure, str]]:
    """Every figure with a sentence that says how to read it."""
    found = {
        "series": newest_series(newest, settings),
        "scores": newest_scores(model, former, newest, settings, scores),
        "faults": fault_bars(test, against),
        "calibration": calibration_curve(model, newest, settings),
    }
    if former is not None:
        found["comparison"] = champion_and_challenger(model, former, newest, settings, scores)
    if model.losses:
        found["training"] = training_loss(model)
    if (shown := patch_map(model, newest)) is not None:
        found["map"] = shown
    if (sample := expected_sample(model, newest, settings)) is not None:
        found["expected"] = sample
    return found


def newest_series(newest: Reading, settings: Settings) -> tuple[Figure, str]:
    """The channels, one above the other: their units differ, so a common axis would flatten some of them."""
    inks = ("series", "score", "level", "version")
    shown = list(zip(newest.channels, inks, strict=False))
    note, ticks = "What the review test put its faults into.", time_ticks(newest, settings, hours(newest))
    if len(shown) == 1:
        lines = [Line(hours(newest), newest.values[:, 0], inks[0], label=newest.channels[0])]
        return plot("The newest history", *lines, x_label=settings.zone, x_ticks=ticks), note
    lines, scale = [], []
    for column, (name, ink) in enumerate(shown):
        values, floor = newest.values[:, column], float(len(shown) - 1 - column)
        known = values[np.isfinite(values)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        lines.append(
            Line(hours(newest), floor + 0.66 * (values - low) / ((high - low) or 1.0), ink, label=name)
        )
        scale += [(floor, short(low)), (floor + 0.66, short(high))]
    if len(newest.channels) > len(shown):
        note += f" The first {len(shown)} of {len(newest.channels)} channels."
    figure = plot("The newest history", *lines, x_label=settings.zone, x_ticks=ticks, y_ticks=scale)
    return figure, note


def newest_scores(
    model: PaAno,
    former: PaAno | None,
    newest: Reading,
    settings: Settings,
    scores: dict[str, np.ndarray],
) -> tuple[Figure, str]:
    lines = []
    for each, ink, name in ((former, "event", "champion"), (model, "score", "this version")):
        if each is None:
            continue
        threshold = alarm_rule(settings, newest.sensor, each.calibration, newest.interval).threshold
        score = np.asarray(scores[name], float)
        unit = threshold if math.isfinite(threshold) and threshold > 0 else 1.0
        lines.append(Line(hours(newest), score / unit, ink, label=name))
    limit = Line(
        [0, hours(newest)[-1]] if len(newest) else [0, 1], [1, 1], "threshold", "threshold", dash=True
    )
    note = (
        "Each score in units of its own threshold: above 1 is an alarm, and this history is taken as normal."
    )
    ticks = time_ticks(newest, settings, hours(newest))
    title = "Scores of the newest history"
    return plot(title, *lines, limit, x_label=settings.zone, y_label="score / threshold", x_ticks=ticks), note


def champion_and_challenger(
    model: PaAno, former: PaAno, newest: Reading, settings: Settings, scores: dict[str, np.ndarray]
) -> tuple[Figure, str]:
    """Both scores of every row of the same data, each in units of its own threshold."""
    places = []
    for each, name in ((former, "champion"), (model, "this version")):
        threshold = alarm_rule(settings, newest.sensor, each.calibration, newest.interval).threshold
        unit = threshold if math.isfinite(threshold) and threshold > 0 else 1.0
        places.append(np.asarray(scores[name], float) / unit)
    rows = np.flatnonzero(np.isfinite(places[0]) & np.isfinite(places[1]))
    rows = rows[:: max(1, -(-len(rows) // COMPARED))]
    theirs, ours = places[0][rows], places[1][rows]
    top = float(max(1.0, theirs.max(initial=0), ours.max(initial=0))) * 1.05
    figure = plot(
        "Champion against this version",
        Dots(theirs, ours, "score", "rows of the newest history", 1.8),
        Line([1, 1], [0, top], "threshold", "threshold", dash=True),
        Line([0, top], [1, 1], "threshold", dash=True),
        Line([0, top], [0, top], "faint"),
        x_label="score / threshold of the champion",
        y_label="of this version",
    )
    alone = int(((ours > 1) & (theirs <= 1)).sum()), int(((theirs > 1) & (ours <= 1)).sum())
    note = (
        f"The same {len(rows)} rows scored by both. Top left only this version would alarm "
        f"({alone[0]} rows), bottom right only the champion ({alone[1]} rows)."
    )
    return figure, note


def fault_bars(test: ReviewTest, against: ReviewTest | None) -> tuple[Figure, str]:
    names = list(test.faults)
    sets = [Bars(names, [test.faults[name] for name in names], "score", "this version")]
    if against is not None:
        sets.append(Bars(names, [against.faults.get(name, math.nan) for name in names], "event", "champion"))
    note = "How well each kind of injected fault is found; 1 is every fault and nothing else."
    return bars("Faults found", *sets, x_label=BAR_LABEL), note


def calibration_curve(model: PaAno, newest: Reading, settings: Settings) -> tuple[Figure, str]:
    rows = DAYS_OF_BUDGET * 86_400 / newest.interval.total_seconds()
    known, budget = model.calibration, settings.alarms.budget
    seconds = newest.interval.total_seconds()
    rates = np.geomspace(budget / 100, max(100 * budget, float(max(known.rates, default=0.0)) * rows), 60)
    levels = np.array([known.threshold(float(rate), seconds) for rate in rates])
    # The lowest known threshold stands for every higher rate: of these only the first is part of the curve.
    keep = np.append(levels[:-1] > levels[-1], False) if np.isfinite(levels).all() else np.isfinite(levels)
    if keep.sum() > 1:
        levels, rates = levels[keep], rates[keep]
    parts: list[Line] = [Line(levels, rates, "score", "events of normal data")]
    threshold = alarm_rule(settings, newest.sensor, known, newest.interval).threshold
    if math.isfinite(threshold):
        parts.append(Line([threshold] * 2, [rates[0], rates[-1]], "threshold", "threshold", dash=True))
    events = f"{budget:g} event{'' if budget == 1 else 's'}"
    note = f"The threshold is where normal data gives {events} in {DAYS_OF_BUDGET} days."
    return plot("Calibration", *parts, x_label="score", y_label="events in 30 days", log=True), note


def training_loss(model: PaAno) -> tuple[Figure, str]:
    steps = np.arange(1, len(model.losses) + 1)
    lines = [
        Line(steps, [float(losses[name]) for losses in model.losses], ink, name)  # type: ignore[literal-required]
        for name, ink in (("loss", "score"), ("contrast", "level"))
    ]
    return plot("Training loss", *lines, x_label="iteration"), "It should fall and settle."


def patch_map(model: PaAno, newest: Reading) -> tuple[Figure, str] | None:
    """The bank and recent patches in the two directions in which the bank differs most."""
    series = read_series(newest.values, model.config.max_gap)
    starts = valid_starts(series.usable, model.config.patch)
    if not len(starts) or len(model.bank) < 3:
        return None
    some = starts[:: max(1, len(starts) // PATCHES)]
    vectors = model.bank.vectors.cpu().numpy()[:: max(1, len(model.bank) // BANK)].astype(float)
    centre = vectors.mean(axis=0)
    _, axes = np.linalg.eigh(np.cov(vectors, rowvar=False))  # by rising variance
    bank = (vectors - centre) @ axes[:, :-3:-1]
    recent = (model.embed(newest.values, some).astype(float) - centre) @ axes[:, :-3:-1]
    figure = plot(
        "Bank and recent patches",
        Dots(bank[:, 0], bank[:, 1], "faint", "bank", 2.2),
        Dots(recent[:, 0], recent[:, 1], "event", "newest history", 1.8),
        bare=True,
    )
    return figure, "Recent patches away from every dot of the bank are what the model finds strange."


def expected_sample(model: PaAno, newest: Reading, settings: Settings) -> tuple[Figure, str] | None:
    """A normal stretch as the model would fill it in, beside what was seen; None if it keeps no history."""
    patch = model.config.patch
    if getattr(model, "kept", None) is None or len(newest) < 4 * patch:
        return None
    first = len(newest) // 2
    if not np.isfinite(newest.values[first - patch : first + 2 * patch]).all():
        return None
    answer = model.expected(newest.values, (first, first + patch - 1))
    around = slice(first - patch, first + 2 * patch)
    x, inside = hours(newest), slice(first, first + patch)
    figure = plot(
        "Expected normal of a sample",
        Area(x[inside], answer.low[:, 0], answer.high[:, 0], "expected", "usual band"),
        Line(x[inside], answer.mid[:, 0], "expected", "expected", dash=True),
        Line(x[around], newest.values[around, 0], "series", newest.channels[0]),
        x_label=settings.zone,
        x_ticks=time_ticks(newest, settings, x[around]),
    )
    return figure, "The middle patch was hidden from the model, which filled it in from its surroundings."


def numbers_of(
    model: PaAno,
    former: PaAno | None,
    newest: Reading,
    test: ReviewTest,
    against: ReviewTest | None,
    settings: Settings,
) -> list[tuple[str, str, str]]:
    """Rows of the table: name, this version, champion."""

    def threshold(each: PaAno | None) -> float:
        if each is None:
            return math.nan
        return alarm_rule(settings, newest.sensor, each.calibration, newest.interval).threshold

    rows = [
        ("VUS-PR, mean over faults", test.vus_pr, against.vus_pr if against else math.nan, 3),
        ("alarms per 30 days", test.alarms, against.alarms if against else math.nan, 1),
        ("threshold", threshold(model), threshold(former), 3),
    ]
    return [(name, _text(ours, digits), _text(theirs, digits)) for name, ours, theirs, digits in rows]


def _text(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "–"


def time_ticks(reading: Reading, settings: Settings, shown: np.ndarray) -> list[tuple[float, str]]:
    """About five round moments within the hours `shown`, as the fleet's clocks say them."""
    if not len(shown):
        return []
    first, last = float(shown[0]), float(shown[-1])
    step = next((n for n in (1, 3, 6, 12, 24, 48, 168, 336, 720) if (last - first) / n <= 5), 2160)
    zone = zone_of(settings)
    begin = (reading.start + timedelta(hours=first)).astimezone(zone)
    moment = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = []
    while (place := (moment.astimezone(UTC) - reading.start) / timedelta(hours=1)) <= last:
        if place >= first:
            form = "%d %b" if moment.hour == 0 else "%H:%M"
            ticks.append((place, moment.strftime(form)))
        moment += timedelta(hours=step)  # by the clock on the wall
    return ticks


def hours(reading: Reading) -> np.ndarray:
    """Hours since the first row."""
    return np.arange(len(reading)) * (reading.interval.total_seconds() / 3600)

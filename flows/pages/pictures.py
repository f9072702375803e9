"""Pictures: a sensor's nights, and for a reviewer the scores and the injected-fault test of a version."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np

from flows.pages.escape import plain
from flows.pages.review.figures import review_files
from flows.run.days import zone_of
from flows.work.alarm_rule import alarm_rule
from paano import PaAno
from storage.history.reader import Reading

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from flows.pages.views import EventRow
    from flows.settings.fleet_file import Settings
    from flows.work.model.review_test import ReviewTest

BLUE, GREY, RED = "#1f5fa8", "#9a9a9a", "#c0392b"


def review(
    model: PaAno,
    former: PaAno | None,
    newest: Reading,
    test: ReviewTest,
    against: ReviewTest | None,
    settings: Settings,
) -> dict[str, bytes]:
    """{file name: content} for a version: two PNGs, every figure as SVG, `review.html` with all of them."""
    scores = {"this version": test.scores}
    if against is not None:
        scores["champion"] = against.scores
    return {
        **review_files(model, former, newest, test, against, settings, scores),
        "scores.png": _png(_scores(model, former, newest, settings, scores)),
        "faults.png": _png(_faults(test, against)),
    }


def night(reading: Reading, scores: pl.DataFrame, events: Sequence[EventRow], zone: str) -> bytes:
    """PNG of a sensor's history, its scores against the threshold, and its events."""
    from matplotlib.figure import Figure  # without pyplot there is no global state

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    below.xaxis_date(ZoneInfo(zone))
    below.set_xlabel(zone)
    above.plot(reading.ts, reading.values, linewidth=0.8, label=[_name(name) for name in reading.channels])
    above.set_title(_name(f"{reading.sensor}: history, score and events"), loc="left")
    above.legend(loc="upper left", frameon=False, ncols=min(4, len(reading.channels)))
    times = scores["ts"].dt.replace_time_zone(None).to_numpy()
    values = scores["score"].fill_null(float("nan")).to_numpy()
    limit = scores["threshold"].fill_null(float("nan")).to_numpy()
    below.plot(times, values, color=BLUE, linewidth=1, label="score")
    below.plot(times, limit, color=GREY, linewidth=0.8, linestyle="--", label="threshold")
    below.legend(loc="upper left", frameon=False)
    for event in events:
        begin, end = (moment.replace(tzinfo=None) for moment in (event.start, event.end))
        for axes in (above, below):
            axes.axvspan(begin, end, color=RED, alpha=0.15, linewidth=0)
    return _png(figure)


def _scores(
    model: PaAno,
    former: PaAno | None,
    newest: Reading,
    settings: Settings,
    scores: dict[str, np.ndarray],
) -> Figure:
    from matplotlib.figure import Figure  # without pyplot there is no global state

    figure = Figure(figsize=(9, 4.5))  # fixed margins: to try which would do takes as long as to draw
    figure.subplots_adjust(left=0.1, right=0.98, top=0.93, bottom=0.12, hspace=0.12)
    above, below = figure.subplots(2, 1, sharex=True)
    below.xaxis_date(zone_of(settings))
    below.set_xlabel(settings.zone)
    above.plot(newest.ts, newest.values[:, : min(4, newest.values.shape[1])], linewidth=0.8)
    above.set_title(_name(f"{newest.sensor}: newest history and scores"), loc="left")
    above.set_ylabel(_name(", ".join(newest.channels[:4])))
    for each, colour, name in ((former, GREY, "champion"), (model, BLUE, "this version")):
        if each is None:
            continue
        below.plot(newest.ts, scores[name], color=colour, linewidth=1, label=name)
        threshold = alarm_rule(settings, newest.sensor, each.calibration, newest.interval).threshold
        if np.isfinite(threshold):
            below.axhline(threshold, color=colour, linestyle="--", linewidth=0.8)
    below.set_ylabel("score (dashed: threshold)")
    below.legend(loc="upper left", frameon=False)
    return figure


def _faults(test: ReviewTest, against: ReviewTest | None) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5))
    figure.subplots_adjust(left=0.19, right=0.97, top=0.88, bottom=0.15)
    axes = figure.subplots()
    kinds = list(test.faults)
    place = np.arange(len(kinds))
    axes.barh(place + 0.2, [test.faults[kind] for kind in kinds], 0.4, color=BLUE, label="this version")
    if against is not None:
        axes.barh(
            place - 0.2,
            [against.faults.get(kind, 0) for kind in kinds],
            0.4,
            color=GREY,
            label="champion",
        )
    axes.set_yticks(place, kinds)
    axes.set_xlim(0, 1)
    axes.set_xlabel("VUS-PR on faults put into the newest history")
    figure.legend(loc="upper right", frameon=False, ncols=2)  # beside the bars, never over them
    return figure


def _name(text: str) -> str:
    """A name from data as matplotlib shows it: no formula, no control character, never hidden."""
    shown = plain(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown  # a label with a leading _ is left out of legends


def _png(figure: Figure) -> bytes:
    """PNG without a time stamp or version, so that equal pictures are equal bytes."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=90, metadata={"Software": None})
    return out.getvalue()

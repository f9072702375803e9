"""Pictures: a sensor's nights, and for a reviewer the scores and the injected-fault test of a version."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from paano import PaAno
from storage.history import Reading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from flows.trial import Trial

BLUE, GREY, RED = "#1f5fa8", "#9a9a9a", "#c0392b"


def review(
    model: PaAno,
    former: PaAno | None,
    newest: Reading,
    trial: Trial,
    against: Trial | None,
    budget: float,
) -> dict[str, bytes]:
    """{file name: PNG} for a version."""
    return {
        "scores.png": _png(_scores(model, former, newest, budget)),
        "faults.png": _png(_faults(trial, against)),
    }


def night(reading: Reading, scores: list[dict[str, Any]], events: list[dict[str, Any]]) -> bytes:
    """PNG of a sensor's history, its scores against the threshold, and its events."""
    from matplotlib.figure import Figure  # without pyplot there is no global state

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(reading.ts, reading.values, linewidth=0.8, label=reading.channels)
    above.set_title(f"{reading.sensor}: history, score and events", loc="left")
    above.legend(loc="upper left", frameon=False, ncols=min(4, len(reading.channels)))
    times = [row["ts"].replace(tzinfo=None) for row in scores]
    values = [np.nan if row["score"] is None else row["score"] for row in scores]
    limit = [np.nan if row["threshold"] is None else row["threshold"] for row in scores]
    below.plot(times, values, color=BLUE, linewidth=1, label="score")
    below.plot(times, limit, color=GREY, linewidth=0.8, linestyle="--", label="threshold")
    below.legend(loc="upper left", frameon=False)
    for event in events:
        begin, end = (event[name].replace(tzinfo=None) for name in ("start", "end"))
        for axes in (above, below):
            axes.axvspan(begin, end, color=RED, alpha=0.15, linewidth=0)
    return _png(figure)


def _scores(model: PaAno, former: PaAno | None, newest: Reading, budget: float) -> Figure:
    from matplotlib.figure import Figure  # without pyplot there is no global state

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1])
    above.plot(newest.ts, newest.values[:, : min(4, newest.values.shape[1])], linewidth=0.8)
    above.set_title(f"{newest.sensor}: newest history and scores", loc="left")
    above.set_ylabel(", ".join(newest.channels[:4]))
    seconds = newest.interval.total_seconds()
    for each, colour, name in ((former, GREY, "champion"), (model, BLUE, "this version")):
        if each is None:
            continue
        below.plot(newest.ts, each.score(newest.values), color=colour, linewidth=1, label=name)
        threshold = each.calibration.threshold(budget, seconds)
        if np.isfinite(threshold):
            below.axhline(threshold, color=colour, linestyle="--", linewidth=0.8)
    below.set_ylabel("score (dashed: threshold)")
    below.legend(loc="upper left", frameon=False)
    return figure


def _faults(trial: Trial, against: Trial | None) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    kinds = list(trial.faults)
    place = np.arange(len(kinds))
    axes.barh(place + 0.2, [trial.faults[kind] for kind in kinds], 0.4, color=BLUE, label="this version")
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
    axes.legend(loc="lower right", frameon=False)
    return figure


def _png(figure: Figure) -> bytes:
    """PNG without a time stamp or version, so that equal pictures are equal bytes."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=90, metadata={"Software": None})
    return out.getvalue()

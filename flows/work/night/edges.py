"""The second look at the stretches of a night: the history around each, and the faults found in it.

Only a stretch of anomalous rows is looked at, so a quiet night costs nothing. Mostly its values are in the
history that the run has read; those of a long stretch, or of one that a rerun has found again, are read. What
is looked at is all there is within `reach` of the stretch: a run that writes rows so near to a stretch looks
at it again. Where the values cannot be had, or the model keeps no history, the stretch counts as one fault;
where every row is like the kept history, there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from flows.work.alarm_rule import faults_between
from flows.work.night.models import Models
from paano.alarms.edges import reach
from paano.alarms.events import Edges
from paano.errors import HistoryError
from storage.window import Window


def edges_of(models: Models, sensor: str) -> Edges:
    """What gives the faults of a stretch of `sensor`, as `paano.alarms.settle.settle` asks for them.

    Args:
        models: those of the run, with the history that it has read.
    """

    def edges(start: datetime, end: datetime, version: int | None) -> Sequence[tuple[datetime, datetime]]:
        champion = models.model(sensor, version)
        model, step = champion.model, champion.interval
        margin = reach(model.config) * step
        whole = [(start, end)]
        if model.kept is None:
            return whole  # nothing better is known
        try:
            reading = models.values(champion, Window(start - margin, end + margin + step))
        except HistoryError:  # the older rows are gone, or have other channels
            return whole
        if reading.values.shape[1] != model.channels or end >= reading.end:
            return whole
        return faults_between(model, reading, start, end)

    return edges

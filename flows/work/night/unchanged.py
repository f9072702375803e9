"""A night that was scored before: where nothing has changed since, a quiet sensor is not computed again.

The rows of a sensor and day follow from the history within reach of the day, the champion, the settings and
the calendar. One mark stands for all of them. It is kept beside what the night read (`late_data`), as the
last thing that is stored, and only of a sensor that needs no second look: every row has a score, none is over
the threshold. A later run of that day which finds the same mark and these rows has nothing to do.

No such mark is made where more than this could matter: with `alarms.stuck`, which follows equal values as far
back as they go; without a calendar that can be read; and where a model reaches further than its tags say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version as installed
from typing import cast

import polars as pl

from flows.run.fleet import Fleet, catalog_row
from flows.run.outcome import Figures, Outcome, State, ok
from flows.work.known_periods import muted_of
from flows.work.night.late_data import marks_of, open_reads
from flows.work.night.load import Champion, Need, expected_need
from storage.registry.registry import Version
from storage.window import Window


@dataclass(frozen=True)
class Inputs:
    """What the rows of one sensor and day follow from."""

    mark: str
    need: Need  # the history around the day that the mark stands for

    def holds_for(self, champion: Champion | None) -> bool:
        """Whether the mark stands for everything that this champion reads."""
        return champion is not None and self.need.covers(Need.of(champion))


def inputs_of(
    fleet: Fleet, day: Window, sensors: Sequence[str], versions: Mapping[str, Version]
) -> dict[str, Inputs]:
    """What the rows of `day` follow from, for each sensor where that is known. Listings only."""
    if fleet.known.problem or not fleet.settings.run.look_back:
        return {}
    needs = {sensor: need for sensor in sensors if (need := expected_need(fleet, versions.get(sensor)))}
    reach = {sensor: day.widen(need.before, need.after) for sensor, need in needs.items()}
    marks = marks_of(fleet, {sensor: [window] for sensor, window in reach.items()})
    common = json.dumps(fleet.settings.to_dict(), sort_keys=True, default=str) + installed("paano-fleet")
    found = {}
    for sensor, window in reach.items():
        own = fleet.settings_for(sensor)
        if (sensor, window) not in marks or own.alarms.stuck:
            continue
        version, row = versions[sensor], catalog_row(fleet.settings, fleet.history, sensor)
        parts = [common, marks[sensor, window], version.digest, version.version, own.alarms, row]
        muted = muted_of(fleet, sensor, window)
        text = "\0".join(str(part) for part in [*parts, *muted])
        found[sensor] = Inputs(hashlib.sha256(text.encode()).hexdigest()[:32], needs[sensor])
    return found


def unchanged(
    fleet: Fleet, day: Window, inputs: Mapping[str, Inputs], versions: Mapping[str, Version]
) -> dict[str, Outcome]:
    """The outcomes of sensors whose stored rows of `day` are what would be computed now."""
    if not inputs:
        return {}
    columns = ["sensor", "ts", "inputs", "figures"]
    kept = open_reads(fleet).read_many(list(inputs), day, columns).filter(pl.col("ts") == day.start)
    figures = {
        sensor: json.loads(text)
        for sensor, _, mark, text in kept.iter_rows()
        if mark and text and mark == inputs[sensor].mark
    }
    if not figures:
        return {}
    rows = fleet.scores.read_many(list(figures), day, ["sensor", "anomaly", "model_version"])
    counts = rows.group_by("sensor").agg(pl.len(), pl.col("anomaly").any(), pl.col("model_version").unique())
    return {
        sensor: ok(sensor, **cast(Figures, figures[sensor]))
        for sensor, many, noisy, by in counts.iter_rows()
        if not noisy and many == figures[sensor].get("rows") and by == [versions[sensor].version]
    }


def is_quiet(outcome: Outcome) -> bool:
    """Whether a sensor needs no second look: all rows of the night have a score, with nothing to say."""
    seen = outcome.figures
    return (
        outcome.state is State.OK
        and not outcome.reason
        and not (seen.get("missing") or seen.get("anomalies") or seen.get("events"))
    )

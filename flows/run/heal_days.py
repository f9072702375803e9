"""Days whose history came late, scored again through the engine."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import date

from flows.run.fleet import Fleet
from flows.run.nights import score_fleet
from flows.run.outcome import Outcome, State
from flows.work.night.late_data import changed_days
from flows.work.night.night import remark
from paano.errors import PaanoError
from storage.registry.registry import Version

log = logging.getLogger("paano.flows")

Healed = dict[date, dict[str, Outcome]]


def heal_days(
    fleet: Fleet, sensors: Sequence[str], champions: Mapping[str, Version], before: date
) -> tuple[Healed, list[str]]:
    """Score again what changed within run.look_back before `before`: outcomes by day and sensor, and notes.

    A run does not fail for it: what could not be done is in the notes, and the next run tries again.
    """
    healed: Healed = {}
    try:
        changed = changed_days(fleet, before, sensors)
        for day, names in sorted(changed.items()):
            outcomes = score_fleet("heal", fleet, names, dict(champions), [day])
            healed[day] = {outcome.sensor: outcome for outcome in outcomes}
    except PaanoError as error:
        log.warning("late data: %s", error)
        return healed, [f"days with late data were not all scored again: {error}"]
    return healed, [
        f"{day} was scored again for {len(some)} sensor{'s' * (len(some) > 1)}: data came late"
        for day, some in healed.items()
    ]


def healed_too(outcome: Outcome, healed: Healed) -> Outcome:
    """The outcome of a sensor, with the days that were scored again for it."""
    for day, some in healed.items():
        late = some.get(outcome.sensor)
        if late is not None and late.state is State.FAILED:
            outcome = remark(outcome, f"{day} came late and failed: {late.reason}")
        elif late is not None:
            outcome = remark(outcome, f"{day} was scored again: data came late")
    return outcome

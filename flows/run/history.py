"""The history of a run, made ready once for all its tasks: listed, and long tables handed out in pieces."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any

from flows.run.days import DAY, day_window
from flows.run.fleet import Fleet, fleet_for, storage_options
from flows.run.plan import Batch
from paano.errors import PaanoError
from storage.history.listing import Listed
from storage.history.reader import Piece
from storage.history.scatter import remove_pieces
from storage.objects.store import open_store
from storage.registry.registry import Champions, Version

log = logging.getLogger("paano.flows")

NONE = timedelta(0)
USUAL = timedelta(days=8)  # on either side of a day: enough for patches of 96 points an hour apart


def champions_and_history(
    fleet: Fleet, sensors: Sequence[str], days: Sequence[date], every: bool = False
) -> Champions:
    """The champions of `sensors`, or of `every` one the registry has; the history is listed meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        listed = pool.submit(list_history, fleet, sensors, None, days) if may_list_early(fleet) else None
        champions = fleet.registry.champions(None if every else sensors)
        if listed is not None:
            listed.result()
    return champions


def may_list_early(fleet: Fleet) -> bool:
    """Whether one listing has all dates, so that it can be made before it is known which will be read."""
    layout = fleet.history.layout
    return fleet.settings.run.engine == "local" and layout.kind == "sensor" and not layout.dated


def list_history(
    fleet: Fleet, sensors: Sequence[str], champions: Mapping[str, Version] | None, days: Sequence[date]
) -> None:
    """List the history that this run will read, and compare with what was read before, once for all of it.

    Without `champions` it is listed for usual intervals. Where they turn out to be longer, a second call
    lists again.
    """
    settings = fleet.settings
    around = USUAL if champions is None else around_of(fleet, champions)
    before = max(around, settings.run.look_back) + settings.run.catch_up + DAY
    try:
        fleet.history.list_ahead(sensors, day_window(settings, days[0], days[-1]).widen(before, around))
    except PaanoError as error:
        log.warning("the history is listed sensor by sensor: %s", error)


def around_of(fleet: Fleet, champions: Mapping[str, Version]) -> timedelta:
    """How far before and after a day history is read for these champions."""
    steps = [version.parsed.interval for version in champions.values()]
    return 2 * fleet.settings.config().context * max((step for step in steps if step), default=NONE)


@contextmanager
def scattered(
    fleet: Fleet, batches: Sequence[Batch], champions: Mapping[str, Version], days: Sequence[date]
) -> Iterator[dict[str, Piece]]:
    """The piece of the long tables that each batch needs, by its first sensor; the tables are read once.

    Empty where nothing is gained: for a prefix per sensor, or a single batch. A table that cannot be read is
    left to the batches, which say which sensors it concerns.
    """
    if fleet.history.layout.kind != "long" or len(batches) < 2:
        yield {}
        return
    around = around_of(fleet, champions)
    window = day_window(fleet.settings, days[0], days[-1]).widen(around, around)
    intervals = {sensor: step for sensor, one in champions.items() if (step := one.parsed.interval)}
    with room_for_pieces(fleet) as place:
        try:
            found = fleet.history.scatter(window, [batch.sensors for batch in batches], place, intervals)
        except PaanoError as error:
            log.warning("every batch reads the long tables itself: %s", error)
            found = []
        yield {batch.sensors[0]: piece for batch, piece in zip(batches, found, strict=False)}


@contextmanager
def room_for_pieces(fleet: Fleet) -> Iterator[str]:
    """A place that all workers of this run see: a local folder, for a cluster one beside the runs."""
    settings = fleet.settings
    if settings.run.engine == "local":
        with tempfile.TemporaryDirectory(prefix="paano-pieces-") as folder:
            yield folder
        return
    from prefect.runtime import flow_run  # here: a worker process does without Prefect

    place = f"{settings.place(settings.run.url)}/pieces/{flow_run.id or 'run'}"
    try:
        yield place
    finally:
        remove_pieces(open_store(place, storage_options(settings)))


def fleet_of_batch(
    settings: dict[str, Any],
    pieces: Mapping[str, Piece],
    listed: Mapping[str, Listed],
    batch: Batch,
    champions: Mapping[str, Version],
    days: Sequence[date],
) -> Fleet:
    """The fleet of a task; long tables are read from its piece, if it has one.

    A batch asks three times what there is of a sensor. Where the run has not listed it for this batch, as on
    a cluster, that is done here, once.
    """
    fleet = fleet_for(settings)
    for piece in pieces.values():
        return dataclasses.replace(fleet, history=fleet.history.with_piece(piece))
    fleet.history.listing.take(listed)
    if fleet.history.layout.kind == "sensor":
        list_history(fleet, batch.sensors, champions, days)
    return fleet

"""Which sensors there are: discovered from the history, or given as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import polars as pl

# sensor text, group text or null, interval duration or null, enabled bool, owner text or null
CATALOG_SCHEMA = {
    "sensor": pl.String,
    "group": pl.String,
    "interval": pl.Duration("us"),
    "enabled": pl.Boolean,
    "owner": pl.String,
}


@dataclass(frozen=True)
class Sensor:
    """One row of the catalogue."""

    sensor: str
    group: str | None = None
    interval: timedelta | None = None
    enabled: bool = True
    owner: str | None = None


class Catalog:
    """The sensors of a fleet, sorted by id. `frame` has the columns of CATALOG_SCHEMA."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame

    def __len__(self) -> int:
        return self.frame.height

    def __contains__(self, sensor: object) -> bool:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Sensor]:
        raise NotImplementedError

    def __getitem__(self, sensor: str) -> Sensor:
        """UnknownSensor, with the nearest known ids, if it is not there."""
        raise NotImplementedError

    @property
    def sensors(self) -> list[str]:
        """Ids of the enabled sensors."""
        raise NotImplementedError

    def intervals(self) -> dict[str, timedelta]:
        """The intervals the catalogue gives."""
        raise NotImplementedError

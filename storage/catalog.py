"""Which sensors there are: discovered from the history, or given as a table."""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import polars as pl

from paano.errors import ConfigError, UnknownSensor
from storage.objects import StorageOptions, open_store

CATALOG_SCHEMA = {
    "sensor": pl.String(),
    "group": pl.String(),
    "interval": pl.Duration("us"),
    "enabled": pl.Boolean(),
    "owner": pl.String(),
}
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


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
        self._rows = {row["sensor"]: Sensor(**row) for row in frame.iter_rows(named=True)}

    @classmethod
    def of(cls, sensors: Iterable[str]) -> Catalog:
        """A catalogue of ids alone: all enabled, nothing else known."""
        names = sorted(set(sensors))
        blank = {name: None for name in CATALOG_SCHEMA if name not in ("sensor", "enabled")}
        rows = [{"sensor": name, "enabled": True, **blank} for name in names]
        return cls(pl.DataFrame(rows, schema=CATALOG_SCHEMA))

    @classmethod
    def read(cls, url: str, options: StorageOptions | None = None) -> Catalog:
        """A catalogue from Parquet or CSV with a column `sensor` and, if wanted, the others."""
        folder, _, name = str(url).rpartition("/")
        data = open_store(folder or ".", options).get(name)
        try:
            if name.endswith(".csv"):
                frame = pl.read_csv(io.BytesIO(data), infer_schema=False)
            else:
                frame = pl.read_parquet(io.BytesIO(data))
        except pl.exceptions.PolarsError as error:
            raise ConfigError(f"{url}: this catalogue cannot be read: {error}") from error
        return cls.from_frame(frame, url)

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, name: str = "catalogue") -> Catalog:
        """Columns beside the known ones are left out; an interval is a duration, seconds or `5m`, `30s`."""
        if "sensor" not in frame.columns:
            raise ConfigError(f"{name}: the column 'sensor' is missing; it has {', '.join(frame.columns)}")
        rows = []
        for row in frame.iter_rows(named=True):
            sensor = row["sensor"]
            if sensor is None or str(sensor) == "":
                raise ConfigError(f"{name}: a row without a sensor id")
            rows.append(
                {
                    "sensor": str(sensor),
                    "group": _text(row.get("group")),
                    "interval": parse_interval(row.get("interval"), f"{name}: {sensor}"),
                    "enabled": _flag(row.get("enabled"), f"{name}: {sensor}"),
                    "owner": _text(row.get("owner")),
                }
            )
        table = pl.DataFrame(rows, schema=CATALOG_SCHEMA).sort("sensor")
        twice = table.filter(pl.col("sensor").is_duplicated())
        if twice.height:
            raise ConfigError(f"{name}: the sensor {twice['sensor'][0]!r} is there twice")
        return cls(table)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, sensor: object) -> bool:
        return sensor in self._rows

    def __iter__(self) -> Iterator[Sensor]:
        return iter(self._rows.values())

    def __getitem__(self, sensor: str) -> Sensor:
        """UnknownSensor, with the nearest known ids, if it is not there."""
        if sensor not in self._rows:
            near = difflib.get_close_matches(str(sensor), self._rows, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise UnknownSensor(f"{sensor}: there is no such sensor among {len(self)}{hint}")
        return self._rows[sensor]

    @property
    def sensors(self) -> list[str]:
        """Ids of the enabled sensors."""
        return [s.sensor for s in self if s.enabled]

    def intervals(self) -> dict[str, timedelta]:
        """The intervals the catalogue gives."""
        return {s.sensor: s.interval for s in self if s.interval is not None}


def parse_interval(value: object, where: str = "interval") -> timedelta | None:
    """A duration from a duration, seconds, or a text such as `30s`, `5m`, `1h`."""
    if value is None or value == "":
        return None
    if isinstance(value, timedelta):
        found = value
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)?\s*", str(value))
        if match is None:
            raise ConfigError(f"{where}: {value!r} is not an interval; write seconds or 30s, 5m, 1h")
        found = timedelta(seconds=float(match[1]) * _UNITS[match[2] or "s"])
    if found <= timedelta(0):
        raise ConfigError(f"{where}: an interval must be above 0, not {value!r}")
    return found


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def _flag(value: object, where: str) -> bool:
    if value is None or value == "":
        return True
    text = str(value).strip().lower()
    if text in ("true", "1", "yes"):
        return True
    if text in ("false", "0", "no"):
        return False
    raise ConfigError(f"{where}: enabled = {value!r} is not true or false")

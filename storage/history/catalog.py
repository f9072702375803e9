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
from storage import duration
from storage.objects.store import StorageOptions, open_store

CATALOG_SCHEMA = {
    "sensor": pl.String(),
    "group": pl.String(),
    "interval": pl.Duration("us"),
    "enabled": pl.Boolean(),
    "owner": pl.String(),
    "channels": pl.List(pl.String()),
    "lookback": pl.Duration("us"),
    "budget": pl.Float64(),
    "threshold": pl.Float64(),
    "preset": pl.String(),
}


@dataclass(frozen=True)
class Sensor:
    """One row of the catalog."""

    sensor: str
    group: str | None = None
    interval: timedelta | None = None
    enabled: bool = True
    owner: str | None = None
    channels: list[str] | None = None
    lookback: timedelta | None = None
    budget: float | None = None
    threshold: float | None = None
    preset: str | None = None


class Catalog:
    """The sensors of a fleet, sorted by id. `frame` has the columns of CATALOG_SCHEMA."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self._rows = {row["sensor"]: Sensor(**row) for row in frame.iter_rows(named=True)}

    @classmethod
    def of(cls, sensors: Iterable[str]) -> Catalog:
        """A catalog of ids alone: all enabled, nothing else known."""
        names = sorted(set(sensors))
        blank = {name: None for name in CATALOG_SCHEMA if name not in ("sensor", "enabled")}
        rows = [{"sensor": name, "enabled": True, **blank} for name in names]
        return cls(pl.DataFrame(rows, schema=CATALOG_SCHEMA))

    @classmethod
    def read(cls, url: str, options: StorageOptions | None = None) -> Catalog:
        """A catalog from Parquet or CSV with a column `sensor` and, if wanted, the others."""
        folder, _, name = str(url).rpartition("/")
        data = open_store(folder or ".", options).get(name)
        try:
            if name.endswith(".csv"):
                frame = pl.read_csv(io.BytesIO(data), infer_schema=False)
            else:
                frame = pl.read_parquet(io.BytesIO(data))
        except pl.exceptions.PolarsError as error:
            raise ConfigError(f"{url}: this catalog cannot be read: {error}") from error
        return cls.from_frame(frame, url)

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, name: str = "catalog") -> Catalog:
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
                    "channels": _names(row.get("channels")),
                    "lookback": parse_interval(row.get("lookback"), f"{name}: {sensor}: lookback"),
                    "budget": _number(row.get("budget"), f"{name}: {sensor}: budget"),
                    "threshold": _number(row.get("threshold"), f"{name}: {sensor}: threshold"),
                    "preset": _text(row.get("preset")),
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
        """The intervals the catalog gives."""
        return {s.sensor: s.interval for s in self if s.interval is not None}


def parse_interval(value: object, where: str = "interval") -> timedelta | None:
    """A duration from a duration, seconds, or a text such as `30s`, `5m`, `1h`."""
    if value is None or value == "":
        return None
    text = value if isinstance(value, timedelta) else str(value).strip()
    try:
        found = duration.parse(f"{text}s" if isinstance(text, str) and text[-1:].isdigit() else text)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}; a number alone is seconds") from error
    if found <= timedelta(0):
        raise ConfigError(f"{where}: an interval must be above 0, not {value!r}")
    return found


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def _names(value: object) -> list[str] | None:
    """Column names from a list, or from a text with `,` or `;` between them."""
    if value is None or value == "":
        return None
    parts = value if isinstance(value, (list, tuple)) else re.split("[,;]", str(value))
    return [str(part).strip() for part in parts if part is not None and str(part).strip()] or None


def _number(value: object, where: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        return float(str(value))
    except ValueError:
        raise ConfigError(f"{where} = {value!r} is not a number") from None


def _flag(value: object, where: str) -> bool:
    if value is None or value == "":
        return True
    text = str(value).strip().lower()
    if text in ("true", "1", "yes"):
        return True
    if text in ("false", "0", "no"):
        return False
    raise ConfigError(f"{where}: enabled = {value!r} is not true or false")

"""Settings of single sensors: `[sensors."pump-*"]` tables of the fleet file, and columns of the catalog.

`for_sensor(settings, sensor, row)` answers with settings in which what is set for this sensor stands in the
place of what is set for the fleet; whatever takes `Settings` works for one sensor with these. What wins, from
weak to strong: the fleet's own section, the catalog's columns, `[sensors."group:NAME"]` and patterns in the
order of the file, the table with the sensor's exact id, `alarms.thresholds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError, field_validator

from flows.settings.duration import Duration
from flows.settings.sections import Section
from paano.config import PRESETS
from paano.errors import ConfigError

if TYPE_CHECKING:
    from flows.settings.fleet_file import Settings
    from storage.history.catalog import Sensor

GROUP = "group:"


class SensorSettings(Section):
    """What holds for the sensors that a table's name fits: an id, a pattern, or `group:NAME`."""

    channels: list[str] | dict[str, str] | None = Field(None, min_length=1, description="as history.channels")
    interval: Duration | None = Field(None, description="as history.interval")
    lookback: Duration | None = Field(None, description="as history.lookback")
    budget: float | None = Field(None, gt=0, le=1000, description="as alarms.budget")
    incidents: float | None = Field(
        None, gt=0, le=1000, description="incidents per 30 days of the whole group, instead of budget"
    )
    threshold: float | None = Field(None, description="instead of the calibrated one")
    preset: str | None = Field(None, description="as model.preset")

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, value: str | None) -> str | None:
        if value is not None and value not in PRESETS:
            raise ValueError(f"not a preset; allowed are {', '.join(PRESETS)}")
        return value

    def given(self) -> dict[str, Any]:
        """The keys that are set."""
        return {key: getattr(self, key) for key in self.model_fields_set if getattr(self, key) is not None}


def own_settings(tables: Mapping[str, SensorSettings], sensor: str, row: Sensor | None) -> SensorSettings:
    """Everything that is set for one sensor, joined; ConfigError if the catalog says what cannot be."""
    given: dict[str, Any] = {}
    if row is not None:
        keys = {key: getattr(row, key, None) for key in SensorSettings.model_fields}
        try:
            given |= SensorSettings(**{k: value for k, value in keys.items() if value is not None}).given()
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigError(f"history.catalog: {sensor}: {first['loc'][0]}: {first['msg']}") from None
    group = row.group if row is not None else None
    for name, table in tables.items():
        fits = (
            group is not None and fnmatchcase(group, name.removeprefix(GROUP))
            if name.startswith(GROUP)
            else fnmatchcase(sensor, name)
        )
        if fits and name != sensor:
            given |= table.given()
    if sensor in tables:
        given |= tables[sensor].given()
    return SensorSettings.model_construct(set(given), **given)


def for_sensor(settings: Settings, sensor: str, row: Sensor | None = None, members: int = 1) -> Settings:
    """`settings` as they hold for `sensor`, whose catalog row is `row` if there is a catalog.

    A group that may have so many incidents shares them among its `members`: were their events never at the
    same time, they would make as many.
    """
    given = own_settings(settings.sensors, sensor, row).given()
    if "incidents" in given:
        given["budget"] = given.pop("incidents") / max(1, members)
    if not given:
        return settings
    changes: dict[str, dict[str, Any]] = {}
    for key, section in (
        ("channels", "history"),
        ("interval", "history"),
        ("lookback", "history"),
        ("budget", "alarms"),
        ("preset", "model"),
    ):
        if key in given:
            changes.setdefault(section, {})[key] = given[key]
    if "threshold" in given:
        thresholds = {sensor: given["threshold"], **settings.alarms.thresholds}
        changes.setdefault("alarms", {})["thresholds"] = thresholds
    return settings.model_copy(
        update={name: getattr(settings, name).model_copy(update=keys) for name, keys in changes.items()}
    )

"""The fleet file: every setting of a fleet, checked whole at the start.

`Settings.load("fleet.toml")` reads the file, lets `PAANO_SECTION__KEY` variables win over it and answers with
one frozen object, or with one ConfigError that lists every wrong key and what is allowed there. Paths in it
are relative to the fleet file. Credentials are no settings: they come from the usual AWS variables or from a
credentials file and are never stored, passed on or printed.

The keys themselves are in `sections.py`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from flows.settings.notify import NotifySettings
from flows.settings.per_sensor import SensorSettings, for_sensor
from flows.settings.sections import (
    AlarmSettings,
    EventSettings,
    FleetSettings,
    HistorySettings,
    MetricsSettings,
    ModelSettings,
    OperationsSettings,
    RegistrySettings,
    ReportSettings,
    RetrainSettings,
    RunSettings,
    ScheduleSettings,
    ScoreSettings,
    StorageSettings,
)
from flows.settings.wrong_keys import PREFIX as PREFIX
from flows.settings.wrong_keys import explain_all
from paano.config import PaAnoConfig
from paano.errors import ConfigError
from storage import secrets
from storage.address import normal

if TYPE_CHECKING:
    from storage.history.catalog import Sensor

DEFAULT_FILE = "fleet.toml"


class Settings(BaseSettings):
    """A whole fleet file."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=False
    )

    fleet: FleetSettings = FleetSettings()
    history: HistorySettings = HistorySettings()
    scores: ScoreSettings = ScoreSettings()
    events: EventSettings = EventSettings()
    registry: RegistrySettings = RegistrySettings()
    model: ModelSettings = ModelSettings()
    alarms: AlarmSettings = AlarmSettings()
    retrain: RetrainSettings = RetrainSettings()
    operations: OperationsSettings = OperationsSettings()
    notify: NotifySettings = NotifySettings()
    metrics: MetricsSettings = MetricsSettings()
    run: RunSettings = RunSettings()
    storage: StorageSettings = StorageSettings()
    report: ReportSettings = ReportSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    sensors: dict[str, SensorSettings] = Field({}, description="tables of single sensors, patterns, groups")
    folder: Path = Field(Path("."), description="where relative paths start", exclude=False)

    @model_validator(mode="after")
    def _places_apart(self) -> Settings:
        """What is written must not lie in the history, nor two tables in one place."""
        urls = {"history.url": self.history.url, "scores.url": self.scores.url}
        urls |= {"events.url": self.events.url, "run.url": self.run.url}
        whole = {name: self.place(url) for name, url in urls.items()}
        places = {n: normal(url if "://" in url else os.path.abspath(url)) for n, url in whole.items()}
        for number, (name, place) in enumerate(places.items()):
            for other in list(places)[:number]:
                inside = (
                    other == "history.url"
                    and not self.history.path
                    and f"{place}/".startswith(f"{places[other]}/")
                )
                if place == places[other] or inside:
                    raise ValueError(
                        f"{name} = {urls[name]!r} is in the place of {other} = {urls[other]!r}; "
                        "give each a folder of its own"
                    )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """A variable wins over the file; nothing else is read."""
        return env_settings, init_settings

    @classmethod
    def load(cls, path: str | Path = DEFAULT_FILE) -> Settings:
        """The settings in `path`, with PAANO_… variables on top.

        Raises ConfigError if there is no such file, if it is not TOML, or if a key in it is wrong.
        """
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(
                f"no fleet file {path}; `paano init` writes one, --file names another"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None
        return cls.from_dict({**values, "folder": path.resolve().parent}, source=str(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "the fleet settings") -> Settings:
        """The settings in `values`; a ConfigError lists all wrong keys with what is allowed."""
        secrets.learn_values(values)
        try:
            settings = cls(**values)
        except ValidationError as error:
            raise ConfigError(explain_all(error.errors(), cls, source)) from None
        secrets.learn_values(settings.to_dict())
        if settings.storage.credentials:
            secrets.learn_file(settings.place(settings.storage.credentials))
        return settings

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can carry to a worker; `from_dict` takes them."""
        return self.model_dump(mode="json", exclude_none=True)

    def place(self, url: str) -> str:
        """`url` as it is if it names a scheme or an absolute path, else under the fleet file's folder."""
        return url if "://" in url or os.path.isabs(url) else str(self.folder / url)

    def config(self, seed: int = 0) -> PaAnoConfig:
        """The settings of a model with this seed."""
        return self.model.config(seed)

    def for_sensor(self, sensor: str, row: Sensor | None = None, members: int = 1) -> Settings:
        """These settings as they hold for one sensor, with its `[sensors]` tables and its catalog row.

        `members` is the number of sensors in its group.
        """
        return for_sensor(self, sensor, row, members)

    @property
    def zone(self) -> str:
        """The time zone of the fleet's days and of the times that people are shown."""
        return self.fleet.timezone or self.schedule.timezone

    @property
    def tracking_uri(self) -> str:
        """The address of MLflow; by default SQLite beside the fleet file."""
        return self.registry.tracking_uri or f"sqlite:///{self.folder / 'mlflow' / 'mlflow.db'}"


def open_settings(fleet: str | Mapping[str, Any] | Settings) -> Settings:
    """Settings from what a flow was given: a path, plain values, or settings."""
    if isinstance(fleet, Settings):
        return fleet
    return Settings.from_dict(fleet) if isinstance(fleet, Mapping) else Settings.load(fleet)


def tables() -> Iterator[tuple[str, type[BaseModel]]]:
    """(name, model) of every table, in the order of the fleet file."""
    for section, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield section, field.annotation


def keys() -> Iterator[tuple[str, str, FieldInfo]]:
    """(section, key, field) of every setting, in the order of the fleet file."""
    for section, table in tables():
        for key, field in table.model_fields.items():
            yield section, key, field


def variables() -> dict[str, str]:
    """Every variable that sets a key, with what it means."""
    return {f"{PREFIX}{section}__{key}".upper(): field.description or "" for section, key, field in keys()}

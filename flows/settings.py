"""The fleet file: every setting of a fleet, checked whole at the start.

`Settings.load("fleet.toml")` reads the file, lets `PAANO_SECTION__KEY` variables win over it and answers with
one frozen object, or with one ConfigError that lists every wrong key and what is allowed there. Paths in it
are relative to the fleet file. Credentials are no settings: they come from the usual AWS variables or from a
credentials file and are never stored, passed on or printed.

The comment of each key in the file that `paano init` writes is the description given here.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import tomllib
import zoneinfo
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from flows.duration import Duration
from paano.config import CHOICES, PRESETS, RANGES, PaAnoConfig
from paano.errors import ConfigError

PREFIX = "PAANO_"
DEFAULT_FILE = "fleet.toml"

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """A table of the fleet file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Fleet(Section):
    """What this fleet is called."""

    name: Name = Field("fleet", description="name of the fleet; models are registered as NAME.SENSOR")
    seed: int = Field(0, ge=0, le=2**62, description="each sensor's seed is derived from this and its id")


class HistorySettings(Section):
    """Where the sensors' past is."""

    url: str = Field("history", description="folder or URL (s3://bucket/prefix) of the Parquet history")
    layout: Literal["sensor", "long"] = Field(
        "sensor", description="sensor: a prefix per sensor; long: tables by date with a sensor column"
    )
    path: str = Field("", description='below url; empty: "{sensor}", or "date={date}" for long tables')
    time: str = Field("ts", description="column with the time stamps (time-zone aware, or naive UTC)")
    sensor: str = Field("sensor", description="column with the sensor id in long tables")
    channels: list[str] | dict[str, str] = Field(
        [], description='value columns, or {column = "channel"} to rename; []: every number column'
    )
    interval: Duration | None = Field(None, description="sampling interval; left out: inferred per sensor")
    tolerance: float = Field(
        0.5, gt=0, le=0.5, description="a stamp is moved to the grid by at most this share of the interval"
    )
    catalog: str = Field("", description="Parquet or CSV that lists the sensors; empty: discovered")
    lookback: Duration = Field(timedelta(days=28), description="how much history a model is trained on")


class ScoreSettings(Section):
    """Where a score for every time step goes."""

    url: str = Field("scores", description="folder or URL for scores")
    shards: int = Field(
        0, ge=0, le=9_999, description="objects per day, fixed at the first write; 0 chooses by fleet size"
    )
    keep: Duration | None = Field(
        None, description="`paano compact` removes days older than this; left out: none"
    )


class EventSettings(Section):
    """Where events go."""

    url: str = Field("events", description="folder or URL for events")


class RunSettings(Section):
    """How much runs at once, and where."""

    engine: Literal["local", "dask", "ray"] = Field("local", description="what runs the batches")
    address: str = Field("", description="address of a running Dask or Ray cluster; empty: a local one")
    workers: int = Field(0, ge=0, le=4096, description="batches at once; 0: one per core")
    threads: int = Field(
        1, ge=1, le=256, description="torch threads of a worker (they decide the bits of a result)"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="where models compute")
    gpus: float = Field(0.25, gt=0, le=8, description="share of a GPU that a retraining batch takes")
    max_tasks: int = Field(500, ge=1, le=2000, description="most task runs of one flow run")
    tolerated_failures: Share = Field(0.05, description="share of failed sensors that a run survives")
    time_limit: Duration = Field(timedelta(hours=1), description="a batch that takes longer is given up")
    retries: int = Field(3, ge=0, le=20, description="how often a batch is tried again when a store is away")
    url: str = Field("runs", description="folder or URL for the outcome table of every run")


class RegistrySettings(Section):
    """Where models are registered."""

    tracking_uri: str = Field("", description="of MLflow; empty: SQLite in mlflow/ beside this file")
    artifacts: str = Field("mlflow/artifacts", description="folder or URL for model files")
    cache: str = Field("cache", description="local folder that keeps fetched models")
    cache_gb: float = Field(10.0, gt=0, description="size limit of that cache")
    page: str = Field("", description="address of the MLflow pages for links in reports; empty: tracking_uri")


class AlarmSettings(Section):
    """When a score is an alarm."""

    budget: float = Field(1.0, gt=0, le=1000, description="events per sensor and 30 days that you accept")
    merge: Duration | None = Field(
        None, description="alarms with a shorter break are one event; left out: half a patch, as calibrated"
    )
    longest: Duration = Field(timedelta(days=7), description="a longer event is cut into several")
    thresholds: dict[str, float] = Field({}, description="threshold by sensor instead of the calibrated one")


class RetrainSettings(Section):
    """When a model is due and when a new one is trusted."""

    max_age: Duration = Field(timedelta(days=30), description="an older model is due")
    enough: int = Field(0, ge=0, description="points before a sensor gets a model; 0: five patches")
    holdout: Duration = Field(timedelta(days=3), description="newest history, kept for the review test")
    policy: Literal["auto", "manual"] = Field(
        "auto", description="auto promotes what is not worse; manual waits for a reviewer"
    )
    worse: Share = Field(0.02, description="fall of the review test's VUS-PR that still counts as not worse")
    floor: Share = Field(0.1, description="VUS-PR that a first model must reach in the review test")
    drift: Share = Field(0.3, description="Kolmogorov-Smirnov distance of scores that makes a model due")
    days: int = Field(3, ge=1, le=90, description="days of scores looked at, all of them over budget: due")
    gaps: Share = Field(0.5, description="share of missing steps in these days that is reported")


class StorageSettings(Section):
    """How object stores are reached. Keys come from AWS_… variables or a credentials file."""

    endpoint: str = Field("", description="of an S3 server that is not Amazon's; empty: AWS_ENDPOINT_URL")
    region: str = Field("", description="of the bucket; empty: AWS_REGION")
    credentials: str = Field("", description="AWS credentials file; empty: the usual AWS variables and files")
    profile: str = Field("default", description="profile in that file")
    timeout: Duration = Field(timedelta(seconds=20), description="longest silence of a store")


class ScheduleSettings(Section):
    """When `paano serve` runs what (cron)."""

    timezone: str = Field("UTC", description="time zone of the lines below")
    score: str = Field("30 1 * * *", description="score the day before")
    retrain: str = Field("0 3 * * 6", description="retrain what is due")
    refresh: str = Field("", description="put recent normal data into the banks; empty: never")
    housekeeping: str = Field("0 5 * * 0", description="compact and sweep")

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        if value not in zoneinfo.available_timezones():
            raise ValueError('not a time zone; allowed are names such as "UTC" or "Europe/Rome"')
        return value

    @field_validator("score", "retrain", "refresh", "housekeeping")
    @classmethod
    def _five_fields(cls, value: str) -> str:
        if value and len(value.split()) != 5:
            raise ValueError('not a cron line; five fields such as "30 1 * * *", or empty for never')
        return value


class _ModelBase(Section):
    preset: Literal[tuple(PRESETS)] = Field("default", description="settings to start from")  # type: ignore[valid-type]

    def config(self, seed: int = 0) -> PaAnoConfig:
        """The settings of a model: the preset with the keys that are set on top."""
        changes = self.model_dump(exclude_none=True, exclude={"preset"})
        return PaAnoConfig.preset(self.preset, **{"seed": seed, **changes})

    @model_validator(mode="after")
    def _no_contradiction(self) -> _ModelBase:
        try:
            self.config()
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self


def _model_key(name: str, kind: type) -> Any:
    """The type, range and meaning of a model setting; None means "as in the preset"."""
    low, high = RANGES.get(name, (None, None))
    kind = Literal[CHOICES[name]] if name in CHOICES else Annotated[kind, Field(ge=low, le=high)]
    # What a setting means stands once, as the comment beside it in paano/config.py.
    comment = re.search(rf"^    {name}: .*?  # (.+)$", inspect.getsource(PaAnoConfig), re.MULTILINE)
    return (kind | None, Field(None, description=comment[1] if comment else f"setting {name} of the method"))


ModelSettings = create_model(
    "ModelSettings",
    __base__=_ModelBase,
    __doc__="What a model is made of: a preset, and keys that differ from it.",
    **{name: _model_key(name, kind) for name, kind in get_type_hints(PaAnoConfig).items() if name != "seed"},
)


class Settings(BaseSettings):
    """A whole fleet file."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=False
    )

    fleet: Fleet = Fleet()
    history: HistorySettings = HistorySettings()
    scores: ScoreSettings = ScoreSettings()
    events: EventSettings = EventSettings()
    registry: RegistrySettings = RegistrySettings()
    model: ModelSettings = ModelSettings()  # type: ignore[valid-type]
    alarms: AlarmSettings = AlarmSettings()
    retrain: RetrainSettings = RetrainSettings()
    run: RunSettings = RunSettings()
    storage: StorageSettings = StorageSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    folder: Path = Field(Path("."), description="where relative paths start", exclude=False)

    @classmethod
    def settings_customise_sources(cls, settings_cls, init_settings, env_settings, **_unused):
        return env_settings, init_settings  # a variable wins over the file

    @classmethod
    def load(cls, path: str | Path = DEFAULT_FILE) -> Settings:
        """The settings in `path`, with PAANO_… variables on top."""
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
        """The settings in `values`; an error lists all wrong keys with what is allowed."""
        try:
            return cls(**values)
        except ValidationError as error:
            wrong = [_explain(item) for item in error.errors()]
            raise ConfigError(f"wrong in {source}: {'; '.join(wrong)}") from None

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can carry to a worker; `from_dict` takes them."""
        return self.model_dump(mode="json", exclude_none=True)

    def place(self, url: str) -> str:
        """`url` as it is if it names a scheme or an absolute path, else under the fleet file's folder."""
        return url if "://" in url or os.path.isabs(url) else str(self.folder / url)

    def config(self, seed: int = 0) -> PaAnoConfig:
        return self.model.config(seed)

    @property
    def tracking_uri(self) -> str:
        return self.registry.tracking_uri or f"sqlite:///{self.folder / 'mlflow' / 'mlflow.db'}"


def open_settings(fleet: str | Mapping[str, Any] | Settings) -> Settings:
    """Settings from what a flow was given: a path, plain values, or settings."""
    if isinstance(fleet, Settings):
        return fleet
    return Settings.from_dict(fleet) if isinstance(fleet, Mapping) else Settings.load(fleet)


def keys() -> Iterator[tuple[str, str, Any]]:
    """(section, key, field) of every setting, in the order of the fleet file."""
    for section, field in Settings.model_fields.items():
        if section != "folder":
            for key, inner in field.annotation.model_fields.items():
                yield section, key, inner


def variables() -> dict[str, str]:
    """Every variable that sets a key, with what it means."""
    return {f"{PREFIX}{section}__{key}".upper(): field.description or "" for section, key, field in keys()}


def _explain(item: Any) -> str:
    """One wrong key, what is wrong with it, and what is allowed."""
    place = [str(part) for part in item["loc"]]
    name = ".".join(place)
    if item["type"] == "extra_forbidden":
        known = _keys_at(place[:-1])
        near = difflib.get_close_matches(place[-1], known, n=1)
        hint = f", did you mean {near[0]}?" if near else ""
        return f"{name} is unknown{hint} (allowed: {', '.join(known)})"
    message = item["msg"].removeprefix("Value error, ")
    if isinstance(item["input"], dict | BaseModel):  # keys that contradict each other
        return f"[{name}] {message}"
    return f"{name} = {item['input']!r}: {message[:1].lower()}{message[1:]}"


def _keys_at(place: list[str]) -> list[str]:
    fields = Settings.model_fields
    for part in place:
        fields = fields[part].annotation.model_fields
    return [key for key in fields if key != "folder"]

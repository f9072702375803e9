"""The tables of the fleet file: every key with its type, range, default and meaning.

The description of a key is the comment beside it in the file that `paano init` writes.
"""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, field_validator, model_validator

from flows.settings.duration import Duration, spell
from paano.config import CHOICES, PRESETS, RANGES, PaAnoConfig
from paano.errors import ConfigError
from storage.keys import FLEET_NAME
from storage.window import time_zones

Name = Annotated[str, Field(pattern=f"^{FLEET_NAME}$")]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """A table of the fleet file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def known_zone(value: str) -> str:
    """`value`, if it names a time zone; ValueError says how to."""
    if value not in time_zones():
        raise ValueError('not a time zone; allowed are names such as "UTC" or "Europe/Rome"')
    return value


class FleetSettings(Section):
    """What this fleet is called."""

    name: Name = Field("fleet", description="name of the fleet; models are registered as NAME.SENSOR")
    seed: int = Field(0, ge=0, le=2**62, description="each sensor's seed is derived from this and its id")
    timezone: str = Field(
        "",
        description="zone of the fleet's days, and of times on pages and in tables; empty: schedule.timezone",
    )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        return known_zone(value) if value else value


class HistorySettings(Section):
    """Where the sensors' past is."""

    url: str = Field("history", description="folder or URL (s3://bucket/prefix) of the Parquet history")
    layout: Literal["sensor", "long"] = Field(
        "sensor", description="sensor: a prefix per sensor; long: tables by date with a sensor column"
    )
    path: str = Field(
        "", description='below url, such as "{site}/{sensor}"; empty: "{sensor}" or "date={date}"'
    )
    time: str = Field("ts", description="column with the time stamps")
    timezone: str = Field("UTC", description="zone of stamps that say none, such as Europe/Rome")
    sensor: str = Field("sensor", description="column with the sensor id in long tables")
    channels: list[str] | dict[str, str] = Field(
        [], description='value columns, or {column = "channel"} to rename; []: number columns, no counters'
    )
    quality: str = Field("", description='column that rates the values, or "{column}_q" for one each')
    good: list[str] = Field(
        ["good", "192"], description='what it says of a good value; a range of codes is "192-255"'
    )
    interval: Duration | None = Field(None, description="sampling interval; left out: inferred per sensor")
    tolerance: float = Field(
        0.5, gt=0, le=0.5, description="a stamp is moved to the grid by at most this share of the interval"
    )
    catalog: str = Field("", description="Parquet or CSV that lists the sensors; empty: discovered")
    lookback: Duration = Field(timedelta(days=28), description="how much history a model is trained on")
    largest_mb: int = Field(512, ge=1, le=1_000_000, description="most memory that a sensor's rows may take")

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        return known_zone(value)


class ScoreSettings(Section):
    """Where a score for every time step goes."""

    url: str = Field("scores", description="folder or URL for scores")
    shards: int = Field(
        0, ge=0, le=9_999, description="objects per day, for days not written yet; 0 chooses by fleet size"
    )
    sensors_per_object: int = Field(
        64, ge=1, le=100_000, description="at most about so many sensors share an object of scores or events"
    )
    keep: Duration | None = Field(
        None, description="`paano compact` removes days older than this; left out: none"
    )


class EventSettings(Section):
    """Where events go."""

    url: str = Field("events", description="folder or URL for events")


class OperationsSettings(Section):
    """What people know and say: known periods, verdicts, incidents, messages."""

    calendar: str = Field("calendar.csv", description="CSV or Parquet with known periods; may be absent")
    verdicts: str = Field("verdicts", description="folder or URL for what people say of events")
    incidents: str = Field("incidents", description="folder or URL for incidents")
    reads: str = Field("reads", description="folder or URL for what nights read, to notice late data")
    sent: str = Field("sent", description="folder or URL for the record of sent messages")


class MetricsSettings(Section):
    """Figures of every run, for Prometheus."""

    url: str = Field("", description="folder or URL for OpenMetrics text, a file per flow; empty: none")
    pushgateway: str = Field("", description="address of a Pushgateway (host:9091); empty: none")

    @field_validator("pushgateway")
    @classmethod
    def _no_secret(cls, value: str) -> str:
        if "@" in value:
            raise ValueError("an address without user and password")
        return value


class RunSettings(Section):
    """How much runs at once, and where."""

    engine: Literal["local", "dask", "ray"] = Field("local", description="what runs the batches")
    address: str = Field("", description="address of a running Dask or Ray cluster; empty: a local one")
    workers: int = Field(
        0, ge=0, le=4096, description="batches at once; 0: one per core, in nights on threads two"
    )
    threads: int = Field(
        1, ge=1, le=256, description="torch threads of a worker (they decide the bits of a result)"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field("auto", description="where models compute")
    gpus: float = Field(0.25, gt=0, le=8, description="share of a GPU that a retraining batch takes")
    processes_from: int = Field(
        200,
        ge=0,
        le=1_000_000,
        description="a run of so many sensors works in processes of this machine, not threads; 0: never",
    )
    sensor_tasks: int = Field(
        64, ge=0, le=500, description="up to so many sensors each has a task run of its own when it is scored"
    )
    max_tasks: int = Field(500, ge=1, le=2000, description="most task runs of one flow run")
    tolerated_failures: Share = Field(0.05, description="share of failed sensors that a run survives")
    time_limit: Duration = Field(timedelta(hours=1), description="a batch that takes longer is given up")
    retries: int = Field(
        3,
        ge=0,
        le=20,
        description="how often a batch or a housekeeping step is tried again when a store is away",
    )
    catch_up: Duration = Field(
        timedelta(days=3), description="the nightly run also scores days missed within this time before it"
    )
    look_back: Duration = Field(
        timedelta(days=7),
        description="past days that are scored again when their data came late; 0s: none",
    )
    url: str = Field("runs", description="folder or URL for the outcome table of every run")


class RegistrySettings(Section):
    """Where models are registered."""

    tracking_uri: str = Field("", description="of MLflow; empty: SQLite in mlflow/ beside this file")
    artifacts: str = Field("mlflow/artifacts", description="folder or URL for model files")
    cache: str = Field("cache", description="local folder that keeps fetched models")
    cache_gb: float = Field(10.0, gt=0, description="size limit of that cache")
    keep: int = Field(
        10, ge=1, description="versions per sensor; champion, challenger and the one before always stay"
    )
    page: str = Field("", description="address of the MLflow pages for links in reports; empty: tracking_uri")


class AlarmSettings(Section):
    """When a score is an alarm."""

    budget: float = Field(1.0, gt=0, le=1000, description="events per sensor and 30 days that you accept")
    merge: Duration | None = Field(
        None,
        description="anomalies with a shorter break are looked at together; left out: half a patch, as "
        "calibrated",
    )
    longest: Duration = Field(
        timedelta(days=7),
        gt=timedelta(0),
        le=timedelta(days=366),
        description="a longer event is cut into several",
    )
    silent: Duration = Field(
        timedelta(hours=6), description="a sensor without data for so long is an event (silent); 0s: never"
    )
    stuck: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="a channel that stays the same so many times longer than in training is stuck: an event; "
        "0: never",
    )
    thresholds: dict[str, float] = Field({}, description="threshold by sensor instead of the calibrated one")

    @model_validator(mode="after")
    def _merge_within_longest(self) -> AlarmSettings:
        """Rows as far as `merge` on either side of a night are read again every night."""
        if self.merge is not None and self.merge > self.longest:
            raise ValueError(
                f"merge = {spell(self.merge)} is longer than longest = {spell(self.longest)}: events would "
                "be joined and cut again; lower alarms.merge or raise alarms.longest"
            )
        return self


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


class ReportSettings(Section):
    """The page about each night."""

    url: str = Field("reports", description="folder or URL for the night reports; empty: none is written")
    pictures: int = Field(200, ge=0, le=2000, description="most events of a report that get a picture")
    sensors: int = Field(
        10, ge=0, le=500, description="most sensors of a report that get a page of their own"
    )
    live: str = Field(
        "",
        description="address of `paano ui` for links in reports, as http://host:8750; empty: to files",
    )


class ScheduleSettings(Section):
    """When `paano serve` runs what (cron)."""

    timezone: str = Field("UTC", description="time zone of the lines below")
    score: str = Field("30 1 * * *", description="score the day before")
    retrain: str = Field("0 3 * * 6", description="retrain what is due")
    refresh: str = Field("", description="put recent normal data into the banks; empty: never")
    housekeeping: str = Field("0 5 * * 0", description="compact and sweep")
    port: int = Field(
        4200, ge=1, le=65_535, description="port of the Prefect server that `paano serve` starts"
    )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        return known_zone(value)

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
    allowed: Any = Literal[CHOICES[name]] if name in CHOICES else Annotated[kind, Field(ge=low, le=high)]
    # What a setting means stands once, as the comment beside it in paano/config.py.
    comment = re.search(rf"^    {name}: .*?  # (.+)$", inspect.getsource(PaAnoConfig), re.MULTILINE)
    meaning = comment[1] if comment else f"setting {name} of the method"
    return (allowed | None, Field(None, description=meaning))


ModelSettings = create_model(
    "ModelSettings",
    __base__=_ModelBase,
    __doc__="What a model is made of: a preset, and keys that differ from it.",
    **{name: _model_key(name, kind) for name, kind in get_type_hints(PaAnoConfig).items() if name != "seed"},
)

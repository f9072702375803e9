"""Open what a fleet is made of: history, scores, events, registry. Cheap enough to do in every task."""

from __future__ import annotations

import configparser
import contextlib
import functools
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from flows.run.known import Known
from flows.run.outcome import Outcome, skipped
from flows.run.workers import run_of_worker
from flows.settings.fleet_file import Settings
from flows.settings.per_sensor import own_settings
from paano.errors import ConfigError, HistoryError
from storage.history.catalog import Sensor
from storage.history.reader import History, HistoryLayout, SensorColumns
from storage.objects.store import StorageOptions, open_store
from storage.registry.registry import Registry, Version
from storage.tables.events import EventStore
from storage.tables.layout import shards_for
from storage.tables.scores import ScoreStore

ABSENT = (
    "no history is found any more, so there are no scores; look after the sensor, `paano sensors rename` it, "
    "or list it in history.catalog (with enabled = false it is left out)"
)
RENAMED_TO = "paano.renamed_to"  # tag of a version whose model was carried over to another id


@dataclass(frozen=True)
class Fleet:
    """The stores of one fleet."""

    settings: Settings
    history: History
    scores: ScoreStore
    events: EventStore
    registry: Registry

    @functools.cached_property
    def known(self) -> Known:
        """What people know and said of the fleet, read when it is first asked for and kept."""
        return Known(self.settings, storage_options(self.settings))

    def group_of(self, sensor: str) -> str | None:
        """The group that a given catalog puts `sensor` in."""
        row = catalog_row(self.settings, self.history, sensor)
        return row.group if row else None

    def settings_for(self, sensor: str) -> Settings:
        """The settings as they hold for one sensor: with its `[sensors]` tables and its catalog row."""
        row = catalog_row(self.settings, self.history, sensor)
        return self.settings.for_sensor(sensor, row, self.members.get(row.group or "", 1) if row else 1)

    @functools.cached_property
    def members(self) -> dict[str, int]:
        """How many enabled sensors each group of a given catalog has."""
        if not self.settings.history.catalog:
            return {}
        return dict(Counter(row.group for row in self.history.sensors() if row.group and row.enabled))


def open_fleet(settings: Settings, options: StorageOptions | None = None) -> Fleet:
    """The stores that `settings` names. Nothing is read or written yet.

    `options` says how to reach them; by default the keys are read now.
    """
    options = options or storage_options(settings)
    return Fleet(
        settings,
        open_history(settings, options),
        ScoreStore(open_store(settings.place(settings.scores.url), options)),
        EventStore(open_store(settings.place(settings.events.url), options)),
        open_registry(settings, options),
    )


def open_history(settings: Settings, options: StorageOptions | None = None) -> History:
    """The history that `settings` names."""
    history = settings.history
    default = "{sensor}" if history.layout == "sensor" else "date={date}"
    layout = HistoryLayout(
        kind=history.layout,
        path=history.path or default,
        time=history.time,
        sensor=history.sensor,
        values=columns_of(history.channels) or None,
        interval=history.interval,
        tolerance=history.tolerance,
        catalog=settings.place(history.catalog) if history.catalog else None,
        timezone=history.timezone,
        quality=history.quality,
        good=tuple(history.good),
        largest=history.largest_mb * 2**20,
    )

    def own(sensor: str) -> SensorColumns:
        said = own_settings(settings.sensors, sensor, catalog_row(settings, opened, sensor))
        return SensorColumns(columns_of(said.channels or []) or None, said.interval)

    opened = History(settings.place(history.url), layout, options or storage_options(settings), own)
    return opened


def columns_of(channels: list[str] | dict[str, str]) -> dict[str, str]:
    """{column: channel} of a setting that names columns, or columns with what to call them."""
    return channels if isinstance(channels, dict) else {name: name for name in channels}


def catalog_row(settings: Settings, history: History, sensor: str) -> Sensor | None:
    """What a given catalog says of a sensor; None where there is no catalog, or no such sensor in it."""
    catalog = history.sensors() if settings.history.catalog else None
    return catalog[sensor] if catalog is not None and sensor in catalog else None


def open_registry(settings: Settings, options: StorageOptions | None = None) -> Registry:
    """The registry that `settings` names; the folder of a SQLite database is made."""
    registry = settings.registry
    uri = settings.tracking_uri
    if uri.startswith("sqlite:///"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    return Registry(
        uri,
        settings.place(registry.artifacts),
        settings.fleet.name,
        settings.place(registry.cache),
        options or storage_options(settings),
        cache_bytes=int(registry.cache_gb * 2**30),
    )


def storage_options(settings: Settings) -> StorageOptions:
    """How to reach the stores. Keys come from the AWS variables, or from a credentials file, read now."""
    storage = settings.storage
    keys = _credentials(settings.place(storage.credentials), storage.profile) if storage.credentials else {}
    return StorageOptions(
        endpoint=storage.endpoint or None,
        region=storage.region or None,
        key=keys.get("aws_access_key_id"),
        secret=keys.get("aws_secret_access_key"),
        token=keys.get("aws_session_token"),
        read_timeout=storage.timeout.total_seconds(),
        renewed="" if keys else _usual_keys(),
    )


def _credentials(path: str, profile: str) -> dict[str, str]:
    """The keys of `profile`; errors name the file and never what is in it."""
    parser = configparser.ConfigParser(interpolation=None)  # a % in a secret is a % in a secret
    try:
        found = parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        # The parser's own message would show the line, and in it a secret.
        raise ConfigError(
            f"storage.credentials = {path!r} is not an AWS credentials file: it has sections such as "
            "[default] and lines such as aws_access_key_id = …"
        ) from None
    if not found:
        raise ConfigError(f"storage.credentials = {path!r} is not there or cannot be read")
    if profile not in parser:
        raise ConfigError(
            f"storage.profile = {profile!r} is not in {path}; allowed: {', '.join(parser.sections())}"
        )
    return dict(parser[profile])


def _usual_keys() -> str:
    """A digest of the AWS key variables and files: it changes when the keys in them do."""
    digest = hashlib.sha256()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        digest.update(f"{name}={os.environ.get(name)}\0".encode())
    for name, usual in (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")):
        path = Path(os.environ.get(name) or Path.home() / ".aws" / usual).expanduser()
        with contextlib.suppress(OSError):  # no such file: botocore looks elsewhere
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def fix_shards(fleet: Fleet, sensors: int, days: Iterable[date] = ()) -> int:
    """Decide how many shards `days` have, for scores and events alike; the number of the last of them.

    Dates that were written before keep theirs. New ones get `scores.shards`, or as many as give an object
    `scores.sensors_per_object` of all sensors of the fleet, however few of them this run is about.
    """
    scores, days = fleet.settings.scores, sorted(days)
    size = max(sensors, len(fleet.history.sensors().sensors))
    if not days:
        return scores.shards or shards_for(size, scores.sensors_per_object)
    found = fleet.scores.begin(days, size, scores.sensors_per_object, scores.shards or None)
    for shards in set(found.values()):
        fleet.events.begin([day for day in days if found[day] == shards], shards=shards)
    return found[days[-1]]


def choose_sensors(fleet: Fleet, asked: list[str] | None) -> list[str]:
    """The ids of the enabled sensors, or of those asked for; an unknown one is an error."""
    catalog = fleet.history.sensors()
    if not len(catalog):
        raise HistoryError(
            f"no sensors in {fleet.history.store.url}: correct history.url, history.layout or history.path; "
            "`paano doctor` shows what is there"
        )
    return sorted(catalog[sensor].sensor for sensor in set(asked)) if asked else catalog.sensors


def absent_sensors(fleet: Fleet, champions: Mapping[str, Version]) -> list[str]:
    """Sensors with a champion that the history no longer shows: nothing else would tell that they are gone.

    A discovered catalog has the sensors of the newest dates only where tables are long. A sensor that was
    renamed, or that a given catalog lists as not enabled, is not absent.
    """
    catalog = fleet.history.sensors()
    return sorted(
        sensor
        for sensor, version in champions.items()
        if sensor not in catalog and RENAMED_TO not in version.tags
    )


def absent_outcomes(absent: Sequence[str]) -> list[Outcome]:
    """The outcome of each absent sensor."""
    return [skipped(sensor, ABSENT) for sensor in absent]


def absent_note(absent: Sequence[str]) -> str:
    """What to tell of absent sensors, with the remedy."""
    shown = ", ".join(absent[:6]) + (f" and {len(absent) - 6} more" if len(absent) > 6 else "")
    return f"{shown}: {ABSENT}"


def pinned_intervals(fleet: Fleet) -> dict[str, timedelta]:
    """The sampling intervals that a given catalog states and no `[sensors]` table changes."""
    stated = fleet.history.sensors().intervals() if fleet.settings.history.catalog else {}
    return {sensor: fleet.history.per_sensor(sensor).interval or step for sensor, step in stated.items()}


@functools.lru_cache(maxsize=8)
def _shared(text: str, run: str, options: StorageOptions) -> Fleet:
    return open_fleet(Settings.from_dict(json.loads(text)), options)


def fleet_for(settings: dict[str, Any]) -> Fleet:
    """The fleet for plain settings, shared by the tasks of one run in one worker process.

    A worker process of Dask or Ray outlives many runs: each run opens its fleet anew, so that it sees the
    sensors of today, and keys that have changed since are read again, also within a run.
    """
    plain = Settings.from_dict(settings)
    if not (run := run_of_worker() or _run_of_flow()):
        return open_fleet(plain)
    return _shared(json.dumps(settings, sort_keys=True), run, storage_options(plain))


def _run_of_flow() -> str:
    from prefect.runtime import flow_run  # here: commands that run no flow start without Prefect

    return flow_run.id or ""


def run_fleet(settings: Settings) -> Fleet:
    """The fleet of the flow run that is going on; its tasks in this process share it."""
    return fleet_for(settings.to_dict())

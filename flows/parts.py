"""Open what a fleet is made of: history, scores, events, registry. Cheap enough to do in every task."""

from __future__ import annotations

import configparser
import functools
import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from flows.plan import choose_shards
from flows.settings import Settings
from paano.errors import ConfigError
from storage.events import EventStore
from storage.history import History, HistoryLayout
from storage.objects import StorageOptions, open_store
from storage.registry import Registry
from storage.scores import ScoreStore
from storage.tables import NOTE


@dataclass(frozen=True)
class Parts:
    """The stores of one fleet."""

    settings: Settings
    history: History
    scores: ScoreStore
    events: EventStore
    registry: Registry


def open_parts(settings: Settings) -> Parts:
    """The stores that `settings` names. Nothing is read or written yet."""
    options = storage_options(settings)
    return Parts(
        settings,
        open_history(settings),
        ScoreStore(open_store(settings.place(settings.scores.url), options)),
        EventStore(open_store(settings.place(settings.events.url), options)),
        open_registry(settings),
    )


def open_history(settings: Settings) -> History:
    history = settings.history
    default = "{sensor}" if history.layout == "sensor" else "date={date}"
    channels = history.channels
    layout = HistoryLayout(
        kind=history.layout,
        path=history.path or default,
        time=history.time,
        sensor=history.sensor,
        values=(channels if isinstance(channels, dict) else {name: name for name in channels}) or None,
        interval=history.interval,
        tolerance=history.tolerance,
        catalog=settings.place(history.catalog) if history.catalog else None,
    )
    return History(settings.place(history.url), layout, storage_options(settings))


def open_registry(settings: Settings) -> Registry:
    registry = settings.registry
    uri = settings.tracking_uri
    if uri.startswith("sqlite:///"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    return Registry(
        uri,
        settings.place(registry.artifacts),
        settings.fleet.name,
        settings.place(registry.cache),
        storage_options(settings),
        cache_bytes=int(registry.cache_gb * 2**30),
    )


def storage_options(settings: Settings) -> StorageOptions:
    """How to reach the stores. Keys come from the AWS variables, or from a credentials file."""
    storage = settings.storage
    keys = _credentials(settings.place(storage.credentials), storage.profile) if storage.credentials else {}
    return StorageOptions(
        endpoint=storage.endpoint or None,
        region=storage.region or None,
        key=keys.get("aws_access_key_id"),
        secret=keys.get("aws_secret_access_key"),
        token=keys.get("aws_session_token"),
        read_timeout=storage.timeout.total_seconds(),
    )


def _credentials(path: str, profile: str) -> dict[str, str]:
    parser = configparser.ConfigParser()
    if not parser.read(path):
        raise ConfigError(f"storage.credentials = {path!r} is not there or cannot be read")
    if profile not in parser:
        raise ConfigError(
            f"storage.profile = {profile!r} is not in {path}; allowed: {', '.join(parser.sections())}"
        )
    return dict(parser[profile])


def fix_shards(parts: Parts, sensors: int) -> int:
    """The shard count of scores and events: as begun, else as set, else chosen for a fleet of this size."""
    asked = parts.settings.scores.shards or None
    begun = parts.scores.store.head(NOTE) is not None
    shards = ScoreStore(parts.scores.store, asked if begun else asked or choose_shards(sensors)).begin()
    EventStore(parts.events.store, shards).begin()
    return shards


def choose_sensors(parts: Parts, asked: list[str] | None) -> list[str]:
    """The ids of the enabled sensors, or of those asked for; an unknown one is an error."""
    catalog = parts.history.sensors()
    return sorted(catalog[sensor].sensor for sensor in set(asked)) if asked else catalog.sensors


def pinned_intervals(parts: Parts) -> dict[str, timedelta]:
    """The sampling intervals that a given catalogue states; a discovered one states none."""
    return parts.history.sensors().intervals() if parts.settings.history.catalog else {}


@functools.lru_cache(maxsize=8)
def _shared(text: str) -> Parts:
    return open_parts(Settings.from_dict(json.loads(text)))


def parts_for(settings: dict) -> Parts:
    """Parts for plain settings, shared by the tasks of one worker process."""
    return _shared(json.dumps(settings, sort_keys=True))

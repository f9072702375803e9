"""Open what a fleet is made of: history, scores, events, registry. Cheap enough to do in every task."""

from __future__ import annotations

import configparser
import functools
import json
from dataclasses import dataclass
from pathlib import Path

from flows.settings import Settings
from paano.errors import ConfigError
from storage.events import EventStore
from storage.history import History, HistoryLayout
from storage.objects import StorageOptions, open_store
from storage.registry import Registry
from storage.scores import ScoreStore


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


def fix_shards(settings: Settings, sensors: int) -> tuple[ScoreStore, EventStore]:
    """The score and event stores with their shard count fixed: as found, as set, or by the fleet's size."""
    raise NotImplementedError


@functools.lru_cache(maxsize=8)
def _shared(text: str) -> Parts:
    return open_parts(Settings.from_dict(json.loads(text)))


def parts_for(settings: dict) -> Parts:
    """Parts for plain settings, shared by the tasks of one worker process."""
    return _shared(json.dumps(settings, sort_keys=True))

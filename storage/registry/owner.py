"""Whom files belong to. One artifact store may be seen from several registries: staging, a restored backup.

A registry has an identity: the tag `paano.registry` of the fleet's experiment in MLflow. Every registry that
registers a folder leaves `owners/{identity}.json` in it, and the first one that uses a store for a fleet
leaves `{fleet}/registry.json`. `sweep` removes only what has its own mark and no other.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from paano.errors import Conflict, ObjectMissing, RegistryError
from storage.objects.store import Store
from storage.registry.client import Exists, RegistryClient

IDENTITY_TAG = "paano.registry"
LARGEST_NOTE = 65536


@dataclass(frozen=True)
class OwnerNote:
    """What a registry says of a folder. `version` is None until the folder is registered."""

    registry: str
    fleet: str
    sensor: str
    name: str
    version: int | None = None
    shared: bool = False  # it was there before this registry came: others may use it
    written: str = ""

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()


@dataclass(frozen=True)
class Claim:
    """Which registry, at which address, uses a store for a fleet."""

    registry: str
    address: str  # a fingerprint: the address may hold a password
    since: str = ""


def experiment_name(fleet: str) -> str:
    """The experiment of a fleet in MLflow."""
    return f"paano-{fleet}"


def read_identity(client: RegistryClient, fleet: str, location: str) -> tuple[str, str]:
    """(identity of the registry, id of the fleet's experiment); both are made if they are not there.

    `location` is where a new experiment keeps files.
    """
    name = experiment_name(fleet)
    found = client.call(name, "get_experiment_by_name", name)
    if found is None:
        tags = {IDENTITY_TAG: uuid.uuid4().hex, "paano.fleet": fleet}
        with suppress(Exists):  # another process was first: its identity counts
            client.call(name, "create_experiment", name, artifact_location=location, tags=tags, write=True)
        found = client.call(name, "get_experiment_by_name", name)
        if found is None:
            raise RegistryError(f"{name}: the registry does not show the experiment it has just made")
    identity = str((found.tags or {}).get(IDENTITY_TAG) or "")
    if not identity:
        identity = uuid.uuid4().hex
        client.call(name, "set_experiment_tag", found.experiment_id, IDENTITY_TAG, identity, write=True)
    return identity, str(found.experiment_id)


def owner_key(place: str, identity: str) -> str:
    return f"{place}/owners/{identity}.json"


def note_now(registry: str, fleet: str, sensor: str, name: str, **more: Any) -> OwnerNote:
    return OwnerNote(registry, fleet, sensor, name, written=datetime.now(UTC).isoformat(), **more)


def read_note(store: Store, key: str) -> OwnerNote | None:
    """The owner note at `key`; None if it is gone, too large or not one."""
    try:
        info = store.head(key)
        if info is None or info.size > LARGEST_NOTE:
            return None
        note = OwnerNote(**json.loads(store.get(key)))
    except (ObjectMissing, ValueError, TypeError, RecursionError):
        return None  # whatever it is, it proves nothing
    sound = isinstance(note.shared, bool) and (note.version is None or type(note.version) is int)
    return note if sound else None


def claim_store(store: Store, fleet: str, identity: str, address: str, again: bool = False) -> Claim:
    """The claim on `store` for `fleet`: ours, if nobody was first, or if it is to be taken over `again`."""
    key, mine = f"{fleet}/registry.json", Claim(identity, address, datetime.now(UTC).isoformat())
    data = json.dumps(asdict(mine)).encode()
    if again:
        store.put(key, data)
        return mine
    try:
        held = store.get(key)
    except ObjectMissing:
        try:
            store.put(key, data, if_absent=True)
            return mine
        except Conflict:
            held = store.get(key)
    try:
        return Claim(**json.loads(held))
    except (ValueError, TypeError, RecursionError):
        return Claim("damaged", "")


def fingerprint(tracking_uri: str) -> str:
    """Stands for the address of a registry, without its password."""
    scheme, mark, rest = tracking_uri.partition("://")
    if scheme == "sqlite":
        rest = os.path.realpath(rest.removeprefix("/").partition("?")[0])
    elif mark:
        authority, slash, path = rest.partition("/")
        rest = authority.rpartition("@")[2].lower() + slash + path.partition("?")[0].rstrip("/")
    return hashlib.sha256(f"{scheme}://{rest}".encode()).hexdigest()[:32]

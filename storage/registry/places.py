"""Where the files of a version lie: always in the fleet's own artifact store.

That is `{fleet}/.mlflow/models/{id}/artifacts`, where MLflow looks for the files of the logged model `id`.
Versions from before 0.2 have no logged model; theirs are at `{fleet}/{sensor}/{digest}`.

A `source` comes from the registry, where anybody with access can write one. It is never opened: what is
opened is a key in the store that the fleet file names.
"""

from __future__ import annotations

import re

from paano.errors import RegistryError
from storage.address import normal
from storage.keys import encode_id
from storage.objects.store import Store
from storage.registry.versions import Version

EXPERIMENT = ".mlflow"  # below the fleet: where its experiment keeps files
_DIGITS = 32  # of the digest, in the name of a folder from before 0.2
_LOGGED = re.compile(r"([^/]+)/\.mlflow/models/(m-[0-9a-f]{32})/artifacts")
_FORMER = re.compile(r"([^/]+)/[^/.][^/]*/[0-9a-f]{32}")


def place_of(fleet: str, model: str) -> str:
    """The key of the folder with the files of the logged model `model`."""
    return f"{fleet}/{EXPERIMENT}/models/{model}/artifacts"


def former_place(fleet: str, encoded: str, digest: str) -> str:
    """The key of the folder of a version from before 0.2; `encoded` stands for the sensor."""
    return f"{fleet}/{encoded}/{digest[:_DIGITS]}"


def folder_of(key: str) -> str | None:
    """The folder of a version that the object `key` is in; None for objects of another kind."""
    parts = key.split("/")
    for count, form in ((5, _LOGGED), (3, _FORMER)):
        if len(parts) > count and form.fullmatch(place := "/".join(parts[:count])):
            return place
    return None


def logged_model_of(place: str) -> str | None:
    """The id of the logged model whose files are in the folder `place`; None for one from before 0.2."""
    found = _LOGGED.fullmatch(place)
    return found[2] if found else None


def places_in(source: str) -> set[str]:
    """The folders that a source of a version may mean, however its address is spelt."""
    found = set()
    for spelt in (normal(source), source.rstrip("/")):
        parts = spelt.split("/")
        found |= {"/".join(parts[-5:]), "/".join(parts[-3:])}
    return {place for place in found if _LOGGED.fullmatch(place) or _FORMER.fullmatch(place)}


def locate(store: Store, fleet: str, version: Version) -> str:
    """The key of a version's folder in `store`.

    A local folder that was moved or copied with its registry is found where it is now.

    Raises:
        RegistryError: the source lies outside the store, or is not the folder of a version of this fleet.
    """
    source, root = normal(version.source), store.url.rstrip("/")
    places = [former_place(fleet, encode_id(version.sensor), version.digest)]
    logged = _LOGGED.fullmatch("/".join(source.split("/")[-5:]))
    if logged and logged[1] == fleet:
        places.append(logged[0])
    for place in places:
        if source == normal(f"{root}/{place}"):
            return place
        if source.startswith("/") and root.startswith("/") and source.endswith(f"/{place}"):
            return place
    raise RegistryError(
        f"{version.name} version {version.version}: its files are said to be at {version.source[:200]!r}, "
        f"which is no folder of a version of this sensor in {root}/{fleet}; they are not read. Set the alias "
        "back to a version of this fleet, or correct registry.artifacts"
    )

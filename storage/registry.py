"""Models kept: one MLflow registered model per sensor; artefacts go directly, champions come in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from paano.errors import PaanoError
from storage.objects import StorageOptions

CHAMPION = "champion"
CHALLENGER = "challenger"


@dataclass(frozen=True)
class Version:
    """One version of a sensor's model."""

    sensor: str
    name: str  # of the registered model
    version: int
    digest: str  # of the artefact
    source: str  # URL of its folder
    tags: dict[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    created: datetime | None = None
    description: str = ""


class Champions(dict[str, Version]):
    """{sensor: version}. `stale`: the registry did not answer, this is the last list that was seen."""

    stale: bool = False
    seen: datetime | None = None
    reason: str = ""


@dataclass(frozen=True)
class Swept:
    """What `sweep` found (and, unless it was a dry run, removed)."""

    folders: list[str]
    objects: int
    bytes: int
    removed: bool


class Registry:
    """The models of one fleet."""

    def __init__(
        self,
        tracking_uri: str,
        artifacts_url: str,
        fleet: str,
        cache: str | Path,
        options: StorageOptions | None = None,
        cache_bytes: int = 10 * 2**30,
    ) -> None:
        raise NotImplementedError

    def register(
        self,
        sensor: str,
        folder: str | Path,
        tags: Mapping[str, str] | None = None,
        description: str = "",
        alias: str | None = None,
        attachments: Mapping[str, bytes] | None = None,
    ) -> Version:
        """Upload the saved model in `folder`, create a version, tag it, set `alias` last.

        The same artefact (by digest) registered again is the version it already has. `attachments` (pictures)
        are put beside the model under `review/`.
        """
        raise NotImplementedError

    def champions(self, sensors: Iterable[str] | None = None) -> Champions:
        """The champion of every sensor that has one, by paged search; from disk, `stale`, if it is down."""
        raise NotImplementedError

    def challengers(self, sensors: Iterable[str] | None = None) -> Champions:
        """The challenger of every sensor that has one."""
        raise NotImplementedError

    def versions(self, sensor: str) -> list[Version]:
        """All versions of a sensor, newest first; empty if there is none."""
        raise NotImplementedError

    def version(self, sensor: str, version: int) -> Version:
        raise NotImplementedError

    def set_champion(self, sensor: str, version: int) -> None:
        raise NotImplementedError

    def set_challenger(self, sensor: str, version: int) -> None:
        raise NotImplementedError

    def clear_challenger(self, sensor: str) -> None:
        raise NotImplementedError

    def set_tags(self, version: Version, tags: Mapping[str, str]) -> None:
        raise NotImplementedError

    def attach(self, version: Version, name: str, data: bytes) -> str:
        """Put a picture or report beside the version's model; its URL."""
        raise NotImplementedError

    def fetch(self, version: Version) -> Path:
        """A local folder with the model, verified by hash, from the cache if it is there."""
        raise NotImplementedError

    def fetch_many(self, versions: Iterable[Version], workers: int = 16) -> dict[str, Path | PaanoError]:
        """{sensor: folder or its error}, fetched in parallel."""
        raise NotImplementedError

    def sweep(self, older: timedelta = timedelta(days=1), dry_run: bool = True) -> Swept:
        """Find artefact folders no version points to and older than `older`; remove them unless `dry_run`."""
        raise NotImplementedError

"""Models kept: one MLflow registered model per sensor; artifacts go directly, champions come in bulk."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from paano.errors import ArtifactError, PaanoError, RegistryError
from storage.keys import model_name
from storage.objects.store import StorageOptions, check_key, open_store
from storage.registry import owner, package, registration, sweep
from storage.registry.cache import ModelCache
from storage.registry.client import Missing, RegistryClient
from storage.registry.figures import VersionFigures
from storage.registry.lookup import CHALLENGER, CHAMPION, DIGEST_TAG, PYFUNC_TAG, Lookup
from storage.registry.places import EXPERIMENT, locate
from storage.registry.sweep import Retired, Swept
from storage.registry.versions import Champions, LastSeen, Version

__all__ = ["CHALLENGER", "CHAMPION", "Champions", "Registry", "Retired", "Swept", "Version", "VersionFigures"]

log = logging.getLogger("paano.registry")

WAITING_TAG = "paano.waiting"  # of a registered model: what waits for a reviewer
_LARGEST_ATTACHMENT = 2**25  # bytes


class Registry(Lookup):
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
        self.tracking_uri = str(tracking_uri)
        self.options = options
        self.artifacts = open_store(str(artifacts_url), options)
        self.cache = ModelCache(cache, cache_bytes)
        seen = LastSeen(self.cache.folder, fleet, owner.fingerprint(self.tracking_uri))
        client = RegistryClient(self.tracking_uri, was_used=lambda: bool(seen.read(CHAMPION)))
        super().__init__(client, fleet, seen)
        self._identity = ("", "")

    def __repr__(self) -> str:
        return f"Registry({self.fleet!r}, artifacts {self.artifacts.url!r})"

    @property
    def identity(self) -> str:
        """What tells this registry from all others, also from one that sees the same files."""
        return self._known_identity()[0]

    @property
    def experiment(self) -> str:
        """The id of the fleet's experiment in MLflow."""
        return self._known_identity()[1]

    def _known_identity(self) -> tuple[str, str]:
        if not self._identity[0]:
            location = self.source(f"{self.fleet}/{EXPERIMENT}")
            self._identity = owner.read_identity(self.client, self.fleet, location)
            address = owner.fingerprint(self.tracking_uri)
            owner.claim_store(self.artifacts, self.fleet, self._identity[0], address)
        return self._identity

    # -- register

    def register(
        self,
        sensor: str,
        folder: str | Path,
        tags: Mapping[str, str] | None = None,
        description: str = "",
        alias: str | None = None,
        attachments: Mapping[str, bytes] | None = None,
        figures: VersionFigures | None = None,
    ) -> Version:
        """Upload the saved model in `folder`, create a version, tag it, set `alias` last.

        The same artifact (by digest) registered again is the version it already has.

        Args:
            attachments: pictures and pages, put beside the model under `review/`.
            figures: what MLflow's table of the fleet's models shows of it.
        """
        found = registration.register(
            self, sensor, folder, tags or {}, description, attachments or {}, figures or VersionFigures()
        )
        # What the next night needs is here if the registry is away then.
        self.cache.get(found.name, found.digest, lambda half: package.copy_model(folder, half))
        if alias is not None and alias not in found.aliases:
            self._set_alias(found, alias)
            found = replace(found, aliases=(*found.aliases, alias))
        return found

    def delete_version(self, name: str, number: int) -> None:
        """Remove a version; no error if it is gone. Its files and logged model stay until `sweep`."""
        try:
            self.client.call(name, "delete_model_version", name, str(number), write=True)
        except Missing:
            return  # another process was first

    def source(self, place: str) -> str:
        """The address of a folder of the store as MLflow writes it."""
        url = self.artifacts.url_of(place)
        return Path(url).as_uri() if url.startswith("/") else url

    # -- aliases and tags

    def set_champion(self, sensor: str, version: int) -> None:
        """Make a version the champion. Its files are fetched and checked before."""
        found = self.version(sensor, version)
        self.fetch(found)
        self._set_alias(found, CHAMPION)

    def set_challenger(self, sensor: str, version: int) -> None:
        """Make a version the challenger."""
        self._set_alias(self.version(sensor, version), CHALLENGER)

    def clear_challenger(self, sensor: str) -> None:
        name = model_name(self.fleet, sensor)
        try:
            self.client.call(name, "delete_registered_model_alias", name, CHALLENGER, write=True)
        except Missing:
            return

    def _set_alias(self, version: Version, alias: str) -> None:
        name = version.name
        self.client.call(name, "set_registered_model_alias", name, alias, str(version.version), write=True)
        self._seen.note(alias, replace(version, aliases=(alias,)))

    def set_tags(self, version: Version, tags: Mapping[str, str]) -> None:
        for key, value in tags.items():
            self.client.call(
                version.name,
                "set_model_version_tag",
                version.name,
                str(version.version),
                key,
                str(value),
                write=True,
            )

    def set_waiting(self, sensor: str, text: str) -> None:
        """Say on the model's page and in the list of models what waits for a decision; empty: nothing."""
        name = model_name(self.fleet, sensor)
        try:
            if text:
                self.client.call(name, "set_registered_model_tag", name, WAITING_TAG, text, write=True)
            else:
                self.client.call(name, "delete_registered_model_tag", name, WAITING_TAG, write=True)
        except Missing:
            return  # it had none

    # -- files

    def attach(self, version: Version, name: str, data: bytes) -> str:
        """Put a picture or report beside the version's model; its address."""
        key = f"{locate(self.artifacts, self.fleet, version)}/review/{check_key(name)}"
        self.artifacts.put(key, data)
        return self.artifacts.url_of(key)

    def attached(self, version: Version) -> dict[str, bytes]:
        """{name: content} of the pictures and reports beside a version's model."""
        place = f"{locate(self.artifacts, self.fleet, version)}/review/"
        found = [info for info in self.artifacts.list(place) if info.size <= _LARGEST_ATTACHMENT]
        return {info.key.removeprefix(place): self.artifacts.get(info.key) for info in found}

    def fetch(self, version: Version) -> Path:
        """A local folder with the model, verified by hash, from the cache if it is there.

        Raises:
            RegistryError: the version was not registered by this project, or its source is outside the store.
            ArtifactError: the files are damaged, too large or of another sensor.
        """
        if not version.digest or not version.source:
            raise RegistryError(
                f"{version.name} version {version.version} has no tag {DIGEST_TAG}: it was not registered "
                "by this project; set the alias back to one that was"
            )

        place = locate(self.artifacts, self.fleet, version)

        def download(half: Path) -> None:
            package.download(self.artifacts, f"{place}/model", version.digest, half)

        folder = self.cache.get(version.name, version.digest, download)
        package.check_sensor(folder, version.sensor)
        return folder

    def pyfunc_is_as_registered(self, version: Version) -> bool:
        """Whether what MLflow would run of this version is what was registered; True if nobody noted that.

        Our own flows never run it.
        """
        known = version.tags.get(PYFUNC_TAG)
        if not known:  # versions from before 0.2
            return True
        try:
            place = locate(self.artifacts, self.fleet, version)
            return package.stored_pyfunc_digest(self.artifacts, place) == known
        except (ArtifactError, RegistryError):
            return False

    def fetch_many(self, versions: Iterable[Version], workers: int = 16) -> dict[str, Path | PaanoError]:
        """{sensor: folder or its error}; those that are not in the cache are fetched in parallel."""

        def one(version: Version) -> Path | PaanoError:
            try:
                return self.fetch(version)
            except PaanoError as error:
                return error
            except Exception as error:  # whatever one version raises is about that sensor only
                log.error("%s version %d:\n%s", version.name, version.version, traceback.format_exc())
                return ArtifactError(
                    f"{version.name} version {version.version}: {type(error).__name__}: {error}"
                )

        every = list(versions)
        # What is here is looked at by one thread: many would only hold each other up.
        here = {v.sensor: one(v) for v in every if self.cache.seems_to_have(v.name, v.digest)}
        away = [v for v in every if v.sensor not in here]
        with ThreadPoolExecutor(max(1, workers)) as pool:
            here |= dict(zip((v.sensor for v in away), pool.map(one, away), strict=True))
        return {v.sensor: here[v.sensor] for v in every}

    # -- sweep

    def sweep(
        self,
        older: timedelta = timedelta(days=1),
        dry_run: bool = True,
        now: datetime | None = None,
        share: float = sweep.SHARE,
        claim: bool = False,
    ) -> Swept:
        """Find, unless `dry_run` remove, files that are provably ours, orphaned and older than `older`."""
        return sweep.sweep(self, older, dry_run, now, share, claim)

    def retire(self, keep: int, dry_run: bool = True) -> Retired:
        """Remove versions beyond the newest `keep`; champion, challenger and the one before stay."""
        return sweep.retire(self, keep, dry_run)

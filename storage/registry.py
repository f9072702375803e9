"""Models kept: one MLflow registered model per sensor; artefacts go directly, champions come in bulk.

Upload first, register after, alias last: a crash at any point leaves at most files that no version points to,
which `sweep` finds. An alias never points to missing files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from paano.errors import ConfigError, PaanoError, RegistryError, RegistryUnavailable
from storage import artifact
from storage.cache import ModelCache
from storage.keys import check_fleet, decode_id, encode_id, model_name
from storage.mlflow_client import Exists, Missing, RegistryClient
from storage.objects import StorageOptions, check_key, open_store
from storage.versions import Champions, LastSeen, Version

__all__ = ["CHALLENGER", "CHAMPION", "Champions", "Registry", "Swept", "Version"]

CHAMPION = "champion"
CHALLENGER = "challenger"
SENSOR_TAG, FLEET_TAG, DIGEST_TAG = "paano.sensor", "paano.fleet", "paano.digest"
_FEW = 8  # up to so many sensors are asked for one by one
_LONGEST_TEXT = 5000  # characters of a description that every MLflow backend holds


@dataclass(frozen=True)
class Swept:
    """What `sweep` found and, unless it was a dry run, removed."""

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
        self.tracking_uri = str(tracking_uri)
        self.fleet = check_fleet(fleet)
        self.options = options
        self.artifacts = open_store(str(artifacts_url), options)
        self.cache = ModelCache(cache, cache_bytes)
        self.client = RegistryClient(self.tracking_uri)
        self._seen = LastSeen(self.cache.folder, self.fleet, self.tracking_uri)

    def __repr__(self) -> str:
        return f"Registry({self.fleet!r}, artifacts {self.artifacts.url!r})"

    # -- register

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
        name = model_name(self.fleet, sensor)
        digest, files = artifact.pack(folder)
        place = f"{self.fleet}/{encode_id(sensor)}/{digest[:32]}"
        for path, data in (attachments or {}).items():
            files[f"review/{check_key(path)}"] = data
        with ThreadPoolExecutor(1) as pool:  # the look-up takes as long as the upload: both at once
            looking = pool.submit(self._by_digest, name, sensor, digest)
            self._upload(place, files)
            found = looking.result()
        if found is None:
            marks = {SENSOR_TAG: sensor, FLEET_TAG: self.fleet, DIGEST_TAG: digest}
            marks |= {key: str(value) for key, value in (tags or {}).items()}
            found = self._create(name, sensor, digest, self._source(place), marks, description)
        if alias is not None and alias not in found.aliases:
            self._set_alias(sensor, alias, found.version)
            found = replace(found, aliases=(*found.aliases, alias))
        return found

    def _upload(self, place: str, files: dict[str, bytes]) -> None:
        last = "MLmodel"  # a folder that has one is whole
        others = [path for path in files if path != last]
        with ThreadPoolExecutor(len(others)) as pool:
            list(pool.map(lambda path: self.artifacts.put(f"{place}/{path}", files[path]), others))
        self.artifacts.put(f"{place}/{last}", files[last])

    def _source(self, place: str) -> str:
        url = self.artifacts.url_of(place)
        return Path(url).as_uri() if url.startswith("/") else url

    def _create(
        self, name: str, sensor: str, digest: str, source: str, tags: dict[str, str], description: str
    ) -> Version:
        text = _short(description)

        def create() -> Any:
            return self.client.call(
                name,
                "create_model_version",
                name,
                source,
                tags=tags,
                description=text,
                await_creation_for=0,  # there is nothing to wait for: the files are there
                write=True,
            )

        try:
            made = create()
        except Missing:
            self._create_model(name, sensor)
            made = create()
        # Another process may have registered the same artefact at the same moment, or an answer was lost and
        # the call repeated: the lowest number stays.
        first = self._by_digest(name, sensor, digest)
        mine = self._version(made, sensor)
        if first is None or first.version == mine.version:
            return mine
        self.client.call(name, "delete_model_version", name, str(mine.version), write=True)
        return first

    def _create_model(self, name: str, sensor: str) -> None:
        text = (
            f"Anomaly model of sensor `{sensor}` of the fleet `{self.fleet}`.\n\n"
            f"- `{CHAMPION}` is the version that scores; move the alias and the next run follows.\n"
            f"- `{CHALLENGER}` is the newest version that waits for a review.\n"
        )
        tags = {SENSOR_TAG: sensor, FLEET_TAG: self.fleet}
        try:
            self.client.call(
                name, "create_registered_model", name, tags=tags, description=_short(text), write=True
            )
        except Exists:
            return  # another process was first

    # -- look up

    def champions(self, sensors: Iterable[str] | None = None) -> Champions:
        """The champion of every sensor that has one, by paged search; from disk, `stale`, if it is down."""
        return self._resolve(CHAMPION, sensors)

    def challengers(self, sensors: Iterable[str] | None = None) -> Champions:
        """The challenger of every sensor that has one."""
        return self._resolve(CHALLENGER, sensors)

    def versions(self, sensor: str) -> list[Version]:
        """All versions of a sensor, newest first; empty if there is none."""
        name = model_name(self.fleet, sensor)
        try:
            model = self.client.call(name, "get_registered_model", name)
        except Missing:
            return []
        found = self.client.pages(name, "search_model_versions", filter_string=f"name = '{name}'")
        versions = [self._version(item, sensor, model.aliases) for item in found]
        return sorted(versions, key=lambda v: -v.version)

    def version(self, sensor: str, version: int) -> Version:
        """One version of a sensor; RegistryError if there is none."""
        name = model_name(self.fleet, sensor)
        found = self.client.call(name, "get_model_version", name, str(version))
        return self._version(found, sensor)

    def _by_digest(self, name: str, sensor: str, digest: str) -> Version | None:
        """The first version with this artefact."""
        query = f"name = '{name}' AND tags.`{DIGEST_TAG}` = '{digest}'"
        found = [
            self._version(item, sensor)
            for item in self.client.pages(name, "search_model_versions", filter_string=query)
        ]
        return min(found, key=lambda v: v.version, default=None)

    def _resolve(self, alias: str, sensors: Iterable[str] | None) -> Champions:
        wanted = None if sensors is None else list(dict.fromkeys(sensors))
        kept = self._seen.read(alias)
        try:
            if wanted is not None and len(wanted) <= _FEW:
                models = [m for sensor in wanted if (m := self._model(sensor)) is not None]
                gone = [s for s in wanted if s not in {self._sensor(m) for m in models}]
            else:
                models, gone = self._models(), list(kept)
            found = self._pointed(models, alias, kept)
        except RegistryUnavailable as error:
            if not kept:
                raise
            return _stale(kept, wanted, str(error))
        asked = {*gone, *(self._sensor(m) for m in models)}
        now = {**{s: v for s, v in kept.items() if s not in asked}, **found}
        if now != kept or wanted is None or len(wanted) > _FEW:
            self._seen.write(alias, Champions(now))
        answer = Champions(found if wanted is None else {s: found[s] for s in wanted if s in found})
        answer.seen = datetime.now(UTC)
        return answer

    def _model(self, sensor: str) -> Any:
        name = model_name(self.fleet, sensor)
        try:
            return self.client.call(name, "get_registered_model", name)
        except Missing:
            return None

    def _models(self) -> list[Any]:
        """Every registered model of the fleet, with its aliases, a thousand at a time."""
        found = self.client.pages(
            f"fleet {self.fleet}", "search_registered_models", filter_string=f"name LIKE '{self.fleet}.%'"
        )
        # `_` in LIKE stands for any character, and some backends ignore case.
        return [m for m in found if m.name.startswith(f"{self.fleet}.") and self._sensor(m) is not None]

    def _pointed(self, models: list[Any], alias: str, kept: Mapping[str, Version]) -> dict[str, Version]:
        """{sensor: the version that `alias` points to}. What a version is never changes: most are known."""
        found: dict[str, Version] = {}
        unknown: list[tuple[str, str, int, Any]] = []
        for model in models:
            number = model.aliases.get(alias)
            if number is None:
                continue
            sensor, number = self._sensor(model), int(number)
            newest = {int(v.version): v for v in model.latest_versions}
            if number in newest:
                found[sensor] = self._version(newest[number], sensor, model.aliases)
            elif sensor in kept and kept[sensor].version == number:
                found[sensor] = replace(kept[sensor], aliases=_aliases(model.aliases, number))
            else:
                unknown.append((sensor, model.name, number, model.aliases))
        if len(unknown) > 5 * _FEW:
            query = f"name LIKE '{self.fleet}.%'"
            pages = self.client.pages(f"fleet {self.fleet}", "search_model_versions", filter_string=query)
            every = {(item.name, int(item.version)): item for item in pages}
        else:
            every = {
                (name, number): self.client.call(name, "get_model_version", name, str(number))
                for _, name, number, _ in unknown
            }
        for sensor, name, number, aliases in unknown:
            if (name, number) in every:
                found[sensor] = self._version(every[name, number], sensor, aliases)
        return found

    def _sensor(self, model: Any) -> str | None:
        """The sensor of a registered model; None for one that is not ours."""
        sensor = (model.tags or {}).get(SENSOR_TAG)
        try:
            if sensor is None:
                sensor = decode_id(model.name.removeprefix(f"{self.fleet}."))
            return sensor if model_name(self.fleet, sensor) == model.name else None
        except ConfigError:
            return None

    def _version(self, item: Any, sensor: str, aliases: Mapping[str, Any] | None = None) -> Version:
        tags = dict(item.tags or {})
        number = int(item.version)
        return Version(
            sensor=sensor,
            name=item.name,
            version=number,
            digest=tags.get(DIGEST_TAG, ""),
            source=item.source,
            tags=tags,
            aliases=_aliases(aliases, number) if aliases is not None else tuple(sorted(item.aliases or ())),
            created=datetime.fromtimestamp(item.creation_timestamp / 1000, UTC),
            description=item.description or "",
        )

    # -- aliases and tags

    def set_champion(self, sensor: str, version: int) -> None:
        self._set_alias(sensor, CHAMPION, version)

    def set_challenger(self, sensor: str, version: int) -> None:
        self._set_alias(sensor, CHALLENGER, version)

    def clear_challenger(self, sensor: str) -> None:
        name = model_name(self.fleet, sensor)
        try:
            self.client.call(name, "delete_registered_model_alias", name, CHALLENGER, write=True)
        except Missing:
            return

    def _set_alias(self, sensor: str, alias: str, version: int) -> None:
        name = model_name(self.fleet, sensor)
        self.client.call(name, "set_registered_model_alias", name, alias, str(version), write=True)

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

    # -- files

    def attach(self, version: Version, name: str, data: bytes) -> str:
        """Put a picture or report beside the version's model; its address."""
        store, key = open_store(version.source, self.options), f"review/{check_key(name)}"
        store.put(key, data)
        return store.url_of(key)

    def fetch(self, version: Version) -> Path:
        """A local folder with the model, verified by hash, from the cache if it is there."""
        if not version.digest or not version.source:
            raise RegistryError(
                f"{version.name} version {version.version} has no tag {DIGEST_TAG}: it was not registered "
                "by this project; set the alias back to one that was"
            )

        def download(half: Path) -> None:
            store = open_store(version.source, self.options)
            for name in artifact.FILES:
                (half / name).write_bytes(store.get(f"model/{name}"))

        return self.cache.get(version.name, version.digest, download)

    def fetch_many(self, versions: Iterable[Version], workers: int = 16) -> dict[str, Path | PaanoError]:
        """{sensor: folder or its error}, fetched in parallel."""

        def one(version: Version) -> Path | PaanoError:
            try:
                return self.fetch(version)
            except PaanoError as error:
                return error

        versions = list(versions)
        with ThreadPoolExecutor(max(1, workers)) as pool:
            return {v.sensor: got for v, got in zip(versions, pool.map(one, versions), strict=True)}

    # -- sweep

    def sweep(
        self, older: timedelta = timedelta(days=1), dry_run: bool = True, now: datetime | None = None
    ) -> Swept:
        """Find artefact folders no version points to and older than `older`; remove them unless `dry_run`."""
        limit = (now or datetime.now(UTC)) - older
        folders: dict[str, list[Any]] = {}
        for info in self.artifacts.list(self.fleet):
            folders.setdefault("/".join(info.key.split("/")[:3]), []).append(info)
        used = self._sources()
        orphans = {
            place: infos
            for place, infos in folders.items()
            if self._source(place) not in used and max(info.modified for info in infos) < limit
        }
        if not dry_run and orphans:
            used = self._sources()  # look again: a version may have been made of old files just now
            orphans = {place: infos for place, infos in orphans.items() if self._source(place) not in used}
            self.artifacts.delete([info.key for infos in orphans.values() for info in infos])
        infos = [info for infos in orphans.values() for info in infos]
        return Swept(sorted(orphans), len(infos), sum(info.size for info in infos), not dry_run)

    def _sources(self) -> set[str]:
        query = f"name LIKE '{self.fleet}.%'"
        pages = self.client.pages(f"fleet {self.fleet}", "search_model_versions", filter_string=query)
        return {item.source for item in pages}


def _aliases(aliases: Mapping[str, Any], number: int) -> tuple[str, ...]:
    return tuple(sorted(alias for alias, version in aliases.items() if int(version) == number))


def _stale(kept: Champions, wanted: list[str] | None, reason: str) -> Champions:
    answer = Champions(kept if wanted is None else {s: kept[s] for s in wanted if s in kept})
    answer.stale, answer.seen, answer.reason = True, kept.seen, reason
    return answer


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"

"""What a registry holds: versions, champions in bulk, and the last list seen when it does not answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from paano.errors import ConfigError, RegistryUnavailable
from storage.keys import check_fleet, decode_id, model_name
from storage.registry.client import Missing, RegistryClient
from storage.registry.versions import Champions, LastSeen, Version

CHAMPION = "champion"
CHALLENGER = "challenger"
SENSOR_TAG, FLEET_TAG, DIGEST_TAG = "paano.sensor", "paano.fleet", "paano.digest"
PYFUNC_TAG = "paano.pyfunc_digest"
FEW = 8  # up to so many sensors are asked for one by one


class Lookup:
    """Questions to the registry of one fleet; nothing is changed."""

    def __init__(self, client: RegistryClient, fleet: str, seen: LastSeen) -> None:
        self.client, self.fleet, self._seen = client, check_fleet(fleet), seen

    def champions(self, sensors: Iterable[str] | None = None) -> Champions:
        """The champion of every sensor that has one, by paged search; from disk, `stale`, if it is down."""
        return self._resolve(sensors, CHAMPION)[0]

    def challengers(self, sensors: Iterable[str] | None = None) -> Champions:
        """The challenger of every sensor that has one."""
        return self._resolve(sensors, CHALLENGER)[0]

    def champions_and_challengers(self, sensors: Iterable[str] | None = None) -> tuple[Champions, Champions]:
        """Both of every sensor, from one search; both from disk if the registry is down."""
        champions, challengers = self._resolve(sensors, CHAMPION, CHALLENGER)
        return champions, challengers

    def versions(self, sensor: str) -> list[Version]:
        """All versions of a sensor, newest first; empty if there is none."""
        name = model_name(self.fleet, sensor)
        try:
            model = self.client.model(name)
        except Missing:
            return []
        versions = [self.to_version(item, sensor, model.aliases) for item in self.client.versions(name)]
        return sorted(versions, key=lambda v: -v.version)

    def version(self, sensor: str, version: int) -> Version:
        """One version of a sensor; RegistryError if there is none."""
        name = model_name(self.fleet, sensor)
        return self.to_version(self.client.version(name, version), sensor)

    def with_digest(self, name: str, sensor: str, digest: str) -> list[Version]:
        """The versions with this artifact: one, unless answers were lost."""
        return [
            self.to_version(item, sensor) for item in self.client.versions(name, tag=(DIGEST_TAG, digest))
        ]

    def every_version(self) -> list[Any]:
        """Every version of the fleet, as MLflow gives it."""
        return self.client.every_version(f"{self.fleet}.")

    def _resolve(self, sensors: Iterable[str] | None, *aliases: str) -> list[Champions]:
        """For each alias the versions it points to; the last list seen if the registry is away."""
        wanted = None if sensors is None else list(dict.fromkeys(sensors))
        few = wanted if wanted is not None and len(wanted) <= FEW else None
        kept = {alias: self._seen.read(alias) for alias in aliases}
        try:
            models = (
                self._models() if few is None else [m for s in few if (m := self.model_of(s)) is not None]
            )
            found = {alias: self._pointed(models, alias, kept[alias]) for alias in aliases}
        except RegistryUnavailable as error:
            if not any(kept.values()):
                raise
            return [_stale(kept[alias], wanted, str(error)) for alias in aliases]
        answers = []
        for alias in aliases:
            self._keep_seen(alias, kept[alias], found[alias], few)
            mine = found[alias]
            answer = Champions(mine if wanted is None else {s: mine[s] for s in wanted if s in mine})
            answer.seen = datetime.now(UTC)
            answers.append(answer)
        return answers

    def _keep_seen(
        self, alias: str, kept: Champions, found: Mapping[str, Version], few: list[str] | None
    ) -> None:
        """Write down what was found: of the whole fleet, or of `few` sensors beside what is kept."""
        now = dict(found)
        if few is not None:
            now = {**{s: v for s, v in kept.items() if s not in few}, **found}
        if few is None or now != kept:
            self._seen.write(alias, Champions(now))

    def model_of(self, sensor: str) -> Any:
        """The registered model of a sensor as MLflow gives it; None if there is none."""
        name = model_name(self.fleet, sensor)
        try:
            return self.client.model(name)
        except Missing:
            return None

    def _models(self) -> list[Any]:
        """Every registered model of the fleet, with its aliases."""
        return [m for m in self.client.models(f"{self.fleet}.") if self._sensor(m) is not None]

    def _pointed(self, models: list[Any], alias: str, kept: Mapping[str, Version]) -> dict[str, Version]:
        """{sensor: the version that `alias` points to}. What a version is never changes: most are known."""
        found: dict[str, Version] = {}
        unknown: list[tuple[str, str, int, Any]] = []
        for model in models:
            number = model.aliases.get(alias)
            if number is None:
                continue
            sensor, number = self._sensor(model), int(number)
            if sensor is None:
                continue  # not a model of ours
            newest = {int(v.version): v for v in model.latest_versions}
            if number in newest:
                found[sensor] = self.to_version(newest[number], sensor, model.aliases)
            elif sensor in kept and kept[sensor].version == number:
                found[sensor] = replace(kept[sensor], aliases=aliases_of(model.aliases, number))
            else:
                unknown.append((sensor, model.name, number, model.aliases))
        if len(unknown) > 5 * FEW:
            every = {(item.name, int(item.version)): item for item in self.every_version()}
        else:
            every = {(name, number): self.client.version(name, number) for _, name, number, _ in unknown}
        for sensor, name, number, aliases in unknown:
            if (name, number) in every:
                found[sensor] = self.to_version(every[name, number], sensor, aliases)
        return found

    def _sensor(self, model: Any) -> str | None:
        """The sensor of a registered model; None for one that is not ours."""
        return self.sensor_of_name(model.name, [model])

    def sensor_of_name(self, name: str, tagged: Iterable[Any] = ()) -> str | None:
        """The sensor of the registered model `name`, by what `tagged` say or by the name; None: not ours."""
        said = [(item.tags or {}).get(SENSOR_TAG) for item in tagged]
        with suppress(ConfigError):  # of a shortened id, which only a tag says
            said.append(decode_id(name.removeprefix(f"{self.fleet}.")))
        for sensor in said:
            try:
                if sensor and model_name(self.fleet, sensor) == name:
                    return str(sensor)
            except ConfigError:
                continue
        return None

    def to_version(self, item: Any, sensor: str, aliases: Mapping[str, Any] | None = None) -> Version:
        """A version as MLflow gives it, as one of ours."""
        tags = dict(item.tags or {})
        number = int(item.version)
        return Version(
            sensor=sensor,
            name=item.name,
            version=number,
            digest=tags.get(DIGEST_TAG, ""),
            source=item.source,
            tags=tags,
            aliases=aliases_of(aliases, number) if aliases is not None else tuple(sorted(item.aliases or ())),
            created=datetime.fromtimestamp(item.creation_timestamp / 1000, UTC),
            description=item.description or "",
        )


def aliases_of(aliases: Mapping[str, Any], number: int) -> tuple[str, ...]:
    return tuple(sorted(alias for alias, version in aliases.items() if int(version) == number))


def _stale(kept: Champions, wanted: list[str] | None, reason: str) -> Champions:
    answer = Champions(kept if wanted is None else {s: kept[s] for s in wanted if s in kept})
    answer.stale, answer.seen, answer.reason = True, kept.seen, reason
    return answer

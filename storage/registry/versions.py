"""A version of a model, and the last list of versions that was seen, kept on the local disk."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storage.keys import encode_id
from storage.objects.errors import named
from storage.registry.tags import VersionTags, parse_tags


@dataclass(frozen=True)
class Version:
    """One version of a sensor's model."""

    sensor: str
    name: str  # of the registered model
    version: int
    digest: str  # of the artifact
    source: str  # address of its folder
    tags: dict[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    created: datetime | None = None
    description: str = ""

    @property
    def parsed(self) -> VersionTags:
        """The tags with types; one that cannot be read is None or empty, with a note."""
        return parse_tags(self.tags)


class Champions(dict[str, Version]):
    """{sensor: version}. `stale`: the registry did not answer, this is the last list that was seen."""

    stale: bool = False
    seen: datetime | None = None
    reason: str = ""


class LastSeen:
    """Lists of versions by alias, for the night in which the registry does not answer.

    A look at the whole registry writes the list; an alias that is set in between is a small file of its own
    beside it. `registry` is a fingerprint of the address: no address, which may hold a password, is written.
    """

    def __init__(self, folder: Path, fleet: str, registry: str) -> None:
        self.folder, self.fleet, self.registry = folder, fleet, registry

    def _path(self, alias: str) -> Path:
        return self.folder / f"{self.fleet}.{alias}.json"

    def _notes(self, alias: str) -> Path:
        return self.folder / f"{self.fleet}.{alias}.since"

    def read(self, alias: str) -> Champions:
        """The last list seen, empty if there is none or it is of another registry."""
        kept = Champions()
        for path in [self._path(alias), *sorted(self._notes(alias).glob("*.json"))]:
            found = self._read(path)
            if found is None or (path != self._path(alias) and kept.seen and found[0] <= kept.seen):
                continue
            kept.update({version.sensor: version for version in found[1]})
            kept.seen = kept.seen or found[0]
        return kept

    def _read(self, path: Path) -> tuple[datetime, list[Version]] | None:
        try:
            note = json.loads(path.read_bytes())
            if note["registry"] != self.registry:
                return None
            return datetime.fromisoformat(note["seen"]), [_from_json(v) for v in note["versions"]]
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return None  # none, or damaged: as good as none, the next look writes it again

    def write(self, alias: str, champions: Champions) -> None:
        """Keep the whole list; what was noted before it is in it."""
        notes = [path for path in self._notes(alias).glob("*.json") if self._read(path)]
        self._write(self._path(alias), list(champions.values()))
        seen = self._read(self._path(alias))
        for path in notes:
            noted = self._read(path)
            if noted is None or (seen is not None and noted[0] <= seen[0]):
                path.unlink(missing_ok=True)

    def note(self, alias: str, version: Version) -> None:
        """Keep one version that has just got `alias`."""
        self._write(self._notes(alias) / f"{encode_id(version.sensor)}.json", [version])

    def _write(self, path: Path, versions: list[Version]) -> None:
        note = {
            "registry": self.registry,
            "seen": datetime.now(UTC).isoformat(),
            "versions": [_to_json(v) for v in versions],
        }
        with named(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            half = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
            try:
                # Tags and addresses are for this user alone.
                with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                    file.write(json.dumps(note))
                half.replace(path)
            finally:
                half.unlink(missing_ok=True)


def _to_json(version: Version) -> dict[str, Any]:
    return asdict(version) | {"created": version.created.isoformat() if version.created else None}


def _from_json(value: dict[str, Any]) -> Version:
    created = datetime.fromisoformat(value["created"]) if value["created"] else None
    return Version(**{**value, "created": created, "aliases": tuple(value["aliases"])})

"""A version of a model, and the last list of versions that was seen, kept on the local disk."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from storage.faults import named


@dataclass(frozen=True)
class Version:
    """One version of a sensor's model."""

    sensor: str
    name: str  # of the registered model
    version: int
    digest: str  # of the artefact
    source: str  # address of its folder
    tags: dict[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    created: datetime | None = None
    description: str = ""


class Champions(dict[str, Version]):
    """{sensor: version}. `stale`: the registry did not answer, this is the last list that was seen."""

    stale: bool = False
    seen: datetime | None = None
    reason: str = ""


class LastSeen:
    """Lists of versions by alias, for the night in which the registry does not answer."""

    def __init__(self, folder: Path, fleet: str, tracking_uri: str) -> None:
        self.folder, self.fleet, self.tracking_uri = folder, fleet, tracking_uri

    def _path(self, alias: str) -> Path:
        return self.folder / f"{self.fleet}.{alias}.json"

    def read(self, alias: str) -> Champions:
        """The last list seen, empty if there is none or it is of another registry."""
        kept = Champions()
        try:
            note = json.loads(self._path(alias).read_bytes())
            if note["tracking_uri"] == self.tracking_uri:
                kept.update({v["sensor"]: _from_json(v) for v in note["versions"]})
                kept.seen = datetime.fromisoformat(note["seen"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return Champions()  # none, or damaged: as good as none, the next look writes it again
        return kept

    def write(self, alias: str, champions: Champions) -> None:
        path = self._path(alias)
        note = {
            "tracking_uri": self.tracking_uri,
            "seen": datetime.now(UTC).isoformat(),
            "versions": [_to_json(v) for v in champions.values()],
        }
        with named(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            half = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
            half.write_text(json.dumps(note))
            half.replace(path)


def _to_json(version: Version) -> dict[str, Any]:
    return asdict(version) | {"created": version.created.isoformat() if version.created else None}


def _from_json(value: dict[str, Any]) -> Version:
    created = datetime.fromisoformat(value["created"]) if value["created"] else None
    return Version(**{**value, "created": created, "aliases": tuple(value["aliases"])})

"""Remove what is no longer needed: old versions of a model, and files that no version points to.

Files are removed only if this registry provably put them there, nothing points to them, and they are old:

- the folder has the mark of this registry and of no other (files from before 0.2 have none and stay);
- it was never registered, or its version is gone and the registry knows a later one of the same sensor: a
  registry restored from a backup does not know later ones, so what it has forgotten stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from paano.errors import ConfigError, RegistryError
from storage.keys import model_name
from storage.objects.store import ObjectInfo
from storage.registry import logged, owner
from storage.registry.client import Missing
from storage.registry.lookup import CHAMPION
from storage.registry.places import folder_of, former_place, logged_model_of, places_in
from storage.registry.versions import Version

if TYPE_CHECKING:
    from storage.registry.registry import Registry

_FEW = 10  # folders that may go whatever their share is
SHARE = 0.5


@dataclass(frozen=True)
class Swept:
    """What `sweep` found and, unless it was a dry run, removed."""

    folders: list[str]
    objects: int
    bytes: int
    removed: bool
    kept: dict[str, int] = field(default_factory=dict)  # folders without a version that stay, by reason
    refused: str = ""  # why nothing would be removed


@dataclass(frozen=True)
class Retired:
    """Versions that `retire` removed, or in a dry run would remove."""

    versions: list[tuple[str, int]]  # (sensor, number)
    removed: bool


@dataclass
class _Known:
    """What the registry knows of the fleet's versions."""

    places: set[str] = field(default_factory=set)
    numbers: dict[str, set[int]] = field(default_factory=dict)  # by the name of the registered model


def sweep(
    registry: Registry,
    older: timedelta = timedelta(days=1),
    dry_run: bool = True,
    now: datetime | None = None,
    share: float = SHARE,
    claim: bool = False,
) -> Swept:
    """Find folders of models that are provably this registry's own, orphaned and older than `older`.

    Args:
        dry_run: only look.
        share: more of all folders than this are not removed at once.
        claim: this registry is from now on the one that sweeps the store.

    Raises:
        RegistryError: the store is swept by another registry, the registry has no versions at all, or too
            large a share would go. In a dry run these stand in `refused`.
    """
    limit = (now or datetime.now(UTC)) - older
    identity = registry.identity
    held = owner.claim_store(
        registry.artifacts, registry.fleet, identity, owner.fingerprint(registry.tracking_uri), claim
    )
    folders: dict[str, list[ObjectInfo]] = {}
    for info in registry.artifacts.list(registry.fleet):
        place = folder_of(info.key)
        if place is not None:
            folders.setdefault(place, []).append(info)
    known = _look(registry)
    kept: Counter[str] = Counter()
    orphans: dict[str, list[ObjectInfo]] = {}
    for place, infos in folders.items():
        if place in known.places:
            continue
        why = _why_kept(registry, identity, known, place, infos, limit)
        if why:
            kept[why] += 1
        else:
            orphans[place] = infos
    refused = _refusal(registry, held, identity, known, len(orphans), len(folders), share)
    if not dry_run and orphans:
        if refused:
            raise RegistryError(refused)
        again = _look(registry)  # a version may have been made of old files just now
        orphans = {place: infos for place, infos in orphans.items() if place not in again.places}
        # Owner marks go last: a sweep that is cut short can be taken up again.
        keys = [info.key for infos in orphans.values() for info in infos]
        registry.artifacts.delete(sorted(keys, key=lambda key: "/owners/" in key))
        for place in orphans:
            if model := logged_model_of(place):
                logged.remove(registry.client, place, model)
    if not dry_run and held.registry == identity and known.numbers:
        used = {model for place in known.places if (model := logged_model_of(place))}
        logged.remove_unfinished(registry.client, registry.experiment, limit, used)
    infos = [info for some in orphans.values() for info in some]
    size = sum(info.size for info in infos)
    return Swept(sorted(orphans), len(infos), size, not dry_run, dict(kept), refused if orphans else "")


def _look(registry: Registry) -> _Known:
    """Every place and number that the registry knows, by digest and by source, however that is spelt."""
    known = _Known()
    for item in registry.every_version():
        known.places |= places_in(str(item.source))
        digest = str((item.tags or {}).get("paano.digest", ""))
        known.places.add(former_place(registry.fleet, item.name.removeprefix(f"{registry.fleet}."), digest))
        known.numbers.setdefault(item.name, set()).add(int(item.version))
    return known


def _why_kept(
    registry: Registry, identity: str, known: _Known, place: str, infos: list[ObjectInfo], limit: datetime
) -> str:
    """Why a folder that nothing points to stays; empty if it is provably an orphan of this registry."""
    if max(info.modified for info in infos) >= limit:
        return "young"
    mine = owner.owner_key(place, identity)
    marks = {info.key for info in infos if info.key.startswith(f"{place}/owners/")}
    if not marks:
        return "no owner (registered before 0.2, or by another program)"
    if marks != {mine}:
        return "another registry uses it"
    note = owner.read_note(registry.artifacts, mine)
    if note is None or note.registry != identity or note.fleet != registry.fleet:
        return "its owner note is damaged"
    if not _belongs(place, note):
        return "its owner note is of another sensor"
    if note.shared:
        return "it was there before this registry"
    if note.version is None:
        return ""  # uploaded and never registered
    numbers = known.numbers.get(note.name, set())
    if note.version in numbers or max(numbers, default=0) < note.version:
        return "the registry does not know a later version: deleted by hand, or restored from a backup"
    return ""


def _belongs(place: str, note: owner.OwnerNote) -> bool:
    """Whether sensor and name in the note agree with each other and with the folder."""
    try:
        agree = note.name == model_name(note.fleet, note.sensor)
    except (ConfigError, TypeError, AttributeError):
        return False
    former = logged_model_of(place) is None
    return agree and (not former or place.split("/")[1] == note.name.removeprefix(f"{note.fleet}."))


def _refusal(
    registry: Registry,
    held: owner.Claim,
    identity: str,
    known: _Known,
    orphans: int,
    folders: int,
    share: float,
) -> str:
    where = f"{registry.artifacts.url}/{registry.fleet}"
    if held.registry != identity:
        return (
            f"{where}: these model files are swept from another registry; nothing is removed. Point "
            "registry.tracking_uri to that one, or `paano sweep --claim` if it is gone"
        )
    if held.address != owner.fingerprint(registry.tracking_uri):
        return (
            f"{where}: these model files are swept from the same registry at another address, or this one is "
            "a copy of it; nothing is removed. `paano sweep --claim` if it has moved here"
        )
    if not known.numbers:
        return (
            f"{where}: the registry has no version of the fleet {registry.fleet} but there are {folders} "
            "folders of models; nothing is removed. Check registry.tracking_uri"
        )
    if orphans > max(_FEW, share * folders):
        return (
            f"{where}: {orphans} of {folders} folders of models would go, more than the share {share:g}; "
            "nothing is removed. Look with `paano sweep --dry-run`, then `paano sweep --share 1`"
        )
    return ""


# -- old versions --------------------------------------------------------------------------------------------


def retire(registry: Registry, keep: int, dry_run: bool = True) -> Retired:
    """Remove versions of each sensor beyond the newest `keep`, and repeated ones of the same files.

    What has an alias (champion, challenger, a reviewer's own) stays, and so does the version before the
    champion. Versions that this project did not make are left alone. The files are then orphans for `sweep`.
    """
    gone: list[tuple[str, int]] = []
    by_name: dict[str, list[Any]] = {}
    for item in registry.every_version():
        by_name.setdefault(item.name, []).append(item)
    for name in sorted(by_name):
        sensor = registry.sensor_of_name(name, by_name[name])
        if sensor is None or not _superfluous(registry, sensor, by_name[name], {}, keep):
            continue
        try:
            aliases = registry.client.model(name).aliases
        except Missing:
            continue  # removed while we looked
        for number in _superfluous(registry, sensor, by_name[name], aliases, keep):
            if not dry_run:
                registry.delete_version(name, number)
            gone.append((sensor, number))
    return Retired(gone, not dry_run)


def _superfluous(
    registry: Registry, sensor: str, items: Iterable[Any], aliases: dict[str, Any], keep: int
) -> list[int]:
    versions = sorted(
        (registry.to_version(item, sensor, aliases) for item in items), key=lambda v: -v.version
    )
    ours = [v for v in versions if v.digest and v.parsed.fleet in ("", registry.fleet)]
    safe = {int(number) for number in aliases.values()} | _before_champion(ours, aliases)
    distinct: list[Version] = []
    doubled: list[int] = []
    lowest = {v.digest: v.version for v in ours}  # sorted newest first: the lowest number stays
    for version in ours:
        if version.version != lowest[version.digest] and version.version not in safe:
            doubled.append(version.version)
        else:
            distinct.append(version)
    old = [v.version for v in distinct[max(1, keep) :] if v.version not in safe]
    return sorted(doubled + old)


def _before_champion(versions: list[Version], aliases: dict[str, Any]) -> set[int]:
    """The version that was champion before the present one: as its tag says, else the one below it."""
    champion = int(aliases.get(CHAMPION, 0))
    for version in versions:
        if version.version == champion and version.parsed.previous:
            return {version.parsed.previous}
    return {max((v.version for v in versions if v.version < champion), default=0)}

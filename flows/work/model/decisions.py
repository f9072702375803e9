"""What a reviewer does with versions. The same can be done in the MLflow pages: the next run follows."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from flows.run.fleet import Fleet
from paano.errors import RegistryError
from storage.registry.registry import Version


def open_reviews(fleet: Fleet, sensors: list[str] | None = None) -> list[dict[str, Any]]:
    """A row for each sensor that has a challenger."""
    challengers = fleet.registry.challengers(sensors)
    for sensor in set(sensors or ()).difference(challengers):
        refuse_unknown(fleet, sensor)
    champions = fleet.registry.champions(sorted(challengers)) if challengers else {}
    return [
        {
            **version_figures(challengers[sensor]),
            "champion": champions[sensor].version if sensor in champions else None,
            "champion_vus_pr": version_figures(champions.get(sensor)).get("vus_pr"),
            "recommendation": challengers[sensor].parsed.recommendation or None,
            "reason": challengers[sensor].parsed.reason or None,
        }
        for sensor in sorted(challengers)
    ]


def version_figures(version: Version | None) -> dict[str, Any]:
    """What a version's tags say of it."""
    if version is None:
        return {}
    tags = version.parsed
    return {
        "sensor": version.sensor,
        "version": version.version,
        "kind": tags.kind or None,
        "aliases": ", ".join(version.aliases),
        "trained_to": f"{tags.window_end:%Y-%m-%d}" if tags.window_end else "",
        "vus_pr": tags.vus_pr,
        "alarms": tags.alarms,
    }


def approve(fleet: Fleet, sensor: str, number: int | None = None) -> Version:
    """Make the challenger, or version `number`, the champion.

    Raises RegistryError if there is no challenger, or no such version.
    """
    version = fleet.registry.version(sensor, number) if number else _challenger(fleet, sensor)
    note_previous(fleet, version)
    from flows.work.model.training import promote  # brings torch, which looking at versions does not need

    promote(fleet, version)
    fleet.registry.set_tags(version, {"paano.review": "approved"})
    return version


def choose_challengers(fleet: Fleet, patterns: list[str], passed: bool) -> list[str]:
    """The sensors with a challenger whose id is one of `patterns` or fits one (`pump-*`); none means all.

    With `passed`, only those whose review test recommends the challenger. An id or pattern that fits no
    challenger is a RegistryError that names it.
    """
    exact = bool(patterns) and not any(set("*?[") & set(pattern) for pattern in patterns)
    challengers = fleet.registry.challengers(patterns if exact else None)
    chosen: set[str] = set()
    for pattern in patterns or ["*"]:
        found = {name for name in challengers if name == pattern or fnmatchcase(name, pattern)}
        if not found and patterns:
            if not set("*?[") & set(pattern):
                refuse_unknown(fleet, pattern)
            raise RegistryError(
                f"{pattern}: there is no challenger; `paano review list` shows those that wait, --version "
                "names a version of one sensor"
            )
        chosen |= found
    return sorted(name for name in chosen if not passed or challengers[name].parsed.passed)


def reject(fleet: Fleet, sensor: str, why: str = "", number: int | None = None) -> Version:
    """Mark the challenger, or version `number`, as rejected; a challenger loses its alias, the version stays.

    Raises RegistryError if there is no challenger, no such version, or if it is the champion.
    """
    version = fleet.registry.version(sensor, number) if number else _challenger(fleet, sensor)
    champion = fleet.registry.champions([sensor]).get(sensor)
    if champion is not None and champion.version == version.version:
        raise RegistryError(
            f"{sensor}: version {version.version} is the champion; `paano review rollback {sensor}` "
            "puts the former one in its place"
        )
    fleet.registry.set_tags(version, {"paano.review": f"rejected: {why}" if why else "rejected"})
    challenger = fleet.registry.challengers([sensor]).get(sensor)
    if challenger is not None and challenger.version == version.version:
        fleet.registry.clear_challenger(sensor)
        fleet.registry.set_waiting(sensor, "")
    return version


def roll_back(fleet: Fleet, sensor: str, number: int | None = None) -> Version:
    """Make the champion before the present one, or version `number`, champion again."""
    champion = fleet.registry.champions([sensor]).get(sensor)
    if champion is None:
        refuse_unknown(fleet, sensor)
        raise RegistryError(f"{sensor}: there is no champion to roll back from")
    if number is None:
        previous = fleet.registry.version(sensor, champion.version).parsed.previous
        if not previous:
            raise RegistryError(
                f"{sensor}: version {champion.version} was the first champion; --version names another"
            )
        number = previous
    version = fleet.registry.version(sensor, number)
    fleet.registry.set_champion(sensor, number)
    fleet.registry.set_tags(champion, {"paano.review": "rolled back"})
    return version


def _challenger(fleet: Fleet, sensor: str) -> Version:
    version = fleet.registry.challengers([sensor]).get(sensor)
    if version is None:
        refuse_unknown(fleet, sensor)
        raise RegistryError(
            f"{sensor}: there is no challenger; --version names a version, `paano show {sensor}` lists them"
        )
    return version


def refuse_unknown(fleet: Fleet, sensor: str) -> None:
    """UnknownSensor, with the nearest ids, for what has neither a model nor history."""
    if not fleet.registry.versions(sensor):
        fleet.history.sensors()[sensor]


def note_previous(fleet: Fleet, version: Version) -> None:
    """Remember the champion that gives way, so that a roll back finds it."""
    champion = fleet.registry.champions([version.sensor]).get(version.sensor)
    if champion is not None and champion.version != version.version:
        fleet.registry.set_tags(version, {"paano.previous": str(champion.version)})

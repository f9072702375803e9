"""What a reviewer does with versions. The same can be done in the MLflow pages: the next run follows."""

from __future__ import annotations

from typing import Any

from flows.parts import Parts
from flows.training import promote
from paano.errors import RegistryError
from storage.registry import Version


def open_reviews(parts: Parts, sensors: list[str] | None = None) -> list[dict[str, Any]]:
    """A row for each sensor that has a challenger."""
    challengers = parts.registry.challengers(sensors)
    champions = parts.registry.champions(sorted(challengers)) if challengers else {}
    return [
        {
            **version_figures(challengers[sensor]),
            "champion": champions[sensor].version if sensor in champions else None,
            "champion_vus_pr": version_figures(champions.get(sensor)).get("vus_pr"),
            "verdict": challengers[sensor].tags.get("paano.verdict"),
            "reason": challengers[sensor].tags.get("paano.reason"),
        }
        for sensor in sorted(challengers)
    ]


def version_figures(version: Version | None) -> dict[str, Any]:
    """What a version's tags say of it."""
    if version is None:
        return {}
    tags = version.tags
    return {
        "sensor": version.sensor,
        "version": version.version,
        "kind": tags.get("paano.kind"),
        "aliases": ", ".join(version.aliases),
        "trained_to": (tags.get("paano.window_end") or "")[:10],
        "vus_pr": float(tags["paano.vus_pr"]) if "paano.vus_pr" in tags else None,
        "alarms": float(tags["paano.alarms"]) if "paano.alarms" in tags else None,
    }


def approve(parts: Parts, sensor: str, number: int | None = None) -> Version:
    """Make the challenger, or version `number`, the champion."""
    version = parts.registry.version(sensor, number) if number else _challenger(parts, sensor)
    _note_previous(parts, version)
    promote(parts, version)
    parts.registry.set_tags(version, {"paano.review": "approved"})
    return version


def reject(parts: Parts, sensor: str, why: str = "") -> Version:
    """Take the alias from the challenger; the version stays, marked as rejected."""
    version = _challenger(parts, sensor)
    parts.registry.set_tags(version, {"paano.review": f"rejected: {why}" if why else "rejected"})
    parts.registry.clear_challenger(sensor)
    return version


def roll_back(parts: Parts, sensor: str, number: int | None = None) -> Version:
    """Make the champion before the present one, or version `number`, champion again."""
    champion = parts.registry.champions([sensor]).get(sensor)
    if champion is None:
        raise RegistryError(f"{sensor}: there is no champion to roll back from")
    if number is None:
        previous = parts.registry.version(sensor, champion.version).tags.get("paano.previous")
        if not previous:
            raise RegistryError(
                f"{sensor}: version {champion.version} was the first champion; --version names another"
            )
        number = int(previous)
    version = parts.registry.version(sensor, number)
    parts.registry.set_champion(sensor, number)
    parts.registry.set_tags(champion, {"paano.review": "rolled back"})
    return version


def _challenger(parts: Parts, sensor: str) -> Version:
    version = parts.registry.challengers([sensor]).get(sensor)
    if version is None:
        raise RegistryError(
            f"{sensor}: there is no challenger; --version names a version, `paano show {sensor}`"
        )
    return version


def _note_previous(parts: Parts, version: Version) -> None:
    """Remember the champion that gives way, so that a roll back finds it."""
    champion = parts.registry.champions([version.sensor]).get(version.sensor)
    if champion is not None and champion.version != version.version:
        parts.registry.set_tags(version, {"paano.previous": str(champion.version)})

"""The sheet of a version: its review test, pictures and why it is recommended, on one page."""

from __future__ import annotations

import base64

from flows.pages.html import render
from flows.run.fleet import Fleet
from paano.errors import RegistryError
from storage.registry.registry import Version

SHEET = "review.html"
PICTURES = ("scores.png", "faults.png")


def read_sheet(fleet: Fleet, sensor: str, number: int | None = None) -> str:
    """The sheet of a version (default: the challenger, else the champion) as a page.

    A version of a release that wrote no sheet gets one made from its description and pictures.
    """
    version = chosen_version(fleet, sensor, number)
    files = fleet.registry.attached(version)
    if SHEET in files:
        return files[SHEET].decode()
    pictures = [base64.b64encode(files[name]).decode() for name in PICTURES if name in files]
    return render(
        "pages/old_sheet.html",
        {"zone": fleet.settings.zone},
        fleet=fleet.settings.fleet.name,
        version=version,
        pictures=pictures,
    )


def chosen_version(fleet: Fleet, sensor: str, number: int | None) -> Version:
    """Version `number` of a sensor, else its challenger, else its champion."""
    fleet.history.sensors()[sensor]  # UnknownSensor, with the nearest ids
    if number is not None:
        return fleet.registry.version(sensor, number)
    found = fleet.registry.challengers([sensor]).get(sensor) or fleet.registry.champions([sensor]).get(sensor)
    if found is None:
        raise RegistryError(f"{sensor}: no version is registered; `paano retrain` makes one")
    return found

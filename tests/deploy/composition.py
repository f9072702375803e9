"""Read deploy/compose.yaml as Docker does: merge keys, `${VAR:-default}` and `${VAR:?message}` filled in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"

PLACE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\}")


class Missing(Exception):
    """A variable without a default is not set."""


def interpolate(value: Any, environment: dict[str, str]) -> Any:
    """`value` with every `${…}` filled in; `$$` is a dollar."""
    if isinstance(value, dict):
        return {key: interpolate(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolate(item, environment) for item in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        if match["name"] is None:
            return "$"
        if environment.get(match["name"]):
            return environment[match["name"]]
        if match["kind"] == "-":
            return match["rest"]
        raise Missing(match["name"])

    return PLACE.sub(fill, value)


def compose(environment: dict[str, str] | None = None) -> dict[str, Any]:
    """The compose file; with an environment, filled in by it."""
    raw = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return raw if environment is None else interpolate(raw, environment)


def example_variables() -> dict[str, str]:
    """Name and value of every line in .env.example."""
    lines = (DEPLOY / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

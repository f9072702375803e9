"""What is wrong in a fleet file, in words: the key, its value, and what is allowed there."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from flows.settings.per_sensor import SensorSettings

PREFIX = "PAANO_"


def explain_all(items: Iterable[Mapping[str, Any]], settings: type[BaseModel], source: str) -> str:
    """Every wrong key, those of the file apart from those that a variable sets; each key once."""
    found: dict[str, str] = {}
    for item in items:
        place = [str(part) for part in item["loc"]]
        said = explain(item, settings)
        found.setdefault(variable_of(place) or said, said)
    of_file = [said for key, said in found.items() if key == said]
    of_variables = [said for key, said in found.items() if key != said]
    parts = [f"wrong in {source}: {'; '.join(of_file)}"] * bool(of_file)
    parts += [f"wrong in the environment: {'; '.join(of_variables)}"] * bool(of_variables)
    return "; ".join(parts)


def explain(item: Mapping[str, Any], settings: type[BaseModel]) -> str:
    """One wrong key of `settings` (an entry of `ValidationError.errors()`), and what is allowed."""
    place = [str(part) for part in item["loc"]]
    variable = variable_of(place)
    name = f"the variable {variable}" if variable else ".".join(place)
    if item["type"] == "extra_forbidden":
        known = keys_at(place[:-1], settings)
        near = difflib.get_close_matches(place[-1], known, n=1)
        hint = f", did you mean {near[0]}?" if near else ""
        return f"{name} is unknown{hint} (allowed: {', '.join(known)})"
    message = item["msg"].removeprefix("Value error, ")
    if isinstance(item["input"], dict | BaseModel):  # keys that contradict each other
        return f"[{name}] {message}" if name else message
    if variable and item["type"] in ("list_type", "dict_type"):
        message += """; write JSON, for example '["a", "b"]' or '{"a": 1.5}'"""
    return f"{name} = {item['input']!r}: {message[:1].lower()}{message[1:]}"


def variable_of(place: list[str]) -> str:
    """The PAANO_… variable that sets the key at `place`; empty if none is set."""
    set_now = {name.upper(): name for name in os.environ}
    for length in range(len(place), 0, -1):
        name = set_now.get(f"{PREFIX}{'__'.join(place[:length])}".upper())
        if name:
            return name
    return ""


def keys_at(place: list[str], settings: type[BaseModel]) -> list[str]:
    """The keys that are allowed in the table `place`; the top level for an empty one."""
    table = settings
    for part in place:
        if table is settings and part == "sensors":  # [sensors."NAME"]: any name, one kind of table
            return list(SensorSettings.model_fields)
        inner = table.model_fields[part].annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        table = inner
    return [key for key in table.model_fields if key != "folder"]

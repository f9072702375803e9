"""Write a fleet file in which every key stands with its meaning; `Settings.load` reads it back unchanged."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args, get_origin

from flows.settings.fleet_file import PREFIX, Settings, tables

HEAD = f"""\
# A fleet for paano-fleet. Every key may be left out; what stands here is its default or was asked for.
# A key [section] name can also be set by the variable {PREFIX}SECTION__NAME, which wins over this file.
# Relative paths start at the folder of this file. Lengths of time: "30s", "5min", "1h", "28d", "2w".
"""


def render(settings: Settings) -> str:
    """The text of a commented fleet file for `settings`."""
    parts = [HEAD]
    for section, table in tables():
        parts.append(f"\n[{section}]  # {(table.__doc__ or '').splitlines()[0]}")
        values = getattr(settings, section).model_dump(mode="json")
        for key, field in table.model_fields.items():
            parts.append(_line(section, key, values[key], field, settings))
    return "\n".join(parts) + "\n"


def _line(section: str, key: str, value: Any, field: Any, settings: Settings) -> str:
    """`key = value  # meaning`; a key that is not set stands as a comment with what it would be."""
    allowed = choices(field.annotation)
    meaning = f"  # {field.description}" + (f" ({allowed})" if allowed else "")
    if value is not None:
        return f"{key} = {toml(value)}{meaning}"
    unset = settings.config().to_dict()[key] if section == "model" else ""
    return f"# {key} = {toml(unset)}{meaning}"


def choices(annotation: Any) -> str:
    """The closed list of values of a key; empty where any value of the type will do."""
    for kind in (annotation, *get_args(annotation)):
        if get_origin(kind) is Literal:
            return " | ".join(json.dumps(choice) for choice in get_args(kind))
    return ""


def toml(value: Any) -> str:
    """A plain value as TOML on one line."""
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(str(key))} = {toml(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(toml(item) for item in value)}]"
    # JSON and TOML agree on texts (basic strings), numbers and booleans.
    return json.dumps(value, ensure_ascii=False)

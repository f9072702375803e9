"""`docs/settings.md`, made from the settings themselves (`make docs`)."""

from __future__ import annotations

from typing import Any

from flows.settings.fleet_file import PREFIX, Settings, tables
from flows.settings.notify import TargetSettings
from flows.settings.per_sensor import SensorSettings
from flows.settings.template import choices, toml

HEAD = f"""\
# Settings

Every key of the fleet file, with its default and meaning. This page is made from the code by `make docs`; a
test holds it true. `paano init` writes a fleet file with the same comments.

- A key `name` of `[section]` is also the variable `{PREFIX}SECTION__NAME`, which wins over the file. Lists
  and tables in a variable are JSON: `{PREFIX}HISTORY__CHANNELS='["pressure", "flow"]'`.
- Lengths of time are written `"30s"`, `"5min"`, `"1h"`, `"28d"`, `"2w"`.
- Relative paths start at the folder of the fleet file.
- Keys and passwords are no settings: they come from the usual `AWS_…` variables or a credentials file.
"""

PRECEDENCE = """\
The catalog may have columns of the same names. What wins, from weak to strong: the fleet's own section, the
catalog, patterns and groups in the order of the file, the exact id, `alarms.thresholds`."""


def render() -> str:
    """The text of `docs/settings.md`."""
    settings = Settings.from_dict({})
    lines = [HEAD]
    for section, table in tables():
        values = getattr(settings, section).model_dump(mode="json")
        lines += [
            "",
            f"## [{section}]",
            "",
            _first_line(table),
            "",
            "| key | default | meaning |",
            "|---|---|---|",
        ]
        for key, inner in table.model_fields.items():
            lines.append(f"| `{key}` | {_default(section, values[key])} | {_meaning(inner)} |")
    lines += ["", '## [sensors."NAME"]', "", _first_line(SensorSettings), PRECEDENCE, ""]
    lines += ["| key | meaning |", "|---|---|"]
    lines += [f"| `{key}` | {_meaning(inner)} |" for key, inner in SensorSettings.model_fields.items()]
    lines += ["", '## [notify.targets."NAME"]', "", _first_line(TargetSettings), ""]
    lines += ["| key | meaning |", "|---|---|"]
    lines += [f"| `{key}` | {_meaning(inner)} |" for key, inner in TargetSettings.model_fields.items()]
    return "\n".join(lines) + "\n"


def _first_line(table: Any) -> str:
    return str(table.__doc__ or "").splitlines()[0]


def _default(section: str, value: Any) -> str:
    if value is None:
        return "as the preset" if section == "model" else "–"
    return f"`{toml(value)}`"


def _meaning(field: Any) -> str:
    allowed = choices(field.annotation).replace(" | ", ", ")
    text = str(field.description or "") + (f"; one of {allowed}" if allowed else "")
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(render(), end="")

"""The table `[notify]` of the fleet file: who is told of what.

An address often holds a secret, so the file says where it is and never what it is: `variable:NAME` (an
environment variable) or `block:NAME` (a Secret block of Prefect). A plain web address without user, password,
query or a token in its path may stand in the file itself.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from flows.settings.duration import Duration
from flows.settings.secret_paths import holds_secret
from flows.settings.sections import Section

HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
NAMED = re.compile(r"(variable|block):[A-Za-z0-9_.-]+")


class TargetSettings(Section):
    """Somewhere messages go, and which."""

    kind: Literal["apprise", "webhook", "alertmanager"] = Field(description="how it is reached")
    address: str = Field(description="variable:NAME, block:NAME, or a web address without secrets")
    about: list[Literal["incident", "silence", "failure", "review"]] = Field(
        ["incident", "silence", "failure", "review"], description="what it is told of"
    )
    severity: float = Field(0.0, ge=0, description="least severity of an incident")
    groups: list[str] = Field(["*"], description="patterns of groups")
    causes: list[str] = Field(["*"], description="patterns of causes (shape, level, silent, stuck)")
    digest: bool = Field(False, description="one message per night instead of one per incident")

    @model_validator(mode="after")
    def _no_secret_in_the_file(self) -> TargetSettings:
        if NAMED.fullmatch(self.address):
            return self
        parts = urlsplit(self.address)
        plain = parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
        if self.kind == "apprise" or not plain or "@" in parts.netloc:
            # The address is not repeated: it may hold a secret.
            raise ValueError(
                'address must be "variable:NAME" or "block:NAME", where the address itself is kept; a '
                "webhook or Alertmanager may also have a plain http:// or https:// one without user and query"
            )
        if holds_secret(parts):
            raise ValueError(
                "the path of this address is a secret, or looks like one; keep the address in a variable and "
                'write "variable:NAME" here, or in a Secret block of Prefect and write "block:NAME"'
            )
        return self


class NotifySettings(Section):
    """Who is told of what."""

    targets: dict[str, TargetSettings] = Field({}, description="targets by name; none: nobody is told")
    quiet: str = Field(
        "",
        description='hours in the fleet\'s zone at whose end messages are sent, "22:00-06:00"; empty: none',
    )
    urgent: float = Field(0.0, ge=0, description="severity that is told of in quiet hours too; 0: none")
    ended_after: Duration = Field(
        timedelta(hours=1), description="an incident has ended when it was quiet for so long"
    )
    old_after: Duration = Field(timedelta(days=2), description="nothing is sent of what ended before that")
    retries: int = Field(3, ge=0, le=10, description="how often a target that is down is tried in one run")
    prefect: bool = Field(True, description="emit Prefect events, for its automations")

    @field_validator("quiet")
    @classmethod
    def _two_times(cls, value: str) -> str:
        if value and not HOURS.fullmatch(value):
            raise ValueError('not a span of hours; write "22:00-06:00", or nothing')
        return value

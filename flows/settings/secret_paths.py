"""Web addresses whose path is a secret: whoever knows it can send messages in the fleet's name.

Where it can be told: hosts of services that put a token into the path of a webhook, and segments of a path
that look random. A token of plain words, or one that is short, cannot be told from a name.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote

# Services whose webhooks are a secret as a whole, by the end of their host.
SERVICES = (
    "slack.com", "discord.com", "discordapp.com", "office.com", "office365.com", "logic.azure.com",
    "powerplatform.com", "chat.googleapis.com", "api.telegram.org", "pagerduty.com", "victorops.com",
    "zapier.com", "make.com", "ifttt.com", "ntfy.sh", "feishu.cn", "larksuite.com", "dingtalk.com",
    "weixin.qq.com", "prefect.cloud", "webhook.site", "pipedream.net",
)  # fmt: skip
SHORTEST = 16  # characters of a segment that may be a token
CHANGES = 4  # from one kind of character to another, within words: names have fewer
_WORDS = re.compile(r"[A-Za-z0-9]+")
_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")


def holds_secret(address: SplitResult) -> bool:
    """Whether the path of `address` is, or looks like, a secret."""
    segments = [unquote(segment) for segment in address.path.split("/") if segment]
    host = (address.hostname or "").rstrip(".")
    known = any(host == service or host.endswith(f".{service}") for service in SERVICES)
    return bool(segments) and (known or any(map(looks_random, segments)))


def looks_random(segment: str) -> bool:
    """Whether letters of both cases and digits are mixed as in a token: `aB3…`, a UUID, a hash."""
    changes = sum(len(_CHANGE.findall(word)) for word in _WORDS.findall(segment))
    return len(segment) >= SHORTEST and changes >= CHANGES

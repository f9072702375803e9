"""Names in Prefect that are of one fleet only."""

from __future__ import annotations

import hashlib


def artifact_key(fleet: str, flow: str, what: str) -> str:
    """The key of a Prefect artifact: of this fleet only, in the letters that Prefect allows.

    Two fleets on one server have different keys, also when their names differ by case or `_` only.
    """
    plain = fleet.lower().replace("_", "-")
    if plain != fleet:
        plain += "-" + hashlib.sha256(fleet.encode()).hexdigest()[:6]
    return f"paano-{plain}-{flow}-{what}"

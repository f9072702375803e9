"""Send the messages that wait. It is scheduled for the end of the quiet hours, where a fleet has them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect import flow, task

from flows.messages.send import deliver_waiting
from flows.run.fanout import load_settings, patient
from flows.settings.fleet_file import Settings
from storage.secrets import without_secrets


@task(name="send")
@without_secrets
def send_waiting(settings: Settings, now: datetime) -> dict[str, Any]:
    """How many messages went out, and a note for each target that is down: the next run tries it again."""
    count, notes = deliver_waiting(settings, now)
    return {"sent": count, "notes": notes}


@flow(name="notify")
@without_secrets
def notify(fleet_file: str = "", now: str = "") -> dict[str, Any]:
    """Send what waits as of `now` (by default this moment)."""
    moment = datetime.fromisoformat(now) if now else datetime.now(UTC)
    settings = load_settings(fleet_file)
    return patient(send_waiting, settings)(settings, moment)

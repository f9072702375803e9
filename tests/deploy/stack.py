"""Run the services of deploy/compose.yaml as plain processes: the same commands, variables and health checks.

Docker is not needed. Only addresses and folders are exchanged: `postgres:5432` becomes a free port of this
machine, `/data` a temporary folder. PostgreSQL is started by its own programs, as its image does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg2

from tests.deploy.composition import ROOT, compose
from tests.servers import BIN, free_port, postgres

SECRETS = {
    "POSTGRES_USER": "fleet",
    "POSTGRES_PASSWORD": "opensesame1",
    "AWS_ACCESS_KEY_ID": "key-of-the-test",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
    "PREFECT_API_AUTH_STRING": "operator:opensesame2",
}


def until(ready, seconds: float, what: str = "it") -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"{what} was not ready after {seconds:.0f} s"
        time.sleep(0.5)


class Stack:
    """Services of the compose file, started one by one; all of them end with the block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = {name: free_port() for name in ("s3", "mlflow", "prefect")}
        self.spare = [free_port() for _ in range(9)]
        self.services = compose(SECRETS)["services"]
        self.running: dict[str, subprocess.Popen] = {}
        self.stack = ExitStack()
        # What a compose file says, and what it is here. Longer names first.
        self.exchange = {
            "http://s3:8333": f"http://127.0.0.1:{self.port['s3']}",
            "http://prefect:4200": f"http://127.0.0.1:{self.port['prefect']}",
            "127.0.0.1:8333": f"127.0.0.1:{self.port['s3']}",
            "127.0.0.1:5000": f"127.0.0.1:{self.port['mlflow']}",
            "127.0.0.1:4200": f"127.0.0.1:{self.port['prefect']}",
            "-s3.port=8333": f"-s3.port={self.port['s3']}",
            "-ip=s3": "-ip=127.0.0.1",
            "0.0.0.0": "127.0.0.1",
            "/data": str(folder / "objects"),
            "/etc/paano/fleet.toml": str(folder / "fleet.toml"),
            "deploy/setup.sh": str(ROOT / "deploy" / "setup.sh"),
        }

    def __enter__(self) -> Stack:
        database = self.services["postgres"]["environment"]["POSTGRES_DB"]
        address = self.stack.enter_context(postgres(self.folder, database))
        self.exchange["postgres:5432"] = address.split("@")[1].split("/")[0]
        with closing(psycopg2.connect(address)) as connection:
            connection.autocommit = True
            connection.cursor().execute(compose()["configs"]["databases"]["content"])
        return self

    def __exit__(self, *error: Any) -> None:
        for process in reversed(self.running.values()):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.stack.close()

    def here(self, value: Any) -> Any:
        """`value` of the compose file with the addresses of this machine."""
        if isinstance(value, list):
            return [self.here(item) for item in value]
        if value in ("5000", "4200"):
            return str(self.port["mlflow" if value == "5000" else "prefect"])
        for there, here in self.exchange.items():
            value = value.replace(there, here)
        return value

    def environment(self, name: str, **more: str) -> dict[str, str]:
        """The variables of a service, on top of what a process needs to run at all."""
        kept = {key: os.environ[key] for key in ("HOME", "LANG", "TMPDIR") if key in os.environ}
        own = {key: self.here(value) for key, value in self.services[name].get("environment", {}).items()}
        image = {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "DO_NOT_TRACK": "1",
        }
        home = {"PREFECT_HOME": str(self.folder / f"home-{name}"), "PATH": f"{BIN}:{os.environ['PATH']}"}
        return {**kept, **image, **home, **own, **more}

    def command(self, name: str) -> list[str]:
        command = self.here(self.services[name]["command"])
        if name == "s3":  # the image has only this service: here its other ports must be free ones
            others = ["s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc"]
            others += ["filer.port", "filer.port.grpc"]
            extra = [f"-{option}={port}" for option, port in zip(others, self.spare, strict=False)]
            return [str(BIN / "weed"), *command, *extra]
        return command

    def start(self, name: str, **more: str) -> None:
        """Start a service and wait until its own health check is content."""
        (self.folder / "objects").mkdir(exist_ok=True)
        log = self.stack.enter_context((self.folder / f"{name}.log").open("w"))
        self.running[name] = subprocess.Popen(
            self.command(name),
            env=self.environment(name, **more),
            cwd=self.folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        until(lambda: self.healthy(name, **more), 180, f"{name} ({self.folder}/{name}.log)")

    def healthy(self, name: str, **more: str) -> bool:
        assert self.running[name].poll() is None, (
            f"{name} ended: {(self.folder / f'{name}.log').read_text()[-2000:]}"
        )
        test = self.here(self.services[name]["healthcheck"]["test"])[1:]
        test = [part.replace(":8080", f":{more.get('PREFECT_WORKER_WEBSERVER_PORT', 8080)}") for part in test]
        return subprocess.run(test, env=self.environment(name), capture_output=True).returncode == 0

    def run(self, name: str, **more: str) -> str:
        """Run a service that ends by itself; what it said."""
        done = subprocess.run(
            self.command(name),
            env=self.environment(name, **more),
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

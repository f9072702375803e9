"""What a command costs before it does anything: `python -m benchmarks.startup [--runs 7] [--json]`.

A demo fleet is made (`--demo FOLDER` takes one that is there), then `paano --help`, `paano status` and
`paano score SENSOR` of its last night are run again and again, each in a process of its own and everything
else warm: the files read before, the model in the cache. First with MLflow in a SQLite file and no Prefect
server (`score` starts one inside the command), then with a Prefect and an MLflow server running. CPU is that
of the command and of what it waited for; the median of the runs counts. `--publish` writes the figures to
startup.json and FLEET.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import fleet_page
from flows.processes.servers import mlflow_server, prefect_server

NIGHT, SENSOR = "2026-01-25", "pump-01"  # of the demo


def paano(*words: str, environment: dict[str, str]) -> dict[str, float]:
    """Run the command; its seconds by the clock and of CPU."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "flows.cli.app", *words],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"wall": seconds, "cpu": cpu}


def measure(
    commands: dict[str, list[str]], runs: int, environment: dict[str, str]
) -> dict[str, dict[str, float]]:
    """The median of each figure of each command, after one run that does not count."""
    found = {}
    for name, words in commands.items():
        paano(*words, environment=environment)
        each = [paano(*words, environment=environment) for _ in range(runs)]
        found[name] = {key: round(statistics.median(one[key] for one in each), 3) for key in ("wall", "cpu")}
    return found


@contextlib.contextmanager
def running_servers(folder: Path) -> Iterator[dict[str, str]]:
    """A Prefect server and an MLflow server over the demo's registry; the variables that point to them."""
    database = f"sqlite:///{folder.absolute()}/mlflow/mlflow.db"
    with tempfile.TemporaryDirectory(prefix="paano-startup-") as home:
        logs = Path(home)
        registry = mlflow_server(logs / "mlflow", str(logs / "artifacts"), database=database)
        with prefect_server(logs / "prefect") as prefect, registry as mlflow:
            yield {"PREFECT_API_URL": prefect, "PAANO_REGISTRY__TRACKING_URI": mlflow}


def measure_all(folder: Path, runs: int, plain: dict[str, str]) -> dict[str, dict[str, float]]:
    """Every command, alone and with servers."""
    file = str(folder / "fleet.toml")
    status, score = ["status", "-f", file], ["score", SENSOR, "--day", NIGHT, "-f", file]
    found = measure({"help": ["--help"], "status": status, "score": score}, runs, plain)
    with running_servers(folder) as environment:
        with_servers = {"status, servers": status, "score, servers": score}
        return found | measure(with_servers, runs, {**plain, **environment})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7, help="of each command")
    parser.add_argument("--demo", type=Path, help="folder of a demo fleet; made if it is not there")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--publish", action="store_true", help="write the figures into benchmarks/FLEET.md")
    given = parser.parse_args()
    ours = ("PREFECT_", "MLFLOW_", "PAANO_")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    with tempfile.TemporaryDirectory(prefix="paano-startup-") as home:
        folder = given.demo or Path(home) / "demo"
        if not (folder / "fleet.toml").exists():
            paano("demo", "--folder", str(folder), environment=plain)
        found = measure_all(folder, given.runs, plain)
    if given.publish:
        fleet_page.STARTUP.write_text(json.dumps(found, indent=1) + "\n")
        fleet_page.write_report()
    if given.json:
        print(json.dumps(found))
        return
    for name, figures in found.items():
        print(f"paano {name:16} {figures['wall']:6.2f} s by the clock {figures['cpu']:6.2f} s of CPU")


if __name__ == "__main__":
    main()

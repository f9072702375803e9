"""What the registry costs: `python -m benchmarks.registry [--sensors 1000] [--json]`.

An MLflow server on SQLite and a SeaweedFS server are started for it. Registering is upload, version, tags and
alias through the server, one sensor after the other; the bounds are 0.3 s per sensor, and 5 s to resolve and
load 1,000 champions with a warm cache.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from paano import PaAno, PaAnoConfig
from paano.device import compute_threads
from storage.registry.registry import CHAMPION, Registry
from tests.servers import mlflow_server, seaweed

TAGS = {f"paano.figure_{n}": f"{n / 7:.4f}" for n in range(15)}
ONE_BY_ONE = 100  # sensors whose registration is timed alone; the others only fill the registry


def save_model(folder: Path, points: int) -> int:
    """A light model with the bank of `points` points; its bytes."""
    rng = np.random.default_rng(0)
    series = np.sin(np.arange(points) / 25) + 0.1 * rng.normal(size=points)
    model = PaAno(PaAnoConfig.preset("light", iterations=0), device="cpu").fit(series)
    model.save(folder, facts={"channel_names": ["value"]})
    return sum(file.stat().st_size for file in folder.iterdir())


def measure(sensors: int, points: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="paano-benchmark-") as home:
        folder, cache = Path(home), Path(home) / "cache"
        size = save_model(folder / "model", points)
        with seaweed(folder) as s3, mlflow_server(folder, s3) as uri:
            return {"sensors": sensors, "model_bytes": size} | _through(uri, s3, folder, cache, sensors)


def _through(uri: str, s3: Any, folder: Path, cache: Path, sensors: int) -> dict[str, Any]:
    registry = Registry(uri, s3.url("artifacts"), "bench", cache, s3.options)
    names = [f"sensor-{n:05d}" for n in range(sensors)]

    def register(name: str) -> float:
        began = time.perf_counter()
        registry.register(name, folder / "model", TAGS, "**benchmark**", alias=CHAMPION)
        return time.perf_counter() - began

    register(names[0])  # imports and connections
    alone = [register(name) for name in names[1 : ONE_BY_ONE + 1]]
    again = [register(name) for name in names[1:11]]
    with ThreadPoolExecutor(8) as pool:
        began = time.perf_counter()
        list(pool.map(register, names[ONE_BY_ONE + 1 :]))
        crowd = (time.perf_counter() - began) / max(1, sensors - ONE_BY_ONE - 1)

    began = time.perf_counter()
    cold = registry.fetch_many(registry.champions().values())
    seconds_cold = time.perf_counter() - began
    assert len(cold) == sensors and all(isinstance(found, Path) for found in cold.values())

    fresh = Registry(uri, s3.url("artifacts"), "bench", cache, s3.options)
    began = time.perf_counter()
    champions = fresh.champions()
    resolved = time.perf_counter()
    folders = fresh.fetch_many(champions.values())
    fetched = time.perf_counter()
    worked = time.process_time()
    with compute_threads(1):  # as every worker of a flow does: threads of torch only wait for each other here
        for found in folders.values():
            PaAno.load(found, device="cpu")
    worked = time.process_time() - worked
    loaded = time.perf_counter()
    return {
        "register_seconds_median": float(np.median(alone)),
        "register_seconds_p95": float(np.percentile(alone, 95)),
        "register_again_seconds": float(np.median(again)),
        "register_seconds_8_threads": crowd,
        "resolve_and_fetch_cold_seconds": seconds_cold,
        "resolve_seconds": resolved - began,
        "look_up_in_cache_seconds": fetched - resolved,
        "load_seconds": loaded - fetched,
        "load_processor_seconds": worked,
        "resolve_and_load_warm_seconds": loaded - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sensors", type=int, default=1000)
    parser.add_argument(
        "--points", type=int, default=3000, help="of the training series: a tenth is the bank"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    figures = measure(arguments.sensors, arguments.points)
    if arguments.json:
        print(json.dumps(figures))
        return
    n = figures["sensors"]
    rows = [
        ("register one sensor, median", figures["register_seconds_median"], "0.3"),
        ("register one sensor, 95 %", figures["register_seconds_p95"], ""),
        ("the same artifact again", figures["register_again_seconds"], ""),
        ("register, 8 threads, per sensor", figures["register_seconds_8_threads"], ""),
        (f"resolve and fetch {n} champions, cold", figures["resolve_and_fetch_cold_seconds"], ""),
        (f"resolve {n} champions", figures["resolve_seconds"], ""),
        (f"look {n} up in the warm cache", figures["look_up_in_cache_seconds"], ""),
        (f"load {n} models", figures["load_seconds"], ""),
        ("  of which on the processor", figures["load_processor_seconds"], ""),
        (f"resolve and load {n}, warm, together", figures["resolve_and_load_warm_seconds"], "5"),
    ]
    size = figures["model_bytes"] / 1e6
    print(f"{n} sensors, {size:.2f} MB per model, MLflow on SQLite, artifacts on SeaweedFS")
    for what, seconds, bound in rows:
        print(f"  {what:42s} {seconds:8.3f} s" + (f"   bound {bound} s" if bound else ""))


if __name__ == "__main__":
    main()

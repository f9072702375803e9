"""PostgreSQL behind MLflow, and a version served by MLflow itself. Only in `make test-all`."""

import json
import os
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest

from paano import PaAno
from storage.registry.registry import Registry
from tests.servers import free_port, mlflow_server, postgres, postgres_bin
from tests.storage.test_storage_registry import HOSTILE

pytestmark = pytest.mark.slow


@pytest.mark.skipif(postgres_bin() is None, reason="PostgreSQL's initdb is not installed")
def test_the_registry_works_on_postgresql(tmp_path, s3, bucket, models):
    with postgres(tmp_path) as database, mlflow_server(tmp_path, s3, backend=database) as uri:
        registry = Registry(uri, bucket.url, "plant", tmp_path / "cache", bucket.options)
        for sensor in HOSTILE:
            registry.register(sensor, models[0], {"paano.long": "x" * 4000}, "long " * 2000, alias="champion")
            assert registry.register(sensor, models[1], alias="challenger").version == 2
        champions = registry.champions()
        assert sorted(champions) == sorted(HOSTILE) == sorted(registry.challengers())
        assert all(PaAno.load(folder) for folder in registry.fetch_many(champions.values()).values())
        assert registry.sweep().folders == []


def test_mlflow_serves_a_version_over_http(local, models, tmp_path):
    name = local.register("a", models[0], alias="champion").name
    port = free_port()
    programs = os.path.dirname(sys.executable)
    command = [f"{programs}/mlflow", "models", "serve", "-m", f"models:/{name}@champion", "-p", str(port)]
    env = {**os.environ, "MLFLOW_TRACKING_URI": local.tracking_uri, "MLFLOW_DISABLE_TELEMETRY": "true"}
    env["PATH"] = f"{programs}:{env['PATH']}"  # MLflow starts uvicorn by its name
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--env-manager", "local"], env=env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        series = np.sin(np.arange(200) / 9)
        body = {"dataframe_split": {"columns": ["value"], "data": [[v] for v in series.tolist()]}}
        answer = _post(f"http://127.0.0.1:{port}/invocations", body, process, tmp_path / "log")
        served = np.array([row["score"] for row in answer["predictions"]], float)
        ours = PaAno.load(local.fetch(local.champions()["a"]), device="cpu").score(series)
        np.testing.assert_allclose(served, ours, rtol=1e-6)
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def _post(url, body, process, log, seconds=120):
    request = urllib.request.Request(
        url, json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except ConnectionError:
            pass
        except urllib.error.URLError as error:
            assert isinstance(error.reason, ConnectionError), error
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.5)

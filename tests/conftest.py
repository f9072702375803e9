"""For all tests: nothing phones home, no setting of the shell leaks in, one Prefect server per session."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

import pytest

# Before Prefect or MLflow are imported by anybody.
for name in [name for name in os.environ if name.startswith("PAANO_") and name != "PAANO_DATA"]:
    del os.environ[name]
os.environ.update(
    {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PREFECT_HOME": tempfile.mkdtemp(prefix="paano-prefect-"),
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    }
)
if "PYTEST_XDIST_WORKER" in os.environ:  # the processes share the cores, so one thread each
    os.environ.setdefault("OMP_NUM_THREADS", "1")
atexit.register(shutil.rmtree, os.environ["PREFECT_HOME"], ignore_errors=True)


@pytest.fixture(scope="session")
def prefect():
    """A Prefect server of our own with a new database: about fifteen seconds, so once per session."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=180):
        yield

"""What the processes of the suite need, imported once. Nothing runs here: a fork takes no threads along."""

import os
from importlib import import_module

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "1")

for name in (
    "mlflow.pyfunc",
    "mlflow.store.model_registry.file_store",
    "mlflow.store.model_registry.sqlalchemy_store",
    "mlflow.store.tracking.sqlalchemy_store",
    "alembic.command",
    "alembic.config",
    "sqlalchemy.dialects.sqlite",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "pyarrow.pandas_compat",
    "s3fs",
    "storage.objects.local",
    "storage.objects.s3",
    "flows.pages.pictures",
    "tests.faults.fleet_work",
    "tests.faults.injected",
):
    import_module(name)

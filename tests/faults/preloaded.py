"""What the processes of the suite need, imported once. Nothing runs here: a fork takes no threads along."""

import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "1")

import mlflow
import mlflow.store.model_registry.sqlalchemy_store
import mlflow.store.tracking.sqlalchemy_store  # noqa: F401
import s3fs  # noqa: F401

import tests.faults.fleet_work
import tests.faults.injected  # noqa: F401

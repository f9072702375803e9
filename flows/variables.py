"""Every environment variable that this project reads or passes on, with what it is for.

`paano doctor` reports PAANO_… variables that are not here (a typing error would otherwise do nothing), and a
test holds everything in deploy/ against this list.
"""

from __future__ import annotations

from flows.settings import variables

FLEET_FILE = "PAANO_FILE"

OURS = {
    FLEET_FILE: "path of the fleet file, for the deployments and for --file",
    "PAANO_DATA": "folder with the public data sets of the benchmarks",
    "PAANO_IMAGE": "name of the container image that deploy/ builds and runs",
    "PAANO_TAG": "tag of that image",
    "PAANO_POOL_TYPE": "kind of work pool that deploy/setup.sh makes: process or kubernetes",
    "PAANO_GPU_SLOTS": "sensors trained at once on all GPUs together: the limit paano-gpu",
}

# Not ours: the parts we stand on read them.
FOREIGN = {
    "AWS_ACCESS_KEY_ID": "key id for object stores",
    "AWS_SECRET_ACCESS_KEY": "secret key for object stores",
    "AWS_ENDPOINT_URL": "address of an S3 server that is not Amazon's",
    "AWS_REGION": "region of the buckets",
    "AWS_DEFAULT_REGION": "the same, for boto3 in MLflow",
    "PREFECT_API_URL": "address of the Prefect server, ending in /api",
    "PREFECT_API_AUTH_STRING": "user:password that clients and workers send to the Prefect server",
    "PREFECT_HOME": "folder of Prefect's own files",
    "PREFECT_LOGGING_LEVEL": "how much Prefect logs",
    "PREFECT_SERVER_API_AUTH_STRING": "user:password that the Prefect server demands",
    "PREFECT_SERVER_DATABASE_CONNECTION_URL": "database of the Prefect server (postgresql+asyncpg://…)",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false: the Prefect server does not phone home",
    "PREFECT_RESULTS_LOCAL_STORAGE_PATH": "folder for results that Prefect keeps",
    "MLFLOW_TRACKING_URI": "address of MLflow where the fleet file names none",
    "MLFLOW_TRACKING_USERNAME": "user for an MLflow behind a password",
    "MLFLOW_TRACKING_PASSWORD": "password for it",
    "MLFLOW_BACKEND_STORE_URI": "database of the MLflow server (postgresql://…)",
    "MLFLOW_ARTIFACTS_DESTINATION": "where the MLflow server keeps run artefacts",
    "MLFLOW_SERVER_ALLOWED_HOSTS": "host names under which the MLflow server may be called",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false: the MLflow server takes 0.5 GB instead of 2.7 GB",
    "MLFLOW_DISABLE_TELEMETRY": "true: MLflow does not phone home",
    "POSTGRES_USER": "owner of the databases in the compose file",
    "POSTGRES_PASSWORD": "password of that owner",
    "POSTGRES_DB": "first database of the PostgreSQL container",
    "DO_NOT_TRACK": "1: nothing phones home",
    "RAY_USAGE_STATS_ENABLED": "0: Ray does not phone home",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "deaths of a worker after which Dask gives a batch up",
    "OMP_NUM_THREADS": "threads of numerical libraries",
    "CUDA_VISIBLE_DEVICES": "GPUs that a process may use",
    "NVIDIA_VISIBLE_DEVICES": "GPUs that the NVIDIA runtime hands to a container",
    "NVIDIA_DRIVER_CAPABILITIES": "parts of the NVIDIA driver that a container needs",
    "PYTORCH_CUDA_ALLOC_CONF": "how torch cuts up GPU memory",
    "PATH": "where commands are found",
    "HOME": "home folder of the container's user",
    "PYTHONUNBUFFERED": "1: logs appear at once",
    "PYTHONDONTWRITEBYTECODE": "1: no .pyc files",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1: pip does not look for its own updates",
}


def known_variables() -> dict[str, str]:
    """Name and meaning of every variable: the fleet file's keys, our own, and those of our parts."""
    return {**variables(), **OURS, **FOREIGN}

"""Environment variables that this project reads or that matter to the parts it stands on; `paano doctor` knows them."""

from __future__ import annotations

from flows.settings import variables

KNOWN_VARIABLES: dict[str, str] = {
    **variables(),
    "PAANO_FLEET_FILE": "the fleet file, where no --file is given",
    "PAANO_DATA": "folder of the public benchmark data for `paano evaluate` and `make accuracy`",
    "PREFECT_API_URL": "address of the Prefect server; left out: an embedded one",
    "PREFECT_API_AUTH_STRING": "user:password for that server (a secret)",
    "PREFECT_HOME": "folder of the embedded Prefect server; left out: prefect/ beside the fleet file",
    "PREFECT_SERVER_DATABASE_CONNECTION_URL": "database of a Prefect server (may hold a password)",
    "PREFECT_SERVER_API_AUTH_STRING": "user:password that a Prefect server asks for (a secret)",
    "PREFECT_SERVER_API_HOST": "address that a Prefect server listens on",
    "PREFECT_SERVER_API_PORT": "port that a Prefect server listens on",
    "PREFECT_UI_API_URL": "address of the Prefect API as browsers see it",
    "PREFECT_LOGGING_LEVEL": "how much the flows say",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false keeps Prefect's server from phoning home",
    "MLFLOW_TRACKING_URI": "address of the MLflow server, for MLflow's own commands; ours is registry.tracking_uri",
    "MLFLOW_TRACKING_USERNAME": "user for an MLflow server that asks for one",
    "MLFLOW_TRACKING_PASSWORD": "its password (a secret)",
    "MLFLOW_BACKEND_STORE_URI": "database of an MLflow server (may hold a password)",
    "MLFLOW_DEFAULT_ARTIFACT_ROOT": "where an MLflow server puts files of runs",
    "MLFLOW_S3_ENDPOINT_URL": "S3 server that MLflow's own commands use",
    "MLFLOW_DISABLE_TELEMETRY": "true keeps MLflow from phoning home",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false saves 2 GB in an MLflow server",
    "AWS_ACCESS_KEY_ID": "key of the object store",
    "AWS_SECRET_ACCESS_KEY": "its secret",
    "AWS_SESSION_TOKEN": "token of temporary keys (a secret)",
    "AWS_ENDPOINT_URL": "S3 server that is not Amazon's; storage.endpoint wins over it",
    "AWS_REGION": "region of the buckets; storage.region wins over it",
    "AWS_DEFAULT_REGION": "the same, under its older name",
    "DO_NOT_TRACK": "1 keeps several tools from phoning home",
    "RAY_USAGE_STATS_ENABLED": "0 keeps Ray from phoning home",
    "OMP_NUM_THREADS": "threads of numeric libraries outside torch; run.threads decides for torch",
    "CUDA_VISIBLE_DEVICES": "GPUs that a worker may use",
}

"""The services of compose.yaml as processes, the deployments on them, training and a night by the API."""

from __future__ import annotations

import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import duckdb
import httpx
import pytest
import s3fs

from storage.objects.store import StorageOptions
from tests.deploy.composition import DEPLOY
from tests.deploy.stack import SECRETS, Stack, until
from tests.engines.tiny import MODEL, days, write_history_of
from tests.servers import postgres_bin

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(postgres_bin() is None, reason="no PostgreSQL here: apt-get install postgresql"),
]

SENSORS = 3


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stack")
    with Stack(folder) as stack:
        for name in ("s3", "mlflow", "prefect"):
            stack.start(name)
        text = (DEPLOY / "fleet.toml").read_text()
        text = text.replace("http://mlflow:5000", address(stack, "mlflow"))
        text = text.replace("/var/cache/paano", str(folder / "cache")).replace('"28d"', '"10d"')
        (folder / "fleet.toml").write_text(text + MODEL)
        assert tomllib.loads(text)["registry"]["tracking_uri"] == address(stack, "mlflow")
        options = StorageOptions(
            endpoint=address(stack, "s3"),
            region="us-east-1",
            key=SECRETS["AWS_ACCESS_KEY_ID"],
            secret=SECRETS["AWS_SECRET_ACCESS_KEY"],
        )
        write_history_of("s3://paano/history", SENSORS, options)
        stack.run("setup")
        stack.start("cpu-worker", PREFECT_WORKER_WEBSERVER_PORT=str(stack.spare[-1]))
        stack.start("retrain-worker", PREFECT_WORKER_WEBSERVER_PORT=str(stack.spare[-2]))
        yield stack


@pytest.fixture(scope="module")
def api(stack):
    user, password = SECRETS["PREFECT_API_AUTH_STRING"].split(":")
    with httpx.Client(
        base_url=f"{address(stack, 'prefect')}/api", auth=(user, password), timeout=60
    ) as client:
        yield client


def address(stack: Stack, name: str) -> str:
    return f"http://127.0.0.1:{stack.port[name]}"


def bucket(stack: Stack) -> s3fs.S3FileSystem:
    return s3fs.S3FileSystem(
        key=SECRETS["AWS_ACCESS_KEY_ID"],
        secret=SECRETS["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=address(stack, "s3"),
        skip_instance_cache=True,
        use_listings_cache=False,
    )


def run(api: httpx.Client, stack: Stack, deployment: str, **parameters: str) -> None:
    """Trigger a deployment through the API and wait until a worker has completed it."""
    found = api.get(f"/deployments/name/{deployment}").raise_for_status().json()
    made = api.post(f"/deployments/{found['id']}/create_flow_run", json={"parameters": parameters})
    where = f"/flow_runs/{made.raise_for_status().json()['id']}"

    def ended() -> bool:
        answer = api.get(where)  # a busy server may say 500 for a moment
        return answer.is_success and answer.json()["state_type"] in ("COMPLETED", "FAILED", "CRASHED")

    until(ended, 420, deployment)
    state = api.get(where).json()["state"]
    logs = "\n".join(
        Path(stack.folder / f"{name}.log").read_text()[-3000:] for name in ("cpu-worker", "retrain-worker")
    )
    assert state["type"] == "COMPLETED", f"{state}\n{logs}"


def etags(stack: Stack, kind: str) -> dict[str, str]:
    files = bucket(stack).find(f"paano/{kind}", detail=True)
    return {name: info["ETag"] for name, info in files.items()}


def test_a_week_and_a_night_run_on_the_workers_and_duckdb_reads_the_scores(stack, api):
    as_of, nights = days()
    run(api, stack, "retrain/fleet-weekly-retrain", as_of=as_of)
    run(api, stack, "score/fleet-nightly-score", day=nights[0])

    database = duckdb.connect()
    database.register_filesystem(bucket(stack))
    rows = database.sql(
        f"""select sensor, count(*) as points, count(score) as scored, min(model_version), max(model_version)
            from read_parquet('s3://paano/scores/date={nights[0]}/*.parquet', hive_partitioning=false)
            group by sensor order by sensor"""
    ).fetchall()
    assert [row[1:] for row in rows] == [(48, 48, 1, 1)] * SENSORS

    before = etags(stack, "scores"), etags(stack, "events"), etags(stack, "models")
    run(api, stack, "score/fleet-nightly-score", day=nights[0])
    assert (etags(stack, "scores"), etags(stack, "events"), etags(stack, "models")) == before


def test_deployments_are_scheduled_limited_and_tagged(stack, api):
    found = {
        item["name"]: item for item in api.post("/deployments/filter", json={}).raise_for_status().json()
    }
    assert sorted(found) == [
        "fleet-housekeeping",
        "fleet-nightly-score",
        "fleet-refresh",
        "fleet-weekly-retrain",
    ]
    active = {
        name: [s["schedule"]["cron"] for s in d["schedules"] if s["active"]] for name, d in found.items()
    }
    assert active["fleet-nightly-score"] == ["30 1 * * *"] and active["fleet-refresh"] == []
    for name, deployment in found.items():
        assert deployment["global_concurrency_limit"]["limit"] == 1, name
        assert deployment["parameters"] == {"fleet_file": str(stack.folder / "fleet.toml")}, name
        assert {"paano", "fleet"} <= set(deployment["tags"]), name


def test_the_scheduler_plans_the_nights_ahead(stack, api):
    def planned() -> bool:
        wanted = {
            "deployments": {"name": {"any_": ["fleet-nightly-score"]}},
            "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
        }
        return len(api.post("/flow_runs/filter", json=wanted).raise_for_status().json()) >= 3

    until(planned, 120, "the schedule")


def test_setting_up_again_changes_nothing(stack, api):
    def state():
        pools = api.post("/work_pools/filter", json={}).json()
        limits = api.post("/v2/concurrency_limits/filter", json={}).json()
        deployments = api.post("/deployments/filter", json={}).json()
        return (
            sorted((pool["name"], pool["type"]) for pool in pools),
            [limit["limit"] for limit in limits if limit["name"] == "paano-gpu"],
            sorted(deployment["id"] for deployment in deployments),
        )

    before = state()
    assert before[:2] == ([("cpu", "process"), ("gpu", "process")], [4])
    stack.run("setup")
    assert state() == before


def test_servers_turn_strangers_away(stack):
    def answer(name: str, path: str, **headers: str) -> int:
        request = urllib.request.Request(f"{address(stack, name)}{path}", headers=headers)
        try:
            return urllib.request.urlopen(request).status
        except urllib.error.HTTPError as error:
            return error.code

    assert answer("prefect", "/api/admin/version") == 401
    search = "/api/2.0/mlflow/registered-models/search"
    assert answer("mlflow", search, Host="mlflow:5000") == 200
    assert answer("mlflow", search, Host="somewhere.example:5000") == 403
    assert answer("mlflow", "/health", Host="mlflow:5000") == 200
    assert answer("s3", "/paano/scores/") == 403

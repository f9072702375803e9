"""kubernetes/, held against the schemas of several Kubernetes versions and against Prefect's own worker."""

from __future__ import annotations

import copy
import functools
import json
import shutil
import subprocess
import uuid

import kubernetes_validate
import pytest
import yaml

from tests.deploy.composition import DEPLOY, compose

FOLDER = DEPLOY / "kubernetes"
VERSIONS = ["1.31", "1.34", "1.37"]


def documents(*folders: str) -> list[dict]:
    """Every resource that the kustomizations of `folders` list."""
    found = []
    for folder in folders:
        listed = yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text())["resources"]
        for name in listed:
            found += list(yaml.safe_load_all((FOLDER / folder / name).read_text()))
    return found


RESOURCES = documents(".", "dask")
NAMES = [f"{resource['kind']}-{resource['metadata']['name']}" for resource in RESOURCES]


def written_pods() -> dict[str, dict]:
    """Name and spec of every Pod that the resources make."""
    return {
        f"{resource['kind']}-{resource['metadata']['name']}": resource["spec"]["template"]["spec"]
        for resource in RESOURCES
        if resource["kind"] in ("Deployment", "Job")
    }


def pods() -> dict[str, dict]:
    """The written Pods and those of the flow runs in both pools."""
    return written_pods() | {
        f"pool-{pool}": flow_job(pool)["spec"]["template"]["spec"] for pool in ("cpu", "gpu")
    }


@functools.cache
def flow_job(pool: str) -> dict:
    """The Job that Prefect's Kubernetes worker would make for a flow run in `pool`."""
    from prefect.client.schemas.objects import FlowRun
    from prefect_kubernetes.worker import KubernetesWorkerJobConfiguration

    template = json.loads((FOLDER / "pools" / f"{pool}.json").read_text())
    defaults = {
        name: item["default"]
        for name, item in template["variables"]["properties"].items()
        if item.get("default") is not None
    }
    job = KubernetesWorkerJobConfiguration(**fill(template["job_configuration"], defaults))
    job.prepare_for_flow_run(FlowRun(id=uuid.uuid4(), flow_id=uuid.uuid4(), name="night"))
    return job.job_manifest


def fill(template, defaults):
    from prefect.utilities.templating import apply_values

    return apply_values(template, defaults, warn_on_notset=False)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("resource", RESOURCES, ids=NAMES)
def test_every_resource_keeps_to_the_schema(resource, version):
    kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("pool", ["cpu", "gpu"])
def test_a_flow_run_becomes_a_job_that_keeps_to_the_schema(pool, version):
    job = copy.deepcopy(flow_job(pool))
    pod = job["spec"]["template"]["spec"]
    for misplaced in (
        "parallelism",
        "completions",
    ):  # Prefect demands them in the Pod, where Kubernetes drops them
        del pod[misplaced]
    kubernetes_validate.validate(job, version, strict=True)


def test_a_flow_run_in_the_gpu_pool_gets_a_gpu_and_one_in_the_cpu_pool_none():
    def asked(pool):
        resources = flow_job(pool)["spec"]["template"]["spec"]["containers"][0]["resources"]
        return resources["limits"].get("nvidia.com/gpu"), resources["requests"].get("nvidia.com/gpu")

    assert asked("gpu") == (1, 1) and asked("cpu") == (None, None)


def test_flow_runs_use_the_image_built_for_their_pool():
    images = {
        pool: flow_job(pool)["spec"]["template"]["spec"]["containers"][0]["image"] for pool in ("cpu", "gpu")
    }
    assert images == {"cpu": "paano-fleet:cpu", "gpu": "paano-fleet:cuda"}


def test_a_flow_run_may_reach_the_servers():
    policy = next(resource for resource in RESOURCES if resource["kind"] == "NetworkPolicy")
    label = policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    for pool in ("cpu", "gpu"):
        assert label.items() <= flow_job(pool)["spec"]["template"]["metadata"]["labels"].items()
    for resource in RESOURCES:
        if resource["kind"] in ("Deployment", "Job"):
            assert label.items() <= resource["spec"]["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("name", sorted(pods()))
def test_every_pod_is_as_closed_as_the_restricted_profile_demands(name):
    pod = pods()[name]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        rights = container["securityContext"]
        assert rights["capabilities"] == {"drop": ["ALL"]} and rights["readOnlyRootFilesystem"]
        assert rights["allowPrivilegeEscalation"] is False
        assert container["resources"]["requests"]["memory"] and container["resources"]["limits"]["memory"]


def test_secrets_are_only_referred_to():
    assert not [name for name in NAMES if name.startswith("Secret")]
    for name, pod in pods().items():
        for variable in pod["containers"][0].get("env", []):
            if any(
                word in variable["name"] for word in ("PASSWORD", "SECRET_ACCESS", "AUTH_STRING", "DATABASE")
            ):
                secret_name = variable["name"].endswith(("SECRET_NAME", "SECRET_KEY"))
                assert secret_name or "secretKeyRef" in variable["valueFrom"], f"{name}: {variable['name']}"


def test_the_readme_says_how_to_make_every_secret_and_config_map_that_is_referred_to():
    made = {
        item["name"]
        for folder in (".", "dask")
        for item in yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text()).get(
            "configMapGenerator", []
        )
    }
    text = (DEPLOY / "README.md").read_text()
    for kind, name, key in referred():
        if name in made:
            continue
        assert f"create {kind}" in text and name in text, f"{kind} {name}"
        assert key is None or key in text, f"{kind} {name}: {key}"


def referred() -> set[tuple[str, str, str | None]]:
    """(kind, name, key) of every Secret and ConfigMap that a Pod refers to."""
    found = set()
    for pod in pods().values():
        for container in pod["containers"]:
            for source in container.get("envFrom", []):
                if "secretRef" in source:
                    found.add(("secret", source["secretRef"]["name"], None))
                else:
                    found.add(("configmap", source["configMapRef"]["name"], None))
            for variable in container.get("env", []):
                reference = variable.get("valueFrom", {}).get("secretKeyRef")
                if reference:
                    found.add(("secret", reference["name"], reference["key"]))
        found |= {("configmap", v["configMap"]["name"], None) for v in pod["volumes"] if "configMap" in v}
    return found


def test_services_select_pods_that_exist():
    for service in (resource for resource in RESOURCES if resource["kind"] == "Service"):
        wanted = service["spec"]["selector"]
        matching = [
            resource
            for resource in RESOURCES
            if resource["kind"] == "Deployment"
            and wanted.items() <= resource["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert len(matching) == 1
        ports = matching[0]["spec"]["template"]["spec"]["containers"][0]["ports"]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= {port["name"] for port in ports}


def test_servers_are_started_as_in_compose():
    services = compose()["services"]
    for resource in RESOURCES:
        name = resource["metadata"]["name"]
        if resource["kind"] == "Deployment" and name in (
            "prefect",
            "mlflow",
            "dask-scheduler",
            "dask-worker",
        ):
            command = resource["spec"]["template"]["spec"]["containers"][0]["command"]
            assert command == services[name]["command"], name


@pytest.mark.parametrize("folder", [".", "dask"])
def test_kustomize_renders_what_kubernetes_accepts(folder):
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not here; the resources are checked one by one all the same")
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER / folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    assert len(rendered) >= len(documents(folder))
    for resource in rendered:
        kubernetes_validate.validate(resource, VERSIONS[-1], strict=True)
        if resource["kind"] != "Namespace":
            assert resource["metadata"]["namespace"] == "paano"

"""The manifests of `infra/kubernetes`: valid to Kubernetes' own schemas and to Prefect, and confined."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import kubernetes_validate
import prefect
import pytest
import yaml
from kubernetes_asyncio.client import ApiClient, Configuration
from prefect.client.schemas.objects import FlowRun
from prefect.server.schemas.actions import WorkPoolCreate
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from prefect.utilities.schema_tools import is_valid_schema
from prefect.utilities.schema_tools import validate as validate_variables
from prefect.utilities.schema_tools.validation import ValidationError
from prefect_kubernetes.worker import KubernetesWorker, KubernetesWorkerJobConfiguration

from namespaces import require_namespaces
from receiver import receiver

FOLDER = Path(__file__).resolve().parents[1] / "infra" / "kubernetes"
TEMPLATE = json.loads((FOLDER / "base-job-template.json").read_text())
VERSIONS = ("1.30", kubernetes_validate.latest_version())
SECRET = "someone:swordfish"  # noqa: S105 - it opens nothing
NOT_ASKED = "http://127.0.0.1:9/api"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where Linux has it
Manifest = dict[str, Any]


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    """Everything that `kubectl apply -k` would make."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl not found; apt-get install kubernetes-client")
    made = subprocess.run(
        ["kubectl", "kustomize", FOLDER],  # noqa: S607
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not made.stderr
    return list(yaml.safe_load_all(made.stdout))


@pytest.fixture(scope="module")
def job() -> Manifest:
    """The Job that Prefect's worker sends to Kubernetes for a flow run of the work pool."""
    return sent_job({"gpus": 2, "image": "registry.example/floodmark:1", "env": {"TZ": "UTC"}})


def sent_job(variables: dict[str, object]) -> Manifest:
    async def send(url: str) -> None:
        configuration = await KubernetesWorkerJobConfiguration.from_template_and_values(TEMPLATE, variables)
        configuration.prepare_for_flow_run(FlowRun(flow_id=uuid4(), name="Retrain Pump 1"))
        worker = KubernetesWorker(work_pool_name="floodmark-training")
        async with ApiClient(Configuration(host=url)) as client:
            await worker._create_job(configuration, client)  # noqa: SLF001 - what it sends is what counts

    with receiver(201) as api, pytest.MonkeyPatch.context() as environment:
        worker_pods = container_of(read("worker.yaml")[-1])["env"]
        for item in worker_pods:  # what the worker's manifest sets for it
            if item["name"].startswith("PREFECT_INTEGRATIONS"):
                environment.setenv(item["name"], item["value"])
        with temporary_settings({PREFECT_API_AUTH_STRING: SECRET, PREFECT_API_URL: NOT_ASKED}):
            asyncio.run(send(api.url))
    [sent] = api.messages
    made: Manifest = sent
    return made


def read(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def pod_of(manifest: Manifest) -> Manifest:
    pod: Manifest = manifest["spec"]["template"]["spec"]
    return pod


def container_of(manifest: Manifest) -> Manifest:
    [container] = pod_of(manifest)["containers"]
    made: Manifest = container
    return made


def named(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    [found] = [item for item in manifests if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_every_manifest(manifests: list[Manifest], job: Manifest, version: str) -> None:
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)
    for word in (
        "parallelism",
        "completions",
    ):  # Prefect asks for them in the pod, where Kubernetes drops them
        assert pod_of(job).pop(word, 1) == 1
    kubernetes_validate.validate(job, version, strict=True)
    misspelt = json.loads(json.dumps(job).replace("emptyDir", "emptydir"))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(misspelt, version, strict=True)
    made = {
        manifest["metadata"].get("namespace") for manifest in manifests if manifest["kind"] != "Namespace"
    }
    assert made == {"floodmark"}


def test_pods_are_confined_and_hold_no_secret(manifests: list[Manifest], job: Manifest) -> None:
    """As the Pod Security Standard `restricted` asks, which the namespace enforces."""
    pods = [item for item in [*manifests, job] if item["kind"] in {"Deployment", "StatefulSet", "Job"}]
    assert len(pods) == 3
    for manifest in pods:
        pod, container = pod_of(manifest), container_of(manifest)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert set(container["resources"]["limits"]) >= {"cpu", "memory"}
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        for item in container.get("env", []):
            if {"PASSWORD", "KEY", "STRING"} & set(item["name"].split("_")) and "INTEGRATIONS" not in item[
                "name"
            ]:
                assert "value" not in item, item["name"]
    assert not [manifest for manifest in manifests if manifest["kind"] == "Secret"]
    assert SECRET not in json.dumps(job)


def test_ranks_and_launchers_have_a_gpu_and_shared_memory(manifests: list[Manifest], job: Manifest) -> None:
    ranks = named(manifests, "StatefulSet", "floodmark-ranks")
    assert container_of(ranks)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container_of(job)["resources"]["limits"]["nvidia.com/gpu"] == 2
    for manifest in (ranks, job):
        [shared] = [
            mount for mount in container_of(manifest)["volumeMounts"] if mount["mountPath"] == SHARED_MEMORY
        ]
        [volume] = [volume for volume in pod_of(manifest)["volumes"] if volume["name"] == shared["name"]]
        assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "2Gi"}
    assert pod_of(job)["terminationGracePeriodSeconds"] > 30, "Prefect's own grace, after which it kills"


def test_what_is_named_elsewhere_is_there(manifests: list[Manifest], job: Manifest) -> None:
    made = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    for manifest in [*manifests, job]:
        if manifest["kind"] not in {"Deployment", "StatefulSet", "Job"}:
            continue
        assert ("ServiceAccount", pod_of(manifest)["serviceAccountName"]) in made
        for volume in pod_of(manifest)["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in made
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in made
    ranks = named(manifests, "StatefulSet", "floodmark-ranks")
    service = named(manifests, "Service", ranks["spec"]["serviceName"])
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= ranks["spec"]["template"]["metadata"]["labels"].items()
    assert job["spec"]["template"]["metadata"]["labels"]["floodmark/role"] == "launcher"
    worker = named(manifests, "Deployment", "floodmark-worker")
    assert container_of(worker)["image"].endswith(f":{prefect.__version__}-python3.11-kubernetes")


def test_only_launchers_and_ranks_reach_the_rendezvous(manifests: list[Manifest]) -> None:
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    rendezvous = named(manifests, "NetworkPolicy", "floodmark-rendezvous")["spec"]
    [rule] = rendezvous["ingress"]
    [peer] = rule["from"]
    assert peer["podSelector"] == rendezvous["podSelector"]
    assert [[str(port["port"]), str(port["endPort"])] for port in rule["ports"]] == [ephemeral]
    [rule] = named(manifests, "NetworkPolicy", "floodmark-ssh")["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {"floodmark/role": "launcher"}}}]
    assert "ingress" not in named(manifests, "NetworkPolicy", "floodmark-worker")["spec"]


@pytest.mark.parametrize("wrong", [{"gpus": -1}, {"grace_seconds": 10}, {"image_pull_policy": "Sometimes"}])
def test_prefect_takes_the_template_and_refuses_wrong_variables(wrong: dict[str, object]) -> None:
    WorkPoolCreate(name="floodmark-training", type="kubernetes", base_job_template=TEMPLATE)
    variables = TEMPLATE["variables"]
    is_valid_schema(variables)
    validate_variables({"gpus": 1}, variables, raise_on_error=True)
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        validate_variables(wrong, variables, raise_on_error=True)


# What a pod of ranks is: the files of its config map and secret where the manifests put them, one
# unprivileged user, and two addresses that the service's name stands for.
POD = """
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt; cp -a /etc/. /mnt/; mount --move /mnt /etc
echo 'floodmark:x:10001:10001::/tmp:/bin/sh' >> /etc/passwd
printf '127.0.0.1 localhost\\n10.99.0.3 floodmark-ranks\\n10.99.0.2 floodmark-ranks\\n' > /etc/hosts
ip link set lo up
ip address add 10.99.0.2/32 dev lo; ip address add 10.99.0.3/32 dev lo
mkdir -p /etc/floodmark/ssh
cp -r $FOLDER /etc/floodmark/ranks; cp $FOLDER/floodmark.toml /etc/floodmark
cd /etc/floodmark/ssh
for key in host_key user_key; do ssh-keygen -q -t ed25519 -N '' -f $key; done
mv user_key.pub authorized_keys
echo "* $(cut -d' ' -f1,2 host_key.pub)" > known_hosts
chown root:10001 *; chmod 0440 *; chmod 3777 .
pod="setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all"
$pod $(command -v sshd) -D -e -f /etc/floodmark/ranks/sshd_config 2>/dev/null &
ssh=$($PYTHON -c '
from pathlib import Path
from infra.settings import load_settings
training = load_settings(Path("/etc/floodmark/floodmark.toml"), {}).training
print(" ".join(training.ssh_command()))')
for host in $(/etc/floodmark/ranks/ready-ranks.sh); do
  for try in 1 2 3 4 5 6 7 8 9 10; do
    $pod $ssh ${host%:*} 'echo $(id -u) $SSH_CONNECTION' && break || sleep 0.5
  done
  echo $host
done
/etc/floodmark/ranks/ready-ranks.sh floodmark-nobody.invalid && exit 1 || echo none: $?
"""


def test_ready_ranks_are_discovered_and_reached_as_an_unprivileged_user() -> None:
    require_namespaces()
    root = FOLDER.parents[1]
    done = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", POD],  # noqa: S607
        env={
            "PATH": os.environ["PATH"],
            "FOLDER": str(FOLDER),
            "PYTHON": sys.executable,
            "PYTHONPATH": str(root),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [[line[0], line[3]] if len(line) > 2 else line for line in lines] == [
        ["10001", "10.99.0.2"],
        ["10.99.0.2:1"],
        ["10001", "10.99.0.3"],
        ["10.99.0.3:1"],
        ["none:", "1"],
    ]
    assert "floodmark-nobody.invalid: no pod is ready" in done.stderr

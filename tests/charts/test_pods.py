"""The umbrella chart, installed by Helm into a real control plane, with pods that run: until a plan is carried out.

The engine runs their images with the settings, Secrets, tokens and limits of their pods as the API server has them. The
workloads that are moved are pretended by KWOK.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.charts.helm import CHARTS, Helm
from tests.charts.kubelet import NODE, PINNED, Kubelet, Running
from tests.controlplane.access import Access
from tests.controlplane.plane import ControlPlane, Options, running
from tests.e2e.auditor import Auditor
from tests.e2e.pipeline_run import SECONDS, SETTINGS, Run, catalog, cost
from tests.e2e.small import OLD_NODES, small_cluster
from tests.history.checker import violations
from tests.history.record import recorded
from tests.support.engine import docker, require
from tools.release import VERSION

from kinema_cli.local.demo import Progress
from kinema_cli.replay.recording import record_to
from kinema_core.events import ExecutionCompleted, ForecastMade, PlanApprovalRequested
from kinema_core.runtime.bus import Bus, Stored
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import RuntimeSettings

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.containers, pytest.mark.cluster]

RESULT: Final = Path("out/pods/result.json")
"""Figures of the last run, for people."""
SERVICES: Final = ("observer", "predictor", "optimizer", "decider", "rescheduler")
REGISTRY: Final = os.environ.get("KINEMA_REGISTRY", "")
TAG: Final = os.environ.get("KINEMA_VERSION", VERSION)
"""Of the images: both variables are those of `docker compose`, which builds them."""
CONTAINERS: Final = (*SERVICES, "nats")
WORKERS: Final = 2
"""That share the optimizer's search; one is killed."""
SPACE: Final = "kinema"
CLUSTER: Final = "pods"
_LOOK_SECONDS: Final = 0.5
_WRITABLE: Final = """
import os
for folder, inside, _ in os.walk("/"):
    inside[:] = [name for name in inside if os.path.join(folder, name) not in {"/proc", "/sys", "/dev"}]
    if os.access(folder, os.W_OK):
        print(folder)
        inside.clear()
"""


@dataclass(frozen=True)
class Installed:
    """A release whose pods run."""

    plane: ControlPlane
    kubelet: Kubelet
    helm: Helm
    network: str

    @property
    def admin(self) -> Access:
        """Access with all rights."""
        return self.plane.admin

    def container(self, name: str) -> Running:
        """Return the only pod of a part of Kinema."""
        (found,) = self.kubelet.of(name)
        return found

    def did(self, *arguments: str, values: Any = None) -> str:
        """Run a command of Helm that must succeed."""
        process = self.helm.start(*arguments, "--namespace", SPACE, values=values)
        try:
            while process.poll() is None:
                self.kubelet.check()
                time.sleep(_LOOK_SECONDS)
        finally:
            process.kill()
            out, error = process.communicate()
        logs = "".join(f"\n--- {path.name}\n{path.read_text()[-2000:]}" for path in self.helm.folder.glob("*.log"))
        assert process.returncode == 0, error + logs
        return out

    def password(self, user: str) -> str:
        """Return a password for the broker."""
        found = self.admin.request("GET", f"/api/v1/namespaces/{SPACE}/secrets/kinema-nats")["data"]
        return base64.b64decode(found[user]).decode()

    def operator(self, *arguments: str) -> str:
        """Run a command of the operator in a container of its own."""
        return docker(
            "run",
            "--rm",
            "--read-only",
            f"--network={self.network}",
            f"--env=KINEMA_NATS=nats://operator:{self.password('operator')}@kinema-nats.{SPACE}.svc:4222",
            f"--env=KINEMA_CLUSTER={CLUSTER}",
            image("admin"),
            *arguments,
        )


def image(name: str) -> str:
    """Return an image of Kinema."""
    return f"{REGISTRY}kinema-{name}:{TAG}"


@contextmanager
def network(name: str) -> Iterator[str]:
    """A network of the engine within the block; yields the address at which its containers reach this machine."""
    docker("network", "create", name)
    try:
        yield json.loads(docker("network", "inspect", name))[0]["IPAM"]["Config"][0]["Gateway"]
    finally:
        docker("network", "rm", name)


@contextmanager
def engine_node(folder: Path) -> Iterator[Installed]:
    """A control plane with a few workloads of KWOK's and a node whose pods run; nothing is installed yet."""
    require(image(name) for name in (*SERVICES, "admin", "nats"))
    name = f"kinema-test-{os.getpid()}"
    with ExitStack() as stack:
        gateway = stack.enter_context(network(name))
        options = Options(node_silence_seconds=50, addresses=(gateway,))
        plane = stack.enter_context(running(folder / "plane", options))
        reached = stack.enter_context(plane.reached_at(gateway))
        stack.enter_context(small_cluster(plane.admin))
        port = int(reached.url.rpartition(":")[2])
        (folder / "helm").mkdir()
        node = Kubelet(plane.admin, SPACE, name, folder / "helm", (gateway, port))
        stack.enter_context(node.running())
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        plane.admin.ensure("/api/v1/namespaces", {"metadata": {"name": SPACE, "labels": labels}})
        plane.admin.request("POST", "/api/v1/persistentvolumes", volume(folder / "streams"))
        helm = Helm(plane.programs["helm"], folder / "helm", plane.admin.write_kubeconfig(folder / "kubeconfig"))
        yield Installed(plane, node, helm, name)


def volume(folder: Path) -> Any:
    """A volume of this machine for the broker's streams."""
    folder.mkdir()
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}]
    spec = {
        "capacity": {"storage": "8Gi"},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": str(folder)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    return {"metadata": {"name": "streams"}, "spec": spec}


def values(folder: Path) -> dict[str, Any]:
    """Values of the umbrella: images of this machine, and plans that wait for approval."""
    images = {"registry": REGISTRY.removesuffix("/"), "tag": TAG, "pullPolicy": "Never"}
    parts: dict[str, Any] = {name: {**PINNED, "image": images} for name in (*SERVICES, "setup")}
    parts["nats"] = {**PINNED, "image": {**images, "repository": "kinema-nats"}}
    for service in ("observer", "optimizer"):
        parts[service]["settings"] = SETTINGS[service]
    parts["optimizer"]["workers"] = {"replicas": WORKERS}
    parts["decider"]["settings"] = {"limits": {"approval": "required", "cooldown_seconds": 5.0}}
    parts["rescheduler"]["settings"] = {"provider": {"kind": "kwok", "boot_seconds": 3.0}}
    parts["rescheduler"]["catalog"] = catalog(folder).read_text()
    return {"global": {"kinema": {"cluster": CLUSTER, "image": images}}, "enabled": {"nats": True}, **parts}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A release of all that the umbrella has."""
    folder = tmp_path_factory.mktemp("pods")
    with engine_node(folder) as made:
        made.did("install", "kinema", str(CHARTS / "kinema"), "--wait", "--timeout=5m", values=values(folder))
        yield made


@dataclass(frozen=True)
class Outcome:
    """One plan, approved and carried out."""

    run: Run
    auditor: Auditor
    nodes: tuple[set[str], set[str]]
    """Names of all nodes, before and after."""
    usd_per_hour: tuple[float, float]
    leftovers: list[str]
    restarts: dict[str, int]
    """Of each container before: services end, and are started again, until the broker is prepared."""
    killed: str
    """The container of the worker that was killed."""


@pytest.fixture(scope="module")
def outcome(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The run that the tests of this module look at."""
    folder = tmp_path_factory.mktemp("outcome")
    began = time.monotonic()
    restarts = {name: installed.container(name).restarts for name in CONTAINERS}
    auditor = Auditor(installed.admin)
    with auditor.watching():
        progress, recording, killed = asyncio.run(carried_out(installed, auditor, folder))
        found = Outcome(
            run=Run(progress, True, time.monotonic() - began, recording),
            auditor=auditor,
            nodes=(set(auditor.before["Node"]), set(auditor.now["Node"])),
            usd_per_hour=(
                cost(auditor.before["Node"].values(), folder),
                cost(auditor.now["Node"].values(), folder),
            ),
            leftovers=[left for left in auditor.leftovers() if NODE not in left],
            restarts=restarts,
            killed=killed,
        )
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(figures(installed, found), indent=2) + "\n")
    return found


async def carried_out(installed: Installed, auditor: Auditor, folder: Path) -> tuple[Progress, Path, str]:
    """Approve the first plan that saves, and follow it until nothing is left to do.

    A worker is killed while the plan is looked for. Returns the recording, too, and that worker's container.
    """
    progress, position = Progress(), 0
    killed, waiting = "", True
    deadline = time.monotonic() + SECONDS
    async with operator_bus(installed) as bus:
        while not progress.settled:
            installed.kubelet.check()
            assert time.monotonic() < deadline, f"waiting {progress.waiting}; {progress.failed[-3:]}"
            await asyncio.sleep(_LOOK_SECONDS)
            async for item in bus.read("LOG", start=position + 1):
                position = item.sequence
                if not isinstance(item, Stored):
                    continue
                progress.fold(item.event)
                if isinstance(item.event.body, ForecastMade) and not killed:
                    killed = installed.kubelet.of("optimizer-worker")[0].engine_name
                    auditor.taken[f"Deployment {SPACE}/kinema-optimizer-worker"] += 1
                    docker("kill", killed)
                if isinstance(item.event.body, PlanApprovalRequested) and waiting:
                    waiting = False
                    await asyncio.to_thread(installed.operator, "approve", item.event.body.plan)
        await record_to(bus, cluster=CLUSTER, out=folder / "recording.jsonl.zst")
    return progress, folder / "recording.jsonl.zst", killed


@asynccontextmanager
async def operator_bus(installed: Installed) -> AsyncIterator[Bus]:
    """The operator's connection to the broker's pod within the block."""
    pod = installed.admin.request("GET", f"/api/v1/namespaces/{SPACE}/pods/kinema-nats-0")
    settings = RuntimeSettings(
        cluster=CLUSTER,
        nats_url=f"nats://{pod['status']['podIP']}:4222",
        nats_user="operator",
        nats_password=installed.password("operator"),
        health_port=0,
    )
    bus = await connect(settings)
    try:
        yield bus
    finally:
        await bus.close()


def figures(installed: Installed, outcome: Outcome) -> dict[str, Any]:
    """For people: what it came to, and what the containers took."""
    pods = {name: installed.container(name) for name in CONTAINERS}
    stats = ("stats", "--no-stream", "--format={{.MemUsage}}")
    return {
        "seconds": round(outcome.run.seconds, 1),
        "nodes": [*map(len, outcome.nodes)],
        "usd_per_hour": [*outcome.usd_per_hour],
        "changes_audited": outcome.auditor.changes,
        "containers": {
            name: {
                "seconds_until_ready": round(one.ready_seconds, 1),
                "processor_seconds_until_ready": round(one.ready_processor_seconds, 2),
                "restarts": one.restarts,
                "memory": docker(*stats, one.engine_name).strip(),
                "writable": writable(one.engine_name),
            }
            for name, one in pods.items()
        },
    }


def writable(container: str) -> list[str]:
    """Return the folders that a container's user may write to, outside /proc, /sys and /dev."""
    return docker("exec", container, "python3", "-c", _WRITABLE).split()


def test_one_plan_is_carried_out_with_the_rights_of_the_accounts(outcome: Outcome) -> None:
    """The plan that was approved is finished; the nodes that it deletes are gone, the others and what it boots stay."""
    (plan,) = outcome.run.progress.accepted.values()
    assert {type(end) for end in outcome.run.progress.ended.values()} == {ExecutionCompleted}
    deleted = {node.name for node in plan.nodes if node.action == "delete"}
    booted = {node.name for node in plan.nodes if node.action == "boot"}
    (before, after), (dear, cheap) = outcome.nodes, outcome.usd_per_hour
    assert after == (before - deleted) | booted
    assert len(after) < len(before) == OLD_NODES + 1
    assert cheap < dear


def test_nobody_was_hurt(outcome: Outcome) -> None:
    """No workload below its floor, no invariant broken, nothing left behind, and the events decide the same again."""
    auditor = outcome.auditor
    assert auditor.flaws == []
    assert outcome.leftovers == []
    history = replace(outcome.run.history, before=auditor.before, changes=tuple(auditor.history))
    assert violations(history) == ()
    assert outcome.run.replayed() == ""


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_writes_only_where_its_pod_says(installed: Installed, outcome: Outcome, name: str) -> None:
    """As user 65532, on a root that it cannot write to, without rights, and not started again for the plan."""
    one = installed.container(name)
    (state,) = json.loads(docker("inspect", one.engine_name))
    assert (one.restarts, one.is_ready, state["State"]["Running"]) == (outcome.restarts[name], True, True)
    assert docker("exec", one.engine_name, "id", "-u").strip() == "65532"
    assert state["HostConfig"]["ReadonlyRootfs"]
    assert state["HostConfig"]["CapDrop"] == ["ALL"]
    assert sorted(writable(one.engine_name)) == sorted(one.container.writable)
    changed = {line.split(maxsplit=1)[1] for line in docker("diff", one.engine_name).splitlines()}
    mounts = [Path(path.replace("/var/run/", "/run/")) for path in one.container.mounts]  # a link in the image
    assert changed <= {str(path) for mount in mounts for path in (mount, *mount.parents)}


def test_workers_are_ready_also_after_one_was_killed(installed: Installed, outcome: Outcome) -> None:
    """The one that was killed while a plan was looked for has a new container; the plan is that of a replay alone."""
    path = f"/apis/apps/v1/namespaces/{SPACE}/deployments/kinema-optimizer-worker"
    installed.admin.until(path, lambda found: found["status"].get("readyReplicas") == WORKERS)
    assert outcome.killed not in {one.engine_name for one in installed.kubelet.of("optimizer-worker")}


@pytest.mark.usefixtures("outcome")
def test_helm_test_succeeds_for_every_chart(installed: Installed) -> None:
    """Each chart's test runs in a container, and Helm says that all have succeeded."""
    told = installed.did("test", "kinema")
    assert told.count("Phase:          Succeeded") == len(SERVICES) + 1, told


@pytest.mark.usefixtures("outcome")
def test_each_service_runs_alone_on_a_broker_that_is_there(installed: Installed, tmp_path: Path) -> None:
    """Those of the umbrella end when they are told to; each one installed by itself becomes ready, as its test says."""
    given = values(tmp_path)
    enabled = {"nats": True, **dict.fromkeys(SERVICES, False)}
    installed.kubelet.ended.clear()
    installed.did("upgrade", "kinema", str(CHARTS / "kinema"), "--wait", values={**given, "enabled": enabled})
    path = f"/api/v1/namespaces/{SPACE}/pods"
    installed.admin.until(path, lambda found: {one["metadata"]["name"] for one in found["items"]} == {"kinema-nats-0"})
    ended = {one.pod.app.removeprefix("kinema-"): one.end for one in installed.kubelet.ended}
    stopped = (*SERVICES, "optimizer-worker")
    assert {name: ended[name] for name in stopped} == dict.fromkeys(stopped, 0)
    for service in SERVICES:
        name = f"kinema-{service}"
        own = {"cluster": CLUSTER, "nats": {"url": f"nats://kinema-nats.{SPACE}.svc:4222"}}
        installed.did("install", name, str(CHARTS / name), "--wait", "--timeout=5m", values={**given[service], **own})
        assert "Phase:          Succeeded" in installed.did("test", name)


async def test_a_second_installation_goes_on_with_the_streams(
    installed: Installed, outcome: Outcome, tmp_path: Path
) -> None:
    """The broker's passwords and volume stay when all is uninstalled: what was said is there, and more follows."""
    for release in ("kinema", *(f"kinema-{service}" for service in SERVICES)):
        installed.did("uninstall", release, "--wait")
    installed.admin.until(f"/api/v1/namespaces/{SPACE}/pods", lambda found: not found["items"])
    installed.did("install", "kinema", str(CHARTS / "kinema"), "--wait", "--timeout=5m", values=values(tmp_path))
    async with operator_bus(installed) as bus:
        await record_to(bus, cluster=CLUSTER, out=tmp_path / "recording.jsonl.zst")
    before, after = outcome.run.history.log, recorded(tmp_path / "recording.jsonl.zst").log
    assert [entry.id for entry in after[: len(before)]] == [entry.id for entry in before]
    assert len(after) > len(before)

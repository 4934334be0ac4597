"""A release of Kinema's charts on a real control plane, and a node of the engine whose pods run."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.charts.helm import Helm
from tests.charts.kubelet import NODE, Kubelet, Running
from tests.controlplane.access import Access
from tests.controlplane.plane import ControlPlane, Options, running
from tests.e2e.small import small_cluster
from tests.support.engine import docker, network, require
from tools.release import VERSION

from kinema_core.runtime.bus import Bus
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import RuntimeSettings

SERVICES: Final = ("observer", "predictor", "optimizer", "decider", "rescheduler")
REGISTRY: Final = os.environ.get("KINEMA_REGISTRY", "")
TAG: Final = os.environ.get("KINEMA_VERSION", VERSION)
"""Of the images: both variables are those of `docker compose`, which builds them."""
IMAGES: Final = {"registry": REGISTRY.removesuffix("/"), "tag": TAG, "pullPolicy": "Never"}
"""Values of a chart that runs them."""
SPACE: Final = "kinema"
CLUSTER: Final = "pods"
LOOK_SECONDS: Final = 0.5
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
                time.sleep(LOOK_SECONDS)
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
def engine_node(folder: Path) -> Iterator[Installed]:
    """A control plane with a few workloads of KWOK's and a node whose pods run; nothing is installed yet."""
    require(image(name) for name in (*SERVICES, "admin", "nats", "cli"))
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


def writable(container: str) -> list[str]:
    """Return the folders that a container's user may write to, outside /proc, /sys and /dev."""
    return docker("exec", container, "python3", "-c", _WRITABLE).split()

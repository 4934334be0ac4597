"""The real Cluster Autoscaler on a real control plane, from a start that the real Karpenter left.

    python -m benchmarks.beside_cluster_autoscaler --program FILE [--start hundred] [--packing] [--measured DIR]

`benchmarks.beside_karpenter` leaves starts in DIR; nodes and pods are set up again as they were, each machine type in
each zone is a node group, and every change is watched from outside until there are no more. What was seen stays in
DIR, where `benchmarks.faithful --measured DIR` reads it. `--packing` is the model of GKE's optimize-utilization: a
threshold of 85%, and a scheduler that fills nodes.

No Go module of the Cluster Autoscaler can be had. FILE is built from the tag `cluster-autoscaler-1.36.1` of
github.com/kubernetes/autoscaler, in its folder `cluster-autoscaler`: `go build -tags kwok`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.controlplane.access import Access
from tests.controlplane.nodes import node as node_object
from tests.controlplane.plane import ControlPlane, Options, is_healthy, running
from tests.controlplane.server import Server

from benchmarks.after_peak import PROGRAMS
from benchmarks.beside_karpenter import Files, quiet, seen_of
from benchmarks.clusters import TYPE, ZONE
from benchmarks.faithful import AS_MEASURED
from benchmarks.standing import gathered, stand
from benchmarks.starts import Start, peaks
from benchmarks.steering import SCENES
from benchmarks.witness import Verdict, Witness
from kinema_cli.local.nats_server import free_port
from kinema_core.events import Offer
from kinema_optimizer.policies.cluster_autoscaler import ClusterAutoscaler
from kinema_optimizer.settings import PolicyName
from kinema_rescheduler.kubernetes.fenced import FencedClient, connect

_GROUP: Final = "cluster-autoscaler.kwok.nodegroup/name"
"""Annotation of nodes by which its provider knows their node groups."""
_NAMESPACE: Final = "kube-system"
_CONFIG, _TEMPLATES = "kwok-provider-config", "kwok-provider-templates"


def watched(start: Start, program: Path, policy: PolicyName) -> Verdict:
    """Let the real one work on a start with the settings of its imitation, until nothing changes any more.

    Raises:
        BuildError: the control plane is not built. ServerError: a program does not start.
    """
    rules = AS_MEASURED[policy]
    assert isinstance(rules, ClusterAutoscaler)
    scheduling = SCENES["most-allocated"] if rules.score == "most-allocated" else None
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        with running(folder / "plane", Options(only=PROGRAMS, kubelets=16, scheduling=scheduling)) as plane:
            return asyncio.run(_watched(plane, start, program, rules, folder))


async def _watched(plane: ControlPlane, start: Start, program: Path, rules: ClusterAutoscaler, folder: Path) -> Verdict:
    await stand(plane, start, folder)
    api = await connect(str(plane.admin.write_kubeconfig(folder / "hand.kubeconfig")), timeout_seconds=60.0)
    try:
        await gathered(_join(api, node) for node in await api.items("/api/v1/nodes"))
        witness = Witness(plane.admin)
        async with witness.watching():
            with _running(plane.admin, start.offers, program, rules, folder):
                await quiet(api)
        return await asyncio.to_thread(witness.verdict)
    finally:
        await api.close()


async def _join(api: FencedClient, node: dict[str, Any]) -> None:
    """Make a node a member of its node group."""
    name, labels = node["metadata"]["name"], node["metadata"]["labels"]
    group = {"metadata": {"annotations": {_GROUP: _group(labels[TYPE], labels[ZONE])}}}
    await api.patch(f"/api/v1/nodes/{name}", {**group, "spec": {"providerID": f"kwok:{name}"}})


def _group(machine: str, zone: str) -> str:
    return f"{machine}-{zone}"


@contextmanager
def _running(
    admin: Access, offers: Iterable[Offer], program: Path, rules: ClusterAutoscaler, folder: Path
) -> Iterator[None]:
    _write(admin, _CONFIG, {"config": json.dumps(_provider())})
    _write(admin, _TEMPLATES, {"templates": json.dumps(_templates(offers))})
    port = free_port()
    environment = {
        "KUBECONFIG": str(admin.write_kubeconfig(folder / "cluster-autoscaler.kubeconfig")),
        "KWOK_PROVIDER_MODE": "local",
        "POD_NAMESPACE": _NAMESPACE,
    }
    flags = {
        "cloud-provider": "kwok",
        "kubeconfig": environment["KUBECONFIG"],
        "namespace": _NAMESPACE,
        "leader-elect": "false",
        "address": f"127.0.0.1:{port}",
        "scan-interval": f"{rules.period_seconds:g}s",
        "expander": rules.expander,
        "scale-down-utilization-threshold": f"{rules.threshold / 1000:g}",
        "scale-down-unneeded-time": f"{rules.unneeded_seconds:g}s",
        "scale-down-delay-after-add": f"{rules.after_add_seconds:g}s",
        "max-drain-parallelism": str(rules.most_drains),
        # By default a node that could not go is looked at again after five minutes, when this has long ended.
        "unremovable-node-recheck-timeout": f"{rules.unneeded_seconds:g}s",
        "balance-similar-node-groups": str(rules.balance).lower(),
    }
    command = [
        "env",
        *(f"{name}={value}" for name, value in environment.items()),
        str(program),
        *(f"--{name}={value}" for name, value in flags.items()),
    ]
    ready = partial(is_healthy, f"http://127.0.0.1:{port}/health-check", admin)
    with Server("cluster-autoscaler", command, folder=folder, is_ready=ready):
        yield


def _provider() -> dict[str, Any]:
    return {
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": {"fromNodeAnnotationKey": _GROUP},
        "nodes": {"skipTaint": True},
        "configmap": {"name": _TEMPLATES},
    }


def _templates(offers: Iterable[Offer]) -> dict[str, Any]:
    """Return a node of each group, as it would be bought."""
    nodes = []
    for offer in offers:
        group = _group(offer.machine_type, offer.zone)
        amounts = offer.allocatable
        item = node_object(
            group,
            cpu=f"{amounts['cpu']}m",
            memory=str(amounts["memory"]),
            pods=str(amounts["pods"]),
            zone=offer.zone,
            machine=offer.machine_type,
        )
        item["metadata"]["annotations"][_GROUP] = group
        nodes.append(item)
    return {"apiVersion": "v1", "kind": "List", "items": nodes}


def _write(admin: Access, name: str, data: dict[str, str]) -> None:
    path = f"/api/v1/namespaces/{_NAMESPACE}/configmaps/{name}"
    admin.apply(path, {"apiVersion": "v1", "kind": "ConfigMap"}, data=data)


def main() -> None:
    """Entry point of `python -m benchmarks.beside_cluster_autoscaler`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True, metavar="FILE")
    parser.add_argument("--start", choices=list(peaks()), default="hundred")
    parser.add_argument("--packing", action="store_true", help="as optimize-utilization, a model of it")
    parser.add_argument("--measured", type=Path, default=Path("out/bench"), metavar="DIR")
    given = parser.parse_args()
    policy: PolicyName = "optimize-utilization" if given.packing else "cluster-autoscaler"
    files = Files(given.measured, given.start)
    seen = seen_of(watched(files.start(), given.program, policy), f"{policy}, the real one")
    text = json.dumps(msgspec.to_builtins(seen), indent=2)
    files.seen(policy).write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()

"""Machines of the simulated cloud as nodes of a real control plane, where the real KWOK has to run them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane.plane import ControlPlane

from kinema_core.model.catalog import offers_from
from kinema_core.model.cluster import Cluster as State
from kinema_kubernetes.client import connect
from kinema_rescheduler.providers.sim import SimProvider
from kinema_sim.cluster import Cluster
from kinema_sim.front.kwok import KwokNodes
from kinema_sim.front.server import Server

pytestmark = pytest.mark.cluster

NODE = "/api/v1/nodes/kwok-machine"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/kwok-machine"


async def test_a_machine_becomes_a_node_that_kwok_runs(control_plane: ControlPlane, tmp_path: Path) -> None:
    """It turns Ready, has what its offer promises, is renewed by KWOK's lease, and goes with its machine."""
    admin = control_plane.admin
    client = await connect(str(admin.write_kubeconfig(tmp_path / "kubeconfig")))
    cluster = Cluster(0, recorded=False, metered=False)
    nodes = KwokNodes(client, cluster)
    await nodes.adopt()
    server = Server(cluster, speed=20.0)
    address = await server.start()
    following = asyncio.create_task(nodes.follow())
    provider = SimProvider(address.url)
    try:
        sold = next(one for one in offers_from((await provider.catalog()).rows, State()) if "highcpu-2" in one.name)
        await provider.boot("kwok-machine", sold, "op-1")
        found = await asyncio.to_thread(admin.until, NODE, _ready)
        allocatable = found["status"]["allocatable"]
        assert (allocatable["cpu"], allocatable["memory"]) == (
            f"{sold.allocatable['cpu']}m",
            str(sold.allocatable["memory"]),
        )
        lease = await asyncio.to_thread(admin.until, LEASE, lambda one: "spec" in one)
        assert lease["spec"]["holderIdentity"]
        await provider.delete("kwok-machine", "op-2")
        await asyncio.to_thread(admin.until, "/api/v1/nodes", lambda all_: _gone(all_["items"]))
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await provider.close()
        await server.stop()
        await client.close()


def _ready(node: Any) -> bool:
    conditions = node["status"].get("conditions", ()) if "spec" in node else ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _gone(nodes: Any) -> bool:
    return all(node["metadata"]["name"] != "kwok-machine" for node in nodes)

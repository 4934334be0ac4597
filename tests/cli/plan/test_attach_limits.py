"""`kinema plan` where CSI drivers say how many of their volumes a node takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.bench import Bench, meta, node, owner, pod, text

DRIVER = "disk.example.com"
JSON = dict[str, Any]


def keeper(name: str, *on: str | None) -> list[JSON]:
    """A StatefulSet with a pod in each place (None: pending), each with a volume of the driver."""
    spec = {
        "replicas": len(on),
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c"}]}},
    }
    status = {"replicas": len(on), "readyReplicas": sum(place is not None for place in on)}
    top = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta(name, "shop"), "spec": spec}
    return [{**top, "status": status}, *(one for index, place in enumerate(on) for one in _kept(name, index, place))]


def _kept(name: str, index: int, on: str | None) -> list[JSON]:
    """One of the pods with its claim and volume."""
    mine = pod(f"{name}-{index}", on, of=None)
    mine["metadata"] |= {"labels": {"app": name}, "ownerReferences": owner("StatefulSet", name)}
    claim, volume = f"data-{name}-{index}", f"pv-{name}-{index}"
    mine["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]
    bound = {"volumeName": volume, "storageClassName": "fast"}
    source = {"driver": DRIVER, "volumeHandle": volume}
    taken = {"csi": source, "claimRef": {"namespace": "shop", "name": claim}}
    return [
        mine,
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta(claim, "shop"), "spec": bound},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta(volume), "spec": taken},
    ]


def csi_node(name: str, count: int | None) -> JSON:
    """What the driver says of a node."""
    stated = {"name": DRIVER, "nodeID": name, "topologyKeys": None}
    limit = {} if count is None else {"allocatable": {"count": count}}
    spec = {"drivers": [{**stated, **limit}]}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta(name), "spec": spec}


def planned(bench: Bench, *objects: JSON) -> Any:
    """The plan for these objects."""
    bench.snapshot.write_bytes(text(list(objects)))
    result = bench.run("-o", "json")
    assert result.exit_code == 0, result.stderr
    assert "not read" not in result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(("count", "fits"), [(1, False), (2, True), (None, True), (0, False)])
def test_a_pod_with_a_volume_goes_only_where_one_more_is_attached(
    count: int | None, fits: bool, tmp_path: Path
) -> None:
    """A pod of a StatefulSet waits: it gets a place on the node whose driver has room, else on a new one."""
    there = [node("n1"), *keeper("log", "n1"), *keeper("db", None)]
    plan = planned(Bench(tmp_path), csi_node("n1", count), *there)
    (place,) = (one for one in plan["placements"] if one["pod"] == "shop/db-0")
    assert (place["to"] == "n1") == fits
    assert {one["action"] for one in plan["nodes"]} == ({"keep"} if fits else {"keep", "boot"})


@pytest.mark.parametrize(("count", "nodes"), [(1, 2), (2, 1)])
def test_a_node_is_not_emptied_onto_one_that_attaches_no_more(count: int, nodes: int, tmp_path: Path) -> None:
    """Two pods with volumes on two nodes share one where its driver takes both; else there are two as before."""
    there = [node("n1"), node("n2"), *keeper("db", "n1", "n2")]
    plan = planned(Bench(tmp_path), *there, csi_node("n1", count), csi_node("n2", count))
    assert sum(one["action"] != "delete" for one in plan["nodes"]) == nodes

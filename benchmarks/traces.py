"""Writes an instance as a snapshot and a catalog, so that `kinema plan --snapshot … --catalog …` can be run on it.

    python -m benchmarks.traces openb --pods pods.csv --nodes nodes.csv -o snapshot.json.zst --catalog catalog.csv

A snapshot has at least one node: where nothing runs, a small control-plane node of its own stands for the rest.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import zstandard

from benchmarks.clusters import CREATED, HOSTNAME, TYPE, ZONE
from benchmarks.instances import Scene, large_scene, limit_scene, openb_scene
from benchmarks.kubernetes_list import kubernetes_list
from benchmarks.machine_types import GIBIBYTE, ZONES
from kinema_core.events import ClusterObject, FrozenMap, Node, Offer, Taint
from kinema_core.model.catalog import KUBELET_LABELS
from kinema_core.model.cluster import all_objects

COLUMNS: Final = (
    "machine_type",
    "vcpus",
    "memory_gib",
    "usd_per_hour",
    "zone",
    "labels",
    "taints",
    "allocatable_cpu_m",
    "allocatable_memory_bytes",
    "max_pods",
    "extended",
)
_OWN: Final = frozenset({*KUBELET_LABELS, TYPE, ZONE, "kinema.io/capacity-type"})
"""Labels that every row's node gets anyway."""


def write(scene: Scene, snapshot: Path, catalog: Path) -> tuple[int, int]:
    """Write both files; gives the number of nodes and of pods. Named `.zst`, the snapshot is compressed."""
    cluster, offers = scene.cluster()
    objects: list[ClusterObject] = list(all_objects(cluster))
    if not cluster.nodes:
        objects.insert(0, _control_plane())
    data = msgspec.json.encode(kubernetes_list(objects))
    snapshot.write_bytes(zstandard.compress(data, 10) if snapshot.suffix == ".zst" else data)
    write_catalog(offers, catalog)
    return len(cluster.nodes), len(cluster.pods)


def write_catalog(offers: Sequence[Offer], catalog: Path) -> None:
    """Write the offers as a catalog, in their order."""
    with catalog.open("w", newline="") as lines:
        rows = csv.writer(lines, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows(_row(offer) for offer in offers)


def _control_plane() -> Node:
    name = "control-plane-0"
    role = "node-role.kubernetes.io/control-plane"
    return Node(
        name=name,
        uid=f"n-{name}",
        labels=FrozenMap({HOSTNAME: name, TYPE: "control-plane", ZONE: ZONES[0], role: ""}),
        annotations=FrozenMap({"kinema.io/usd-per-hour": "0"}),
        taints=(Taint(key=role, effect="NoSchedule"),),
        ready=True,
        allocatable=FrozenMap({"cpu": 2000, "memory": 4 * GIBIBYTE, "pods": 110}),
        created=CREATED,
    )


def _row(offer: Offer) -> list[str]:
    amounts = dict(offer.allocatable)
    labels = {key: value for key, value in offer.labels.items() if key not in _OWN}
    extended = {name: amount for name, amount in amounts.items() if name not in ("cpu", "memory", "pods")}
    return [
        offer.machine_type,
        f"{amounts['cpu'] / 1000:g}",
        f"{amounts['memory'] / GIBIBYTE:.9g}",
        f"{offer.micro_usd_per_hour / 1e6:.6f}",
        offer.zone,
        _pairs(labels),
        ";".join(offer.taints),
        str(amounts["cpu"]),
        str(amounts["memory"]),
        str(amounts["pods"]),
        _pairs({name: str(amount) for name, amount in extended.items() if amount}),
    ]


def _pairs(given: dict[str, str]) -> str:
    return ";".join(f"{key}={value}" for key, value in sorted(given.items()))


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m benchmarks.traces`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("instance", choices=("openb", "large", "limit"))
    parser.add_argument("--pods", type=Path, help="openb: the list of pods (CSV)")
    parser.add_argument("--nodes", type=Path, help="openb: the list of nodes (CSV)")
    parser.add_argument("--gpu", action="store_true", help="openb: with GPUs, on the trace's kinds of nodes")
    parser.add_argument("--running", action="store_true", help="pods run, spread over nodes; else all are pending")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the snapshot, .json or .json.zst")
    parser.add_argument("--catalog", type=Path, required=True, help="the catalog (CSV)")
    given = parser.parse_args(arguments)
    if given.instance == "openb":
        for option, path in (("--pods", given.pods), ("--nodes", given.nodes)):
            if path is None or not path.exists():
                parser.error(f"openb needs {option}: {'it is missing' if path is None else f'{path} does not exist'}")
        scene = openb_scene(given.pods, given.nodes, gpu=given.gpu, running=given.running, seed=given.seed)
    else:
        make = large_scene if given.instance == "large" else limit_scene
        scene = make(running=given.running, seed=given.seed)
    nodes, pods = write(scene, given.output, given.catalog)
    print(
        f"{pods} pods and {nodes} nodes written to {given.output}, what is on sale to {given.catalog}", file=sys.stderr
    )


if __name__ == "__main__":
    main()

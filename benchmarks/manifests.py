"""Public manifests as they are on a real control plane: planned, carried out, and audited from outside.

    python -m benchmarks.manifests [NAMESPACE=]PATH... [--out FILE]

A path is a YAML file or a folder of them, such as Argo CD's `manifests/ha/install.yaml`; namespace is where objects
without one go, as with `kubectl apply --namespace`. The pods are spread over twice the nodes that they need, or more.
Custom resources are created where their definitions are among the manifests; no operator reconciles them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from tests.controlplane.access import Access, RefusedError
from tests.controlplane.nodes import add_nodes, node
from tests.controlplane.plane import ControlPlane, running
from tests.e2e.auditor import Auditor
from tests.e2e.pipeline_run import carried_out, cost, optimum, own_rights
from tests.e2e.shop import MACHINE, ZONES
from tests.history.checker import violations

from benchmarks.machine import write_result
from kinema_cli.admin.setup import Steering, steer
from kinema_core.model.catalog import gke_allocatable
from kinema_core.model.quantity import parse_amount
from kinema_kubernetes.objects import pod_ready

JSON = dict[str, Any]

_CORES: Final = 4
_CPU, _MEMORY = gke_allocatable(_CORES, _CORES * 4 * 2**30)
_FILL: Final = 0.8
"""Share of a node that pods fill when it is as full as it gets."""
_CALM_SECONDS: Final = 30.0
_PATIENCE_SECONDS: Final = 600.0
_DEFINITION: Final = "CustomResourceDefinition"


@dataclass
class Applied:
    """What the API server made of manifests."""

    objects: Counter[str] = field(default_factory=Counter)
    """How many of each kind."""
    refused: list[str] = field(default_factory=list)
    """What it did not take, and why."""


class _Loader(yaml.SafeLoader):
    """YAML as Go reads it: `=` is a string, which definitions of Prometheus' resources have in an enumeration."""


def _text(loader: _Loader, value: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(value))


_Loader.add_constructor("tag:yaml.org,2002:value", _text)


def documents(source: str) -> Iterator[JSON]:
    """Yield the objects of `[NAMESPACE=]PATH`, each with a namespace for those that want one."""
    namespace, _, path = source.rpartition("=")
    files = sorted(Path(path).rglob("*.y*ml")) if Path(path).is_dir() else [Path(path)]
    for file in files:
        for found in yaml.load_all(file.read_text(), Loader=_Loader):
            for item in found.get("items", [found]) if isinstance(found, dict) else ():
                item["metadata"].setdefault("namespace", namespace or "default")
                yield item


def apply(access: Access, items: Sequence[JSON]) -> Applied:
    """Create all objects: namespaces and definitions first, and what these define when it is served."""
    done = Applied()
    for space in sorted({item["metadata"]["namespace"] for item in items}):
        access.ensure("/api/v1/namespaces", {"metadata": {"name": space}})
    first = ("Namespace", _DEFINITION, "PriorityClass", "ServiceAccount")
    for item in sorted(items, key=lambda one: first.index(one["kind"]) if one["kind"] in first else len(first)):
        try:
            collection, namespaced = _collection(access, item["apiVersion"], item["kind"])
            if not namespaced:
                item["metadata"].pop("namespace")
            path = collection.format(item["metadata"].get("namespace", ""))
            access.ensure(path, item)
            if item["kind"] == _DEFINITION:
                access.until(f"{path}/{item['metadata']['name']}", _is_served)
        except RefusedError as error:
            done.refused.append(str(error))
        else:
            done.objects[item["kind"]] += 1
    return done


def _is_served(definition: JSON) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _collection(access: Access, version: str, kind: str) -> tuple[str, bool]:
    """Return the path of a kind's objects, with a place for the namespace, and whether they have one."""
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    for resource in access.request("GET", root)["resources"]:
        if resource["kind"] == kind and "/" not in resource["name"]:
            space = "/namespaces/{}" if resource["namespaced"] else ""
            return f"{root}{space}/{resource['name']}", resource["namespaced"]
    raise RefusedError(f"GET {root}", 404, f"no kind {kind}")


def nodes_for(items: Sequence[JSON]) -> int:
    """Return twice the number of nodes that the pods of all sets need, and two in each zone at least."""
    needed = Counter[str]()
    for item in items:
        spec = item.get("spec", {})
        replicas = spec.get("replicas", 1)
        for container in spec.get("template", {}).get("spec", {}).get("containers", []):
            requests = (container.get("resources") or {}).get("requests") or {}
            for name in ("cpu", "memory"):
                needed[name] += replicas * parse_amount(name, str(requests.get(name, "0")))
    share = max(needed["cpu"] / _CPU, needed["memory"] / _MEMORY)
    return max(2 * len(ZONES), 2 * math.ceil(share / _FILL))


def wait_until_calm(access: Access) -> Mapping[str, JSON]:
    """Return the pods that are there when none has changed its node or readiness for half a minute, by key."""
    seen: Mapping[str, JSON] = {}
    before: list[tuple[str, object, bool]] = []
    calm = time.monotonic()
    end = calm + _PATIENCE_SECONDS
    while time.monotonic() < min(end, calm + _CALM_SECONDS):
        found = access.request("GET", "/api/v1/pods")["items"]
        seen = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in found}
        now = [(key, pod["spec"].get("nodeName"), pod_ready(pod)) for key, pod in sorted(seen.items())]
        if now != before:
            before, calm = now, time.monotonic()
        time.sleep(1.0)
    return seen


def measure(sources: Sequence[str]) -> dict[str, object]:
    """Return what became of the manifests: the plan, its execution, and what the auditor saw."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        with running(folder / "plane") as plane:
            return _measured(plane, [item for source in sources for item in documents(source)], folder)


def _measured(plane: ControlPlane, items: Sequence[JSON], folder: Path) -> dict[str, object]:
    access, count = plane.admin, nodes_for(items)
    old = (
        node(f"old-{i}", zone=ZONES[i % len(ZONES)], cpu=f"{_CPU}m", memory=str(_MEMORY), machine=MACHINE)
        for i in range(count)
    )
    add_nodes(access, *old)
    applied = apply(access, items)
    stood = wait_until_calm(access)
    print(f"{len(stood)} pods on {count} nodes", file=sys.stderr, flush=True)
    planned = optimum(access, folder)
    asyncio.run(steer(Steering(access.write_kubeconfig(folder / "admin.kubeconfig"), on=True)))
    auditor = Auditor(access)
    with auditor.watching():
        run = asyncio.run(carried_out(folder / "run", own_rights(access)))
        nodes = list(auditor.now["Node"].values())
        left = auditor.leftovers()
    after = wait_until_calm(access)
    return {
        "objects": dict(sorted(applied.objects.items())),
        "refused_by_the_api_server": applied.refused,
        "pods": len(stood),
        "pods_not_ready": {"before": _unready(stood), "after": _unready(after)},
        "nodes": {"before": count, "after": len(nodes)},
        "machines_after": Counter(_machine(one) for one in nodes),
        "usd_per_hour": {"before": planned["cost"]["before"], "after": cost(nodes, folder)},
        "bound": max((plan.cost.lower_bound for plan in run.progress.accepted.values()), default=None),
        "held": Counter(one["code"] for one in planned["held"]),
        "warnings": planned["warnings"],
        "plans_carried_out": len(run.progress.accepted),
        "moves": sum(plan.moves for plan in run.progress.accepted.values()),
        "ends": Counter(type(end).__name__ for end in run.progress.ended.values()),
        "seconds": round(run.seconds, 1),
        "changes_audited": auditor.changes,
        "flaws": [*auditor.flaws, *map(str, violations(run.history))],
        "left_behind": left,
    }


def _unready(pods: Mapping[str, JSON]) -> list[str]:
    ended = ("Succeeded", "Failed")
    return sorted(key for key, pod in pods.items() if pod["status"].get("phase") not in ended and not pod_ready(pod))


def _machine(item: JSON) -> str:
    return str(item["metadata"]["labels"]["node.kubernetes.io/instance-type"])


def main() -> int:
    """Entry point of `python -m benchmarks.manifests`; 1 where something was hurt or left behind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", metavar="[NAMESPACE=]PATH")
    parser.add_argument("--out", type=Path, default=Path("out/bench/manifests.json"))
    given = parser.parse_args()
    result = measure(given.sources)
    print(json.dumps(result, indent=2))
    write_result("manifests", result, given.out)
    return 1 if result["flaws"] or result["left_behind"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Random clusters and catalogs, by seed, and two instances with names."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from tests.support.builders import (
    MIB,
    budget,
    deployed,
    node,
    offer,
    on_every_node,
    pod,
    stateful,
    toleration,
)

from kinema_core.events import (
    ClusterObject,
    FrozenMap,
    HostPort,
    NodeTerm,
    Offer,
    PlacementRules,
    Quota,
    Requirement,
)
from kinema_core.model.catalog import offers_from, parse_catalog
from kinema_core.model.cluster import Cluster, from_objects

DATA = Path(__file__).parent / "data"

SIZES = {"m2": (2000, 8, 85_000), "m4": (4000, 16, 170_000), "c4": (4000, 4, 120_000), "m8": (8000, 32, 350_000)}
"""Machine types of random instances: millicores, GiB, micro-USD per hour."""


def random_offers(rng: random.Random, *, limited: bool, complete: bool, quotas: bool = False) -> tuple[Offer, ...]:
    """Some of the types (`complete`: all) in two zones; `limited` ones run out, alone or as a pool over both zones."""
    found: list[Offer] = []
    for name in sorted(SIZES) if complete else rng.sample(sorted(SIZES), k=rng.randint(1, len(SIZES))):
        cpu, memory, price = SIZES[name]
        share = rng.choice(["none", "each", "pool"]) if limited else "none"
        for zone in ("a", "b"):
            more: dict[str, Any] = {"labels": {"disk": "ssd"} if name == "m8" else {}}
            if share != "none":
                more["available"] = rng.randint(0, 2)
            if share == "pool":
                more |= {"pool": name, "available": found[-1].available if zone == "b" else rng.randint(0, 3)}
            if name == "c4" and rng.random() < 0.3:
                more["taints"] = ["dedicated=batch:NoSchedule"]
            found.append(offer(name, zone=zone, cpu=cpu, memory=memory * 1024, price=price, **more))
    if rng.random() < 0.3:
        found.append(offer("m4", zone="a", spot=True, cpu=4000, memory=16 * 1024, price=60_000))
    return under_quotas(found, rng) if quotas else tuple(found)


def under_quotas(offers: Iterable[Offer], rng: random.Random) -> tuple[Offer, ...]:
    """The offers under a quota of vCPUs, one of machines in a zone, and one of memory: each is there by chance."""
    chosen: list[tuple[Callable[[Offer], bool], Callable[[Offer], Quota]]] = []
    cores, machines, gib = rng.randint(0, 14), rng.randint(0, 3), rng.randint(4, 60)
    chosen.append((lambda one: one.capacity_type == "on-demand", lambda one: _vcpus(one, cores)))
    chosen.append((lambda one: one.zone == "a", lambda _: Quota(name="machines in a", takes=1, left=machines)))
    chosen.append((lambda _: True, lambda one: Quota(name="memory", takes=one.capacity["memory"], left=gib * 2**30)))
    chosen = [one for one in chosen if rng.random() < 0.6]
    return tuple(
        msgspec.structs.replace(one, quotas=tuple(quota(one) for covers, quota in chosen if covers(one)))
        for one in offers
    )


def _vcpus(one: Offer, cores: int) -> Quota:
    return Quota(name="vCPUs", takes=one.capacity["cpu"], left=cores * 1000)


def _rules(rng: random.Random) -> PlacementRules:
    kind = rng.choice(["free"] * 6 + ["zone", "disk", "tolerant", "port", "spot"])
    if kind == "zone":
        return PlacementRules(node_selector=FrozenMap({"topology.kubernetes.io/zone": rng.choice("ab")}))
    if kind == "disk":
        term = NodeTerm(expressions=(Requirement(key="disk", operator="In", values=("ssd",)),))
        return PlacementRules(node_terms=(term,))
    if kind == "tolerant":
        return PlacementRules(tolerations=(toleration("dedicated", "batch"),))
    if kind == "port":
        return PlacementRules(host_ports=(HostPort(port=8080),))
    if kind == "spot":
        return PlacementRules(node_selector=FrozenMap({"kinema.io/capacity-type": "spot"}))
    return PlacementRules()


def random_cluster(
    seed: int,
    *,
    pods: int = 10,
    limited: bool = False,
    rules: bool = True,
    complete: bool = False,
    quotas: bool = False,
) -> tuple[Cluster, tuple[Offer, ...]]:
    """A cluster of up to `pods` pods on nodes where they fit, some pending, some held; and what is on sale."""
    rng = random.Random(seed)
    on_sale = random_offers(rng, limited=limited, complete=complete, quotas=quotas)
    names = [f"n{index}" for index in range(rng.randint(1, 4))]
    types = {name: rng.choice(sorted(SIZES)) for name in names}
    free = {name: [SIZES[types[name]][0] - 50, SIZES[types[name]][1] * 1024 - 64] for name in names}
    objects: list[ClusterObject] = list(on_every_node("logger", names))
    for name in names:
        cpu, memory, price = SIZES[types[name]]
        objects.append(
            node(
                name,
                cpu=cpu,
                memory=memory * 1024,
                machine=types[name],
                zone=rng.choice("ab"),
                price=str(Decimal(price) / 10**6),
                labels={"disk": "ssd"} if types[name] == "m8" else {},
                taints=["dedicated=batch:NoSchedule"] if rules and rng.random() < 0.15 else [],
                unschedulable=rng.random() < 0.1,
                annotations={"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
                if rng.random() < 0.1
                else {},
            )
        )
    left = pods
    index = 0
    while left > 0:
        replicas = min(left, rng.randint(1, 4))
        left -= replicas
        cpu, memory = rng.choice([100, 250, 400, 700, 1100, 1900]), rng.choice([128, 300, 1000, 2500])
        places = [_place(rng, free, cpu, memory) for _ in range(replicas)]
        held = {"kinema.io/do-not-move": "true"} if rng.random() < 0.12 else {}
        make = stateful if rng.random() < 0.2 else deployed
        more: dict[str, Any] = {"annotations": held} if held else {}
        if rng.random() < 0.1:
            more["annotations"] = {"kinema.io/strategy": rng.choice(["rolling", "evict", "surge"])}
        more["rules"] = _rules(rng) if rules else PlacementRules()
        objects += make(f"w{index}", places, cpu=cpu, memory=memory, **more)
        if rng.random() < 0.2:
            objects.append(budget(f"w{index}", max_unavailable=rng.choice(["0", "1"])))
        index += 1
    if rng.random() < 0.2:
        objects.append(pod("bare", node=rng.choice(names), cpu=100, memory=100))
    if rng.random() < 0.2:
        objects.append(pod("going", node=rng.choice(names), cpu=200, memory=100, terminating=True))
    return from_objects(objects, version=seed + 1), on_sale


def _place(rng: random.Random, free: dict[str, list[int]], cpu: int, memory: int) -> str | None:
    """A node with room, by chance; None (pending) when there is none, and sometimes otherwise."""
    fit = [name for name, (has_cpu, has_memory) in free.items() if has_cpu >= cpu and has_memory >= memory]
    if not fit or rng.random() < 0.1:
        return None
    name = rng.choice(fit)
    free[name][0] -= cpu
    free[name][1] -= memory
    return name


def boutique(replicas: int = 10, *, seed: int = 0, nodes: int = 12) -> tuple[Cluster, tuple[Offer, ...]]:
    """Online Boutique with so many replicas of everything, spread thinly over e2 machines as a peak leaves them.

    Requests are those of its public manifests, prices those of Google's europe-west3 in the thesis.
    """
    rng = random.Random(seed)
    rows = parse_catalog((DATA / "gke-e2-europe-west3.csv").read_text())
    by_type = {row.machine_type: row for row in rows}
    kinds = [rng.choice(["e2-standard-4", "e2-standard-8", "e2-highcpu-8"]) for _ in range(nodes)]
    names = [f"pool-{index:02}" for index in range(nodes)]
    with (DATA / "online-boutique.csv").open() as file:
        services = [(row["service"], int(row["cpu_m"]), int(row["memory_mi"])) for row in csv.DictReader(file)]
    objects: list[ClusterObject] = list(on_every_node("fluentbit", names, cpu=100, memory=200))
    zones = ["europe-west3-a", "europe-west3-b", "europe-west3-c"]
    bare = from_objects([node("x", zone=zone, machine="-") for zone in zones[:1]])
    room = {one.machine_type: one.allocatable for one in offers_from(rows, bare)}
    free = {}
    for index, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        allocatable = room[kind]
        objects.append(
            node(name, cpu=allocatable["cpu"], memory=allocatable["memory"] // MIB, machine=kind, zone=zones[index % 3])
        )
        free[name] = [allocatable["cpu"] - 100, allocatable["memory"] // MIB - 200]
    for service, cpu, memory in services:
        places = []
        for _ in range(replicas):
            name = max(free, key=lambda one: (free[one][0], one))
            free[name][0] -= cpu
            free[name][1] -= memory
            places.append(name)
        objects += deployed(service, places, cpu=cpu, memory=memory)
    state = from_objects(objects, version=41)
    assert by_type.keys() >= set(kinds)
    return state, offers_from(rows, state)

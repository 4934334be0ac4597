"""Tiny random clusters with every kind of rule, by seed: up to 8 pods that need or have a place, up to 4 nodes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec
from tests.optimizer.instances import under_quotas
from tests.support.builders import (
    budget,
    deployed,
    node,
    offer,
    on_every_node,
    pod,
    selector,
    stateful,
    toleration,
)
from tests.support.builders import namespace as space

from kinema_core.events import (
    ClusterObject,
    FrozenMap,
    HostPort,
    NodeTerm,
    Offer,
    PlacementRules,
    Pod,
    PodTerm,
    Requirement,
    Selector,
    Spread,
    StorageClass,
    Volume,
    VolumeClaim,
)
from kinema_core.model.cluster import Cluster, from_objects

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
RACK = "example.com/rack"
GPU = "nvidia.com/gpu"
DISKS = "attachable-volumes-csi-disk.example.com"
SIZES = {"s1": (1000, 4096, 40_000), "s2": (2000, 8192, 85_000), "s4": (4000, 16_384, 150_000)}
"""Machine types: millicores, MiB, micro-USD per hour."""

FEATURES = (
    "affinity",
    "anti-affinity",
    "spread",
    "volume",
    "port",
    "selector",
    "node-affinity",
    "toleration",
    "gpu",
    "spot",
    "budget",
    "do-not-disrupt",
    "priority",
    "rolling",
    "limit",
    "pool",
    "quota",
    "free-node",
    "daemon-rules",
    "namespaces",
    "pending",
)
"""What instances are made of; a test counts that each of them occurs."""


@dataclass
class _Making:
    rng: random.Random
    groups: float = 0.0
    objects: list[ClusterObject] = field(default_factory=list)
    has: set[str] = field(default_factory=set)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def feature(self, name: str, share: float) -> bool:
        """Whether the feature is used this time; remembered."""
        drawn = self.chance(share)
        if drawn:
            self.has.add(name)
        return drawn


@dataclass(frozen=True)
class RuleInstance:
    """A cluster, what is on sale, and what it is made of."""

    cluster: Cluster
    offers: tuple[Offer, ...]
    features: frozenset[str]


def rule_instance(seed: int, *, pods: int = 8, nodes: int = 4, groups: float = 0.0) -> RuleInstance:
    """One instance. Pods start anywhere they fit: some rules are broken already.

    `groups` is the share of workloads whose pods ask for those of an earlier one on their node, and are there.
    """
    making = _Making(random.Random(seed), groups)
    names = [f"n{index}" for index in range(making.rng.randint(1, nodes))]
    live = [_node(making, name) for name in names]
    making.objects += live
    _daemons(making, names)
    if making.feature("namespaces", 0.6):
        making.objects += [space("shop", labels={"tier": "front"}), space("bank", labels={"tier": "back"})]
    free = {one.name: [one.allocatable["cpu"] - 60, one.allocatable["memory"] // 2**20 - 70] for one in live}
    left, index = making.rng.randint(min(4, pods), pods), 0
    while left > 0:
        replicas = min(left, making.rng.choice([1, 1, 2, 2, 3]))
        _workload(making, f"w{index}", replicas, free)
        left -= replicas
        index += 1
    _others(making, names)
    return RuleInstance(from_objects(making.objects, version=seed + 1), _offers(making), frozenset(making.has))


def _node(making: _Making, name: str) -> Any:
    rng = making.rng
    machine = rng.choice(sorted(SIZES))
    cpu, memory, price = SIZES[machine]
    extra = {DISKS: rng.choice([1, 2])} if making.chance(0.3) else {}
    extra |= {GPU: 1} if making.chance(0.2) else {}
    labels = {"disk": "ssd"} if making.chance(0.4) else {}
    labels |= {RACK: rng.choice("xy")} if making.chance(0.5) else {}
    annotations = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"} if making.chance(0.08) else {}
    return node(
        name,
        cpu=cpu,
        memory=memory,
        machine=machine,
        zone=rng.choice(["a", "a", "b", "b", "c", None]),
        price="0" if making.feature("free-node", 0.08) else str(Decimal(price) / 10**6),
        spot=making.chance(0.1),
        extra=extra,
        labels=labels,
        annotations=annotations,
        taints=["dedicated=batch:NoSchedule"] if making.chance(0.12) else [],
        unschedulable=making.chance(0.08),
        ready=not making.chance(0.04),
    )


def _daemons(making: _Making, names: list[str]) -> None:
    made = list(on_every_node("logger", names, namespace="shop", cpu=50, memory=64))
    if making.feature("daemon-rules", 0.2):
        app = making.rng.choice(["w0", "w1"])
        term = PodTerm(topology_key=making.rng.choice([HOSTNAME, ZONE]), selector=selector(app=app))
        rules = making.rng.choice(
            [
                PlacementRules(anti_affinity=(term,)),
                PlacementRules(affinity=(term,)),
                PlacementRules(host_ports=(HostPort(port=8080),)),
            ]
        )
        made = [
            msgspec.structs.replace(one, **({"rules": rules} if isinstance(one, Pod) else {"template_rules": rules}))
            for one in made
            if not (isinstance(one, Pod) and making.chance(0.3))
        ]
    labeled = {"labels": FrozenMap({"app": "logger"})}
    making.objects += [msgspec.structs.replace(one, **labeled) if isinstance(one, Pod) else one for one in made]


def _workload(making: _Making, name: str, replicas: int, free: dict[str, list[int]]) -> None:
    rng = making.rng
    cpu, memory = rng.choice([100, 250, 400, 700, 900]), rng.choice([128, 300, 1000, 2500])
    places = [None if making.feature("pending", 0.2) else _place(rng, free, cpu, memory) for _ in range(replicas)]
    more: dict[str, Any] = {"namespace": rng.choice(["shop", "shop", "bank"])}
    more["labels"] = {"app": name, **({"team": rng.choice("rg")} if making.chance(0.5) else {})}
    annotations: dict[str, str] = {}
    if making.feature("rolling", 0.12):
        annotations["kinema.io/strategy"] = "rolling"
    elif making.chance(0.8 if making.groups else 0.1):  # some way to move is known of pods with this annotation
        annotations["kinema.io/strategy"] = rng.choice(["evict", "surge"])
    if making.feature("do-not-disrupt", 0.06):
        more["pod_annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    if making.feature("spot", 0.15):
        annotations["kinema.io/spot"] = "allow"
    if making.feature("priority", 0.4):
        more["priority"] = rng.choice([100, 1000])
    if making.feature("gpu", 0.08):
        more["extra"] = {GPU: 1}
    rules = _rules(making, name)
    if making.groups and making.chance(making.groups):
        rules, places = _following(making, rules, places, lambda at: _place(rng, at, cpu, memory), free)
    make = stateful if making.chance(0.3) else deployed
    extra = more.pop("extra", {})
    volumes = making.feature("volume", 0.3) and (make is stateful or replicas == 1)
    made = make(name, places, cpu=cpu, memory=memory, annotations=annotations, rules=rules, **more)
    finished = [_finished(making, one, extra, volumes=volumes) if isinstance(one, Pod) else one for one in made]
    making.objects += finished
    if making.feature("budget", 0.15):
        making.objects.append(budget(name, namespace=more["namespace"], max_unavailable=rng.choice(["0", "1"])))


def _place(rng: random.Random, free: dict[str, list[int]], cpu: int, memory: int) -> str | None:
    """A node with room, by chance; None (pending) when there is none."""
    fit = [name for name, (has_cpu, has_memory) in free.items() if has_cpu >= cpu and has_memory >= memory]
    if not fit:
        return None
    name = rng.choice(fit)
    free[name][0] -= cpu
    free[name][1] -= memory
    return name


def _following(
    making: _Making,
    rules: PlacementRules,
    places: list[str | None],
    place: Callable[[dict[str, list[int]]], str | None],
    free: dict[str, list[int]],
) -> tuple[PlacementRules, list[str | None]]:
    """The rules with an affinity to an earlier workload, and places beside its pods where there is room."""
    apps = {one.labels["app"]: one for one in making.objects if isinstance(one, Pod) and one.labels["app"] != "logger"}
    if not apps:
        return rules, places
    app = making.rng.choice(sorted(apps))
    beside = {one.node for one in making.objects if isinstance(one, Pod) and one.labels["app"] == app}
    term = PodTerm(topology_key=HOSTNAME, selector=selector(app=app), namespaces=("shop", "bank"))
    found = [place({name: room for name, room in free.items() if name in beside}) for _ in places]
    return msgspec.structs.replace(rules, affinity=(*rules.affinity, term)), found


def _finished(making: _Making, one: Pod, extra: dict[str, int], *, volumes: bool) -> Pod:
    """The pod with its devices, and a volume of its own."""
    requests = FrozenMap({**one.requests, **extra})
    claims: tuple[str, ...] = ()
    if volumes:
        claims = (f"data-{one.name}",)
        _volume(making, one, claims[0])
    return msgspec.structs.replace(one, requests=requests, rules=msgspec.structs.replace(one.rules, claims=claims))


def _volume(making: _Making, one: Pod, claim: str) -> None:
    rng = making.rng
    zoned = NodeTerm(expressions=(Requirement(key=ZONE, operator="In", values=tuple(rng.sample("abc", k=2))),))
    local = NodeTerm(expressions=(Requirement(key=HOSTNAME, operator="In", values=(one.node or "n0",)),))
    kind = rng.choice(["zoned", "zoned", "local", "anywhere", "waiting", "lost"])
    bound = kind in {"zoned", "local", "anywhere"}
    making.objects.append(
        VolumeClaim(
            name=claim,
            namespace=one.namespace,
            uid=f"uid-{claim}",
            volume=f"pv-{claim}" if bound else None,
            storage_class="late" if kind == "waiting" else None,
        )
    )
    if bound:
        terms = {"zoned": (zoned,), "local": (local,), "anywhere": None}[kind]
        driver = "disk.example.com" if kind != "local" else ""
        making.objects.append(Volume(name=f"pv-{claim}", uid=f"uid-pv-{claim}", node_terms=terms, driver=driver))
    if kind == "waiting":
        terms = (zoned,) if making.chance(0.5) else None
        making.objects.append(StorageClass(name="late", uid="uid-late", wait_for_consumer=True, node_terms=terms))


def _key(rng: random.Random) -> str:
    return rng.choice([HOSTNAME, HOSTNAME, ZONE, ZONE, RACK])


def _selector(making: _Making, name: str) -> Selector:
    rng = making.rng
    return rng.choice(
        [
            selector(app=name),
            selector(app=name),
            selector(app=rng.choice(["w0", "w1", "w2", "logger"])),
            selector(team=rng.choice("rg")),
            Selector(expressions=(Requirement(key="app", operator="NotIn", values=(name,)),)),
        ]
    )


def _term(making: _Making, name: str) -> PodTerm:
    more: dict[str, Any] = {}
    if making.chance(0.2):
        more["namespaces"] = ("shop", "bank")
    elif making.chance(0.15):
        more["namespace_selector"] = making.rng.choice([selector(), selector(tier="front")])
    if making.chance(0.1):
        more["match_label_keys"] = ("team",)
    if making.chance(0.1):
        more["weight"] = 10
    return PodTerm(topology_key=_key(making.rng), selector=_selector(making, name), **more)


def _spread(making: _Making, name: str) -> Spread:
    rng = making.rng
    return Spread(
        topology_key=_key(rng),
        max_skew=rng.choice([1, 1, 2]),
        when_unsatisfiable="ScheduleAnyway" if making.chance(0.1) else "DoNotSchedule",
        selector=_selector(making, name),
        min_domains=rng.choice([1, 1, 1, 2, 3]),
        match_label_keys=("team",) if making.chance(0.15) else (),
        node_affinity_policy=rng.choice(["Honor", "Ignore"]),
        node_taints_policy=rng.choice(["Honor", "Ignore"]),
    )


def _rules(making: _Making, name: str) -> PlacementRules:
    rng = making.rng
    rules: dict[str, Any] = {}
    if making.feature("affinity", 0.2):
        rules["affinity"] = tuple(_term(making, name) for _ in range(rng.choice([1, 1, 2])))
    if making.feature("anti-affinity", 0.2):
        rules["anti_affinity"] = tuple(_term(making, name) for _ in range(rng.choice([1, 1, 2])))
    if making.feature("spread", 0.25):
        rules["spread"] = tuple(_spread(making, name) for _ in range(rng.choice([1, 1, 2])))
    if making.feature("port", 0.12):
        address = rng.choice(["0.0.0.0", "0.0.0.0", "10.0.0.1", "10.0.0.2"])
        rules["host_ports"] = (HostPort(port=rng.choice([8080, 9090]), host_ip=address),)
    if making.feature("selector", 0.08):
        rules["node_selector"] = FrozenMap({rng.choice(["disk", ZONE]): "ssd"} if making.chance(0.5) else {ZONE: "a"})
    if making.feature("node-affinity", 0.08):
        key = rng.choice([ZONE, RACK])
        among = [Requirement(key=key, operator=one, values=("a", "b")) for one in ("In", "NotIn")]
        known = [Requirement(key=key, operator=one) for one in ("Exists", "DoesNotExist")]
        rules["node_terms"] = (NodeTerm(expressions=(rng.choice([*among, *known]),)),)
    if making.feature("toleration", 0.25):
        rules["tolerations"] = (toleration("dedicated", "batch"),)
    if making.chance(0.03):
        rules["scheduler"] = "volcano"
    if making.chance(0.03):
        rules["gated"] = True
    return PlacementRules(**rules)


def _others(making: _Making, names: list[str]) -> None:
    """Pods that are nobody's to move."""
    rng = making.rng
    if making.chance(0.15):
        making.objects.append(pod("bare", node=rng.choice(names), labels={"app": "w0"}, rules=_rules(making, "w0")))
    if making.chance(0.1):
        away = PodTerm(topology_key=HOSTNAME, selector=selector(app="w0"))
        rules = PlacementRules(host_ports=(HostPort(port=8080),), anti_affinity=(away,))
        making.objects.append(pod("going", node=rng.choice(names), labels={"app": "w1"}, rules=rules, terminating=True))
    if making.chance(0.05):
        making.objects.append(pod("astray", node="n9", labels={"app": "w0"}))


def _offers(making: _Making) -> tuple[Offer, ...]:
    rng = making.rng
    wanted = rng.randint(1, 4)
    found: dict[str, Offer] = {}
    pooled: dict[str, int] = {}
    while len(found) < wanted:
        machine, zone, spot = rng.choice(sorted(SIZES)), rng.choice("abc"), making.chance(0.15)
        cpu, memory, price = SIZES[machine]
        more: dict[str, Any] = {}
        if making.feature("pool", 0.2):
            more = {"pool": machine, "available": pooled.setdefault(machine, rng.randint(0, 2))}
        elif making.feature("limit", 0.3):
            more = {"available": rng.randint(0, 2)}
        extra = {DISKS: 1} if making.chance(0.3) else {}
        labels = {RACK: rng.choice("xyz")} if making.chance(0.4) else {}
        one = offer(
            machine,
            zone=zone,
            spot=spot,
            cpu=cpu,
            memory=memory,
            price=price * 2 // 5 if spot else price,
            extra={**extra, **({GPU: 1} if making.chance(0.2) else {})},
            labels={**labels, **({"disk": "ssd"} if making.chance(0.3) else {})},
            taints=["dedicated=batch:NoSchedule"] if making.chance(0.12) else [],
            **more,
        )
        found[one.name] = one
    offers = tuple(found.values())
    return under_quotas(offers, rng) if making.feature("quota", 0.25) else offers

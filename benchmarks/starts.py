"""Clusters as a consolidation meets them: after a peak, on machines that are not needed any more, and full of rules.

They are made by letting Karpenter's provisioning buy nodes for the pods of the peak, the scheduler bind them, and then
taking replicas away at random. The same seed gives the same cluster.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from typing import Final

import msgspec

from benchmarks.clusters import CREATED, HOSTNAME, NAMESPACE, NOW, SURGE, ZONE, Deployed, node_of, offer_of
from benchmarks.machine_types import ZONES, family
from benchmarks.volumes import stateful
from kinema_core.events import (
    EMPTY,
    NO_RULES,
    ClusterObject,
    FrozenMap,
    Labels,
    Node,
    Offer,
    PlacementRules,
    Pod,
    PodTerm,
    Selector,
    Spread,
    Toleration,
    Workload,
)
from kinema_core.model.catalog import offers_from, parse_catalog
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_optimizer.policies.karpenter import Karpenter
from kinema_optimizer.policies.world import NOWHERE, World, bind
from kinema_sim.load.model import load_application

MEBIBYTE: Final = 2**20
PODS: Final = 12_000
"""Of the cluster full of rules."""
SEEDS: Final = 5
"""Of the Deployments after a peak, with rules and without."""


@dataclass(frozen=True)
class Start:
    """A cluster, and what is on sale for it."""

    cluster: Cluster
    offers: tuple[Offer, ...]


def starts(pods: int = PODS) -> Mapping[str, Callable[[], Start]]:
    """The clusters by name; `pods` of the one full of rules."""
    after = {name: partial(_after, peak) for name, peak in peaks().items()}
    return {**after, "rich": lambda: constraint_rich(pods)}


def peaks() -> Mapping[str, Peak]:
    """The peaks after which such clusters are left, by name."""
    found = {"boutique": Peak(boutique_services), "hundred": Peak(partial(deployment_services, 100))}
    for seed in range(SEEDS):
        found[f"deployments-{seed}"] = Peak(partial(deployment_services, seed=seed), seed)
    for seed in range(SEEDS):
        name = f"deployments-constrained-{seed}" if seed else "deployments-constrained"
        found[name] = Peak(partial(deployment_services, constrained=True, seed=seed), seed)
    return found


@dataclass(frozen=True)
class Service:
    """A Deployment with its replicas at the peak and afterwards."""

    name: str
    cpu: int
    memory_mi: int
    peak: int
    after: int
    rules: PlacementRules = NO_RULES
    budget: str | None = None
    undisrupted: int = 0
    """So many of its pods are marked not to be disrupted."""


@dataclass(frozen=True)
class Peak:
    """Workloads at a peak and after it; the seed decides whose replicas are taken away."""

    services: Callable[[], list[Service]]
    seed: int = 0


def _after(peak: Peak) -> Start:
    return after_peak(peak.services(), seed=peak.seed)


def e2_catalog() -> str:
    """The e2 types of the thesis' catalog, as a file."""
    return resources.files("kinema_sim").joinpath("data/gke-e2-europe-west3.csv").read_text()


def e2_offers() -> tuple[Offer, ...]:
    """The same in three zones."""
    rows = [replace(row, zone=zone) for row in parse_catalog(e2_catalog()) for zone in ZONES]
    return offers_from(rows, Cluster())


def boutique_services(copies: int = 10) -> list[Service]:
    """Online Boutique so many times, about 16 pods each after a peak with six times as many."""
    return [
        Service(f"{service.name}-{copy}", service.cpu_m, service.memory_mi, peak=6 * after, after=after)
        for copy in range(copies)
        for service in load_application("online-boutique").services
        for after in (max(1, round(0.6 * service.min)),)
    ]


def boutique_after_peak(copies: int = 10) -> Start:
    """Online Boutique so many times on what six times as many pods needed."""
    return after_peak(boutique_services(copies), seed=0)


def deployments_after_peak(deployments: int = 400, *, constrained: bool = False, seed: int = 0) -> Start:
    """Deployments of some three pods each on what nearly three times as many needed: about 175 nodes."""
    return after_peak(deployment_services(deployments, constrained=constrained, seed=seed), seed=seed)


def deployment_services(deployments: int = 400, *, constrained: bool = False, seed: int = 0) -> list[Service]:
    """Deployments of some three pods each, after a peak with nearly three times as many.

    Constrained: one in ten keeps its pods on different nodes, one in fifty has a budget that never allows an eviction,
    one in twenty one of one pod at a time, and one pod in two hundred is marked not to be disrupted.
    """
    draw = random.Random(seed)
    services = []
    for index in range(deployments):
        cpu = min(max(round(draw.lognormvariate(7.0, 0.7) / 10) * 10, 50), 8000)
        memory = round(cpu * draw.lognormvariate(1.3, 0.5) / 16) * 16 + 64
        after = min(1 + int(draw.expovariate(1 / 2.3)), 12)
        one = Service(f"app-{index:04d}", cpu, memory, peak=round(2.8 * after) + 1, after=after)
        services.append(_constrained(one, draw) if constrained else one)
    return services


def _constrained(one: Service, draw: random.Random) -> Service:
    rules = PlacementRules(anti_affinity=(_apart(one.name),)) if draw.random() < 0.10 else NO_RULES
    which = draw.random()
    budget = "0" if which < 0.02 else "1" if which < 0.07 else None
    marked = sum(draw.random() < 0.005 for _ in range(one.after))
    return replace(one, rules=rules, budget=budget, undisrupted=marked)


def _apart(name: str, key: str = HOSTNAME) -> PodTerm:
    return PodTerm(topology_key=key, selector=Selector(labels=FrozenMap({"app": name})))


def at_peak(services: Sequence[Service]) -> Cluster:
    """All pods of the peak, waiting for nodes."""
    return from_objects([item for one in services for item in _deployed(one).objects()])


def after_peak(services: Sequence[Service], *, seed: int, offers: tuple[Offer, ...] | None = None) -> Start:
    """The cluster when these services' peak is over; every node that it needed is still there."""
    sold = e2_offers() if offers is None else offers
    draw = random.Random(seed)
    world = World(at_peak(services), sold, NOW)
    Karpenter().provision(world, world.waiting())
    kept: list[str] = []
    for one in services:
        pods = [f"{NAMESPACE}/{one.name}-5d4f-{number:05d}" for number in range(one.peak)]
        kept += draw.sample(pods, one.after)
    return Start(settled(world, kept), sold)


def _deployed(one: Service) -> Deployed:
    return Deployed(
        name=one.name,
        requests=FrozenMap({"cpu": one.cpu, "memory": one.memory_mi * MEBIBYTE, "pods": 1}),
        on=(None,) * one.peak,
        rules=one.rules,
        annotations=SURGE if one.after == 1 and one.budget is None else EMPTY,
        budget=one.budget,
        pod_annotations={
            number: FrozenMap({"karpenter.sh/do-not-disrupt": "true"}) for number in range(one.undisrupted)
        },
    )


def settled(world: World, kept: Collection[str] | None = None) -> Cluster:
    """The world as a cluster of running pods; only those `kept`, where given, with their workloads shrunk to them."""
    chosen = world.pods.keys() if kept is None else frozenset(kept)
    running = {key: world.where[key] for key in world.pods if key in chosen and world.where[key] != NOWHERE}
    pods = [_started(world.pods[key], world.sites[index].name) for key, index in running.items()]
    replicas = Counter(f"{pod.owner.kind}/{pod.owner.name}" for pod in pods if pod.owner is not None)
    found: list[ClusterObject] = [*pods]
    for item in all_objects(world.cluster):
        if isinstance(item, Workload):
            found.append(_resized(item, replicas))
        elif not isinstance(item, Pod):
            found.append(item)
    live = {item.name for item in found if isinstance(item, Node)}
    found += [
        node_of(site.name, site.offer)
        for index, site in enumerate(world.sites)
        if site.offer is not None and world.alive[index] and site.name not in live
    ]
    return from_objects(found)


def _started(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, node=node, phase="Running", ready=True, unschedulable=False, started=CREATED)


def _resized(item: Workload, replicas: Counter[str]) -> Workload:
    name = f"ReplicaSet/{item.name}-5d4f" if item.type == "Deployment" else f"{item.type}/{item.name}"
    count = replicas[name]
    updated = count if item.updated or item.type == "Deployment" else 0
    return msgspec.structs.replace(item, replicas=count, ready=count, current=count, updated=updated)


def constraint_rich(pods: int = PODS, *, seed: int = 0) -> Start:
    """Deployments of twenty pods, a quarter of them with rules, spread over n2 nodes at about half of their CPU.

    The rules: one pod per node, an even spread over zones, the same zone as another Deployment, disruption budgets, a
    pool of tainted nodes, and sets whose pods have a disk in one zone each.
    """
    draw = random.Random(seed)
    offers = _pooled_offers()
    objects = [item for index in range(pods // 20) for item in _rich(index, draw)]
    usual = [offer for offer in offers if offer.machine_type in ("n2-standard-16", "n2-standard-32")]
    asked = sum(item.requests["cpu"] for item in objects if isinstance(item, Pod))
    fleet: list[ClusterObject] = []
    have = 0
    while have < 2 * asked:
        offer = draw.choice([one for one in usual if bool(one.taints) == (draw.random() < 0.04)])
        fleet.append(node_of(f"node-{len(fleet):05d}", offer))
        have += offer.allocatable["cpu"]
    world = World(from_objects([*fleet, *objects]), offers, NOW)
    left = bind(world, world.waiting(), "least-allocated")
    Karpenter(binds="planned").provision(world, left)
    return Start(settled(world), offers)


_DEDICATED: Final = "dedicated"


def _pooled_offers() -> tuple[Offer, ...]:
    """The n2 types in three zones, each also tainted for a pool of its own."""
    found = []
    for machine in family("n2"):
        for zone in ZONES:
            one = offer_of(machine, ("cpu", "memory"), zone)
            one = msgspec.structs.replace(
                one, capacity=_with_pods(one.capacity), allocatable=_with_pods(one.allocatable)
            )
            labels = FrozenMap({**one.labels, _DEDICATED: "batch"})
            tainted = msgspec.structs.replace(
                one, name=f"{one.name}#2", labels=labels, taints=(f"{_DEDICATED}=batch:NoSchedule",)
            )
            found += [one, tainted]
    return tuple(found)


def _with_pods(amounts: FrozenMap[int]) -> FrozenMap[int]:
    return FrozenMap({**amounts, "pods": 110})


def _rich(index: int, draw: random.Random) -> Iterable[ClusterObject]:
    """The objects of one workload of twenty pods."""
    name = f"app-{index:05d}"
    cpu = min(max(round(draw.lognormvariate(6.2, 0.8) / 10) * 10, 20), 8000)
    memory = round(cpu * draw.lognormvariate(1.3, 0.5) / 8) * 8 + 32
    requests = FrozenMap({"cpu": cpu, "memory": memory * MEBIBYTE, "pods": 1})
    kind = _RULES[draw.randrange(len(_RULES))] if draw.random() < 0.25 else ""
    if kind == "volumes":
        return stateful(name, requests, [ZONES[draw.randrange(3)] for _ in range(20)])
    mate = f"app-{draw.randrange(max(1, index)):05d}"
    rules, annotations, budget = _rules(kind, name, mate), EMPTY, None
    if kind == "budget":
        budget = draw.choice(("0", "1", "5"))
    return Deployed(name, requests, (None,) * 20, rules, annotations, budget=budget).objects()


_RULES: Final = ("apart", "spread", "together", "budget", "taint", "volumes")


def _rules(kind: str, name: str, mate: str) -> PlacementRules:
    own = Selector(labels=FrozenMap({"app": name}))
    if kind == "apart":
        return PlacementRules(anti_affinity=(_apart(name),))
    if kind == "spread":
        even = Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=own)
        return PlacementRules(spread=(even,))
    if kind == "together" and mate != name:
        return PlacementRules(affinity=(_apart(mate, ZONE),))
    if kind == "taint":
        selector: Labels = FrozenMap({_DEDICATED: "batch"})
        return PlacementRules(node_selector=selector, tolerations=(Toleration(key=_DEDICATED, operator="Exists"),))
    return NO_RULES

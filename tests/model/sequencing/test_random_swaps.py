"""Random plans with shuffles between nodes that stay: whatever order is found, the checker accepts it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import hypothesis
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import NOW, budget, cluster, deployed, node, offers, on_every_node, selector, stateful
from tests.support.plans import plan_for

from kinema_core.events import ClusterObject, HostPort, PlacementRules, Plan, PodTerm, Spread
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import listed, mobility
from kinema_core.model.sequencing.waves import order_transition, with_steps

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def rules_for(rng: random.Random, name: str, names: Sequence[str]) -> PlacementRules:
    """Some rule between pods, or none."""
    key = rng.choice([ZONE, HOST])
    other = selector(app=rng.choice(names))
    spread = Spread(
        topology_key=key,
        max_skew=rng.randrange(1, 3),
        when_unsatisfiable="DoNotSchedule",
        selector=selector(app=name),
        min_domains=rng.randrange(1, 4),
    )
    return rng.choice(
        [
            PlacementRules(anti_affinity=(PodTerm(topology_key=HOST, selector=selector(app=name)),)),
            PlacementRules(anti_affinity=(PodTerm(topology_key=key, selector=other),)),
            PlacementRules(affinity=(PodTerm(topology_key=key, selector=other),)),
            PlacementRules(spread=(spread,)),
            PlacementRules(host_ports=(HostPort(port=80, protocol="TCP"),)),
            PlacementRules(claims=("data",)),
            PlacementRules(),
            PlacementRules(),
        ]
    )


def world(rng: random.Random, *, ruled: bool) -> Cluster:
    """Up to six nodes, tightly filled."""
    nodes = [
        node(
            f"n{n}",
            cpu=rng.choice([1000, 2000]),
            zone=rng.choice("ab"),
            price="0.1",
            unschedulable=rng.randrange(12) == 0,
        )
        for n in range(rng.randrange(2, 7))
    ]
    room = {item.name: item.allocatable["cpu"] - 50 for item in nodes}
    names = [f"w{n}" for n in range(rng.randrange(2, 7))]
    made: list[ClusterObject] = []
    even = rng.randrange(3) == 0  # pods of one size fill the nodes to the last place: who moves takes another's
    for name in names:
        cpu = 475 if even else rng.choice([150, 300, 450, 700, 900])
        places: list[str | None] = []
        for _ in range(4 if even else rng.randrange(1, 5)):
            fitting = sorted(place for place, free in room.items() if free >= cpu)
            place = rng.choice(fitting) if fitting and (even or rng.randrange(10)) else None
            places.append(place)
            if place is not None:
                room[place] -= cpu
        rules = rules_for(rng, name, names) if ruled else PlacementRules()
        kind = rng.choice([deployed, deployed, stateful])
        style = {"kinema.io/strategy": rng.choice(["evict", "rolling"])} if rng.randrange(4) == 0 else {}
        made += kind(name, places, cpu=cpu, rules=rules, annotations=style)
        if rng.randrange(3) == 0:
            made.append(budget(name, max_unavailable="1"))
    logger = on_every_node("logger", [item.name for item in nodes], cpu=50)
    return cluster(
        nodes, logger, made, [budget("all", selects={}, max_unavailable="1")] if rng.randrange(3) == 0 else []
    )


def shuffled(rng: random.Random, on: Cluster) -> Plan:
    """Some nodes go, some come, and pods change places, so that everybody fits in the end."""
    found = next((plan for _ in range(20) if (plan := _shuffled(rng, on)) is not None), None)
    return found or plan_for(on, offers(), unplaced={pod.key: "no-room" for pod in listed(on) if pod.node is None})


def _shuffled(rng: random.Random, on: Cluster) -> Plan | None:
    gone = {item.name for item in on.nodes if rng.randrange(5) == 0}
    boot = {f"new-{n}": rng.choice(["m2/a/on-demand", "m4/a/on-demand"]) for n in range(rng.randrange(0, 2))}
    room = {item.name: item.allocatable["cpu"] - 50 for item in on.nodes if item.name not in gone}
    room |= {name: 1950 if offer.startswith("m2") else 3950 for name, offer in boot.items()}
    closed = {item.name for item in on.nodes if item.unschedulable}
    pods = sorted(listed(on), key=lambda pod: (-pod.requests["cpu"], pod.key))
    # Whether a pod with rules between pods may move at all is not the question here.
    held = {key for key, item in mobility(on, NOW).held.items() if item.code in {"single-replica", "pdb-never"}}
    moving = [pod for pod in pods if pod.node in gone or pod.node is None or (rng.randrange(2) and pod.key not in held)]
    if any(pod.node is not None and pod.key in held for pod in moving):
        return None
    for pod in pods:
        if pod not in moving:
            room[pod.node or ""] -= pod.requests["cpu"]
    to: dict[str, str] = {}
    for pod in moving:
        fitting = sorted(name for name, free in room.items() if free >= pod.requests["cpu"] and name not in closed)
        if fitting:
            to[pod.key] = rng.choice(fitting)
            room[to[pod.key]] -= pod.requests["cpu"]
        elif pod.node is not None:
            return None
    unplaced = {pod.key: "no-room" for pod in moving if pod.key not in to}
    used = {name: offer for name, offer in boot.items() if name in to.values()}
    return plan_for(on, offers(), to=to, boot=used, delete=sorted(gone), unplaced=unplaced)


def wrong(plan: Plan, on: Cluster) -> set[tuple[str, str]]:
    """Codes and subjects of everything wrong with a plan."""
    return {(item.code, item.subject) for item in check_plan(plan, on, offers(), NOW)}


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_every_order_is_accepted(seed: int, ruled: bool) -> None:
    """The steps of any plan add nothing to what is wrong with it; without rules between pods there always is a way."""
    rng = random.Random(seed)
    on = world(rng, ruled=ruled)
    plan = shuffled(rng, on)
    before = wrong(plan, on)
    transition = order_transition(plan, on, offers(), now=NOW)
    hypothesis.event(f"waves {transition.waves}, temporary {len(transition.temporary)}, stuck {bool(transition.stuck)}")
    if not transition.stuck:
        assert wrong(with_steps(plan, transition), on) - before == set()
    elif not ruled and not before:
        assert any(item.strategy == "rolling" for item in plan.placements)

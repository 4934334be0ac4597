"""Small random clusters whose Deployments are to request less, or more, by seed."""

from __future__ import annotations

import random
from typing import Any

from tests.optimizer.instances import SIZES
from tests.support.builders import MIB, amounts, cluster, deployed, node, offer

from kinema_core.events import ClusterObject, Offer, Plan, WorkloadForecast
from kinema_core.model.cluster import Cluster


def lowered(state: Cluster, seed: int, *, most: int = 100) -> tuple[WorkloadForecast, ...]:
    """For every Deployment its requests times random factors of 40 to `most` percent."""
    rng = random.Random(seed)
    found = []
    for one in state.workloads:
        before = one.template_requests
        if one.type == "Deployment":
            cpu, memory = (before[name] * rng.choice([100, 90, rng.randint(40, most)]) for name in ("cpu", "memory"))
            after = amounts(max(1, cpu // 100), max(1, memory // 100 // MIB), pods=1)
            found.append(
                WorkloadForecast(
                    workload=one.key, requests_before=before, requests_after=after, predicted=after, samples=60
                )
            )
    return tuple(found)


def only_resizes(plan: Plan, state: Cluster) -> bool:
    """Whether no node comes or goes, and no pod moves but those that restart for new requests."""
    renewed = {pod.key for one in plan.resizes for pod in state.pods_by_workload[one.workload]}
    moving = {one.pod for one in plan.placements if one.source not in {None, one.to}}
    return moving <= renewed and all(one.action == "keep" for one in plan.nodes)


def filled_cluster(seed: int, *, pods: int = 14, rules: Any = None) -> tuple[Cluster, tuple[Offer, ...]]:
    """Up to six nodes, half to quite full; nobody is pending; what is on sale, their own types or not.

    `rules` gives a Deployment's rules by random numbers and its name.
    """
    rng = random.Random(seed)
    names = [f"n{index}" for index in range(rng.randint(2, 6))]
    free, objects = {}, list[ClusterObject]()
    for name in names:
        machine = rng.choice(["m2", "m2", "m4", "c4"])
        cpu, memory, price = SIZES[machine]
        free[name] = [cpu, memory * 1024]
        dear = rng.choice(["1", "1", "0.7"])
        objects.append(
            node(name, cpu=cpu, memory=memory * 1024, machine=machine, price=f"{price * float(dear) / 10**6:.6f}")
        )
    left = rng.randint(pods // 2, pods)
    for index in range(pods):
        cpu, memory = rng.choice([100, 250, 400, 700, 1100, 1900]), rng.choice([128, 300, 1000])
        places: list[str | None] = []
        for _ in range(min(left, rng.randint(1, 4))):
            fit = [name for name in names if free[name][0] >= cpu and free[name][1] >= memory]
            if fit:
                places.append(rng.choice(fit))
                free[places[-1] or ""][0] -= cpu
                free[places[-1] or ""][1] -= memory
        left -= len(places)
        if places:
            more = {} if rules is None else {"rules": rules(rng, f"w{index}")}
            objects += deployed(f"w{index}", places, cpu=cpu, memory=memory, **more)
    sold = rng.choice([["m2", "m4", "c4"], ["m2", "m4", "c4"], ["m4"], ["m8"]])
    on_sale = tuple(
        offer(name, zone="a", cpu=SIZES[name][0], memory=SIZES[name][1] * 1024, price=SIZES[name][2]) for name in sold
    )
    return cluster(*objects), on_sale

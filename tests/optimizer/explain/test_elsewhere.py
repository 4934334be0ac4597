"""Where the pods of a deleted node would go, by first fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.optimizer.instances import random_cluster
from tests.support.builders import NOW, cluster, deployed, node, offer

from kinema_core.events import Offer
from kinema_core.model.cluster import Cluster
from kinema_optimizer.explain.elsewhere import Alternative, without
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.instance import Instance, Solution, content, cost, flaws
from kinema_optimizer.problem.question import Question


def asked(state: Cluster, on_sale: tuple[Offer, ...]) -> Instance:
    """The problem of a cluster, without pods that wait or are replaced anyway."""
    problem = compiled(Question(state, on_sale, NOW, "reschedule")).packing
    return replace(problem, pending=np.zeros_like(problem.pending), rolled=np.zeros_like(problem.rolled))


def packed(problem: Instance, gone: list[int], found: Alternative) -> Solution:
    """The alternative as an answer to the problem."""
    keep = np.ones(len(problem.nodes), dtype=bool)
    keep[gone] = False
    return Solution(
        keep=keep,
        changes=content([dict(found.onto.get(e, {})) for e in range(len(problem.nodes))]),
        boots=np.array([machine for machine, _ in found.boots], dtype=np.int64),
        booted=content([dict(taken) for _, taken in found.boots]),
        unplaced=np.zeros(len(problem.pending), dtype=np.int64),
    )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), limited=st.booleans())
def test_alternative_obeys_every_rule(seed: int, limited: bool) -> None:
    """What leaves no pod without a place is a sound answer, and its price is that of its new machines."""
    problem = asked(*random_cluster(seed, pods=14, limited=limited))
    free = replace(problem, node_fixed=np.zeros_like(problem.node_fixed))
    for e in range(len(problem.nodes)):
        found = without(free, [e])
        if found.homeless:
            continue
        packing = packed(free, [e], found)
        assert flaws(free, packing) == ()
        assert cost(free, packing) == int(free.node_price.sum() - free.node_price[e]) + found.price


def test_free_room_is_used_before_money_is_spent() -> None:
    """Pods that fit on another node go there, and only the rest needs a machine: the cheapest that holds it."""
    state = cluster(
        node("n0", cpu=4000, machine="m4"),
        node("n1", cpu=1000, machine="m4"),
        *deployed("web", ["n0", "n0", "n0"], cpu=600),
    )
    on_sale = (offer("m4", cpu=4000, price=170_000), offer("m2", cpu=2000, price=90_000))
    found = without(asked(state, on_sale), [0])
    assert found.onto == {1: {0: 1}}
    assert (found.boots, found.price) == (((1, {0: 2}),), 90_000)


def test_pods_without_any_place_are_counted() -> None:
    """Where nothing is on sale and no room is free, the pods are homeless and nothing is bought."""
    state = cluster(node("n0", cpu=4000, machine="m4", price="0.1"), *deployed("web", ["n0", "n0"], cpu=600))
    found = without(asked(state, ()), [0])
    assert (found.homeless, found.price) == (((0, 2),), 0)

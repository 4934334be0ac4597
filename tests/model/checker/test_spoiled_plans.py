"""The plan checker refuses every way of spoiling a valid plan, each with its own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.builders import (
    NOW,
    amounts,
    cluster,
    deployed,
    labels,
    mirror,
    node,
    offer,
    offers,
    on_every_node,
    pod,
    unreadable,
)
from tests.support.plans import change, cost, describe, first, leave, place, plan_for, plus, without

from kinema_core.events import (
    Held,
    Offer,
    PlacementRules,
    Plan,
    Resize,
)
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions

NEW = "kinema-1-0"
DB = PlacementRules(node_selector=labels({"disk": "ssd"}))
OFFERS = (*offers(), offer("limited", price=1000, available=0), offer("cheap", price=20_000, spot=True))


def state() -> Cluster:
    """Three nodes: n1 with room, n2 to be emptied, n3 with a pod that may not move; one pod is pending."""
    return cluster(
        node("n1", labels={"disk": "ssd"}),
        node("n2"),
        node("n3"),
        node("n4", taints=["dedicated=db:NoSchedule"], unschedulable=True),
        on_every_node("log", ["n1", "n2", "n3"]),
        mirror("proxy", node="n1"),
        deployed("web", ["n1", "n2"], cpu=500, memory=512),
        deployed("db", ["n1"], cpu=500, memory=512, rules=DB),
        pod("bare", node="n3"),
        pod("going", node="n1", terminating=True, cpu=1000),
        deployed("big", [None], cpu=1900, memory=1024),
        unreadable("Pod bank/odd", node="n3"),
    )


def valid() -> Plan:
    """Moves the pod of n2 to n1, places the pending pod on a new small node, deletes n2 and the idle n4."""
    return plan_for(
        state(),
        OFFERS,
        to={"shop/web-1": "n1", "shop/big-0": NEW},
        boot={NEW: "m2/a/on-demand"},
        delete=["n2", "n4"],
    )


def codes(plan: Plan, on: Cluster | None = None, on_sale: tuple[Offer, ...] = OFFERS, **options: Any) -> set[str]:
    """The codes of everything wrong with a plan."""
    return {each.code for each in check_plan(plan, on or state(), on_sale, NOW, MobilityOptions(**options))}


def test_the_valid_plan_is_accepted() -> None:
    """Nothing is wrong with it: what follows spoils it in one place each."""
    assert check_plan(valid(), state(), OFFERS, NOW) == ()


SPOILED: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "another schema": (lambda plan: change(plan, schema="kinema.plan/v2"), "schema"),
    # pods in lists
    "a pod is forgotten": (lambda plan: without(plan, "shop/web-0"), "pod-missing"),
    "a pod is placed twice": (lambda plan: plus(plan, first(plan, "shop/web-0")), "pod-duplicate"),
    "a pod is placed and unplaced": (
        lambda plan: change(plan, unplaced=leave(plan, "shop/big-0").unplaced),
        "pod-duplicate",
    ),
    "a pod that does not exist": (
        lambda plan: plus(plan, msgspec.structs.replace(first(plan, "shop/web-0"), pod="shop/ghost")),
        "pod-unknown",
    ),
    "a daemon set's pod is listed": (
        lambda plan: plus(plan, msgspec.structs.replace(first(plan, "shop/web-0"), pod="kube-system/log-n1")),
        "pod-unknown",
    ),
    "a mirror pod is listed": (
        lambda plan: plus(plan, msgspec.structs.replace(first(plan, "shop/web-0"), pod="kube-system/proxy-n1")),
        "pod-unknown",
    ),
    "a terminating pod is listed": (
        lambda plan: plus(plan, msgspec.structs.replace(first(plan, "shop/web-0"), pod="shop/going")),
        "pod-unknown",
    ),
    "another uid": (lambda plan: place(plan, "shop/web-1", uid="other"), "uid-mismatch"),
    "another uid of an unplaced pod": (lambda plan: leave(plan, "shop/big-0", uid="other"), "uid-mismatch"),
    "another source": (lambda plan: place(plan, "shop/web-1", source="n3"), "from-mismatch"),
    "no source": (lambda plan: place(plan, "shop/web-1", source=None), "from-mismatch"),
    "fewer requests": (lambda plan: place(plan, "shop/web-1", requests=amounts(1, 512, pods=1)), "requests-mismatch"),
    "a resource less": (lambda plan: place(plan, "shop/web-1", requests=amounts(500, 512)), "requests-mismatch"),
    "a running pod is left out": (lambda plan: leave(plan, "shop/web-1"), "running-unplaced"),
    "unplaced without a reason": (lambda plan: leave(plan, "shop/big-0", reason=""), "unplaced-reason"),
    "unplaced without a code": (lambda plan: leave(plan, "shop/big-0", code=""), "unplaced-reason"),
    "a pending pod that a node could hold": (lambda plan: leave(plan, "shop/big-0"), "pending-placeable"),
    # where they go
    "to a node that is deleted": (lambda plan: place(plan, "shop/web-1", to="n2", strategy="stay"), "to-deleted"),
    "to a node that nobody knows": (lambda plan: place(plan, "shop/web-1", to="n9"), "to-unknown"),
    "a held pod moves": (lambda plan: place(plan, "shop/bare", to="n1", strategy="evict"), "held-moved"),
    "onto a frozen node": (lambda plan: place(plan, "shop/web-1", to="n3"), "node-closed"),
    "onto a cordoned node": (
        lambda plan: describe(place(plan, "shop/web-1", to="n4"), "n4", action="keep"),
        "node-closed",
    ),
    "against a node selector": (lambda plan: place(plan, "shop/db-0", to=NEW, strategy="surge"), "not-admitted"),
    "against a taint": (
        lambda plan: describe(place(plan, "shop/web-1", to="n4"), "n4", action="keep"),
        "not-admitted",
    ),
    "more than a new node holds": (lambda plan: place(plan, "shop/web-1", to=NEW), "over-capacity"),
    "more than a live node holds": (lambda plan: place(plan, "shop/big-0", to="n1"), "over-capacity"),
    # how they go
    "a move called stay": (lambda plan: place(plan, "shop/web-1", strategy="stay"), "strategy-mismatch"),
    "a stay called surge": (lambda plan: place(plan, "shop/web-0", strategy="surge"), "strategy-mismatch"),
    "a Deployment evicted": (lambda plan: place(plan, "shop/web-1", strategy="evict"), "strategy-mismatch"),
    "a pending pod surged": (lambda plan: place(plan, "shop/big-0", strategy="surge"), "strategy-mismatch"),
    "a move in a way that is not known": (
        lambda plan: place(plan, "shop/web-1", strategy="unknown"),
        "strategy-mismatch",
    ),
    "one pod rolled alone": (lambda plan: place(plan, "shop/web-1", strategy="rolling"), "strategy-mismatch"),
    "fewer moves": (lambda plan: change(plan, moves=0), "moves"),
    "restarts that are none": (lambda plan: change(plan, restarts=1), "restarts"),
    # nodes
    "a node twice": (lambda plan: change(plan, nodes=(*plan.nodes, plan.nodes[0])), "node-duplicate"),
    "a node forgotten": (lambda plan: change(plan, nodes=plan.nodes[1:]), "node-missing"),
    "a node that does not exist": (lambda plan: describe(plan, NEW, action="keep"), "node-unknown"),
    "a node that may not go": (lambda plan: describe(plan, "n3", action="delete"), "node-undeletable"),
    "another machine type": (lambda plan: describe(plan, "n1", machine_type="m8"), "node-description"),
    "another zone": (lambda plan: describe(plan, NEW, zone="b"), "node-description"),
    "another offer of a live node": (lambda plan: describe(plan, "n1", offer="m8/a/on-demand"), "node-description"),
    "an offer that is not on sale": (lambda plan: describe(plan, NEW, offer="m3/a/on-demand"), "offer-unknown"),
    "another price of a new node": (lambda plan: describe(plan, NEW, usd_per_hour=0.08), "offer-price"),
    "another price of a live node": (lambda plan: describe(plan, "n1", usd_per_hour=0.16), "node-price"),
    "a new node with a live one's name": (lambda plan: describe(plan, NEW, name="n1"), "boot-clash"),
    "a new node with no proper name": (lambda plan: describe(plan, NEW, name="Kinema_1"), "boot-name"),
    "a new node for nobody": (lambda plan: place(plan, "shop/big-0", to="n1"), "boot-empty"),
    "more than are available": (
        lambda plan: describe(plan, NEW, offer="limited/a/on-demand", machine_type="limited", usd_per_hour=0.001),
        "offer-exhausted",
    ),
    "spot for a pod that does not ask": (
        lambda plan: describe(
            plan, NEW, offer="cheap/a/spot", machine_type="cheap", capacity_type="spot", usd_per_hour=0.02
        ),
        "spot-not-allowed",
    ),
    # money
    "another cost before": (lambda plan: cost(plan, before=0.5), "cost-before"),
    "another cost after": (lambda plan: cost(plan, after=0.1), "cost-after"),
    "a cost that is none": (lambda plan: cost(plan, after=float("nan")), "cost-after"),
    "a seventh decimal": (lambda plan: cost(plan, after=plan.cost.after + 4e-7), "cost-after"),
    "a bound above the cost": (lambda plan: cost(plan, lower_bound=1.0, gap=0.0), "cost-bound"),
    "a negative bound": (lambda plan: cost(plan, lower_bound=-0.1), "cost-bound"),
    "another gap": (lambda plan: cost(plan, gap=0.5), "cost-gap"),
    "no gap": (lambda plan: cost(plan, gap=None), "cost-gap"),
    "another unit": (lambda plan: cost(plan, unit="EUR/h"), "cost-unit"),
    # reports and promises
    "a held pod is not told": (lambda plan: change(plan, held=()), "held-list"),
    "a free pod is called held": (
        lambda plan: change(plan, held=(*plan.held, Held(pod="shop/web-0", code="job", reason="x"))),
        "held-list",
    ),
    "held for another reason": (
        lambda plan: change(plan, held=(msgspec.structs.replace(plan.held[0], code="job"),)),
        "held-list",
    ),
    "an unreadable object is not told": (lambda plan: change(plan, quarantined=()), "quarantined-list"),
    "nothing better, but it changes": (lambda plan: change(plan, status="nothing-better"), "nothing-better"),
    "infeasible, but all are placed": (lambda plan: change(plan, status="infeasible"), "status-infeasible"),
    "optimal with a gap": (
        lambda plan: change(cost(plan, lower_bound=0.4, gap=0.0625), status="optimal"),
        "status-optimal",
    ),
    "autoscale that deletes": (lambda plan: change(plan, mode="autoscale"), "autoscale-deletes"),
    "autoscale that moves": (lambda plan: change(plan, mode="autoscale"), "autoscale-moves"),
    "a resize of nobody": (
        lambda plan: change(
            plan,
            resizes=(Resize(workload="Deployment/shop/none", requests_before=amounts(1), requests_after=amounts(2)),),
        ),
        "resize-unknown",
    ),
}


@pytest.mark.parametrize("name", sorted(SPOILED))
def test_a_spoiled_plan_is_refused_with_its_code(name: str) -> None:
    """Each way of spoiling the valid plan is found, whatever else it breaks on the way."""
    spoil, expected = SPOILED[name]
    assert expected in codes(spoil(valid()))


FEASIBLE = sorted(name for name in SPOILED if not name.startswith("infeasible"))
"""A plan that says infeasible and leaves a running pod out is a true one."""


def content(plan: Plan) -> Plan:
    """The plan with its lists in order."""
    nodes = tuple(sorted(plan.nodes, key=lambda item: item.name))
    return change(plan, nodes=nodes, placements=tuple(sorted(plan.placements, key=lambda item: item.pod)))


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(st.sampled_from(FEASIBLE), min_size=1, max_size=3, unique=True))
def test_spoiling_more_never_makes_a_plan_valid(names: list[str]) -> None:
    """However many things are wrong at once the checker answers, and accepts only what was put right again."""
    plan = valid()
    for name in names:
        try:
            plan = SPOILED[name][0](plan)
        except (StopIteration, IndexError):  # what it changes is gone already
            continue
    assert codes(plan) or content(plan) == content(valid())

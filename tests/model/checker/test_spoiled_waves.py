"""The checker refuses every way of spoiling the order of a plan, each with its own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.support.builders import (
    NOW,
    budget,
    cluster,
    deployed,
    node,
    offer,
    offers,
    pod,
    selector,
    stateful,
)
from tests.support.plans import change, place, plan_for

from kinema_core.events import (
    ClusterObject,
    HostPort,
    Node,
    Offer,
    PlacementRules,
    Plan,
    PlanNode,
    PlanStep,
    PodTerm,
    Spread,
    Strategy,
    Volume,
    VolumeClaim,
)
from kinema_core.model.checker.check import check_drifted, check_plan
from kinema_core.model.cluster import Cluster, all_objects
from kinema_core.model.sequencing.waves import order_transition, with_steps

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
WAY = "kinema-1-way-1"
OFFERS = (*offers(), offer("scarce", price=1, available=0))


def state() -> Cluster:
    """Two full nodes, one that goes, one that takes nothing, and a pending pod."""
    return cluster(
        node("n1"),
        node("n2"),
        node("n3"),
        node("n4", unschedulable=True),
        deployed("a", ["n1", "n1"], cpu=1900),
        deployed("b", ["n2", "n2"], cpu=1900),
        deployed("c", ["n3"], cpu=1000),
        deployed("d", [None], cpu=900),
        pod("bare", node="n4"),
    )


def valid() -> Plan:
    """a-0 and b-0 change places over a temporary node, c-0 moves to a new node, n3 goes, d-0 gets a place."""
    to = {"shop/a-0": "n2", "shop/b-0": "n1", "shop/c-0": "new", "shop/d-0": "new"}
    plan = plan_for(state(), OFFERS, to=to, boot={"new": "m2/a/on-demand"}, delete=["n3"])
    return with_steps(plan, order_transition(plan, state(), OFFERS, now=NOW))


def wrong(plan: Plan, on: Cluster | None = None, on_sale: tuple[Offer, ...] = OFFERS) -> set[str]:
    """The codes of everything wrong with a plan."""
    return {item.code for item in check_plan(plan, on or state(), on_sale, NOW, ordered=True)}


def step(plan: Plan, which: str, number: int = 0, **changes: Any) -> Plan:
    """The plan with one step of a pod or node changed, and the steps in order of their waves."""
    mine = [item for item in plan.steps if which in (item.pod, "" if item.pod else item.node)]
    found = [msgspec.structs.replace(item, **changes) if item is mine[number] else item for item in plan.steps]
    return change(plan, steps=tuple(sorted(found, key=lambda item: item.wave)))


def skip(plan: Plan, which: str, number: int = 0) -> Plan:
    """The plan without one step of a pod or node."""
    mine = [item for item in plan.steps if which in (item.pod, "" if item.pod else item.node)]
    return change(plan, steps=tuple(item for item in plan.steps if item is not mine[number]))


def plus(plan: Plan, *more: PlanStep) -> Plan:
    """The plan with steps more."""
    return change(plan, steps=tuple(sorted([*plan.steps, *more], key=lambda item: item.wave)))


def rented(plan: Plan, **changes: Any) -> Plan:
    """The plan with its temporary node changed."""
    return change(plan, temporary=tuple(msgspec.structs.replace(item, **changes) for item in plan.temporary))


def spare(plan: Plan) -> PlanNode:
    """A temporary node more."""
    return msgspec.structs.replace(plan.temporary[0], name="spare")


def test_the_valid_plan_is_accepted() -> None:
    """Its order is the one that the spoiled ones below are made from."""
    plan = valid()
    assert wrong(plan) == set()
    assert [(item.wave, item.action, item.node, item.pod) for item in plan.steps] == [
        (0, "boot", WAY, ""),
        (0, "boot", "new", ""),
        (1, "move", WAY, "shop/a-0"),
        (1, "move", "new", "shop/c-0"),
        (1, "move", "new", "shop/d-0"),
        (2, "delete", "n3", ""),
        (2, "move", "n1", "shop/b-0"),
        (3, "move", "n2", "shop/a-0"),
        (4, "delete", WAY, ""),
    ]


SPOILED: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "no steps at all": (lambda plan: change(plan, steps=(), temporary=()), "steps-missing"),
    "no steps, but a temporary node": (lambda plan: change(plan, steps=()), "step-missing"),
    "waves out of order": (lambda plan: change(plan, steps=tuple(reversed(plan.steps))), "step-order"),
    "a wave before the first": (lambda plan: step(plan, "new", wave=-1), "step-order"),
    # nodes
    "a boot is forgotten": (lambda plan: skip(plan, "new"), "step-missing"),
    "a boot twice": (lambda plan: plus(plan, PlanStep(wave=1, action="boot", node="new")), "step-duplicate"),
    "a boot of a live node": (lambda plan: plus(plan, PlanStep(wave=0, action="boot", node="n1")), "step-unknown"),
    "a boot with a pod": (lambda plan: step(plan, "new", pod="shop/a-0"), "step-unknown"),
    "a boot too late": (lambda plan: step(plan, "new", wave=1), "node-not-booted"),
    "a deletion is forgotten": (lambda plan: skip(plan, "n3"), "step-missing"),
    "a deletion twice": (lambda plan: plus(plan, PlanStep(wave=3, action="delete", node="n3")), "step-duplicate"),
    "a deletion of a node that stays": (
        lambda plan: plus(plan, PlanStep(wave=3, action="delete", node="n1")),
        "step-unknown",
    ),
    "a deletion while the last pod leaves": (lambda plan: step(plan, "n3", wave=1), "delete-early"),
    "a deletion before": (lambda plan: step(plan, "n3", wave=0), "delete-early"),
    "a temporary node stays": (lambda plan: skip(plan, WAY, 1), "step-missing"),
    "a temporary node goes with a pod on it": (lambda plan: step(plan, WAY, 1, wave=3), "delete-early"),
    "a temporary node is deleted before its boot": (lambda plan: step(plan, WAY, 0, wave=5), "delete-early"),
    "a temporary node for nobody": (
        lambda plan: plus(
            change(plan, temporary=(*plan.temporary, spare(plan))),
            PlanStep(wave=0, action="boot", node="spare"),
            PlanStep(wave=1, action="delete", node="spare"),
        ),
        "boot-empty",
    ),
    "a temporary node that is kept": (lambda plan: rented(plan, action="keep"), "node-description"),
    "a temporary node of another zone": (lambda plan: rented(plan, zone="b"), "node-description"),
    "a temporary node at another price": (lambda plan: rented(plan, usd_per_hour=0.01), "offer-price"),
    "a temporary node that is not on sale": (lambda plan: rented(plan, offer="m3/a/on-demand"), "offer-unknown"),
    "a temporary node of which there are none": (
        lambda plan: rented(plan, offer="scarce/a/on-demand", machine_type="scarce", usd_per_hour=1e-6),
        "offer-exhausted",
    ),
    "a temporary node with the name of a live one": (lambda plan: rented(plan, name="n1"), "boot-clash"),
    "a temporary node with the name of a new one": (lambda plan: rented(plan, name="new"), "node-duplicate"),
    "a temporary node whose name is none": (lambda plan: rented(plan, name="Way_1"), "boot-name"),
    "a temporary node that is a part of the cost": (
        lambda plan: change(plan, cost=msgspec.structs.replace(plan.cost, after=plan.cost.after + 0.085)),
        "cost-after",
    ),
    # pods
    "a move is forgotten": (lambda plan: skip(plan, "shop/c-0"), "step-missing"),
    "a pending pod is forgotten": (lambda plan: skip(plan, "shop/d-0"), "step-missing"),
    "a pod is left at its stop": (lambda plan: skip(plan, "shop/a-0", 1), "step-missing"),
    "a pod goes on where it is": (
        lambda plan: plus(plan, PlanStep(wave=2, action="move", node="new", pod="shop/c-0")),
        "step-duplicate",
    ),
    "a pod moves twice in one wave": (lambda plan: step(plan, "shop/a-0", 1, wave=1), "step-duplicate"),
    "a pod that stays is moved": (
        lambda plan: plus(plan, PlanStep(wave=1, action="move", node="new", pod="shop/a-1")),
        "step-unknown",
    ),
    "a pod that nobody knows": (
        lambda plan: plus(plan, PlanStep(wave=1, action="move", node="new", pod="shop/ghost")),
        "step-unknown",
    ),
    "a pod goes to a node that goes": (lambda plan: step(plan, "shop/c-0", node="n3"), "step-unknown"),
    "a pod goes elsewhere": (lambda plan: step(plan, "shop/c-0", node=WAY), "step-missing"),
    "a stop on a node that takes nobody": (lambda plan: step(plan, "shop/a-0", node="n4"), "node-closed"),
    "a stop of a pending pod": (
        lambda plan: plus(step(plan, "shop/d-0", wave=3), PlanStep(wave=1, action="move", node=WAY, pod="shop/d-0")),
        "step-duplicate",
    ),
    # room
    "a pod comes while another one leaves": (lambda plan: step(plan, "shop/b-0", wave=1), "wave-overfull"),
    "a pod comes before another one leaves": (lambda plan: step(plan, "shop/a-0", 1, wave=2), "wave-overfull"),
    "a stop without room": (lambda plan: step(plan, "shop/a-0", node="new"), "wave-overfull"),
}


@pytest.mark.parametrize(("spoil", "code"), SPOILED.values(), ids=SPOILED.keys())
def test_a_spoiled_order_is_refused(spoil: Callable[[Plan], Plan], code: str) -> None:
    """Each of them is found, whatever else it breaks."""
    assert code in wrong(spoil(valid()))


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        (node("n3"), set()),
        (node("n3", taints=["team=data:NoSchedule"]), {"not-admitted"}),
        (node("n3", spot=True, price="0.17"), {"spot-not-allowed"}),
    ],
)
def test_a_stop_admits_the_pod(stop: Node, code: set[str]) -> None:
    """A stop obeys the pod's own rules about nodes like its last place."""
    on = cluster(node("n1"), node("n2"), stop, deployed("a", ["n1"]))
    plan = plan_for(on, offers(), to={"shop/a-0": "n2"})
    steps = [PlanStep(wave=wave, action="move", node=to, pod="shop/a-0") for wave, to in ((1, "n3"), (2, "n2"))]
    assert wrong(change(plan, steps=tuple(steps)), on) == code


def test_a_temporary_node_that_cannot_be_had_any_more() -> None:
    """Its offer is gone by now, or somebody else's node has its name."""
    plan, small = valid(), [item for item in OFFERS if item.machine_type != "m2"]
    assert "offer-unknown" in {item.code for item in check_drifted(plan, state(), small, NOW) if item.subject == WAY}
    taken = cluster(list(all_objects(state())), node(WAY))
    assert "boot-clash" in {item.code for item in check_drifted(plan, taken, OFFERS, NOW) if item.subject == WAY}


# --- floors and rules on the way: pods that no rule of today lets move are moved all the same


def on_the_way(on: Cluster, to: dict[str, str], waves: dict[str, int], by: Strategy | None = None) -> set[str]:
    """Codes of what the order breaks, the plan itself aside; each pod moves once, in its wave, and as told."""
    plan = plan_for(on, offers(), to=to)
    for key in to if by is not None else ():
        plan = place(plan, key, strategy=by)
    steps = [PlanStep(wave=wave, action="move", node=to[key], pod=key) for key, wave in waves.items()]
    ordered = change(plan, steps=tuple(sorted(steps, key=lambda item: item.wave)))
    before = {item.code for item in check_plan(plan, on, offers(), NOW)}
    return {item.code for item in check_plan(ordered, on, offers(), NOW)} - before


def test_a_budget_over_two_workloads_bears_one_at_a_time() -> None:
    """Evicting from both in one wave takes two pods away; surges take none."""
    shared = budget("all", selects={}, max_unavailable="1")
    nodes = (node("n1"), node("n2"))
    on = cluster(nodes, stateful("a", ["n1", "n1"]), stateful("b", ["n1", "n1"]), shared)
    to = {"shop/a-0": "n2", "shop/b-0": "n2"}
    assert on_the_way(on, to, {"shop/a-0": 1, "shop/b-0": 1}) == {"wave-floor"}
    assert on_the_way(on, to, {"shop/a-0": 1, "shop/b-0": 2}) == set()
    same = {"shop/a-0": "n2", "shop/a-1": "n2"}
    assert on_the_way(on, same, dict.fromkeys(same, 1)) == set()
    two = cluster(
        nodes, stateful("a", ["n1", "n1"]), stateful("b", ["n1", "n1"]), budget("all", selects={}, max_unavailable="2")
    )
    assert on_the_way(two, to, {"shop/a-0": 1, "shop/b-0": 1}) == set()
    surges = cluster(nodes, deployed("a", ["n1", "n1"]), deployed("b", ["n1", "n1"]), shared)
    assert on_the_way(surges, to, {"shop/a-0": 1, "shop/b-0": 1}) == set()


def test_a_workload_is_rolled_in_one_wave() -> None:
    """A rolling update replaces all pods: it cannot be half in one wave and half in the next."""
    on = cluster(node("n1"), node("n2"), deployed("a", ["n1", "n2"], annotations={"kinema.io/strategy": "rolling"}))
    to = {"shop/a-0": "n2", "shop/a-1": "n2"}
    assert on_the_way(on, to, {"shop/a-0": 1, "shop/a-1": 2}) == {"wave-floor"}
    assert on_the_way(on, to, {"shop/a-0": 1, "shop/a-1": 1}) == set()


def test_a_host_port_is_let_go_of_first() -> None:
    """Two pods with one host port pass each other only if one of them leaves before the other one comes."""
    rules = PlacementRules(host_ports=(HostPort(port=80, protocol="TCP"),))
    on = cluster(
        node("n1"), node("n2"), node("n3"), deployed("a", ["n1"], rules=rules), deployed("b", ["n2"], rules=rules)
    )
    to = {"shop/a-0": "n2", "shop/b-0": "n3"}
    assert on_the_way(on, to, {"shop/a-0": 1, "shop/b-0": 1}) == {"wave-host-port"}
    assert on_the_way(on, to, {"shop/a-0": 2, "shop/b-0": 1}) == set()


def test_a_volume_is_let_go_of_first() -> None:
    """A surge has the old copy hold the volume; an eviction does not, unless another pod does."""
    rules = PlacementRules(claims=("data",))
    disk: list[ClusterObject] = [
        Volume(name="disk", uid="v"),
        VolumeClaim(name="data", namespace="shop", uid="c", volume="disk"),
    ]
    nodes: list[ClusterObject] = [node("n1"), node("n2"), *disk]
    moved = {"shop/a-0": "n2"}
    alone = cluster(nodes, deployed("a", ["n1"], rules=rules))
    assert on_the_way(alone, moved, {"shop/a-0": 1}, by="surge") == {"wave-volume"}
    assert on_the_way(alone, moved, {"shop/a-0": 1}, by="evict") == set()
    shared = cluster(nodes, deployed("a", ["n1", "n1"], rules=rules))
    assert on_the_way(shared, moved, {"shop/a-0": 1}, by="evict") == {"wave-volume"}
    many = cluster(nodes, deployed("a", ["n1", "n2"], rules=rules))
    assert on_the_way(many, moved, {"shop/a-0": 1}, by="surge") == set()


def apart(key: str, app: str) -> PlacementRules:
    """Keeps pods of the app out of its domain."""
    return PlacementRules(anti_affinity=(PodTerm(topology_key=key, selector=selector(app=app)),))


def together(key: str, app: str) -> PlacementRules:
    """Needs a pod of the app in its domain."""
    return PlacementRules(affinity=(PodTerm(topology_key=key, selector=selector(app=app)),))


@pytest.mark.parametrize("holder", ["a", "b"])
def test_pods_that_keep_apart_never_meet(holder: str) -> None:
    """In both directions: neither does one come to whom it keeps away, nor to one that keeps it away."""
    rules = {holder: apart(HOST, "b" if holder == "a" else "a")}
    none = PlacementRules()
    on = cluster(
        [node("n1"), node("n2"), node("n3")],
        deployed("a", ["n1"], rules=rules.get("a", none)),
        deployed("b", ["n2"], rules=rules.get("b", none)),
    )
    to = {"shop/a-0": "n2", "shop/b-0": "n3"}
    assert on_the_way(on, to, {"shop/a-0": 1, "shop/b-0": 1}) == {"wave-anti-affinity"}
    assert on_the_way(on, to, {"shop/a-0": 2, "shop/b-0": 1}) == set()


def test_a_surge_meets_its_own_old_copy() -> None:
    """A pod that is alone in its zone moves within it by eviction only."""
    moved = {"shop/a-0": "n2"}
    for build, expected in ((deployed, {"wave-anti-affinity"}), (stateful, set())):
        on = cluster(node("n1"), node("n2"), build("a", ["n1"], rules=apart(ZONE, "a")))
        assert on_the_way(on, moved, {"shop/a-0": 1}) == expected


def test_company_comes_first_and_leaves_last() -> None:
    """A pod that needs another one comes after it; one that stays is never left alone."""
    nodes = [node("n1"), node("n2"), node("n3")]
    on = cluster(nodes, deployed("a", ["n1"], rules=together(HOST, "b")), deployed("b", ["n1", "n3"]))
    both = {"shop/a-0": "n2", "shop/b-0": "n2"}
    assert on_the_way(on, both, {"shop/a-0": 1, "shop/b-0": 1}) == {"wave-affinity"}
    assert on_the_way(on, both, {"shop/a-0": 2, "shop/b-0": 1}) == set()
    instead = {"shop/b-0": "n2", "shop/b-1": "n1"}
    assert on_the_way(on, instead, {"shop/b-0": 1, "shop/b-1": 1}) == {"wave-affinity"}
    assert on_the_way(on, instead, {"shop/b-0": 2, "shop/b-1": 1}) == set()


def test_who_is_evicted_and_comes_back_to_the_zone_leaves_nobody_alone() -> None:
    """Of two that need each other one goes at a time, and who has yet to go or has come is not left by it."""
    on = cluster(node("n1"), node("n2"), stateful("a", ["n1", "n1"], rules=together(ZONE, "a")))
    both = {"shop/a-0": "n2", "shop/a-1": "n2"}
    assert on_the_way(on, both, {"shop/a-0": 1, "shop/a-1": 2}) == set()
    assert on_the_way(on, both, {"shop/a-0": 1, "shop/a-1": 1}) == {"wave-affinity"}
    assert on_the_way(on, {"shop/a-0": "n2"}, {"shop/a-0": 1}) == set()


def test_the_skew_is_kept_in_every_order() -> None:
    """Two surges in one zone may both come before anybody leaves; one after the other they keep the skew."""
    rules = PlacementRules(
        spread=(Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app="a")),)
    )
    nodes = [node("n1"), node("n2"), node("n3", zone="b", price="0.17")]
    on = cluster(nodes, deployed("a", ["n1", "n1", "n3", "n3"], rules=rules))
    to = {"shop/a-0": "n2", "shop/a-1": "n2"}
    assert on_the_way(on, to, {"shop/a-0": 1, "shop/a-1": 1}) == {"wave-spread"}
    assert on_the_way(on, to, {"shop/a-0": 1, "shop/a-1": 2}) == set()


def test_what_is_uneven_now_lets_nobody_in() -> None:
    """kube-scheduler compares the new copy's domain with the emptiest one, however uneven the others are."""
    rules = PlacementRules(
        spread=(Spread(topology_key=HOST, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app="a")),)
    )
    on = cluster([node(f"n{n}") for n in (1, 2, 3, 4)], deployed("a", ["n1", "n1", "n1", "n2"], rules=rules))
    to = {"shop/a-0": "n3", "shop/a-1": "n3", "shop/a-2": "n4"}
    assert on_the_way(on, to, {"shop/a-0": 1, "shop/a-1": 2, "shop/a-2": 3}) == {"wave-spread"}
    assert on_the_way(on, to, {"shop/a-0": 1, "shop/a-1": 3, "shop/a-2": 2}) == set()


def test_the_old_copy_of_a_surge_counts_where_it_is() -> None:
    """A surge empties its node after the new copy has come, an eviction before."""
    rules = PlacementRules(
        spread=(Spread(topology_key=HOST, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app="a")),)
    )
    on = cluster([node("n1"), node("n2")], deployed("a", ["n1", "n2"], rules=rules))
    to = {"shop/a-0": "n2"}
    assert on_the_way(on, to, {"shop/a-0": 1}, by="surge") == set()
    assert on_the_way(on, to, {"shop/a-0": 1}, by="evict") == {"wave-spread"}


def test_a_stop_has_the_label_that_a_rule_counts_by() -> None:
    """A node in no domain takes nobody who is to be spread over domains, or needs company in one."""
    spread = Spread(topology_key="rack", max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app="a"))
    for rules, code in ((PlacementRules(spread=(spread,)), "wave-spread"), (together("rack", "b"), "wave-affinity")):
        racks = [node(f"n{n}", labels={"rack": "x"}) for n in (1, 2)]
        on = cluster(racks, node("n3"), deployed("a", ["n1"], rules=rules), deployed("b", ["n1", "n2"]))
        plan = plan_for(on, offers(), to={"shop/a-0": "n2"})
        steps = [PlanStep(wave=wave, action="move", node=to, pod="shop/a-0") for wave, to in ((1, "n3"), (2, "n2"))]
        assert code in wrong(change(plan, steps=tuple(steps)), on)

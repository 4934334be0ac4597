"""Plans for small clusters: who moves, what is bought, what is left alone, and why."""

from __future__ import annotations

from datetime import UTC, datetime, time

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.optimizer.instances import random_cluster
from tests.optimizer.planned import planned
from tests.support.builders import (
    MIB,
    NOW,
    amounts,
    cluster,
    deployed,
    fragmented,
    full,
    labels,
    node,
    offer,
    offers,
    on_every_node,
    tiny,
)
from tests.support.planning import unguarded

from kinema_core.events import (
    HostPort,
    Mode,
    Offer,
    Placement,
    PlacementRules,
    Plan,
    Selector,
    Spread,
    WorkloadForecast,
)
from kinema_core.model.catalog import PriceError
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_optimizer.request.objective import Window
from kinema_optimizer.settings import PlanningSettings


def plan(
    state: Cluster,
    on_sale: tuple[Offer, ...] | None = None,
    *,
    mode: Mode = "reschedule",
    forecasts: tuple[WorkloadForecast, ...] = (),
    planning: PlanningSettings | None = None,
    now: datetime = NOW,
) -> Plan:
    """The plan for a cluster, by amount of work so that no clock has a say."""
    sold = offers() if on_sale is None else on_sale
    return planned(state, sold, work=2000, settings=planning, now=now, mode=mode, forecasts=forecasts)


def actions(found: Plan) -> dict[str, str]:
    """Node → what is done with it."""
    return {one.name: one.action for one in found.nodes}


def placement(found: Plan, key: str) -> Placement:
    """Where a pod goes."""
    return next(one for one in found.placements if one.pod == key)


def forecast(name: str, *, cpu: int, after: int, memory: int = 128) -> WorkloadForecast:
    """New CPU requests for a Deployment's pods."""
    return WorkloadForecast(
        workload=f"Deployment/shop/{name}",
        requests_before=amounts(cpu, memory, pods=1),
        requests_after=amounts(after, memory, pods=1),
        predicted=amounts(after, memory),
        samples=60,
    )


def test_tiny_shrinks_to_the_smallest_machine() -> None:
    """Three pods of half a core fit on one m2: proven, with a gap of 0."""
    found = plan(tiny())
    assert (found.status, found.cost.before, found.cost.after, found.cost.gap) == ("optimal", 0.34, 0.085, 0.0)
    assert actions(found) == {"n1": "delete", "n2": "delete", "kinema-1-1": "boot"}
    assert found.moves == 3


def test_fragmented_keeps_a_node_rather_than_booting_its_like() -> None:
    """At the least cost the plan moves fewest pods: one of the two fullest nodes stays."""
    found = plan(fragmented())
    assert found.cost.after == found.cost.lower_bound == 0.255
    assert sorted(actions(found).values()).count("keep") == 1
    assert found.moves == 9


def test_nothing_better_changes_nothing() -> None:
    """A cluster that is as cheap as can be is left as it is, with the proof."""
    state = cluster(node("n1", cpu=2000, memory=8192, machine="m2"), deployed("web", ["n1"] * 3, cpu=600))
    found = plan(state)
    assert (found.status, found.moves, found.cost.gap) == ("nothing-better", 0, 0.0)
    assert set(actions(found).values()) == {"keep"}


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 400])
def test_a_plan_that_may_move_nothing_deletes_empty_nodes_and_seats_who_waits(size: int) -> None:
    """It is proven at once, whatever the size: no move is looked for, nor does the bound count on any."""
    nodes = (node("n1"), node("n2"), node("empty"), *(node(f"m{n}") for n in range(size)))
    many = deployed("many", [f"m{n}" for n in range(size)]) if size else ()
    state = cluster(nodes, deployed("web", ["n1", "n2"]), many, deployed("new", [None, None], cpu=300))
    found = plan(state, planning=unguarded(max_moves=0))
    assert (found.moves, found.status, found.cost.gap) == (0, "optimal", 0.0)
    assert [name for name, what in actions(found).items() if what != "keep"] == ["empty"]
    assert {placement(found, f"shop/new-{n}").strategy for n in range(2)} == {"schedule"}
    assert found.held == ()
    assert found.figures["bound_without_moves"] == 1.0
    assert found.figures["kept_in_place_without_an_order"] == 0.0
    assert {stop.phase for stop in found.solve.stops}.isdisjoint({"search", "columns", "near"})
    assert plan(state, planning=unguarded(max_moves=1)).cost.lower_bound < found.cost.lower_bound


@pytest.mark.slow
def test_new_requests_may_move_pods_whatever_the_limit() -> None:
    """Where what was forecast does not fit where it is, the plan is made as before: the limit is one on what saves."""
    state = cluster(node("n1", cpu=1000), node("n2"), deployed("web", ["n1", "n1"], cpu=400))
    found = plan(state, forecasts=(forecast("web", cpu=400, after=900),), planning=unguarded(max_moves=0))
    assert [one.workload for one in found.resizes] == ["Deployment/shop/web"]
    assert "bound_without_moves" not in found.figures


def test_a_pending_pod_is_placed() -> None:
    """A pod without room gets a new node, the cheapest that holds it."""
    found = plan(full())
    assert placement(found, "shop/batch-0").strategy == "schedule"
    assert [one.offer for one in found.nodes if one.action == "boot"] == ["m2/a/on-demand"]


def test_an_autoscale_plan_only_adds() -> None:
    """Nodes that a reschedule would delete stay, and nobody moves."""
    state = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"]), deployed("big", [None], cpu=7000))
    found = plan(state, mode="autoscale")
    assert actions(found) == {"n1": "keep", "n2": "keep", "kinema-1-1": "boot"}
    assert (found.moves, found.mode) == (0, "autoscale")
    assert {one.strategy for one in found.placements} == {"stay", "schedule"}


def test_an_autoscale_plan_uses_free_room_first() -> None:
    """A pod for which a live node has room needs no new one."""
    state = cluster(node("n1"), deployed("web", ["n1", None]))
    found = plan(state, mode="autoscale")
    assert found.status == "nothing-better"
    assert placement(found, "shop/web-1").to == "n1"


def test_a_pod_that_nothing_holds_is_unplaced_with_the_nearest_offer() -> None:
    """The reason names the offer that comes nearest and what it lacks."""
    state = cluster(node("n1"), deployed("huge", [None], cpu=9000))
    (lost,) = plan(state, mode="autoscale").unplaced
    assert (lost.pod, lost.code) == ("shop/huge-0", "resource-cpu")
    assert "m8/a/on-demand lacks cpu: 9 requested, 8 there" in lost.reason


def test_a_pod_that_every_offer_refuses_is_unplaced_with_the_rule() -> None:
    """The reason names the rule."""
    rules = PlacementRules(node_selector=labels({"disk": "ssd"}))
    state = cluster(node("n1"), deployed("odd", [None], rules=rules))
    (lost,) = plan(state).unplaced
    assert lost.code == "rule"
    assert "node selector disk=ssd" in lost.reason


def test_a_host_port_that_a_daemon_set_has_is_told_in_words() -> None:
    """A port is no amount: the reason says whose it is."""
    port = PlacementRules(host_ports=(HostPort(port=8080),))
    on_nodes = on_every_node("agent", ["n1"], rules=port)
    (lost,) = plan(cluster(node("n1", cpu=60), on_nodes, deployed("edge", [None], rules=port))).unplaced
    assert lost.code == "host-port"
    assert lost.reason.endswith(" has a daemon set's pod on host port 8080/TCP")


def test_a_sold_out_offer_leaves_pods_unplaced() -> None:
    """Of three pods that each need a machine, two are placed when there are two machines; higher priority first."""
    low, high = deployed("low", [None, None], cpu=3500), deployed("high", [None], cpu=3500, priority=9)
    found = plan(cluster(node("n1", cpu=100), low, high), (offer("m4", available=2),))
    assert [one.pod for one in found.unplaced] == ["shop/low-1"]
    assert placement(found, "shop/high-0").to.startswith("kinema-")


def test_rules_that_are_not_modeled_leave_a_pending_pod_unplaced() -> None:
    """It is named with the rule, not silently ignored."""
    state = cluster(node("n1"), deployed("odd", [None], rules=PlacementRules(scheduler="volcano")))
    (lost,) = plan(state).unplaced
    assert lost.code == "unmodeled-scheduler"


def test_the_only_node_of_a_pending_pod_is_kept_for_it() -> None:
    """In a cluster too large for the exact model, when the pods that fill the node leave it, it is not deleted."""
    rules = PlacementRules(node_selector=labels({"disk": "ssd"}))
    state = cluster(
        *(node(f"n{index}") for index in range(4)),
        node("s", labels={"disk": "ssd"}),
        deployed("web", [f"n{index % 4}" for index in range(80)] + ["s"] * 8, cpu=100, memory=64),
        deployed("picky", [None], cpu=3500, rules=rules),
    )
    found = plan(state, (offer(available=0),))
    assert (placement(found, "shop/picky-0").to, found.unplaced) == ("s", ())
    assert sorted(actions(found).values()) == ["delete", "keep", "keep", "keep", "keep"]


def test_boots_of_one_machine_are_spread_over_zones() -> None:
    """Where no pod cares, new nodes go to the zone with fewest nodes."""
    state = cluster(node("n1", zone="a", cpu=100), deployed("web", [None] * 3, cpu=3500))
    found = plan(state, (offer("m4", zone="a"), offer("m4", zone="b"), offer("m4", zone="c")))
    assert sorted(one.zone for one in found.nodes if one.action == "boot") == ["a", "b", "c"][:3]


def test_replicas_are_spread_over_the_nodes_that_take_them() -> None:
    """Consecutive replicas of a workload go to different new nodes."""
    state = cluster(node("n1", cpu=8000, memory=2048, machine="x", price="9"), deployed("web", ["n1"] * 4, cpu=1900))
    found = plan(state, (offer("m4"),))
    targets = [placement(found, f"shop/web-{index}").to for index in range(4)]
    assert targets == ["kinema-1-1", "kinema-1-2", "kinema-1-1", "kinema-1-2"]


def test_names_of_new_nodes_do_not_clash() -> None:
    """A live node that has the name already is passed over."""
    state = cluster(node("kinema-1-1"), node("n2"), deployed("web", ["kinema-1-1", "n2"]))
    assert [one.name for one in plan(state).nodes if one.action == "boot"] == ["kinema-1-2"]


def test_pods_of_one_host_port_get_a_node_each() -> None:
    """Two pods that want the same port are never put together."""
    rules = PlacementRules(host_ports=(HostPort(port=8080),))
    state = cluster(node("n1"), node("n2"), node("n3"), deployed("edge", ["n1", "n2"], rules=rules))
    found = plan(state)
    assert len({one.to for one in found.placements}) == 2


def test_daemon_sets_take_their_room_on_new_nodes() -> None:
    """A new m2 has 2000m less what the daemon set requests there."""
    state = cluster(node("n1"), on_every_node("logger", ["n1"], cpu=500), deployed("web", ["n1"], cpu=1600))
    assert plan(state).status == "nothing-better"


def test_spot_is_only_for_those_who_ask() -> None:
    """The cheap spot machine takes the pod that asks for spot, and no other."""
    asking = {"kinema.io/spot": "allow"}
    on_sale = (*offers(), offer("m4", spot=True, price=50_000))
    both = cluster(node("n1"), deployed("plain", ["n1"]), deployed("batch", ["n1"], cpu=3800, annotations=asking))
    found = plan(both, on_sale)
    spot = {one.name for one in found.nodes if one.capacity_type == "spot"}
    assert placement(found, "shop/batch-0").to in spot
    assert placement(found, "shop/plain-0").to not in spot


def test_a_ceiling_leaves_room_on_every_node() -> None:
    """At 60% utilization nine pods of 400m need two m4 by day, one by night."""
    office = Window(start=time(8), end=time(20), max_utilization_percent=60)
    planning = unguarded(windows=(office,))
    state = cluster(node("n1", cpu=8000, machine="m8", price="0.5"), deployed("web", ["n1"] * 9, cpu=400))
    day = plan(state, (offer("m4"),), planning=planning, now=datetime(2026, 3, 2, 12, tzinfo=UTC))
    night = plan(state, (offer("m4"),), planning=planning, now=datetime(2026, 3, 2, 22, tzinfo=UTC))
    assert (len(day.nodes), len(night.nodes)) == (3, 2)
    assert day.objective == "cost, utilization at most 60%"
    for name in {one.to for one in day.placements}:
        assert sum(one.requests["cpu"] for one in day.placements if one.to == name) <= 2400


def test_a_ceiling_that_leaves_no_place_is_lifted() -> None:
    """A pending pod larger than 60 % of every machine is placed all the same."""
    planning = unguarded(windows=(Window(max_utilization_percent=60),))
    found = plan(cluster(node("n1", cpu=100), deployed("big", [None], cpu=3000)), (offer("m4"),), planning=planning)
    assert (found.unplaced, found.objective) == ((), "cost")


def test_an_offer_that_would_break_a_topology_spread_is_not_used() -> None:
    """An empty new node would be a domain without a pod: the spread that holds now must still hold."""
    spread = Spread(
        topology_key="kubernetes.io/hostname",
        max_skew=1,
        when_unsatisfiable="DoNotSchedule",
        selector=Selector(labels=labels({"app": "even"})),
    )
    rules = PlacementRules(spread=(spread,))
    state = cluster(
        node("n1"),
        node("n2"),
        deployed("even", ["n1", "n1", "n2", "n2"], rules=rules, annotations={"kinema.io/do-not-move": "true"}),
        node("n3"),
        deployed("web", ["n3"]),
    )
    before = cluster(
        node("n1"),
        node("n2"),
        deployed("even", ["n1", "n1", "n2", "n2"], rules=rules, annotations={"kinema.io/do-not-move": "true"}),
    )
    found = plan(state)
    assert not [one for one in found.nodes if one.action == "boot"]
    assert plan(before).status == "nothing-better"


def test_a_node_without_a_price_is_an_error_that_names_it() -> None:
    """Nothing is guessed about money."""
    state = cluster(node("n1", machine="unknown"), deployed("web", ["n1"]))
    with pytest.raises(PriceError, match="n1"):
        plan(state)


@pytest.mark.parametrize("pods", [[], ["odd"]], ids=["empty", "in use"])
def test_one_node_without_a_price_stays_and_the_others_go(pods: list[str]) -> None:
    """It takes the pods of the others, since it is there; it counts nothing before and after."""
    others = (node("n1", price="0.3"), node("n2", price="0.2"), node("odd", machine="unknown"))
    state = cluster(*others, deployed("web", ["n1", "n2", *pods]))
    found = plan(state)
    assert {one.name for one in found.nodes if one.action == "delete"} == {"n1", "n2"}
    assert (found.cost.before, found.cost.after, found.cost.lower_bound) == (0.5, 0.0, 0.0)
    gone = tuple(msgspec.structs.replace(one, action="delete") for one in found.nodes)
    fake = msgspec.structs.replace(found, nodes=gone)
    codes = {one.code for one in check_plan(fake, state, (), NOW) if one.subject == "odd"}
    assert "node-undeletable" in codes


def test_no_offers_and_no_pods_are_no_error() -> None:
    """An empty cluster, and one with nothing on sale, have plans."""
    assert plan(cluster(), ()).status == "nothing-better"
    lonely = cluster(node("n1", price="0.1"), node("n2", price="0.1"), deployed("web", ["n1"]))
    assert plan(lonely, ()).cost.after == 0.1


def test_two_runs_give_the_same_bytes() -> None:
    """A plan is a function of what it was made from."""
    state, on_sale = random_cluster(7, pods=14)
    found = set()
    for _ in range(2):
        one = plan(state, on_sale)
        timeless = msgspec.structs.replace(one.solve, seconds=0.0, first_feasible_seconds=0.0)
        found.add(msgspec.json.encode(msgspec.structs.replace(one, solve=timeless), order="deterministic"))
    assert len(found) == 1


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@example(
    seed=220, limited=True, quotas=False, mode="reschedule", percent=100, shrink=True
)  # pods break rules where they run
@example(
    seed=791480, limited=True, quotas=False, mode="reschedule", percent=100, shrink=True
)  # the search seats too few
@given(
    seed=st.integers(0, 10**6),
    limited=st.booleans(),
    quotas=st.booleans(),
    mode=st.sampled_from(["reschedule", "autoscale"]),
    percent=st.sampled_from([100, 100, 70]),
    shrink=st.booleans(),
)
def test_every_plan_passes_the_checker(
    seed: int, limited: bool, quotas: bool, mode: Mode, percent: int, shrink: bool
) -> None:
    """Whatever the cluster, the independent checker finds nothing wrong, now and while the plan is carried out."""
    state, on_sale = random_cluster(seed, pods=9, limited=limited, quotas=quotas)
    changed = tuple(
        WorkloadForecast(
            workload=one.key,
            requests_before=one.template_requests,
            requests_after=amounts(
                one.template_requests["cpu"] * 9 // 10, one.template_requests["memory"] // MIB, pods=1
            ),
            predicted=amounts(1, 1),
            samples=9,
        )
        for one in state.workloads
        if shrink and one.type == "Deployment"
    )
    planning = unguarded(windows=(Window(max_utilization_percent=percent),))
    found = plan(state, on_sale, mode=mode, forecasts=changed, planning=planning)
    assert check_plan(found, state, on_sale, NOW) == ()  # also wave by wave
    if found.moves:
        assert found.steps


def test_a_risky_pod_is_moved_only_for_more_money() -> None:
    """The price of its move is that much higher: of two nodes alike the one with the ordinary pod goes."""
    for cost, gone in (("3", "n2"), ("0.5", "n1")):
        state = cluster(
            node("n1"),
            node("n2"),
            deployed("one", ["n1"] * 40, cpu=30, memory=8, annotations={"kinema.io/disruption-cost": cost}),
            deployed("two", ["n2"] * 40, cpu=30, memory=8),
        )
        found = plan(state, (offer(available=0),), planning=unguarded(move_price_usd=0.001))
        assert [one.name for one in found.nodes if one.action == "delete"] == [gone]
        assert found.figures["restart_risk"] == 40 * min(1, float(cost))
    state = cluster(
        node("n1"), node("n2"), deployed("one", ["n1", "n2"], annotations={"kinema.io/disruption-cost": "9"})
    )
    dear = plan(state, (offer(available=0),), planning=unguarded(move_price_usd=0.02))
    assert (dear.status, dear.moves) == ("nothing-better", 0)

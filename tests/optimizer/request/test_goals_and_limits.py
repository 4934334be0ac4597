"""Energy, room kept free, and limits on nodes: each is another problem that the same solver solves."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from tests.optimizer.planned import Unpriced
from tests.support.builders import NOW, cluster, deployed, node, offer
from tests.support.planning import unguarded

from kinema_core.events import FrozenMap, Offer, Plan
from kinema_core.model.catalog import PriceError
from kinema_core.model.cluster import Cluster
from kinema_core.model.stock import left_of, most_of
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.request.headroom import Headroom
from kinema_optimizer.request.limits import NodeLimit, breaches, capped, millicores_of
from kinema_optimizer.request.objective import Objective, Window
from kinema_optimizer.request.restate import framed
from kinema_optimizer.request.usable import UsableResources
from kinema_optimizer.settings import PlanningSettings


def m2(zone: str = "a", **more: object) -> Offer:
    """Two cores, cheap, but hungry for power."""
    return priced(offer("m2", zone=zone, cpu=2000, memory=8 * 1024, price=90_000), **{"watts": 90.0, **more})


def m4(zone: str = "a", **more: object) -> Offer:
    """Four cores, dearer, and frugal."""
    return priced(offer("m4", zone=zone, cpu=4000, memory=16 * 1024, price=170_000), **{"watts": 60.5, **more})


def priced(given: Offer, **more: object) -> Offer:
    """The offer with more said of it."""
    return msgspec.structs.replace(given, **more)


def three(zones: str = "aaa") -> Cluster:
    """Three m4 with a small pod each."""
    names = [f"n{index}" for index in range(3)]
    nodes = [
        node(name, cpu=4000, memory=16 * 1024, machine="m4", zone=zone) for name, zone in zip(names, zones, strict=True)
    ]
    return cluster(*nodes, *deployed("web", names, cpu=500, memory=512))


def plan(state: Cluster, on_sale: tuple[Offer, ...], settings: PlanningSettings) -> Plan:
    """The plan for a cluster, by amount of work so that no clock has a say."""
    return plan_for(state, on_sale, now=NOW, settings=settings, stop=Unpriced(100_000))


def during(**window: object) -> PlanningSettings:
    """Settings with one window that holds all week."""
    return unguarded(windows=(msgspec.convert(window, Window),))


def after(made: Plan) -> list[str]:
    """Machine types that remain or come."""
    return sorted(item.machine_type for item in made.nodes if item.action != "delete")


def test_least_energy_is_another_plan_than_least_cost() -> None:
    """The frugal machine is kept though it is dearer; cost is in watts, the figures and nodes have the money."""
    made = plan(three(), (m2(), m4()), during(objective="energy"))
    assert after(made) == ["m4"]
    assert (made.cost.unit, made.cost.before, made.cost.after, made.cost.lower_bound) == ("W", 181.5, 60.5, 60.5)
    assert (made.figures["usd_per_hour_before"], made.figures["usd_per_hour_after"]) == (0.51, 0.17)
    assert {item.usd_per_hour for item in made.nodes} == {0.17}
    assert after(plan(three(), (m2(), m4()), unguarded())) == ["m2"]


def test_types_without_watts_are_all_named() -> None:
    """Those on sale and those in use; a machine that is said to draw nothing is not known either."""
    odd = node("odd", machine="old", price="0.1")
    state = cluster(odd, *three().nodes)
    with pytest.raises(PriceError, match=r"3 machine types.*m2, m4, old"):
        framed(state, (m2(watts=None), m4(watts=0.0)), Objective(kind="energy"))


def test_room_kept_free_is_room_for_pods_of_that_size() -> None:
    """With room for two more big pods the small machine no longer suffices; no placeholder is in the plan."""
    room = {"requests": {"cpu": "1500m", "memory": "1Gi"}, "count": 1}
    made = plan(three(), (m2(), m4()), during(headroom=[room]))
    assert after(made) == ["m4"]
    assert [item.pod for item in made.placements] == ["shop/web-0", "shop/web-1", "shop/web-2"]
    assert made.unplaced == ()
    assert "room for 1 more of 1500m cpu and 1Gi memory" in made.objective


def test_room_that_cannot_be_had_is_counted_not_hidden() -> None:
    """Room that no machine offers is missing in the figures, and no pod of the cluster suffers for it."""
    room = {"requests": {"cpu": "64"}, "count": 2}
    made = plan(three(), (m2(), m4()), during(headroom=[room]))
    assert after(made) == ["m2"]
    assert (made.figures["placeholders"], made.figures["placeholders_missing"]) == (2.0, 2.0)
    assert made.unplaced == ()


def test_room_that_no_node_has_under_a_ceiling_does_not_lift_it() -> None:
    """A ceiling gives way to pods that wait, not to room that is wished for; that is kept above it, on another node."""
    room = {"requests": {"cpu": "3"}}
    made = plan(three(), (m2(), m4()), during(headroom=[room], max_utilization_percent=50))
    assert "utilization at most 50%" in made.objective
    assert made.figures["placeholders_missing"] == 0.0
    taken = {name: sum(one.requests["cpu"] for one in made.placements if one.to == name) for name in ("n0", "n1", "n2")}
    assert after(made) == ["m4", "m4"]
    assert min(taken[one.name] for one in made.nodes if one.action == "keep") <= 1000


def test_thresholds_of_usable_resources_hold_after_the_plan() -> None:
    """At most half of the usable CPU may be requested: two cores for 1500m are too few, four are enough."""
    rule = UsableResources(max_percent=FrozenMap({"cpu": 50}), min_free=FrozenMap({"cpu": "100m", "memory": "1Gi"}))
    made = plan(three(), (m2(), m4()), unguarded(usable=rule))
    assert after(made) == ["m4"]
    assert made.figures["usable_cpu_percent"] == 37.5
    loose = replace_percent(rule, 90)
    assert after(plan(three(), (m2(), m4()), unguarded(usable=loose))) == ["m2"]


def replace_percent(rule: UsableResources, percent: int) -> UsableResources:
    """The rule with another threshold for CPU."""
    return msgspec.structs.replace(rule, max_percent=FrozenMap({"cpu": percent}))


@pytest.mark.parametrize(
    ("limit", "machines"),
    [
        (NodeLimit(min_nodes=2), ["m2", "m2"]),
        (NodeLimit(machine_type="m4", min_nodes=1), ["m4"]),
        (NodeLimit(zone="b", min_nodes=1), ["m2"]),
        (NodeLimit(max_nodes=3), ["m4"]),
        (NodeLimit(machine_type="m2", max_nodes=0), ["m4"]),
        (NodeLimit(max_nodes=4), ["m2"]),
    ],
)
def test_limits_on_nodes_hold(limit: NodeLimit, machines: list[str]) -> None:
    """Minima are kept on nodes of that kind; at a maximum nothing is booted, as old and new nodes exist together."""
    made = plan(three(), (m2(), m4(), m2("b")), unguarded(limits=(limit,)))
    assert after(made) == machines
    assert breaches((limit,), made, {}) == ()
    assert made.figures["limits_broken"] == 0.0


def test_minimum_above_what_is_there_is_reached_by_booting() -> None:
    """A cluster with fewer nodes than its minimum gets the cheapest that are missing."""
    made = plan(three(), (m2(), m4()), unguarded(limits=(NodeLimit(min_nodes=5),)))
    assert after(made) == ["m2"] * 5


def test_overlapping_maxima_hold_together() -> None:
    """Under four more nodes in total and one in a zone, boots may be any that exceed neither."""
    limits = (NodeLimit(max_nodes=7), NodeLimit(zone="b", max_nodes=1))
    offers = capped(limits, three(), (m2("a"), m2("b"), m4("b"), m2("c")))
    a, b, big, c = (one.name for one in offers)
    assert left_of(offers, {}) == {a: 4, b: 1, big: 1, c: 4}
    assert left_of(offers, {a: 1, b: 1}) == {a: 2, b: 0, big: 0, c: 2}
    assert left_of(offers, {a: 3, c: 1}) == {a: 0, b: 0, big: 0, c: 0}


def test_offers_own_limit_holds_below_a_maximum() -> None:
    """What a provider has less of than the maximum allows is not made more by it, neither alone nor in a pool."""
    (only,) = capped((NodeLimit(max_nodes=9),), three(), (m2(available=1),))
    assert most_of(only) == 1
    limits = tuple(NodeLimit(zone=zone, max_nodes=10) for zone in "ab")
    a, b = capped(limits, three(), (m2("a", pool="m2", available=5), m2("b", pool="m2", available=5)))
    assert left_of((a, b), {a.name: 3}) == {a.name: 2, b.name: 2}


def test_maximum_of_vcpus_counts_whole_machines_of_its_capacity_type() -> None:
    """Three m4 have twelve vCPUs: of sixteen, two m2 are left or one m4, and spot machines count elsewhere."""
    spot = msgspec.structs.replace(m2(), name="m2/a/spot", capacity_type="spot")
    limit = NodeLimit(capacity_type="on-demand", max_vcpus=16)
    small, big, other = capped((limit,), three(), (m2(), m4(), spot))
    assert [most_of(one) for one in (small, big, other)] == [2, 1, None]
    assert left_of((small, big), {small.name: 1}) == {small.name: 1, big.name: 0}


@pytest.mark.parametrize(("vcpus", "machines"), [(13, ["m4"]), (14, ["m2"])])
def test_plan_keeps_a_maximum_of_vcpus_while_old_and_new_nodes_are_there(vcpus: int, machines: list[str]) -> None:
    """The cheaper m2 is bought where its two vCPUs are left beside the twelve of the nodes that run."""
    limits = (NodeLimit(max_vcpus=vcpus),)
    made = plan(three(), (m2(), m4()), unguarded(limits=limits))
    assert after(made) == machines
    millicores = millicores_of(three(), (m2(), m4()))
    assert breaches(limits, made, millicores) == ()
    assert breaches((NodeLimit(max_vcpus=13),), made, millicores) == (
        () if vcpus == 13 else ("14 vCPUs of nodes at once, at most 13 are allowed",)
    )


def test_nodes_of_types_that_are_not_on_sale_count_their_cores() -> None:
    """Three m4 are twelve vCPUs whether m4 is sold or not: allocatable amounts are rounded up to whole cores."""
    state = cluster(*(node(f"n{number}", cpu=3920) for number in range(3)))
    assert millicores_of(state, (m2(),)) == {m2().name: 2000, "n0": 4000, "n1": 4000, "n2": 4000}


def test_breaches_tell_what_a_plan_breaks() -> None:
    """The check knows nothing of how the limits were kept."""
    made = plan(three(), (m2(), m4()), unguarded())
    assert breaches((NodeLimit(max_nodes=3), NodeLimit(machine_type="m4", min_nodes=2)), made, {}) == (
        "4 nodes at once, at most 3 are allowed",
        "0 m4 nodes remain, at least 2 are to",
    )


def test_without_any_of_these_the_cluster_is_the_one_given() -> None:
    """Plain cost costs nothing to restate."""
    state, on_sale = three(), (m2(), m4())
    frame = framed(state, on_sale, Objective())
    assert frame.cluster is state
    assert frame.offers == on_sale


@pytest.mark.parametrize(
    ("kind", "spoiled", "said"),
    [
        (Headroom, {"requests": {}}, "requests nothing"),
        (Headroom, {"requests": {"cpu": "0"}}, "requests nothing"),
        (Headroom, {"requests": {"cpu": "lots"}}, "lots"),
        (Headroom, {"requests": {"cpu": "1"}, "count": 0}, "count is 0"),
        (NodeLimit, {}, "limits nothing"),
        (NodeLimit, {"min_nodes": -1}, "min_nodes is -1"),
        (NodeLimit, {"min_nodes": 3, "max_nodes": 2}, "max_nodes is 2"),
        (Window, {"move_price_watts": 1.0}, "move_price_watts"),
        (Window, {"objective": "energy", "move_price_usd": 1.0}, "move_price_usd"),
        (Window, {"move_price_usd": -1.0}, "move_price_usd is -1"),
        (Window, {"max_moves": -1}, "max_moves is -1"),
        (Window, {"objective": "speed"}, "speed"),
        (PlanningSettings, {"seed": -1}, "seed is -1"),
        (PlanningSettings, {"workers": 0}, "workers is 0"),
        (PlanningSettings, {"max_moves": -2}, "max_moves is -2"),
        (PlanningSettings, {"move_price_usd": -2}, "move_price_usd is -2"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(kind: type, spoiled: dict[str, object], said: str) -> None:
    """The error names the field and what it may be."""
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.convert(spoiled, kind)


def test_window_wins_over_settings_for_all_times() -> None:
    """Price and cap of the window count where it names them; a price in USD says nothing about watts."""
    settings = unguarded(move_price_usd=5e-06, max_moves=7)
    assert settings.objective(NOW) == Objective(move_price=5, max_moves=7)
    window = Window(move_price_usd=0.25, max_moves=0)
    own = msgspec.structs.replace(settings, windows=(window,)).objective(NOW)
    assert own == Objective(move_price=250_000, max_moves=0)
    energy = msgspec.structs.replace(settings, windows=(Window(objective="energy"),)).objective(NOW)
    assert energy == Objective(kind="energy", max_moves=7)
    assert replace(own, percent=60).text == "cost, utilization at most 60%, 0.25 USD/h per move, at most 0 moves"
    assert replace(own, max_moves=1).text == "cost, 0.25 USD/h per move, at most 1 move"

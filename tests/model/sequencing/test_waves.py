"""The order of a plan's steps: every state on the way holds, and no way is longer than it has to be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.builders import NOW, budget, cluster, deployed, node, offer, offers, selector, stateful
from tests.support.plans import plan_for

from kinema_core.events import HostPort, Offer, PlacementRules, Plan, PodTerm, Spread, Volume, VolumeClaim
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.sequencing.waves import Transition, order_transition, with_steps

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def ordered(on: Cluster, on_sale: tuple[Offer, ...] | None = None, **more: Any) -> tuple[Plan, Transition]:
    """A plan with its steps, which the checker accepts."""
    sold = offers() if on_sale is None else on_sale
    plan = plan_for(on, sold, **more)
    transition = order_transition(plan, on, sold, now=NOW)
    found = with_steps(plan, transition)
    if not transition.stuck:
        assert check_plan(found, on, sold, NOW, ordered=True) == ()
    return found, transition


def told(transition: Transition) -> list[str]:
    """The steps in words."""
    return [
        f"{step.wave} {step.action} {step.pod or step.node} {step.node if step.pod else ''}".strip()
        for step in transition.steps
    ]


def swap(**more: Any) -> Cluster:
    """Two full nodes whose pods shall change places."""
    return cluster(
        node("n1", cpu=4000),
        node("n2", cpu=4000),
        deployed("a", ["n1", "n1"], cpu=1900),
        deployed("b", ["n2", "n2"], cpu=1900),
        **more,
    )


SWAPPED = {"shop/a-0": "n2", "shop/b-0": "n1"}


def test_moves_into_free_room_take_one_wave() -> None:
    """Boot, move everybody, delete: nobody waits."""
    on = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2", "n2"], cpu=500))
    to = {"shop/web-0": "new", "shop/web-1": "new", "shop/web-2": "new"}
    _, transition = ordered(on, to=to, boot={"new": "m2/a/on-demand"}, delete=["n1", "n2"])
    assert told(transition) == [
        "0 boot new",
        "1 move shop/web-0 new",
        "1 move shop/web-1 new",
        "1 move shop/web-2 new",
        "2 delete n1",
        "2 delete n2",
    ]


def test_a_swap_on_full_nodes_takes_a_temporary_node() -> None:
    """The cheapest machine that holds one of the pods is there for two waves, and no part of the plan's cost."""
    plan, transition = ordered(swap(), to=SWAPPED)
    assert told(transition) == [
        "0 boot kinema-1-way-1",
        "1 move shop/a-0 kinema-1-way-1",
        "2 move shop/b-0 n1",
        "3 move shop/a-0 n2",
        "4 delete kinema-1-way-1",
    ]
    assert [(item.offer, item.usd_per_hour) for item in transition.temporary] == [("m2/a/on-demand", 0.085)]
    assert plan.cost.after == plan.cost.before == 0.34


def test_a_swap_uses_free_room_elsewhere_first() -> None:
    """A node with room for one pod spares the temporary one."""
    on = cluster(swap().pods, swap().nodes, swap().workloads, node("n3"))
    _, transition = ordered(on, to=SWAPPED)
    assert transition.temporary == ()
    assert told(transition) == ["1 move shop/a-0 n3", "2 move shop/b-0 n1", "3 move shop/a-0 n2"]


def test_a_chain_moves_from_its_end() -> None:
    """Whoever makes room goes first, and a node is deleted as soon as nobody is on it."""
    on = cluster(
        [node("n1"), node("n2"), node("n3")],
        deployed("a", ["n1"], cpu=3000),
        deployed("b", ["n2"], cpu=3500),
        deployed("c", ["n3"], cpu=3900),
    )
    to = {"shop/a-0": "n2", "shop/b-0": "n3", "shop/c-0": "new"}
    _, transition = ordered(on, to=to, boot={"new": "m4/a/on-demand"}, delete=["n1"])
    assert told(transition) == [
        "0 boot new",
        "1 move shop/c-0 new",
        "2 move shop/b-0 n3",
        "3 move shop/a-0 n2",
        "4 delete n1",
    ]


def test_an_idle_node_goes_at_once() -> None:
    """Nobody has to leave it first."""
    _, transition = ordered(cluster(node("n1"), node("n2"), deployed("a", ["n1"])), delete=["n2"])
    assert told(transition) == ["0 delete n2"]
    assert transition.waves == 1


def test_whoever_makes_room_goes_before_a_pending_pod() -> None:
    """A pending pod that takes the room of one that others wait for would hold up all of them."""
    on = cluster(
        [node("n1"), node("n2"), node("n3")],
        deployed("a", ["n1"], cpu=3900),
        deployed("b", ["n2"], cpu=2000),
        deployed("c", ["n2"], cpu=1900),
        deployed("p", [None], cpu=1900),
    )
    to = {"shop/a-0": "n3", "shop/b-0": "n1", "shop/p-0": "n1", "shop/c-0": "n2"}
    _, transition = ordered(on, to=to)
    assert told(transition) == ["1 move shop/a-0 n3", "2 move shop/b-0 n1", "2 move shop/p-0 n1"]


def test_the_cheapest_machine_that_can_be_had_is_rented() -> None:
    """Sold out, in a pool that the plan uses up, too small, or spot capacity that nobody asks for: the next one."""
    sold = (
        offer("m4"),
        offer("soldout", cpu=2000, price=1, available=0),
        offer("pooled", cpu=2000, price=2, available=1, pool="p"),
        offer("small", cpu=1000, price=3),
        offer("m2", spot=True, cpu=2000, price=4),
        offer("tainted", cpu=2000, price=5, taints=["x:NoSchedule"]),
        offer("big", cpu=2000, price=90_000),
        offer("bigger", cpu=2000, price=90_001),
    )
    on = cluster(list(swap().nodes), list(swap().pods), list(swap().workloads), deployed("p", [None], cpu=2000))
    to = {**SWAPPED, "shop/p-0": "new"}
    _, transition = ordered(on, sold, to=to, boot={"new": "pooled/a/on-demand"})
    assert [item.offer for item in transition.temporary] == ["big/a/on-demand"]


def test_without_a_machine_to_rent_the_stuck_pods_are_named() -> None:
    """There is no order then, and no step."""
    on = swap()
    plan, transition = ordered(on, (offer("m4", available=0),), to=SWAPPED)
    assert transition.stuck == ("shop/a-0", "shop/b-0")
    assert set(transition.obstacles.values()) == {"room"}
    assert (plan.steps, plan.temporary, transition.waves) == ((), (), 0)


def test_two_circles_share_a_temporary_node() -> None:
    """The node that is there is used again before another one is rented."""
    on = cluster(
        [node(f"n{n}") for n in range(1, 5)],
        deployed("a", ["n1", "n1"], cpu=1900),
        deployed("b", ["n2", "n2"], cpu=1900),
        deployed("c", ["n3", "n3"], cpu=1900),
        deployed("d", ["n4", "n4"], cpu=1900),
    )
    to = {**SWAPPED, "shop/c-0": "n4", "shop/d-0": "n3"}
    _, transition = ordered(on, to=to)
    assert len(transition.temporary) == 1
    assert transition.waves == 8


def test_a_stop_is_never_where_its_workload_comes_or_goes() -> None:
    """A replacement has no name that the plan knows: two of one workload on a node could not be told apart."""
    on = cluster(
        [node("n1"), node("n2"), node("n3")],
        deployed("a", ["n1", "n1"], cpu=1900),
        deployed("b", ["n2", "n2", "n3"], cpu=1900),
    )
    to = {"shop/a-0": "n2", "shop/b-0": "n1", "shop/b-2": "n3"}
    _, transition = ordered(on, to=to)
    assert told(transition) == ["1 move shop/a-0 n3", "2 move shop/b-0 n1", "3 move shop/a-0 n2"]
    moved = {**to, "shop/b-2": "new"}
    away, transition = ordered(on, to=moved, boot={"new": "m2/a/on-demand"})
    assert away.moves == 3
    assert not any(step.pod.startswith("shop/b") and step.node == "n3" for step in transition.steps)


def test_a_rolled_workload_goes_in_one_wave_after_the_others() -> None:
    """Its pods go where kube-scheduler puts them: the room of those that are led somewhere is used first."""
    on = cluster(
        [node("n1"), node("n2")],
        deployed("a", ["n1", "n2"], cpu=500, annotations={"kinema.io/strategy": "rolling"}),
        deployed("b", ["n2"], cpu=500),
    )
    _, transition = ordered(on, to={"shop/a-1": "n1", "shop/b-0": "n1"}, delete=["n2"])
    assert told(transition) == [
        "1 move shop/b-0 n1",
        "2 move shop/a-0 n1",
        "2 move shop/a-1 n1",
        "3 delete n2",
    ]


def test_evictions_under_one_budget_take_turns() -> None:
    """One pod of one workload may be away: the other workload waits for the next wave, its own pods do not."""
    on = cluster(
        [node("n1"), node("n2")],
        stateful("a", ["n1", "n1"]),
        stateful("b", ["n1", "n1"]),
        budget("all", selects={}, max_unavailable="1"),
    )
    to = {f"shop/{name}-{n}": "n2" for name in "ab" for n in (0, 1)}
    _, transition = ordered(on, to=to, delete=["n1"])
    assert told(transition) == [
        "1 move shop/a-0 n2",
        "1 move shop/a-1 n2",
        "2 move shop/b-0 n2",
        "2 move shop/b-1 n2",
        "3 delete n1",
    ]


def test_the_first_of_its_kind_comes_alone() -> None:
    """A pod that nobody keeps company yet comes before its like, though that could come at any time."""
    near = PlacementRules(affinity=(PodTerm(topology_key="rack", selector=selector(app="web")),))
    on = cluster(node("n1"), node("n2", labels={"rack": "x"}), deployed("web", [None, "n1"], rules=near))
    _, transition = ordered(on, to={"shop/web-0": "n2", "shop/web-1": "n2"}, delete=["n1"])
    assert told(transition) == ["1 move shop/web-0 n2", "2 move shop/web-1 n2", "3 delete n1"]


def test_replicas_that_need_each_other_are_evicted_within_their_zone_one_by_one() -> None:
    """While one is away the other stays, as kube-scheduler asks no pod again that runs."""
    near = PlacementRules(affinity=(PodTerm(topology_key=ZONE, selector=selector(app="a")),))
    on = cluster(node("n1"), node("n2"), stateful("a", ["n1", "n1"], rules=near))
    _, transition = ordered(on, to={"shop/a-0": "n2", "shop/a-1": "n2"}, delete=["n1"])
    assert told(transition) == ["1 move shop/a-0 n2", "2 move shop/a-1 n2", "3 delete n1"]
    _, single = ordered(on, to={"shop/a-1": "n2"})
    assert told(single) == ["1 move shop/a-1 n2"]


def test_a_full_zone_is_left_by_way_of_another_one() -> None:
    """A zone that has one more than the others takes no surge, unless the pod has been elsewhere in the meantime."""
    rules = PlacementRules(
        spread=(Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app="a")),)
    )
    for closed, expected in ((False, ["1 move shop/a-0 b1", "2 move shop/a-0 a2"]), (True, [])):
        nodes = [node("a1"), node("a2"), node("b1", zone="b", price="0.17", unschedulable=closed)]
        on = cluster(nodes, deployed("a", ["a1", "a1", "b1"], rules=rules))
        _, transition = ordered(on, to={"shop/a-0": "a2"})
        assert told(transition) == expected
        assert transition.obstacles == ({} if expected else {"shop/a-0": "topology spread"})


def even(key: str, app: str = "a") -> PlacementRules:
    """At most one more in a domain than in any other."""
    spread = Spread(topology_key=key, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app=app))
    return PlacementRules(spread=(spread,))


def test_one_stop_lets_all_pods_of_a_full_zone_move() -> None:
    """While one pod is elsewhere the others come and go; it comes back when all of them have."""
    nodes = [node("a1"), node("a2"), node("b1", zone="b", price="0.17")]
    on = cluster(nodes, deployed("a", ["a1", "a1", "a1", "b1", "b1"], rules=even(ZONE)))
    _, transition = ordered(on, to={f"shop/a-{n}": "a2" for n in range(3)}, delete=["a1"])
    assert told(transition) == [
        "1 move shop/a-0 b1",
        "2 move shop/a-1 a2",
        "2 move shop/a-2 a2",
        "3 delete a1",
        "3 move shop/a-0 a2",
    ]


def test_a_surge_counts_its_own_old_copy_where_that_still_is() -> None:
    """The old copy leaves after the new one has come: the node that it empties is no empty one until then."""
    on = cluster(
        [node(f"n{n}") for n in (1, 2, 3)], deployed("a", [f"n{n}" for n in (1, 1, 2, 2, 3, 3)], rules=even(HOST))
    )
    to = {"shop/a-4": "new", "shop/a-5": "new"}
    _, transition = ordered(on, to=to, boot={"new": "m4/a/on-demand"}, delete=["n3"])
    assert told(transition) == [
        "0 boot new",
        "1 move shop/a-4 new",
        "1 move shop/a-5 new",
        "2 delete n3",
    ]


def test_a_node_that_is_gone_is_no_empty_domain() -> None:
    """Until it is deleted, a node without pods keeps others from getting a second one."""
    on = cluster([node(f"n{n}") for n in (1, 2, 3)], deployed("a", ["n1", "n2"], rules=even(HOST)))
    _, transition = ordered(on, to={"shop/a-0": "n3", "shop/a-1": "n3"}, delete=["n1", "n2"])
    assert told(transition) == ["1 move shop/a-0 n3", "2 delete n1", "3 move shop/a-1 n3", "4 delete n2"]


def test_a_pod_moves_once_in_a_wave() -> None:
    """Whoever is in two pods' way makes one stop: neither of two pods may be doubled on a node before it."""
    on = cluster([node(f"n{n}") for n in range(4)], deployed("a", ["n0", "n1"], rules=even(HOST)))
    _, transition = ordered(on, to={"shop/a-0": "n1", "shop/a-1": "n0"})
    assert told(transition) == ["1 move shop/a-0 n2", "2 move shop/a-1 n0", "3 move shop/a-0 n1"]


def test_whom_anti_affinity_does_not_mean_comes_where_it_is_broken() -> None:
    """Two pods that should be apart share a node: a third one of them is kept out, who looks for them is not."""
    apart = PlacementRules(anti_affinity=(PodTerm(topology_key=HOST, selector=selector(app="b")),))
    near = PlacementRules(affinity=(PodTerm(topology_key=HOST, selector=selector(app="b")),))
    nodes = [node("n1"), node("n2")]
    on = cluster(nodes, deployed("b", ["n1", "n1", "n2"], rules=apart), deployed("a", ["n2"], rules=near))
    assert ordered(on, to={"shop/a-0": "n1"})[1].stuck == ()
    refused = order_transition(plan_for(on, offers(), to={"shop/b-2": "n1"}), on, offers(), now=NOW)
    assert refused.obstacles == {"shop/b-2": "pod anti-affinity"}


def test_stopped_pods_make_way_once_more() -> None:
    """Two pods whose zones are full, each at a stop on the node that the other one is to go to: one stops again."""
    places = ["a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"]
    nodes = [node(name, cpu=1000, zone=name[0], price="0.17") for name in places]
    on = cluster(
        nodes,
        deployed("a", ["a1", "a3", "b3"], cpu=300, rules=even(ZONE)),
        deployed("b", ["b1", "b4", "a4"], cpu=300, rules=even(ZONE, "b")),
        deployed("filler", places, cpu=700),
    )
    _, transition = ordered(on, to={"shop/a-0": "a2", "shop/b-0": "b2"})
    assert [line for line in told(transition) if "move" in line] == [
        "1 move shop/b-0 a2",
        "1 move shop/a-0 b2",
        "2 move shop/a-0 kinema-1-way-1",
        "3 move shop/b-0 b2",
        "4 move shop/a-0 b1",
        "5 move shop/a-0 a2",
    ]


def test_a_temporary_node_that_is_a_new_domain_is_booted_by_itself() -> None:
    """While pods arrive that count domains, no empty one comes up."""
    rules = PlacementRules(
        spread=(Spread(topology_key=HOST, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app="c")),)
    )
    on = cluster(
        list(swap().nodes),
        list(swap().pods),
        list(swap().workloads),
        node("n3"),
        deployed("c", ["n3"], rules=rules, cpu=3000),
    )
    _, transition = ordered(on, to={**SWAPPED, "shop/c-0": "new"}, boot={"new": "m4/a/on-demand"}, delete=["n3"])
    boot = next(step.wave for step in transition.steps if step.action == "boot" and step.node.startswith("kinema"))
    assert not any(step.wave == boot for step in transition.steps if step.action == "move")


@pytest.mark.parametrize(("limit", "steps"), [(1, "1b 2a"), (2, "1a 1b"), (None, "1a 1b")])
def test_a_volume_is_let_go_of_before_another_comes_to_a_full_node(limit: int | None, steps: str) -> None:
    """Where a driver attaches one to each node, the pod at the end of a chain goes first; the checker sees it too."""
    full = {} if limit is None else {"attachable-volumes-csi-disk.example.com": limit}
    on = cluster(
        [node(f"n{index}", extra=full) for index in range(3)],
        [Volume(name=f"pv-{name}", uid=f"v-{name}", driver="disk.example.com") for name in "ab"],
        [VolumeClaim(name=name, namespace="shop", uid=f"c-{name}", volume=f"pv-{name}") for name in "ab"],
        stateful("a", ["n0"], rules=PlacementRules(claims=("a",)), annotations={"kinema.io/strategy": "evict"}),
        stateful("b", ["n1"], rules=PlacementRules(claims=("b",)), annotations={"kinema.io/strategy": "evict"}),
    )
    plan, transition = ordered(on, to={"shop/a-0": "n1", "shop/b-0": "n2"})
    assert " ".join(f"{step.wave}{step.pod[len('shop/')]}" for step in transition.steps) == steps
    at_once = msgspec.structs.replace(plan, steps=tuple(msgspec.structs.replace(one, wave=1) for one in plan.steps))
    codes = {found.code for found in check_plan(at_once, on, offers(), NOW, ordered=True)}
    assert codes == ({"wave-overfull"} if limit == 1 else set())


def test_a_host_port_is_free_one_wave_after_its_pod_left() -> None:
    """A node without the port takes the pod at once."""
    port = PlacementRules(host_ports=(HostPort(port=80, protocol="TCP"),))
    on = cluster(
        [node(f"n{n}") for n in (1, 2, 3)], deployed("a", ["n1"], rules=port), deployed("b", ["n2"], rules=port)
    )
    _, transition = ordered(on, to={"shop/a-0": "n2", "shop/b-0": "n3"})
    assert told(transition) == ["1 move shop/b-0 n3", "2 move shop/a-0 n2"]


def test_a_volume_that_several_pods_use_is_released_by_none() -> None:
    """Pods that share it on two nodes may come to a third one together."""
    rules = PlacementRules(claims=("data",))
    disk = (Volume(name="pv", uid="v"), VolumeClaim(name="data", namespace="shop", uid="c", volume="pv"))
    on = cluster([node(f"n{n}") for n in (1, 2, 3)], disk, deployed("a", ["n1", "n2"], rules=rules))
    _, transition = ordered(on, to={"shop/a-0": "n3", "shop/a-1": "n3"}, delete=["n1", "n2"])
    assert told(transition)[:2] == ["1 move shop/a-0 n3", "1 move shop/a-1 n3"]


def test_where_waves_find_no_way_sequences_of_single_moves_are_searched() -> None:
    """Pending pods that come first make the zone uneven for the one that has to leave before its zone can go."""
    rules = PlacementRules(
        spread=(Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app="a")),)
    )
    on = cluster(
        node("n0", price="0.17"),
        node("n1", zone="b", price="0.17"),
        node("n3", price="0.17"),
        deployed("a", ["n1", None, None], labels={"app": "a"}, rules=rules),
    )
    to = {"shop/a-0": "n3", "shop/a-1": "n0", "shop/a-2": "n0"}
    _, transition = ordered(on, (), to=to, delete=["n1"])
    assert transition.stuck == ()
    assert told(transition) == [
        "1 move shop/a-0 n3",
        "2 delete n1",
        "3 move shop/a-1 n0",
        "4 move shop/a-2 n0",
    ]

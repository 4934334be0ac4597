"""The plan checker on whole plans: what it accepts, and why it refuses."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import (
    NOW,
    cluster,
    deployed,
    fragmented,
    full,
    node,
    offer,
    offers,
    on_every_node,
    pod,
    tiny,
    unreadable,
)
from tests.support.plans import change, cost, first, leave, place, plan_for, without

from kinema_core.events import (
    Cost,
    FrozenMap,
    Offer,
    PlacementRules,
    Plan,
    PlanNode,
    Unplaced,
)
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.mobility import MobilityOptions

NEW = "kinema-1-0"


def codes(plan: Plan, on: Cluster, on_sale: tuple[Offer, ...] | None = None, **options: Any) -> set[str]:
    """The codes of everything wrong with a plan."""
    return {
        each.code
        for each in check_plan(plan, on, offers() if on_sale is None else on_sale, NOW, MobilityOptions(**options))
    }


def test_staying_as_it_is_is_a_valid_plan() -> None:
    """Nothing better means that everything stays, at the same cost."""
    for on in (tiny(), fragmented()):
        assert codes(plan_for(on, offers(), status="nothing-better"), on) == set()


def test_an_optimal_plan_may_give_away_a_thousandth() -> None:
    """Within 0.1 % of the bound the plan with the fewest moves counts as optimal."""
    on = tiny()
    plan = plan_for(on, offers(), to={"shop/web-2": "n1"}, delete=["n2"], status="optimal", lower_bound=169_900)
    assert codes(plan, on) == set()
    assert codes(plan_for(on, offers(), status="optimal", lower_bound=339_000), on) == {"status-optimal"}


def test_an_autoscale_plan_adds_nodes_for_pending_pods() -> None:
    """Running pods stay, the pending one gets a node."""
    on = full()
    plan = plan_for(on, offers(), to={"shop/batch-0": NEW}, boot={NEW: "m2/a/on-demand"}, mode="autoscale")
    assert codes(plan, on) == set()


def test_an_infeasible_plan_says_who_cannot_be_placed() -> None:
    """It is asked for its lists only: its money and nodes mean nothing."""
    on = tiny()
    plan = plan_for(on, offers())
    left = leave(plan, "shop/web-2")
    assert codes(change(left, status="infeasible"), on) == set()
    assert codes(change(without(plan, "shop/web-2"), status="infeasible"), on) == {"pod-missing", "status-infeasible"}


def test_an_offers_pool_is_shared() -> None:
    """What is available of a machine in all zones together is counted together."""
    on = full()
    two = deployed("more", [None], cpu=1500)
    both = cluster([*on.nodes, *on.pods, *on.workloads], two)
    pooled = tuple(offer("p", zone=zone, available=1, pool="p") for zone in ("a", "b"))
    on_sale = (*offers(), *pooled)
    to = {"shop/batch-0": "new-a", "shop/more-0": "new-b"}
    plan = plan_for(both, on_sale, to=to, boot={"new-a": "p/a/on-demand", "new-b": "p/b/on-demand"})
    assert codes(plan, both, on_sale) == {"offer-exhausted"}
    apart = tuple(msgspec.structs.replace(each, pool="") for each in pooled)
    assert codes(plan, both, (*offers(), *apart)) == set()


def test_a_pending_pod_may_wait_for_what_is_not_there() -> None:
    """Unplaced is right when no node has room and nothing on sale could hold it, or too few are available."""
    on = full()
    plan = plan_for(on, offers(), unplaced={"shop/batch-0": "no-room"})
    assert codes(plan, on, (offer("m4", available=0),)) == set()
    assert codes(plan, on, (offer("m4", available=1),)) == {"pending-placeable"}
    assert codes(plan, on, (offer("m4"), offer("small", cpu=1000, price=1))) == {"pending-placeable"}
    spot = (offer("m4", available=0), offer("m4", spot=True))
    assert codes(plan, on, spot) == set()
    assert codes(plan, on, spot, allow_spot=True) == {"pending-placeable"}


def test_a_pending_pod_is_not_asked_to_go_to_a_closed_node() -> None:
    """Room on a cordoned node is no room."""
    for closed, expected in ((True, set()), (False, {"pending-placeable"})):
        on = cluster(node("n1", unschedulable=closed), deployed("web", [None]))
        plan = plan_for(on, offers(), unplaced={"shop/web-0": "no-room"})
        assert codes(plan, on, (offer("m4", available=0),)) == expected


def test_unplaced_names_only_pods_that_are_there() -> None:
    """An unplaced pod that nobody knows is refused like a placed one."""
    on = tiny()
    ghost = Unplaced(pod="shop/ghost", uid="u", code="no-room", reason="no room")
    assert codes(change(plan_for(on, offers()), unplaced=(ghost,)), on) == {"pod-unknown"}


def test_the_gap_over_a_bound_of_nothing() -> None:
    """Nothing above nothing is no gap; anything above nothing has no finite one."""
    free = cluster(node("n1", price="0"), deployed("web", ["n1"]))
    assert codes(plan_for(free, ()), free, ()) == set()
    assert codes(cost(plan_for(free, ()), gap=None), free, ()) == {"cost-gap"}
    on = tiny()
    plan = plan_for(on, offers(), lower_bound=0)
    assert plan.cost.gap is None
    assert codes(plan, on) == set()
    assert codes(cost(plan, gap=0.0), on) == {"cost-gap"}
    assert codes(cost(plan, gap=float("inf")), on) == {"cost-gap"}


def test_a_pending_pod_with_rules_that_are_not_modeled_is_not_placed() -> None:
    """It may be left out with its code, and may not be placed blindly."""
    on = cluster(node("n1"), deployed("web", [None], rules=PlacementRules(claims=("data",))))
    assert codes(plan_for(on, offers(), unplaced={"shop/web-0": "unmodeled-volume"}), on) == set()
    assert codes(plan_for(on, offers(), to={"shop/web-0": "n1"}), on) == {"held-placed"}


def test_terminating_pods_keep_their_room() -> None:
    """Until a pod is gone nobody else can have its place."""
    on = cluster(node("n1"), node("n2"), pod("going", node="n1", terminating=True, cpu=3800), deployed("web", ["n2"]))
    plan = plan_for(on, offers(), to={"shop/web-0": "n1"}, delete=["n2"])
    assert codes(plan, on) == set()
    bigger = cluster([*on.nodes], pod("going", node="n1", terminating=True, cpu=3901), deployed("web", ["n2"]))
    assert codes(plan, bigger) == {"over-capacity"}


def test_daemon_sets_take_their_room_on_new_nodes() -> None:
    """A new node has less for pods than it has."""
    on = cluster(node("n1"), on_every_node("log", ["n1"], cpu=101), deployed("big", [None], cpu=1900))
    plan = plan_for(on, offers(), to={"shop/big-0": NEW}, boot={NEW: "m2/a/on-demand"})
    assert codes(plan, on) == {"over-capacity"}


def test_pods_are_counted_too() -> None:
    """A node's limit of pods is a resource like any other."""
    on = cluster(node("n1", pods=2), node("n2"), deployed("web", ["n1", "n1", "n2"], cpu=1))
    plan = plan_for(on, offers(), to={"shop/web-2": "n1"}, delete=["n2"])
    assert codes(plan, on) == {"over-capacity"}


def test_a_node_that_is_overdrawn_now_may_stay_so() -> None:
    """It is no fault of the plan's, until the plan adds to it."""
    on = cluster(node("n1", cpu=100), node("n2"), deployed("web", ["n1", "n1", "n2"], cpu=100))
    assert codes(plan_for(on, offers()), on) == set()
    assert codes(plan_for(on, offers(), to={"shop/web-2": "n1"}), on) == {"over-capacity"}


def test_a_pod_may_come_that_asks_for_nothing_of_what_is_lacking() -> None:
    """A node that has too few GPUs now still takes pods that want none."""
    gpu = deployed("train", ["n1", "n1"], extra={"nvidia.com/gpu": 1})
    on = cluster(node("n1", extra={"nvidia.com/gpu": 1}), node("n2"), gpu, deployed("web", ["n2"]))
    assert codes(plan_for(on, offers(), to={"shop/web-0": "n1"}, delete=["n2"]), on) == set()


def test_a_live_spot_node_keeps_its_pods_and_gets_no_others() -> None:
    """What runs on spot capacity may stay; moving there takes a word."""
    on_sale = (offer(), offer(spot=True, price=50_000))
    on = cluster(node("n1", spot=True), node("n2"), deployed("web", ["n1", "n2"]))
    plan = plan_for(on, on_sale, to={"shop/web-1": "n1"}, delete=["n2"])
    assert codes(plan, on, on_sale) == {"spot-not-allowed"}
    assert codes(plan, on, on_sale, allow_spot=True) == set()
    assert codes(plan_for(on, on_sale), on, on_sale) == set()


def test_pods_on_a_node_that_cannot_be_read_stay_there() -> None:
    """Such a node has no price and is in no list; its pods are held where they are."""
    on = cluster(node("n1"), deployed("web", ["n9"]), unreadable("Node n9", node="n9"))
    assert codes(plan_for(on, offers()), on) == set()
    assert codes(plan_for(on, offers(), to={"shop/web-0": "n1"}), on) >= {"held-moved"}


def test_a_node_without_a_price_makes_no_plan() -> None:
    """Saving needs to know what is paid."""
    on = tiny()
    assert "node-price" in codes(plan_for(on, offers()), on, (offer("m2"),))


def test_a_resize_rolls_the_whole_workload() -> None:
    """New requests restart every pod of the workload, and count where they land."""
    on = tiny()
    key = "Deployment/shop/web"
    plan = plan_for(on, offers(), to={"shop/web-2": "n1"}, delete=["n2"], resizes={key: {"cpu": 300}})
    assert (plan.moves, plan.restarts) == (1, 2)
    assert codes(plan, on) == set()
    assert codes(place(plan, "shop/web-0", strategy="stay"), on) == {"strategy-mismatch", "restarts"}
    assert codes(place(plan, "shop/web-0", requests=first(plan_for(on, offers()), "shop/web-0").requests), on) == {
        "requests-mismatch"
    }
    grown = plan_for(on, offers(), to={"shop/web-2": "n1"}, delete=["n2"], resizes={key: {"cpu": 1400}})
    assert codes(grown, on) == {"over-capacity"}


def test_a_rolling_update_restarts_no_held_pod() -> None:
    """A pod that may not be disturbed forbids rolling its workload, also where it would stay on its node."""
    keep = {"karpenter.sh/do-not-disrupt": "true"}
    web = deployed("web", ["n1", "n2"], annotations={"kinema.io/strategy": "rolling"})
    guarded = [
        msgspec.structs.replace(each, annotations=FrozenMap(keep)) if each.key == "shop/web-0" else each for each in web
    ]
    on = cluster(node("n1"), node("n2"), guarded)
    plan = plan_for(on, offers(), to={"shop/web-1": "n1"}, delete=["n2"])
    assert codes(plan, on) == {"held-restarted"}
    free = cluster(node("n1"), node("n2"), web)
    assert codes(plan_for(free, offers(), to={"shop/web-1": "n1"}, delete=["n2"]), free) == set()


@given(st.lists(st.sampled_from(["n1", "n2", "n3"]), min_size=6, max_size=6), st.integers(100, 2500))
def test_capacity_is_what_a_plain_recount_finds(targets: list[str], cpu: int) -> None:
    """For any assignment over capacity is reported exactly for the nodes that a naive sum finds overdrawn."""
    on = cluster(
        node("n1"),
        node("n2", cpu=2000),
        node("n3", cpu=8000, machine="m8"),
        on_every_node("log", ["n1", "n2", "n3"]),
        deployed("web", ["n1", "n1", "n2", "n3", "n3", "n3"], cpu=cpu),
    )
    plan = plan_for(on, offers(), to={f"shop/web-{index}": name for index, name in enumerate(targets)})
    found = {each.subject for each in check_plan(plan, on, offers(), NOW) if each.code == "over-capacity"}
    now = [each.node for each in on.pods if each.namespace == "shop"]
    overdrawn = {
        name
        for name, room in (("n1", 4000), ("n2", 2000), ("n3", 8000))
        if targets.count(name) * cpu > room - 50
        and any(target == name != source for target, source in zip(targets, now, strict=True))
    }
    assert found == overdrawn


def test_the_checker_is_not_talked_into_anything_by_rounding() -> None:
    """Costs are compared as integers: a sum of prices is exact to the micro-dollar."""
    on = cluster([node(f"n{index}", price="0.1") for index in range(30)], deployed("web", [f"n{i}" for i in range(30)]))
    plan = plan_for(on, ())
    assert plan.cost == Cost(before=3.0, after=3.0, lower_bound=3.0, gap=0.0)
    assert codes(plan, on, ()) == set()
    assert codes(cost(plan, before=3.000001), on, ()) == {"cost-before"}


def test_nodes_may_be_described_by_any_of_their_offers() -> None:
    """Of several offers of one machine any names a live node."""
    on = tiny()
    plan = plan_for(on, offers())
    named = [PlanNode(**{**_fields(item), "offer": "m4/a/on-demand#2"}) for item in plan.nodes]
    assert codes(change(plan, nodes=tuple(named)), on) == set()


def _fields(item: PlanNode) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__struct_fields__}

"""Rules between pods, plans on later states, and what happens between before and after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from tests.support.builders import (
    NOW,
    cluster,
    deployed,
    labels,
    node,
    offer,
    offers,
    on_every_node,
    selector,
    tiny,
    toleration,
    unreadable,
)
from tests.support.plans import plan_for

from kinema_core.events import ClusterObject, HostPort, PlacementRules, PodTerm, Spread
from kinema_core.model.checker.check import check_drifted, check_plan
from kinema_core.model.cluster import Cluster, all_objects

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
ON_SALE = tuple(offer(zone=zone) for zone in "abc")
RULES = {"affinity-broken", "anti-affinity-broken", "spread-broken", "host-port"}


def broken(on: Cluster, to: dict[str, str], **more: Any) -> set[str]:
    """The rules between pods that a plan breaks, whether or not its pods may move at all."""
    plan = plan_for(on, ON_SALE, to=to, **more)
    return {each.code for each in check_plan(plan, on, ON_SALE, NOW)} & RULES


def three(*objects: ClusterObject | Iterable[ClusterObject]) -> Cluster:
    """Nodes n1, n2 and n3 in zones a, a and b, and these objects."""
    return cluster(node("n1", zone="a"), node("n2", zone="a"), node("n3", zone="b"), *objects)


def near(app: str, key: str = ZONE, **more: Any) -> PlacementRules:
    """Required affinity to pods of an app."""
    return PlacementRules(affinity=(PodTerm(topology_key=key, selector=selector(app=app), **more),))


def apart(app: str, key: str = ZONE, **more: Any) -> PlacementRules:
    """Required anti-affinity to pods of an app."""
    return PlacementRules(anti_affinity=(PodTerm(topology_key=key, selector=selector(app=app), **more),))


def even(app: str, key: str = ZONE, **more: Any) -> PlacementRules:
    """An enforced spread of an app with a skew of at most 1."""
    constraint = Spread(
        **{
            "topology_key": key,
            "max_skew": 1,
            "when_unsatisfiable": "DoNotSchedule",
            "selector": selector(app=app),
            **more,
        }
    )
    return PlacementRules(spread=(constraint,))


# --- affinity


def test_whom_a_pod_needs_may_not_leave_its_domain() -> None:
    """The one that stays would be alone; moving within the domain, or leaving somebody behind, breaks nothing."""
    on = three(deployed("web", ["n1"], rules=near("cache")), deployed("cache", ["n1"]))
    assert broken(on, {"shop/cache-0": "n3"}) == {"affinity-broken"}
    assert broken(on, {"shop/cache-0": "n2"}) == set()
    two = three(deployed("web", ["n1"], rules=near("cache")), deployed("cache", ["n1", "n2"]))
    assert broken(two, {"shop/cache-0": "n3"}) == set()


def test_a_pod_may_not_leave_whom_it_needs() -> None:
    """The one that moves must find somebody where it goes."""
    on = three(deployed("web", ["n1"], rules=near("cache")), deployed("cache", ["n1", "n3"]))
    assert broken(on, {"shop/web-0": "n3"}) == set()
    alone = three(deployed("web", ["n1"], rules=near("cache")), deployed("cache", ["n1"]))
    assert broken(alone, {"shop/web-0": "n3"}) == {"affinity-broken"}


def test_affinity_that_is_broken_now_is_not_the_plans_fault() -> None:
    """A pod that is alone already may stay alone."""
    on = three(deployed("web", ["n3"], rules=near("cache")), deployed("cache", ["n1"]))
    assert broken(on, {"shop/cache-0": "n2"}) == set()


def test_a_pending_pod_must_find_whom_it_needs() -> None:
    """What is placed anew meets its rules from the start; the first of its kind needs nobody else."""
    on = three(deployed("web", [None], rules=near("cache")), deployed("cache", ["n1"]))
    assert broken(on, {"shop/web-0": "n3"}) == {"affinity-broken"}
    assert broken(on, {"shop/web-0": "n2"}) == set()
    own = three(deployed("web", [None, None], rules=near("web")))
    assert broken(own, {"shop/web-0": "n1", "shop/web-1": "n2"}) == set()
    assert broken(own, {"shop/web-0": "n1", "shop/web-1": "n3"}) == {"affinity-broken"}


# --- anti-affinity


def test_anti_affinity_holds_in_both_directions() -> None:
    """Neither the shy pod may come nor the others to it; another domain or namespace is far enough."""
    on = three(deployed("shy", ["n1"], rules=apart("loud")), deployed("loud", ["n3"]))
    assert broken(on, {"shop/loud-0": "n2"}) == {"anti-affinity-broken"}
    assert broken(on, {"shop/shy-0": "n3"}) == {"anti-affinity-broken"}
    assert broken(on, {"shop/shy-0": "n2"}) == set()
    elsewhere = three(deployed("shy", ["n1"], rules=apart("loud")), deployed("loud", ["n3"], namespace="bank"))
    assert broken(elsewhere, {"bank/loud-0": "n1"}) == set()


def test_a_pod_does_not_keep_itself_away() -> None:
    """Replicas that shun each other may each be somewhere, but not two together."""
    on = three(deployed("db", ["n1", "n3"], rules=apart("db")))
    assert broken(on, {"shop/db-0": "n2"}) == set()
    assert broken(on, {"shop/db-1": "n2"}) == {"anti-affinity-broken"}


def test_a_term_for_another_namespace_does_not_mean_the_pod_itself() -> None:
    """A pod with the labels that it shuns, in a namespace that it does not, still keeps every other away."""
    rules = apart("db", namespaces=("bank",))
    on = three(deployed("db", ["n1"], rules=rules), deployed("db", ["n3"], namespace="bank"))
    assert broken(on, {"bank/db-0": "n2"}) == {"anti-affinity-broken"}


def test_anti_affinity_that_is_broken_now_never_gets_worse() -> None:
    """Two that share a domain against the rule may stay; a third may not join."""
    on = three(deployed("db", ["n1", "n2", "n3"], rules=apart("db")))
    assert broken(on, {}) == set()
    assert broken(on, {"shop/db-2": "n2"}) == {"anti-affinity-broken"}


def test_an_empty_domain_is_no_domain() -> None:
    """On a node without the topology's label nobody is near or far."""
    on = three(node("n4", zone=None), deployed("shy", ["n4"], rules=apart("loud")), deployed("loud", ["n1"]))
    assert broken(on, {"shop/loud-0": "n4"}) == set()


def test_what_goes_with_its_node_counts_while_the_node_remains() -> None:
    """A daemon set's pod keeps others away on nodes that remain."""
    guard = on_every_node("guard", ["n3"], namespace="shop")
    shy = [msgspec.structs.replace(each, rules=apart("loud")) for each in guard[1:]]
    on = three(guard[0], shy, deployed("loud", ["n1"]))
    assert broken(on, {"shop/loud-0": "n3"}) == {"anti-affinity-broken"}
    assert broken(on, {"shop/loud-0": "n2"}) == set()


# --- spread


def test_a_spread_that_holds_still_holds() -> None:
    """The skew over the zones of the nodes that remain is at most what is wanted."""
    on = three(deployed("web", ["n1", "n3"], rules=even("web")))
    assert broken(on, {"shop/web-1": "n1"}) == {"spread-broken"}
    assert broken(on, {"shop/web-0": "n2"}) == set()


def test_only_zones_of_remaining_nodes_count() -> None:
    """A zone whose last node goes is no empty zone."""
    on = three(deployed("web", ["n1", "n3"], rules=even("web")))
    assert broken(on, {"shop/web-1": "n1"}, delete=["n3"]) == set()


def test_a_node_in_a_new_zone_is_an_empty_domain() -> None:
    """Booting where nobody is makes the rest uneven."""
    on = three(deployed("web", ["n1", "n2", "n3", "n3"], rules=even("web")), deployed("other", ["n1"]))
    assert broken(on, {"shop/other-0": "new"}, boot={"new": "m4/c/on-demand"}) == {"spread-broken"}
    assert broken(on, {"shop/other-0": "new"}, boot={"new": "m4/a/on-demand"}) == set()


def test_too_few_domains_count_as_an_empty_one() -> None:
    """With fewer domains than wanted the least count is zero."""
    on = three(deployed("web", ["n1", "n1", "n3", "n3"], rules=even("web", min_domains=2)))
    plan = {"shop/web-2": "n1", "shop/web-3": "n1"}
    assert broken(on, plan, delete=["n3"]) == {"spread-broken"}


def test_a_skew_that_is_too_large_now_never_grows() -> None:
    """Three against none may become two against one, but not four against none."""
    on = three(deployed("web", ["n1", "n1", "n1"], rules=even("web")), deployed("more", [None], labels={"app": "web"}))
    left = {"unplaced": {"shop/more-0": "x"}}
    assert broken(on, {}, **left) == set()
    assert broken(on, {"shop/web-0": "n3"}, **left) == set()
    assert broken(on, {"shop/more-0": "n3"}) == set()
    assert broken(on, {"shop/more-0": "n2"}) == {"spread-broken"}


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ({}, set()),
        ({"node_taints_policy": "Ignore"}, set()),
        ({"node_taints_policy": "Honor"}, {"spread-broken"}),
    ],
)
def test_which_nodes_count_is_the_constraints_word(policies: dict[str, Any], expected: set[str]) -> None:
    """A zone of tainted nodes is an empty domain, so that the skew is 2 already, unless taints are honored."""
    tainted = node("n4", zone="c", taints=["gpu:NoSchedule"])
    on = three(tainted, deployed("web", ["n1", "n1", "n3"], rules=even("web", **policies)))
    assert broken(on, {"shop/web-2": "n4"}) == expected


def test_a_zone_whose_taint_the_pods_tolerate_counts() -> None:
    """Honoring taints leaves out only nodes that the pods could not use."""
    rules = msgspec.structs.replace(even("web", node_taints_policy="Honor"), tolerations=(toleration("gpu"),))
    on = three(node("n4", zone="c", taints=["gpu:NoSchedule"]), deployed("web", ["n1", "n3", "n4"], rules=rules))
    assert broken(on, {"shop/web-2": "n1"}) == {"spread-broken"}


@pytest.mark.parametrize(("policy", "expected"), [("Honor", set()), ("Ignore", {"spread-broken"})])
def test_nodes_that_the_selector_excludes_count_only_when_ignored(policy: str, expected: set[str]) -> None:
    """A new node in another zone that the pods may not use is no empty domain, unless the constraint says so."""
    zoned = {"node_selector": labels({"kubernetes.io/os": "windows"})}
    rules = msgspec.structs.replace(even("web", node_affinity_policy=policy), **zoned)
    windows = {"kubernetes.io/os": "windows"}
    on = cluster(
        node("n1", zone="a", labels=windows),
        node("n3", zone="b", labels=windows),
        deployed("web", ["n1", "n1", "n3", "n3"], rules=rules),
        deployed("other", ["n1"]),
    )
    assert broken(on, {"shop/other-0": "new"}, boot={"new": "m4/c/on-demand"}) == expected


def test_preferences_bind_nobody() -> None:
    """Weighted terms and ScheduleAnyway are wishes."""
    soft = PlacementRules(
        affinity=near("cache", weight=10).affinity,
        anti_affinity=apart("loud", weight=10).anti_affinity,
        spread=even("web", when_unsatisfiable="ScheduleAnyway").spread,
    )
    on = three(deployed("web", ["n1", "n3"], rules=soft), deployed("loud", ["n2"]), deployed("cache", ["n1"]))
    assert broken(on, {"shop/web-0": "n3", "shop/loud-0": "n3", "shop/cache-0": "n3"}) == set()


# --- host ports


def test_a_host_port_is_had_once_per_node() -> None:
    """Neither two pods of a plan nor one beside a daemon set's can have the same port."""
    web = PlacementRules(host_ports=(HostPort(port=80),))
    on = three(deployed("web", ["n1", "n2"], rules=web), deployed("other", ["n3"], rules=web))
    assert broken(on, {"shop/web-1": "n1"}) == {"host-port"}
    assert broken(on, {"shop/other-0": "n1"}) == {"host-port"}
    assert broken(on, {"shop/web-1": "n3", "shop/other-0": "n2"}) == set()
    guard = [msgspec.structs.replace(each, rules=web) for each in on_every_node("guard", ["n3"])[1:]]
    taken = three(guard, deployed("web", ["n1"], rules=web))
    assert broken(taken, {"shop/web-0": "n3"}) == {"host-port"}


def test_a_clash_that_is_there_now_is_not_the_plans_fault() -> None:
    """Pods that stay are not asked how they came to be together."""
    web = PlacementRules(host_ports=(HostPort(port=80),))
    assert broken(three(deployed("web", ["n1", "n1"], rules=web)), {}) == set()


# --- a later state


def drifted(on: Cluster, later: Cluster, **more: Any) -> set[str]:
    """Why a plan for one state cannot be carried out on a later one."""
    plan = plan_for(on, offers(), **more)
    assert check_plan(plan, on, offers(), NOW) == ()
    return {each.code for each in check_drifted(plan, later, offers(), NOW)}


EMPTIES = {"to": {"shop/web-2": "n1"}, "delete": ["n2"]}


def later(*objects: ClusterObject | Iterable[ClusterObject]) -> Cluster:
    """The tiny cluster with more, or with newer objects of the same names."""
    return cluster(list(all_objects(tiny())), *objects, version=9)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], set()),
        (deployed("new", ["n1"], cpu=1000), set()),
        (deployed("new", ["n1"], cpu=2501), {"over-capacity"}),
        (deployed("new", ["n2"]), {"to-deleted"}),
        (deployed("new", [None], cpu=9000), set()),
        ([node("n3"), *deployed("new", ["n3"])], set()),
        ([node("n3", unschedulable=True), *deployed("new", ["n3"])], set()),
        ([node("n1", unschedulable=True)], {"node-closed"}),
        ([node("n1", ready=False)], {"node-closed"}),
        ([node("n1", taints=["x:NoSchedule"])], {"not-admitted"}),
        ([node("n1", cpu=1400)], {"over-capacity"}),
        ([node("n2", annotations={"karpenter.sh/do-not-disrupt": "true"})], {"node-undeletable"}),
        ([unreadable("Pod shop/odd", node="n2")], {"held-moved", "node-undeletable"}),
        ([unreadable("PodDisruptionBudget shop/odd")], {"held-moved", "node-undeletable"}),
    ],
)
def test_a_later_state_may_forbid_the_plan(more: list[ClusterObject], expected: set[str]) -> None:
    """What appeared since takes its room and its rights, and is no violation by itself."""
    assert drifted(tiny(), later(more), **EMPTIES) == expected


def test_what_went_is_left_out() -> None:
    """Pods and nodes that are gone break nothing, but a node that should receive pods does."""
    objects = list(all_objects(tiny()))
    assert drifted(tiny(), cluster([each for each in objects if each.key != "shop/web-2"]), **EMPTIES) == set()
    assert drifted(tiny(), cluster([each for each in objects if each.key != "n2"]), **EMPTIES) == {"held-moved"}
    assert drifted(tiny(), cluster([each for each in objects if each.key != "n1"]), **EMPTIES) == {"to-unknown"}


def test_a_pod_of_the_same_name_is_another_pod() -> None:
    """A stateful pod that was created anew under its name was not planned with."""
    again = msgspec.structs.replace(tiny().pods[2], uid="another")
    assert drifted(tiny(), later(again), **EMPTIES) == {"to-deleted"}


def test_a_pending_pod_that_found_a_node_stays_there() -> None:
    """What the scheduler did meanwhile is a fact."""
    on = later(deployed("new", [None], cpu=1500))
    bound = later(deployed("new", ["n1"], cpu=1500))
    more = {"to": {"shop/web-2": "n1", "shop/new-0": "n1"}, "delete": ["n2"]}
    assert drifted(on, bound, **more) == set()


def test_a_resized_pod_still_counts_with_its_new_requests() -> None:
    """Less room on a node is judged by what its pods will ask for then."""
    more = {**EMPTIES, "resizes": {"Deployment/shop/web": {"cpu": 1000}}}
    assert drifted(tiny(), later(node("n1", cpu=3000)), **more) == set()
    assert drifted(tiny(), later(node("n1", cpu=2999)), **more) == {"over-capacity"}


def test_a_plan_on_a_later_state_needs_its_offers_and_names() -> None:
    """What shall be booted must still be on sale, available, and its name free."""
    on = later(deployed("big", [None], cpu=3900))
    plan = plan_for(on, offers(), to={"shop/big-0": "new"}, boot={"new": "m4/a/on-demand"})
    assert check_drifted(plan, on, offers(), NOW) == ()
    assert {each.code for each in check_drifted(plan, on, offers()[:1], NOW)} == {"offer-unknown", "to-unknown"}
    sold_out = [offer("m4", available=0)]
    assert {each.code for each in check_drifted(plan, on, sold_out, NOW)} == {"offer-exhausted"}
    taken = cluster(list(all_objects(on)), node("new"))
    assert "boot-clash" in {each.code for each in check_drifted(plan, taken, offers(), NOW)}


def test_a_tolerated_taint_lets_a_pod_arrive() -> None:
    """Taints count for whoever arrives, with its own tolerations."""
    rules = PlacementRules(tolerations=(toleration("x"),))
    on = cluster(node("n1", taints=["x:NoSchedule"]), node("n2"), deployed("web", ["n2"], rules=rules))
    assert check_plan(plan_for(on, offers(), to={"shop/web-0": "n1"}, delete=["n2"]), on, offers(), NOW) == ()

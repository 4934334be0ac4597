"""How single rules between pods, and volumes, become limits, conflicts, pins and admissions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from tests.optimizer.rule_instances import rule_instance
from tests.support.builders import NOW, cluster, deployed, node, offer, on_every_node, pod, selector, stateful

from kinema_core.events import (
    ClusterObject,
    NodeTerm,
    Offer,
    PlacementRules,
    PodTerm,
    Requirement,
    Spread,
    Volume,
    VolumeClaim,
    WorkloadForecast,
)
from kinema_core.model.match import node_admits
from kinema_optimizer.problem.compile import Compiled, compiled
from kinema_optimizer.problem.instance import UNLIMITED
from kinema_optimizer.problem.question import Question

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
ALONE = PlacementRules(anti_affinity=(PodTerm(topology_key=HOSTNAME, selector=selector(app="web")),))
ZONES = (offer("m4", zone="a"), offer("m4", zone="b"), offer("m4", zone="c"))


def apart(app: str, key: str = HOSTNAME) -> PlacementRules:
    """Keeps away pods of that app."""
    return PlacementRules(anti_affinity=(PodTerm(topology_key=key, selector=selector(app=app)),))


def near(app: str, key: str) -> PlacementRules:
    """Asks for a pod of that app."""
    return PlacementRules(affinity=(PodTerm(topology_key=key, selector=selector(app=app)),))


def even(app: str, key: str, skew: int = 1) -> PlacementRules:
    """Spreads pods of that app evenly."""
    rule = Spread(topology_key=key, max_skew=skew, when_unsatisfiable="DoNotSchedule", selector=selector(app=app))
    return PlacementRules(spread=(rule,))


def built(*objects: ClusterObject | Iterable[ClusterObject], on_sale: tuple[Offer, ...] = ZONES) -> Compiled:
    """The compiled problem of a cluster of these objects."""
    return compiled(Question(cluster(*objects), on_sale, NOW, "reschedule"))


def class_of(found: Compiled, key: str) -> int:
    """The class of a pod."""
    return next(c for c, members in enumerate(found.draft.members) if key in {mover.pod.key for mover in members})


def homes(found: Compiled, key: str) -> set[str]:
    """Nodes and offers that take the pod, beside whoever stays there."""
    problem, c = found.packing, class_of(found, key)
    nodes = {name for name, row in zip(problem.nodes, problem.node_row.tolist(), strict=True) if problem.admits[row, c]}
    rows = problem.machine_row.tolist()
    return nodes | {
        one.name for same, row in zip(found.offers, rows, strict=True) if problem.admits[row, c] for one in same
    }


def zones_of(found: Compiled, key: str) -> set[str]:
    """Zones of the offers that take the pod."""
    return {name.split("/")[1] for name in homes(found, key) if "/" in name}


def test_anti_affinity_to_its_own_kind_is_a_limit_of_one() -> None:
    """And of one only for the pods that have it."""
    found = built(node("n1"), deployed("web", ["n1"], rules=ALONE), deployed("api", ["n1"]))
    assert found.packing.cap[class_of(found, "shop/web-0")] == 1
    assert found.packing.cap[class_of(found, "shop/api-0")] == UNLIMITED


def test_anti_affinity_to_another_kind_is_a_conflict() -> None:
    """Both ways, whoever has the rule; pods of a third kind are in none."""
    found = built(
        node("n1"),
        node("n2"),
        deployed("shy", ["n1"], rules=apart("loud")),
        deployed("loud", ["n2"]),
        deployed("x", ["n2"]),
    )
    pair = sorted((class_of(found, "shop/shy-0"), class_of(found, "shop/loud-0")))
    assert found.packing.conflicts.tolist() == [pair]
    assert found.problem.conflicts.tolist() == [pair]


def test_classes_pinned_to_different_zones_need_no_conflict() -> None:
    """They can never meet."""
    rules = PlacementRules(anti_affinity=(*ALONE.anti_affinity, *apart("other", ZONE).anti_affinity))
    found = built(node("n1"), node("n2", zone="b"), deployed("web", ["n1", "n2"], rules=rules))
    assert class_of(found, "shop/web-0") != class_of(found, "shop/web-1")
    assert not len(found.packing.conflicts)


def test_held_pods_keep_their_node_to_themselves() -> None:
    """A held pod's rule, and a rule against a held pod, close its node for the pods concerned and for nobody else."""
    held = pod("bare", node="n1", labels={"app": "old"}, rules=apart("loud"))
    found = built(
        [node("n1"), node("n2")],
        held,
        deployed("loud", ["n2"]),
        deployed("shy", ["n2"], rules=apart("old")),
        deployed("calm", ["n2"]),
    )
    assert "n1" not in homes(found, "shop/loud-0")
    assert "n1" not in homes(found, "shop/shy-0")
    assert "n1" in homes(found, "shop/calm-0")


def test_a_daemon_set_to_come_closes_new_nodes() -> None:
    """Whoever must not be with its pods goes to no new node where one will be."""
    rules = PlacementRules(
        anti_affinity=(PodTerm(topology_key=HOSTNAME, selector=selector(app="log"), namespaces=("kube-system",)),)
    )
    found = built(node("n1"), on_every_node("log", [], labels={"app": "log"}), deployed("shy", ["n1"], rules=rules))
    assert homes(found, "shop/shy-0") == {"n1"}


@pytest.mark.parametrize("rules", [apart("other", ZONE), near("web", ZONE), even("web", ZONE)])
def test_a_rule_over_zones_pins_to_the_zone(rules: PlacementRules) -> None:
    """Pods that have it stay in their zone, in a class for each; without rules nobody is pinned."""
    nodes = [node("n1"), node("n2", zone="b")]
    found = built(nodes, deployed("web", ["n1", "n1", "n2", "n2"], rules=rules), deployed("free", ["n1"]))
    assert zones_of(found, "shop/web-0") == {"a"}
    assert zones_of(found, "shop/web-2") == {"b"}
    assert zones_of(found, "shop/free-0") >= {"a", "b"}


def test_pods_that_a_rule_over_zones_selects_are_pinned_too() -> None:
    """An affinity pins its company where it is; pods of that kind elsewhere are free."""
    nodes = [node("n1"), node("n2", zone="b")]
    found = built(nodes, deployed("web", ["n1"], rules=near("db", ZONE)), deployed("db", ["n1", "n2"]))
    assert zones_of(found, "shop/db-0") == {"a"}
    assert zones_of(found, "shop/db-1") == {"a", "b", "c"}


def test_pending_pods_fill_the_emptiest_zone() -> None:
    """Each goes where the spread lets it, and counts from then on."""
    nodes = [node("n1"), node("n2", zone="b")]
    found = built(nodes, deployed("web", ["n1", "n2", None, None, None], rules=even("web", ZONE)), on_sale=ZONES[:2])
    zones = [zones_of(found, f"shop/web-{index}") for index in (2, 3, 4)]
    assert zones == [{"a"}, {"b"}, {"a"}]


def test_a_pending_pod_joins_the_company_that_it_asks_for() -> None:
    """And the company is pinned for it."""
    nodes = [node("n1"), node("n2", zone="b")]
    found = built(nodes, deployed("db", ["n2"]), deployed("web", [None], rules=near("db", ZONE)))
    assert zones_of(found, "shop/web-0") == {"b"}
    assert zones_of(found, "shop/db-0") == {"b"}
    assert zones_of(built(nodes, deployed("db", ["n2"])), "shop/db-0") == {"a", "b", "c"}


def test_a_pending_pod_keeps_away_from_zones_that_others_bar() -> None:
    """By its own rule and by theirs."""
    nodes = [node("n1"), node("n2", zone="b")]
    shy = deployed("shy", ["n1"], rules=apart("loud", ZONE))
    found = built(nodes, shy, deployed("loud", [None]), deployed("wary", [None], rules=apart("shy", ZONE)))
    assert zones_of(found, "shop/loud-0") <= {"b", "c"}
    assert zones_of(found, "shop/wary-0") <= {"b", "c"}


def test_nobody_finds_a_zone_that_rules_leave_none_for() -> None:
    """The reason says so."""
    nodes = [node("n1"), node("n2", zone="b")]
    found = built(nodes, deployed("web", ["n1", "n2", None], rules=apart("web", ZONE)), on_sale=ZONES[:2])
    ((c, mover),) = found.homeless
    assert mover.pod.key == "shop/web-2"
    assert found.refusal(c, mover)[0] == "pod-rules"


def test_a_spread_over_nodes_limits_each_node() -> None:
    """By its skew, as long as a new node could be empty."""
    found = built(node("n1"), node("n2"), deployed("web", ["n1", "n2", None], rules=even("web", HOSTNAME, skew=2)))
    assert found.packing.cap[class_of(found, "shop/web-2")] == 2
    assert zones_of(found, "shop/web-2") == {"a", "b", "c"}


def test_a_crowded_spread_closes_new_nodes() -> None:
    """Three on each node are even; beside an empty one they would not be. One more on each is."""
    found = built(node("n1"), node("n2"), deployed("web", [*["n1", "n2"] * 3, None], rules=even("web", HOSTNAME)))
    assert found.packing.cap[class_of(found, "shop/web-6")] == 4
    assert homes(found, "shop/web-6") == {"n1", "n2"}
    assert found.relaxed.admits[found.relaxed.machine_row].any()


def test_a_spread_over_others_binds_who_has_it() -> None:
    """A pod that its own spread does not count keeps to zones with few of those that it counts, and off their nodes."""
    found = built(
        node("n1"),
        node("n2", zone="b"),
        deployed("api", ["n1", "n1", "n1", "n2"]),
        deployed("web", [None], rules=even("api", ZONE)),
        deployed("log", [None], rules=even("api", HOSTNAME, skew=3)),
    )
    assert zones_of(found, "shop/web-0") == {"b"}
    crowd, log = class_of(found, "shop/api-0"), class_of(found, "shop/log-0")
    assert sorted((crowd, log)) in found.packing.conflicts.tolist()


def test_an_affinity_over_nodes_goes_where_company_stays() -> None:
    """To no new node, where there is none."""
    nodes = [node("n1"), node("n2"), node("n3")]
    found = built(nodes, deployed("web", ["n1"], rules=near("db", HOSTNAME)), deployed("db", ["n1", "n2"]))
    assert homes(found, "shop/web-0") == {"n1", "n2"}
    assert "n3" in homes(found, "shop/db-0")
    assert not found.restricted


def test_company_is_not_replaced_by_a_rolling_update() -> None:
    """It would come back elsewhere: a forecast for it is not carried out, and the pod stays, by name."""
    state = cluster(node("n1"), deployed("web", ["n1"], rules=near("db", HOSTNAME)), deployed("db", ["n1"], cpu=100))
    larger = WorkloadForecast(
        workload="Deployment/shop/db",
        requests_before=state.pods[0].requests,
        requests_after=state.pods[0].requests.__class__({"cpu": 500, "memory": 2**27, "pods": 1}),
        predicted=state.pods[0].requests,
        samples=60,
    )
    found = compiled(Question(state, ZONES, NOW, "reschedule", forecasts=(larger,)))
    assert found.resizes == ()
    assert {key: held.code for key, held in found.restricted.items()} == {"shop/db-0": "affinity-peer"}
    assert found.packing.node_fixed.tolist() == [True]
    assert found.relaxed.node_fixed.tolist() == [False]


@pytest.mark.parametrize(
    ("rules", "places", "code"),
    [
        (near("nobody", ZONE), ["n1"], "affinity-unmet"),
        (apart("web", ZONE), ["n1", "n1"], "anti-affinity-met"),
        (even("web", ZONE), ["n1", "n1", "n1"], "spread-uneven"),
    ],
)
def test_pods_whose_rule_is_broken_already_stay(rules: PlacementRules, places: list[str], code: str) -> None:
    """Their zone would not let them in again, and no other place is known to be better."""
    found = built(node("n1"), node("n2", zone="b"), deployed("web", places, rules=rules))
    assert {held.code for held in found.restricted.values()} == {code}
    assert found.packing.node_fixed.tolist() == [True, False]


@pytest.mark.parametrize(("places", "alone"), [(["n1", "n2", "n3"], True), (["n1", "n2"], False)])
def test_pods_that_keep_each_other_out_of_every_zone_stay_in_every_plan(places: list[str], alone: bool) -> None:
    """A surge starts a second copy, which no zone lets in; the bound pays for their nodes."""
    nodes = [node("n1"), node("n2", zone="b"), node("n3", zone="c")]
    found = built(nodes, deployed("web", places, rules=apart("web", ZONE)))
    assert {held.code for held in found.restricted.values()} == ({"anti-affinity-alone"} if alone else set())
    assert found.packing.node_fixed.tolist() == found.relaxed.node_fixed.tolist() == [alone] * 3
    evicted = deployed("web", places, rules=apart("web", ZONE), annotations={"kinema.io/strategy": "evict"})
    assert not built(nodes, evicted).restricted


def test_volumes_say_where_their_pods_can_be() -> None:
    """By the node affinity of the volume; in the relaxed problem too."""
    term = NodeTerm(expressions=(Requirement(key=ZONE, operator="In", values=("b",)),))
    disk = Volume(name="pv", uid="u", node_terms=(term,), driver="disk.example.com")
    claim = VolumeClaim(name="data", namespace="shop", uid="c", volume="pv")
    data = stateful("db", ["n2"], rules=PlacementRules(claims=("data",)), annotations={"kinema.io/strategy": "evict"})
    found = built(node("n1"), node("n2", zone="b"), disk, claim, data)
    assert homes(found, "shop/db-0") == {"n2", "m4/b/on-demand"}
    assert found.relaxed.admits.sum() == 1
    assert found.packing.resources == ("attachable-volumes-csi-disk.example.com", "cpu", "memory", "pods")


def test_attachments_are_limited_where_a_node_says_so() -> None:
    """By what it states less the volumes of the pods that are there."""
    disks = "attachable-volumes-csi-disk.example.com"
    objects: list[ClusterObject] = [
        *(Volume(name=f"pv{index}", uid=f"u{index}", driver="disk.example.com") for index in range(2)),
        *(VolumeClaim(name=f"c{index}", namespace="shop", uid=f"c{index}", volume=f"pv{index}") for index in range(2)),
        *(pod(f"p{index}", node="n1", rules=PlacementRules(claims=(f"c{index}",))) for index in range(1)),
        pod("p1", rules=PlacementRules(claims=("c1",))),
    ]
    found = built(node("n1", extra={disks: 1}), node("n2"), objects)
    at = found.packing.resources.index(disks)
    assert found.packing.node_room[:, at].tolist() == [0, 1]


def test_pending_pods_of_different_priority_share_no_class() -> None:
    """So that scarce room can be given to the more important ones."""
    found = built(node("n1", cpu=100), deployed("low", [None]), deployed("high", [None], priority=9))
    low, high = class_of(found, "shop/low-0"), class_of(found, "shop/high-0")
    assert low != high
    assert found.priority[[low, high]].tolist() == [0, 9]


def test_nodes_that_are_paid_for_already_cost_nothing() -> None:
    """An annotation of 0 is a price."""
    found = built(node("n1", price="0"), node("n2"), deployed("web", ["n1"]))
    assert found.packing.node_price.tolist() == [0, 170_000]


def test_admission_over_arrays_is_that_of_single_nodes() -> None:
    """The masks agree with the rules evaluated node by node, for every pod of many clusters."""
    for seed in range(250):
        instance = rule_instance(seed)
        found = compiled(Question(instance.cluster, instance.offers, NOW, "reschedule"))
        sites = (*found.sites.nodes, *found.sites.offers)
        for one in instance.cluster.pods:
            vector = found.sites.admission.vector(found.sites.admission.row(one))
            assert vector.tolist() == [found.sites.admission.forbids(one, site) is None for site in sites], seed
            for site, admitted in zip(sites, vector.tolist(), strict=True):
                refused = node_admits(one.rules, name=site.name, labels=site.labels, taints=site.taints)
                assert not (admitted and refused)


def test_sparse_and_dense_problem_say_the_same() -> None:
    """Where a class has room: limits of the dense form are admission, limit and room of the sparse one."""
    for seed in range(120):
        instance = rule_instance(seed)
        found = compiled(Question(instance.cluster, instance.offers, NOW, "reschedule"))
        sparse, dense = found.packing, found.problem
        single = slice(len(dense.requests))  # only the sparse form has classes of groups, after all others
        assert np.array_equal(sparse.requests[single], dense.requests)
        assert not dense.node_limit[~sparse.admits[sparse.node_row, single]].any()
        if found.grouped is found:  # else its machines may be others
            assert not dense.machine_limit[~sparse.admits[sparse.machine_row]].any()
        assert (dense.machine_limit <= sparse.cap[single]).all()

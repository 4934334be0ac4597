"""Pods that are ending keep others away until they are gone, as kube-scheduler counts them."""

from __future__ import annotations

import pytest
from tests.model.checker.test_rules import HOSTNAME, ZONE, apart, even, near
from tests.model.checker.test_spoiled_rules import ON_SALE, codes
from tests.support.builders import cluster, deployed, node, pod
from tests.support.plans import plan_for

from kinema_core.events import PlacementRules, PodTerm
from kinema_core.model.cluster import Cluster
from kinema_core.model.ending import barred, ending_refuses


def ending(mine: PlacementRules, its: PlacementRules, *, on: str | None = "n1", beside: bool = False) -> Cluster:
    """A pod of `web` on n3 or beside one of `old` that is ending on n1; n1 and n2 are in one zone."""
    nodes = [node("n1", zone="a"), node("n2", zone="a"), node("n3", zone="b")]
    old = pod("old", node=on, labels={"app": "old"}, rules=its, terminating=True)
    return cluster(nodes, deployed("web", ["n1" if beside else "n3"], rules=mine), old)


@pytest.mark.parametrize(
    ("mine", "its", "places"),
    [
        (PlacementRules(), PlacementRules(), ()),
        (apart("old", HOSTNAME), PlacementRules(), ((HOSTNAME, "n1"),)),
        (PlacementRules(), apart("web", HOSTNAME), ((HOSTNAME, "n1"),)),
        (apart("old", ZONE), apart("web", HOSTNAME), ((HOSTNAME, "n1"), (ZONE, "a"))),
        (apart("other", ZONE), apart("other", ZONE), ()),
        (near("old", ZONE), near("web", ZONE), ()),
        (even("old"), even("web"), ()),
    ],
)
def test_required_anti_affinity_counts_who_is_ending(
    mine: PlacementRules, its: PlacementRules, places: tuple[tuple[str, str], ...]
) -> None:
    """Its own terms and those of who arrives; spread and affinity bar nobody."""
    state = ending(mine, its)
    assert barred(state, state.pods_by_key["shop/web-0"]) == places


def test_preferred_terms_and_pods_without_a_node_bar_nobody() -> None:
    """What is merely preferred costs points, and a pod that ends before it ran is nowhere."""
    liked = PodTerm(topology_key=HOSTNAME, selector=apart("old", HOSTNAME).anti_affinity[0].selector, weight=10)
    state = ending(PlacementRules(anti_affinity=(liked,)), PlacementRules())
    assert barred(state, state.pods_by_key["shop/web-0"]) == ()
    for nowhere in (None, "n9"):
        state = ending(apart("old", ZONE), apart("web", ZONE), on=nowhere)
        assert barred(state, state.pods_by_key["shop/web-0"]) == ()


def test_the_reason_names_the_topology() -> None:
    """A node without the label is in no domain."""
    state = ending(apart("old", ZONE), PlacementRules())
    mine = state.pods_by_key["shop/web-0"]
    refused = [one.name for one in state.nodes if ending_refuses(state, mine, one.labels) is not None]
    assert refused == ["n1", "n2"]
    assert ZONE in str(ending_refuses(state, mine, state.nodes[0].labels))


@pytest.mark.parametrize("both", [(apart("old", ZONE), PlacementRules()), (PlacementRules(), apart("web", ZONE))])
def test_the_checker_refuses_who_arrives_beside_it(both: tuple[PlacementRules, PlacementRules]) -> None:
    """Who is beside it already stays: the scheduler asks nobody again."""
    state = ending(*both)
    moved = plan_for(state, ON_SALE, to={"shop/web-0": "n2"})
    assert codes(moved, state, ON_SALE) == {"anti-affinity-broken"}
    beside = ending(*both, beside=True)
    assert codes(plan_for(beside, ON_SALE), beside, ON_SALE) == set()

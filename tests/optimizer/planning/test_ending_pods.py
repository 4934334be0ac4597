"""Plans beside pods that are ending: kube-scheduler counts them for required anti-affinity until they are gone."""

from __future__ import annotations

import pytest
from tests.model.checker.test_rules import HOSTNAME, ZONE, apart
from tests.optimizer.planning.test_plans import plan
from tests.support.builders import cluster, deployed, node, offer, pod

from kinema_core.events import PlacementRules
from kinema_core.model.cluster import Cluster

ON_SALE = (offer("m4", zone="a"), offer("m4", zone="b", price=180_000))


def beside(mine: PlacementRules, its: PlacementRules, others: int) -> Cluster:
    """A pod of `web` waits; n1 has room, and a pod that is ending."""
    going = pod("old", node="n1", labels={"app": "old"}, rules=its, terminating=True)
    rest = deployed("rest", ["n1"] * others, cpu=10, memory=8)
    return cluster(node("n1"), going, rest, deployed("web", [None], rules=mine))


@pytest.mark.parametrize("others", [1, 60])
@pytest.mark.parametrize(
    "both", [(apart("old", HOSTNAME), PlacementRules()), (PlacementRules(), apart("web", HOSTNAME))]
)
def test_who_waits_is_not_put_beside_a_pod_that_is_ending(
    both: tuple[PlacementRules, PlacementRules], others: int
) -> None:
    """It would wait there: another node is booted, in small clusters and in larger ones."""
    found = plan(beside(*both, others), ON_SALE)
    (new,) = [one for one in found.nodes if one.action == "boot"]
    assert {one.pod: one.to for one in found.placements}["shop/web-0"] == new.name
    free = plan(beside(PlacementRules(), PlacementRules(), others), ON_SALE)
    assert {one.pod: one.to for one in free.placements}["shop/web-0"] == "n1"


@pytest.mark.parametrize("others", [1, 60])
def test_a_zone_with_a_pod_that_is_ending_takes_no_new_machine_for_it(others: int) -> None:
    """The dearer zone is the one left."""
    found = plan(beside(apart("old", ZONE), PlacementRules(), others), ON_SALE)
    assert [one.zone for one in found.nodes if one.action == "boot"] == ["b"]
    only = plan(beside(apart("old", ZONE), PlacementRules(), others), ON_SALE[:1])
    (left,) = only.unplaced
    assert "a pod that is ending there" in left.reason

"""What the marks of another autoscaler forbid, beside it and where it deletes for us."""

from __future__ import annotations

import pytest
from tests.support.builders import NOW, cluster, deployed, node

from kinema_core.model.foreign import beside_its_autoscaler, foreign_deletion
from kinema_core.model.mobility import mobility
from kinema_core.model.vocabulary import DELETION_CANDIDATE, FOREIGN_DELETION_TAINTS

CANDIDATE = f"{DELETION_CANDIDATE}=17:PreferNoSchedule"


@pytest.mark.parametrize("key", FOREIGN_DELETION_TAINTS)
def test_where_it_deletes_for_us_only_a_candidate_is_as_any_other_node(key: str) -> None:
    """It marks what we empty as a candidate; what it has begun to delete is off-limits in any case."""
    state = cluster(node("n1", taints=[f"{key}:NoSchedule", "dedicated=db:NoSchedule"]), deployed("web", ["n1"]))
    assert foreign_deletion(state.nodes[0]) == key
    assert beside_its_autoscaler(state, delegated=False) is state
    seen = beside_its_autoscaler(state, delegated=True)
    verdict = mobility(seen, NOW)
    assert (verdict.deletable["n1"] is None) == (key == DELETION_CANDIDATE)
    assert ("n1" in verdict.open_nodes) == (key == DELETION_CANDIDATE)
    assert "dedicated" in {taint.key for taint in seen.nodes[0].taints}
    assert seen.version == state.version


def test_the_view_is_worked_out_once() -> None:
    """What is derived from a large cluster is kept with its value: the same state must give the same one."""
    state = cluster(node("n1", taints=[CANDIDATE]))
    assert beside_its_autoscaler(state, delegated=True) is beside_its_autoscaler(state, delegated=True)
    plain = cluster(node("n1"))
    assert beside_its_autoscaler(plain, delegated=True) is plain

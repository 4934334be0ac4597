"""A rolling update that might stop half way by the rules of its own pods is not begun."""

from __future__ import annotations

import pytest
from tests.rescheduler.harness import WEB, World
from tests.support.builders import cluster, deployed, node, offers, selector
from tests.support.plans import plan_for

from kinema_core.events import PlacementRules, Spread
from kinema_rescheduler.plan.limits import Limits


@pytest.mark.parametrize("full", [True, False])
async def test_new_requests_wait_until_every_zone_has_room(*, full: bool) -> None:
    """Asked on the state of the moment: the plan's new requests may be fine where its update would not get through."""
    rules = PlacementRules(
        spread=(
            Spread(
                topology_key="topology.kubernetes.io/zone",
                max_skew=1,
                when_unsatisfiable="DoNotSchedule",
                selector=selector(app="web"),
            ),
        )
    )
    before = cluster(
        [
            node(f"n{n}", zone=zone, cpu=cpu, price="0.1")
            for n, (zone, cpu) in enumerate(zip("abc", (4000, 4000, 1000), strict=True), 1)
        ],
        deployed("web", ["n1", "n2"], cpu=500, rules=rules),
        deployed("full", ["n3"], cpu=900 if full else 100),
    )
    plan = plan_for(before, offers(), resizes={WEB: {"cpu": 300}})
    world = World(before, plan, limits=Limits(blocked_seconds=30))
    await world.completes()
    assert ("roll" in world.intended_kinds()) is not full
    assert world.verdicts() == ({f"skip/{WEB}": "no-room"} if full else {})

"""`kinema doctor` asks GKE which rights the provider's account lacks."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tests.contract.provider.rooms import GkeRoom
from tests.rescheduler.sim_world import sim_world

from kinema_cli.doctor.prices import other_autoscalers, prices
from kinema_core.events import FrozenMap, Node
from kinema_sim.scenarios.registry import SCENARIOS


async def test_missing_rights_at_the_cloud_are_named(tmp_path: Path) -> None:
    """With all of them the provider is used; without, each that is missing stands in the finding."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        room = GkeRoom(world, tmp_path)
        provider = msgspec.to_builtins(room.settings(""))
        found = await prices(provider, str(world.kubeconfig), world.cluster())
        assert [one.level for one in found[:2]] == ["ok", "ok"], found
        await room.deny()
        (lacking,) = await prices(provider, str(world.kubeconfig), world.cluster())
        await room.close()
    assert lacking.level == "fail"
    assert "container.clusters.update" in lacking.message
    assert "compute.regions.get" not in lacking.message


def test_karpenters_budgets_are_to_be_zero() -> None:
    """With the provider `karpenter`, nodes of Karpenter are expected, and its own disruption is warned of."""
    nodes = [Node(name="n1", uid="n1", labels=FrozenMap({"karpenter.sh/nodepool": "default"}))]
    (found,) = other_autoscalers(nodes, "karpenter")
    assert found.level == "warn"
    assert "budgets" in found.remediation

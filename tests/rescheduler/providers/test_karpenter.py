"""NodeClaims that the provider `karpenter` writes, and what it makes of Karpenter's words."""

from __future__ import annotations

from typing import Any

import pytest

from kinema_core.events import Offer
from kinema_core.model.catalog import offers_from, parse_catalog
from kinema_core.model.cluster import Cluster
from kinema_rescheduler.providers.causes import reason_of
from kinema_rescheduler.providers.karpenter import CAPACITY, OFFER, POOL, allows, claim_object

POOL_OBJECT: dict[str, Any] = {
    "metadata": {"name": "default"},
    "spec": {
        "limits": {"cpu": "100", "nodes": "7"},
        "template": {
            "metadata": {"labels": {"team": "shop"}, "annotations": {"note": "x"}},
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "expireAfter": "720h",
                "taints": [{"key": "shop", "value": "yes", "effect": "NoSchedule"}],
                "requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large", "m5.xlarge"]},
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
                    {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["eu-central-1c"]},
                    {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gte", "values": ["5"]},
                ],
            },
        },
    },
}
ROWS = parse_catalog(
    "machine_type,vcpus,memory_gib,usd_per_hour,zone,gpus\n"
    "m5.large,2,8,0.1,eu-central-1a,\nm5.large,2,8,0.1,eu-central-1c,\nc5.large,2,4,0.09,eu-central-1a,\n"
    "m5.xlarge,4,16,0.2,eu-central-1a,1\n"
)


def offer(number: int) -> Offer:
    """An offer of the catalog."""
    return offers_from(ROWS, Cluster())[number]


def test_claim_is_the_template_for_one_machine() -> None:
    """Type, zone and capacity type replace the NodePool's choices; its other requirements, labels and taints stay."""
    claim = claim_object("kinema-1", offer(0), POOL_OBJECT)
    spec, metadata = claim["spec"], claim["metadata"]
    requirements = {one["key"]: (one["operator"], one["values"]) for one in spec["requirements"]}
    assert requirements == {
        "node.kubernetes.io/instance-type": ("In", ["m5.large"]),
        "topology.kubernetes.io/zone": ("In", ["eu-central-1a"]),
        "karpenter.sh/capacity-type": ("In", ["on-demand"]),
        "karpenter.k8s.aws/instance-generation": ("Gte", ["5"]),
    }
    assert spec["nodeClassRef"]["name"] == "default"
    assert spec["expireAfter"] == "720h"
    assert spec["taints"] == [{"key": "shop", "value": "yes", "effect": "NoSchedule"}]
    assert metadata["name"] == "kinema-1"
    assert metadata["labels"] == {"team": "shop", "kinema.io/capacity-type": "on-demand", POOL: "default"}
    assert metadata["annotations"] == {
        "note": "x",
        OFFER: offer(0).name,
        f"{CAPACITY}cpu": "2000",
        f"{CAPACITY}nodes": "1",
    }


def test_claim_asks_for_devices() -> None:
    """A machine that is bought for its GPU counts as ready when that is there."""
    assert claim_object("kinema-1", offer(3), POOL_OBJECT)["spec"]["resources"] == {"requests": {"nvidia.com/gpu": "1"}}


def test_rows_that_the_pool_forbids_are_not_sold() -> None:
    """Types and zones outside its requirements; what only Karpenter knows of a machine forbids nothing here."""
    assert [allows(POOL_OBJECT, row) for row in ROWS] == [True, False, False, True]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("InsufficientCapacityError: NodeClaim x event: resolving node class", "stock-out"),
        (
            "LaunchFailed: InsufficientInstanceCapacity: We currently do not have sufficient m5.large capacity",
            "stock-out",
        ),
        ("LaunchFailed: SkuNotAvailable: The requested VM size is not available", "stock-out"),
        ("LaunchFailed: VcpuLimitExceeded: You have requested more vCPU capacity than your current limit", "quota"),
        ("LaunchFailed: OperationNotAllowed: exceeding approved Total Regional Cores quota", "quota"),
        ("LaunchFailed: UnauthorizedOperation: You are not authorized to perform this operation", "permission"),
        ("NodeClassNotReady: NodeClaim x event: not ready", "invalid"),
        ("LaunchFailed: RequestLimit: slow down", ""),
    ],
)
def test_words_of_karpenter_and_of_clouds(text: str, reason: str) -> None:
    """Each has its reason; of what may pass by itself, Karpenter's next try decides."""
    assert reason_of(text) == reason

"""Reasons in the words of clouds, as controllers that buy there pass them on."""

from __future__ import annotations

import re
from typing import Final

_CAUSES: Final = (
    (
        "stock-out",
        re.compile(
            r"InsufficientInstanceCapacity|InsufficientCapacity|InsufficientResources|SkuNotAvailable|AllocationFailed"
            r"|OverconstrainedAllocation|ZONE_RESOURCE_POOL_EXHAUSTED|RESOURCE_POOL_EXHAUSTED|SpotMaxPriceTooLow|UnfulfillableCapacity"
        ),
    ),
    (
        "quota",
        re.compile(r"LimitExceeded|QuotaExceeded|QUOTA_EXCEEDED|MaxSpotInstanceCount|exceed.*quota", re.IGNORECASE),
    ),
    (
        "permission",
        re.compile(
            r"UnauthorizedOperation|AccessDenied|AuthFailure|AuthorizationFailed|PERMISSION_DENIED|not authorized"
        ),
    ),
    (
        "invalid",
        re.compile(r"NodeClassNotReady|NodeClassNotFound|InvalidParameter|instance type (requirement )?not found"),
    ),
)
"""Reasons by the codes of clouds, which Karpenter and Cluster API pass on, and by words of their own."""


def reason_of(text: str) -> str:
    """Return the reason that a text of a cloud or of its controller stands for; empty where it is not known."""
    return next((reason for reason, pattern in _CAUSES if pattern.search(text)), "")

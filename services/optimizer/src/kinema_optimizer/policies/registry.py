"""The policies by name."""

from __future__ import annotations

from dataclasses import replace

from kinema_optimizer.policies.cluster_autoscaler import OPTIMIZE_UTILIZATION, ClusterAutoscaler
from kinema_optimizer.policies.cluster_threshold import PLAIN, ClusterThreshold
from kinema_optimizer.policies.karpenter import Karpenter
from kinema_optimizer.policies.policy import Policy
from kinema_optimizer.policies.promethee import Promethee
from kinema_optimizer.policies.thesis import Thesis
from kinema_optimizer.policies.unchanged import Unchanged
from kinema_optimizer.policies.usage import MetricDescheduler, Trimaran
from kinema_optimizer.request.usable import UsableResources
from kinema_optimizer.settings import PolicyName

USES_USAGE: frozenset[PolicyName] = frozenset({"metric-descheduler", "trimaran"})
"""Policies that look at what pods use."""


def policy_named(name: PolicyName, usable: UsableResources | None = None, delay_seconds: float | None = None) -> Policy:
    """Return a policy with its defaults, and the operator's thresholds of cluster-threshold and delay where given.

    Raises:
        ValueError: the name is `kinema`, whose plans are made by a solver.
    """
    found: dict[str, Policy] = {
        "thesis": Thesis(),
        "cluster-threshold": ClusterThreshold() if usable is None else ClusterThreshold(rule=usable),
        "cluster-threshold-plain": ClusterThreshold(name="cluster-threshold-plain", rule=PLAIN),
        "promethee": Promethee(),
        "cluster-autoscaler": ClusterAutoscaler(),
        "cluster-autoscaler-balanced": replace(
            ClusterAutoscaler(), name="cluster-autoscaler-balanced", expander="price", balance=True
        ),
        "optimize-utilization": OPTIMIZE_UTILIZATION,
        "karpenter": Karpenter(),
        "metric-descheduler": MetricDescheduler(),
        "trimaran": Trimaran(),
        "none": Unchanged(),
    }
    if name not in found:
        message = f"{name} is no policy of rules"
        raise ValueError(message)
    policy = found[name]
    if delay_seconds is not None and isinstance(policy, ClusterAutoscaler):
        return replace(policy, unneeded_seconds=delay_seconds)
    if delay_seconds is not None and isinstance(policy, ClusterThreshold):
        return replace(policy, delay_seconds=delay_seconds)
    return policy

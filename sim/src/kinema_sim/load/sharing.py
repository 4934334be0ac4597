"""Sharing of a node's CPU among pods that want more than it has, as the kernel's scheduler shares it by weight.

Weights are the requests: each pod may use its share of the node by weight, and what one does not want goes to the
others by their weights (weighted max-min fairness, as cgroups have it by `cpu.shares`).
"""

from collections.abc import Mapping
from typing import Final, TypeVar

LEAST_WEIGHT: Final = 2
"""Of a pod that requests no CPU: the kernel's least `cpu.shares`."""
_Pod = TypeVar("_Pod")


def shared(wants: Mapping[_Pod, int], weights: Mapping[_Pod, int], has: int) -> dict[_Pod, int]:
    """Return what each pod gets, in the unit of `wants` and `has`, rounded down where they want more than there is.

    Args:
        wants: what each would use.
        weights: what each requests, in any unit.
        has: what there is.
    """
    if sum(wants.values()) <= has:
        return dict(wants)
    weight = {pod: max(LEAST_WEIGHT, weights.get(pod, 0)) for pod in wants}
    # Those who want least for their weight are served in full first: what they leave is more for every other one.
    order = sorted(wants, key=lambda pod: wants[pod] / weight[pod])
    left, heavy, found = has, sum(weight.values()), dict[_Pod, int]()
    for pod in order:
        found[pod] = min(wants[pod], left * weight[pod] // heavy)
        left -= found[pod]
        heavy -= weight[pod]
    return found

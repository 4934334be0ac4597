"""The cluster writer over the Kubernetes API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

import msgspec

from kinema_core.events import StepKind
from kinema_rescheduler.errors import PermanentError
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.kubernetes.nodes import check_deletable, clear_preferred_nodes, prefer_nodes, taint, untaint
from kinema_rescheduler.kubernetes.pods import evict, revert, surge_down, surge_up
from kinema_rescheduler.kubernetes.resize import resize
from kinema_rescheduler.kubernetes.rollout import finalize_rollout, roll
from kinema_rescheduler.kubernetes.volumes import Attachments

T = TypeVar("T")

_EFFECTS: Final[Mapping[StepKind, Callable[[FencedClient, Order], Awaitable[Made]]]] = {
    "taint": taint,
    "untaint": untaint,
    "prefer-nodes": prefer_nodes,
    "clear-preferred-nodes": clear_preferred_nodes,
    "surge-up": surge_up,
    "surge-down": surge_down,
    "resize": resize,
    "roll": roll,
    "finalize-rollout": finalize_rollout,
    "evict": evict,
    "revert": revert,
}


class KubernetesWriter:
    """Makes steps real through an API server."""

    def __init__(self, api: FencedClient, *, steering: bool = True) -> None:
        """Without `steering`, new pods go where kube-scheduler puts them; those elsewhere than planned are counted."""
        self._api = api
        self._attachments = Attachments(api)
        self._steering = steering

    async def perform(self, order: Order) -> Made:
        """Make the effect of a step on the cluster."""
        effect = _EFFECTS.get(order.step.kind)
        if effect is None:
            raise PermanentError("invalid", f"a {order.step.kind} is no effect on the cluster")
        if order.step.kind == "prefer-nodes" and not self._steering:
            return Made("void")
        return await _read_right(order, effect(self._api, order))

    async def check_deletable(self, order: Order) -> bool:
        """Return whether the node of a `delete` step is there, marked by Kinema and empty."""
        return await _read_right(order, check_deletable(self._api, self._attachments, order))


async def _read_right(order: Order, effect: Awaitable[T]) -> T:
    """Return what an effect gives; an object that is not built as the API says ends this step and not the service."""
    try:
        return await effect
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        detail = f"{order.step.target} cannot be read: {type(error).__name__} {error}"
        raise PermanentError("invalid", detail) from error

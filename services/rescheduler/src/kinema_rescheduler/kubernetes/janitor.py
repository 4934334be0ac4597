"""Removal of the marks of plans that no log holds any more, such as those of a Kinema whose broker was lost.

Only the Kinema that holds the claim on the cluster may write there, and it calls this while it executes no plan. So no
mark belongs to a plan that goes on, and whatever Kinema's marks name as the owner's value is put back. A Deployment
that Kinema has paused keeps its owner from rollouts: that ends as soon as another one leads, whatever plan goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field

from kinema_core.events import Node, Step, StepKind
from kinema_core.model.cluster import Cluster
from kinema_kubernetes.objects import Json, annotations_of, labels_of, uid, workload_path
from kinema_rescheduler.errors import EffectError, NotFoundError
from kinema_rescheduler.kubernetes.autoscalers import lower_floor
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.kubernetes.nodes import clear_all_preferred_nodes, untaint
from kinema_rescheduler.kubernetes.pods import clear_costs
from kinema_rescheduler.kubernetes.resize import go_on
from kinema_rescheduler.kubernetes.rollout import BOUNDS_BEFORE, before_of, finalize_rollout, restore_template
from kinema_rescheduler.names import COST_BEFORE, DISRUPTED, FLOOR_BEFORE, PLAN, RESIZING, ROLLED


@dataclass
class Tidied:
    """What became of the marks that were found."""

    removed: list[str] = field(default_factory=list)
    """Objects that have none any more."""
    left: list[str] = field(default_factory=list)
    """Objects that still have some, and why."""


def marked_objects(cluster: Cluster) -> tuple[str, ...]:
    """Return nodes with marks of a plan, and workloads that Kinema has paused, in a state."""
    nodes = (item.name for item in cluster.nodes if _is_marked(item))
    return (*nodes, *(item.key for item in cluster.workloads if RESIZING in item.annotations))


def _is_marked(node: Node) -> bool:
    keys = {*node.labels, *node.annotations, *(taint.key for taint in node.taints)}
    return DISRUPTED in keys or PLAN in keys


class Janitor:
    """Finds and removes marks; to be called under the claim."""

    def __init__(self, api: FencedClient) -> None:
        self._api = api

    async def resume(self) -> Tidied:
        """Resume all Deployments that Kinema has paused; to be called while no effect is under way.

        Raises:
            EffectError: Deployments cannot be listed.
        """
        done = Tidied()
        for deployment in await self._api.items("/apis/apps/v1/deployments"):
            if RESIZING in annotations_of(deployment):
                name = f"Deployment {_named(deployment)}"
                order = _order("resize", deployment, f"Deployment/{_named(deployment)}")
                await _try(done, name, go_on(self._api, order))
        return done

    async def tidy(self) -> Tidied:
        """Remove all marks that can be removed now: a Deployment keeps its bounds until its pods are as before.

        To be called while no plan is executed.

        Raises:
            EffectError: nodes, Deployments or pods cannot be listed.
        """
        api, done = self._api, await self.resume()
        for node in await api.items("/api/v1/nodes"):
            if _has_marks(node):
                await _try(done, f"node {node['metadata']['name']}", untaint(api, _order("untaint", node)))
        with suppress(EffectError):  # there may be no right to, and then none was raised
            for scaler in await api.items("/apis/autoscaling/v2/horizontalpodautoscalers"):
                if FLOOR_BEFORE in annotations_of(scaler):
                    name = f"autoscaler {_named(scaler)}"
                    await _try(done, name, lower_floor(api, Step(id="-", kind="revert", target=_scaled(scaler))))
        for deployment in await api.items("/apis/apps/v1/deployments"):
            if ROLLED in annotations_of(deployment) or BOUNDS_BEFORE in labels_of(deployment):
                await self._end_rollout(done, deployment)
        pods = [pod for pod in await api.items("/api/v1/pods") if COST_BEFORE in annotations_of(pod)]
        for pod in pods:
            await _try(done, f"pod {_named(pod)}", clear_costs(api, [pod]))
        with suppress(NotFoundError):
            if await clear_all_preferred_nodes(api):
                done.removed.append("preferred nodes of new pods")
        return done

    async def _end_rollout(self, done: Tidied, deployment: Json) -> None:
        """Put the template back; once all pods are of it, the bounds too, which keep every pod until then."""
        name = f"Deployment {_named(deployment)}"
        before = before_of(deployment)
        order = _order("revert", deployment, f"Deployment/{_named(deployment)}", before.plan if before else "")
        version = deployment["metadata"]["resourceVersion"]
        try:
            await restore_template(self._api, order)
            now = await self._api.get(workload_path(order.step.target))
            if now["metadata"]["resourceVersion"] == version and _is_rolled_out(now):
                await finalize_rollout(self._api, order)
                done.removed.append(name)
            else:
                done.left.append(f"{name}: its pods are being replaced")
        except EffectError as error:
            done.left.append(f"{name}: {error}")


async def _try(done: Tidied, name: str, effect: Awaitable[object]) -> None:
    try:
        await effect
    except NotFoundError:
        return
    except EffectError as error:
        done.left.append(f"{name}: {error}")
    else:
        done.removed.append(name)


def _order(kind: StepKind, item: Json, target: str = "", plan: str = "") -> Order:
    step = Step(id="-", kind=kind, target=target or item["metadata"]["name"], uid=uid(item))
    return Order(step=step, plan=plan, iteration="")


def _has_marks(node: Json) -> bool:
    taints = (node.get("spec") or {}).get("taints") or []
    return DISRUPTED in labels_of(node) or PLAN in annotations_of(node) or DISRUPTED in {item["key"] for item in taints}


def _named(item: Json) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _scaled(scaler: Json) -> str:
    """Return the key of the workload that an autoscaler scales."""
    target = scaler["spec"].get("scaleTargetRef") or {}
    return f"{target.get('kind')}/{scaler['metadata']['namespace']}/{target.get('name')}"


def _is_rolled_out(deployment: Json) -> bool:
    """Return whether all pods are of the newest template and available."""
    status, replicas = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    counts = {int(status.get(name) or 0) for name in ("replicas", "updatedReplicas", "availableReplicas")}
    return counts == {replicas} and int(status.get("observedGeneration") or 0) >= deployment["metadata"]["generation"]

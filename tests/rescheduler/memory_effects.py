"""The cluster writer and the provider over a cluster in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace
from tests.rescheduler.memory_cluster import MemoryCluster

from kinema_core.events import (
    EMPTY,
    Amounts,
    FrozenMap,
    Node,
    Offer,
    Pod,
    Step,
    Taint,
    Workload,
)
from kinema_core.model.budgets import budgets_by_pod
from kinema_core.model.catalog import CatalogRow, new_node_labels
from kinema_core.model.match import parse_taints
from kinema_rescheduler.errors import ATTACHED, PermanentError, TransientError
from kinema_rescheduler.kubernetes.cluster import Made, Order
from kinema_rescheduler.names import (
    CHEAPEST,
    CORDONED,
    COST_BEFORE,
    DELETION_COST,
    DISRUPTED,
    PLAN,
    label_value,
    steering_key,
)
from kinema_rescheduler.providers.base import Catalog, Operation

_ROLLED: Final = "kinema.io/rolled"


class MemoryWriter:
    """Makes steps real in memory, with the same preconditions as on a real cluster."""

    def __init__(self, cluster: MemoryCluster, *, after: Callable[[], None] = lambda: None) -> None:
        """`after` is called when an effect was made: tests look at the cluster there."""
        self._cluster = cluster
        self._after = after
        self._templates: dict[str, Amounts] = {}
        """Requests and rules before our rolling update, by workload."""
        self.resizes = True
        """Whether kubelets do what they are asked for."""
        self.made: Counter[tuple[str, str]] = Counter()
        """Effects that changed something, by plan and step id."""

    async def perform(self, order: Order) -> Made:
        """Make the effect of a step."""
        self._cluster.catch_up()
        match order.step.kind:
            case "taint" | "untaint":
                made = self._mark(order)
            case "prefer-nodes":
                made = self._steer(order)
            case "clear-preferred-nodes":
                made = Made("done" if self._cluster.steering else "adopted")
                self._cluster.steering.clear()
            case "surge-up" | "surge-down" | "evict" | "resize" | "roll" | "finalize-rollout" | "revert":
                made = self._move(order)
            case "boot" | "delete" | "unknown":
                raise PermanentError("invalid", f"a {order.step.kind} is no effect on the cluster")
        self.record(order, made)
        return made

    def record(self, order: Order, made: Made) -> None:
        """Count an effect and let the test look."""
        if made.outcome == "done":
            self.made[order.plan, order.step.id] += 1
        self._cluster.reconcile()
        self._after()

    async def check_deletable(self, order: Order) -> bool:
        """Whether the node of a `delete` step is there, ours, empty and without volumes."""
        self._cluster.catch_up()
        node = self._cluster.nodes.get(order.step.target)
        if node is None:
            return False
        if not order.step.uid:
            raise TransientError("not-ready", f"{node.name} has come up")
        if node.uid != order.step.uid or DISRUPTED not in node.labels:
            raise PermanentError("changed", f"{node.name} no longer carries the plan's marks")
        left = self._cluster.evictable(node.name)
        if left:
            raise TransientError("not-empty", f"{node.name} runs {left[0].key}")
        if self._cluster.attached[node.name]:
            raise TransientError(ATTACHED, f"{node.name} still has volumes attached")
        return True

    # --- nodes

    def _mark(self, order: Order) -> Made:
        node = self._cluster.nodes.get(order.step.target)
        if node is None or node.uid != order.step.uid:
            return Made("void")
        marks = order.step.kind == "taint"
        changed = _marked(node, order) if marks else _unmarked(node)
        self._cluster.nodes[node.name] = changed
        figures = FrozenMap({CORDONED: int(node.unschedulable)}) if marks else EMPTY
        return Made("done" if changed != node else "adopted", figures)

    def _steer(self, order: Order) -> Made:
        steering, step = self._cluster.steering, order.step
        if not step.nodes:
            return Made("void")
        key = steering_key(step.target, step.uid)
        if steering.get(key) == step.nodes:
            return Made("adopted")
        steering[key] = step.nodes
        return Made("done")

    # --- workloads

    def _move(self, order: Order) -> Made:
        effects = {
            "surge-up": self._surge_up,
            "surge-down": self._surge_down,
            "evict": self._evict,
            "resize": self._resize,
            "roll": self._roll,
            "finalize-rollout": self._restore,
            "revert": self._restore,
        }
        return effects[order.step.kind](order)

    def _workload(self, step: Step) -> Workload:
        workload = self._cluster.workloads.get(step.target)
        if workload is None or workload.uid != step.uid:
            raise PermanentError("gone", step.target)
        return workload

    def _victims(self, step: Step) -> list[Pod]:
        return [pod for pod in self._cluster.pods.values() if pod.uid in step.pods and not pod.terminating]

    def _surge_up(self, order: Order) -> Made:
        step = order.step
        workload, victims = self._workload(step), self._victims(step)
        if workload.replicas not in {step.replicas_from, step.replicas_to}:
            raise PermanentError("changed", f"{workload.replicas} replicas")
        if not victims:
            return Made("void")
        if workload.replicas == step.replicas_to:
            if any(pod.annotations.get(PLAN) != order.plan for pod in victims):
                raise PermanentError("changed", "another client scaled it")
            return Made("adopted", _generation(workload))
        if len(victims) != len(step.pods):
            raise PermanentError("changed", "pods that should leave are gone already")
        for pod in victims:
            self._set_cost(pod, order.plan)
        self._cluster.set_replicas(workload.key, step.replicas_to)
        return Made("done", _generation(self._cluster.workloads[workload.key]))

    def _surge_down(self, order: Order) -> Made:
        step = order.step
        workload = self._workload(step)
        if workload.replicas == step.replicas_to:
            return Made("adopted", _generation(workload))
        if workload.replicas != step.replicas_from:
            raise PermanentError("changed", f"{workload.replicas} replicas")
        ready = [pod for pod in self._cluster.pods_of(workload) if pod.ready]
        staying = [pod for pod in ready if pod.uid not in step.pods]
        if len(staying) < step.replicas_to:
            raise TransientError("not-ready", f"{len(staying)} staying pods are Ready")
        if any(pod.annotations.get(DELETION_COST) != CHEAPEST for pod in self._victims(step)):
            raise PermanentError("changed", "another client changed a deletion cost")
        self._cluster.set_replicas(workload.key, step.replicas_to)
        return Made("done", _generation(self._cluster.workloads[workload.key]))

    def _evict(self, order: Order) -> Made:
        step, victims = order.step, self._victims(order.step)
        if not victims:
            return Made("adopted")
        workload = self._cluster.workloads.get(step.target)
        if workload is not None and workload.ready < workload.replicas:
            raise TransientError("not-ready", f"{workload.ready} of {workload.replicas} are Ready")
        seen = self._cluster.cluster()
        for budget in budgets_by_pod(seen).get(victims[0].key, ()):
            if budget.allowed < 1:
                raise TransientError("budget", f"{budget.key} allows none")
        self._cluster.end(victims[0])
        return Made("done")

    def _resize(self, order: Order) -> Made:
        workload, requests = self._workload(order.step), order.step.requests
        if not self.resizes:
            raise PermanentError("infeasible", f"{workload.key} cannot be resized")
        if requests.items() <= workload.template_requests.items():
            return Made("adopted", _generation(workload))
        for pod in self._cluster.pods_of(workload):
            changed = replace(pod, requests=FrozenMap({**pod.requests, **requests}))
            self._cluster.pods[pod.key] = changed
        self._cluster.workloads[workload.key] = replace(
            workload, template_requests=FrozenMap({**workload.template_requests, **requests})
        )
        return Made("done", _generation(workload))

    def _roll(self, order: Order) -> Made:
        workload = self._workload(order.step)
        if workload.annotations.get(_ROLLED) == order.plan:
            return Made("adopted", _generation(workload))
        self._cluster.revisions[workload.key] += 1
        self._templates[workload.key] = workload.template_requests
        self._cluster.workloads[workload.key] = replace(
            workload,
            generation=workload.generation + 1,
            template_requests=FrozenMap({**workload.template_requests, **order.step.requests}),
            annotations=FrozenMap({**workload.annotations, _ROLLED: order.plan}),
        )
        return Made("done", FrozenMap(generation=workload.generation + 1))

    def _restore(self, order: Order) -> Made:
        step = order.step
        workload = self._cluster.workloads.get(step.target)
        if workload is None:
            return Made("void")
        changed = _ROLLED in workload.annotations
        if changed:
            kept = FrozenMap({key: value for key, value in workload.annotations.items() if key != _ROLLED})
            requests = self._templates.pop(workload.key)
            workload = replace(workload, annotations=kept)
            if step.kind == "revert":  # the old template, and with it the old set, are in force again
                self._cluster.revisions[workload.key] -= 1
                workload = replace(workload, template_requests=requests)
            self._cluster.workloads[workload.key] = workload
        if step.replicas_from != step.replicas_to and workload.replicas == step.replicas_from:
            for pod in self._victims(step):
                self._set_cost(pod, order.plan)
            for pod in self._cluster.pods_of(workload):
                if pod.uid not in step.pods:
                    self._clear_cost(pod)
            self._cluster.set_replicas(workload.key, step.replicas_to)
            changed = True
        for pod in self._cluster.pods_of(self._cluster.workloads[workload.key]):
            changed = self._clear_cost(pod) or changed
        return Made("done" if changed else "adopted")

    def _set_cost(self, pod: Pod, plan: str) -> None:
        had = pod.annotations.get(COST_BEFORE, pod.annotations.get(DELETION_COST, ""))
        marks = {DELETION_COST: CHEAPEST, COST_BEFORE: had, PLAN: plan}
        self._cluster.pods[pod.key] = replace(pod, annotations=FrozenMap({**pod.annotations, **marks}))

    def _clear_cost(self, pod: Pod) -> bool:
        if pod.terminating or COST_BEFORE not in pod.annotations:
            return False
        kept = {key: value for key, value in pod.annotations.items() if key not in {COST_BEFORE, PLAN}}
        if kept.get(DELETION_COST) == CHEAPEST:  # else somebody has set another since
            had = kept[DELETION_COST] = pod.annotations[COST_BEFORE]
            if not had:
                del kept[DELETION_COST]
        self._cluster.pods[pod.key] = replace(pod, annotations=FrozenMap(kept))
        return True


def _generation(workload: Workload) -> FrozenMap[int | float | str]:
    return FrozenMap(generation=workload.generation)


def _marked(node: Node, order: Order) -> Node:
    value = label_value(order.iteration)
    taints = tuple(taint for taint in node.taints if taint.key != DISRUPTED)
    return replace(
        node,
        labels=FrozenMap({**node.labels, DISRUPTED: value}),
        annotations=FrozenMap({**node.annotations, PLAN: order.plan}),
        taints=(*taints, Taint(key=DISRUPTED, value=value, effect="NoSchedule")),
    )


def _unmarked(node: Node) -> Node:
    return replace(
        node,
        labels=FrozenMap({key: value for key, value in node.labels.items() if key != DISRUPTED}),
        annotations=FrozenMap({key: value for key, value in node.annotations.items() if key != PLAN}),
        taints=tuple(taint for taint in node.taints if taint.key != DISRUPTED),
    )


class MemoryProvider:
    """A cloud in memory: boots and deletes take time, offers may be out of stock."""

    def __init__(self, cluster: MemoryCluster, rows: tuple[CatalogRow, ...] = ()) -> None:
        self._cluster = cluster
        self._rows = rows
        self._operations: dict[str, Operation] = {}
        self._machines: dict[str, Operation] = {}
        """Boot operations by node name."""
        self.refusals: dict[str, str] = {}
        """Offer name → reason with which its boots fail."""
        self.orders: Counter[tuple[str, str]] = Counter()
        """Boots and deletions that were begun, by kind and node."""

    async def catalog(self) -> Catalog:
        """What is on sale."""
        return Catalog(source="memory", priced=None, rows=self._rows)

    async def nodes(self) -> tuple[str, ...]:
        """Names of the machines."""
        return tuple(sorted(self._machines.keys() | self._cluster.nodes.keys()))

    async def operation(self, id_: str) -> Operation:
        """How an operation stands."""
        self._cluster.catch_up()
        if id_ not in self._operations:
            raise PermanentError("not-found", id_)
        return self._operations[id_]

    async def boot(self, name: str, offer: Offer, operation: str) -> Operation:
        """Begin to boot a node."""
        self._cluster.catch_up()
        if operation in self._operations:
            return self._operations[operation]
        if name in self._machines:
            known = self._machines[name]
            self._operations[operation] = _renamed(known, operation)
            return self._operations[operation]
        reason = self.refusals.get(offer.name)
        if reason is not None and reason != "stock-out":
            raise PermanentError(reason, f"{offer.name} cannot be had")
        self.orders["boot", name] += 1
        self._operations[operation] = self._machines[name] = Operation(id=operation, node=name, state="running")
        self._cluster.after(self._cluster.pace.boot, lambda: self._booted(name, offer, operation))
        return self._operations[operation]

    def _booted(self, name: str, offer: Offer, operation: str) -> None:
        if name not in self._machines:
            return
        if offer.name in self.refusals:
            failed = Operation(
                id=operation, node=name, state="failed", reason="stock-out", message=f"{offer.name} is sold out"
            )
            self._operations[operation] = failed
            del self._machines[name]
            return
        self._done(name)
        self._cluster.register(
            Node(
                name=name,
                uid=f"uid-node-{name}",
                labels=new_node_labels(offer, name),
                taints=parse_taints(offer.taints),
                allocatable=offer.allocatable,
            )
        )

    def _done(self, name: str) -> None:
        for id_, known in list(self._operations.items()):
            if known.node == name and known.state == "running":
                self._operations[id_] = Operation(id=id_, node=name, state="done")

    async def delete(self, name: str, operation: str) -> Operation:
        """Begin to delete a node."""
        self._cluster.catch_up()
        if operation in self._operations:
            return self._operations[operation]
        if name not in self._machines and name not in self._cluster.nodes:
            raise PermanentError("not-found", f"there is no machine {name}")
        self._operations[operation] = Operation(id=operation, node=name, state="running")
        if self.orders["delete", name] == 0:
            self.orders["delete", name] += 1
            self._cluster.after(self._cluster.pace.node_delete, lambda: self._deleted(name))
        return self._operations[operation]

    def _deleted(self, name: str) -> None:
        self._machines.pop(name, None)
        self._cluster.vanish(name)
        self._done(name)


def _renamed(operation: Operation, id_: str) -> Operation:
    """The same operation under another name."""
    return Operation(
        id=id_, node=operation.node, state=operation.state, reason=operation.reason, message=operation.message
    )

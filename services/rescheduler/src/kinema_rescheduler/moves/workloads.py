"""Pods that have to leave, by workload, with strategy and target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kinema_core.events import Amounts, Autoscaler, Placement, Pod, StepKind, Strategy, Workload
from kinema_core.model.budgets import scaled
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.foreign import foreign_deletion
from kinema_core.model.mobility import listed
from kinema_core.model.strategy import no_second_copy
from kinema_rescheduler.plan.context import ExecutionContext
from kinema_rescheduler.plan.route import Leg


@dataclass(frozen=True)
class WorkloadMoves:
    """A workload with pods that have to leave their nodes, or whose pods are all to be replaced."""

    key: str
    workload: Workload | None
    """None for a controller that is not part of the state."""
    strategy: Strategy
    pods: tuple[Pod, ...]
    """All its living pods, by key."""
    victims: tuple[Pod, ...]
    """Those that have to leave, in the order in which their nodes are closed."""
    targets: Mapping[str, str]
    """Planned node by victim uid, the next stop where it makes any; a victim that the plan does not know is missing."""
    waves: Mapping[str, int]
    """In which wave each victim leaves, by uid."""
    requests: Amounts | None
    """New requests per pod, for a rolling update that resizes."""

    @property
    def replicas(self) -> int:
        """Desired pods; for an unknown controller those that are there."""
        return self.workload.replicas if self.workload is not None else len(self.pods)

    @property
    def at_once(self) -> int:
        """How many victims leave together: one by eviction, else as many as the owner lets an update run beside.

        At least one: whether a single pod may run beside another copy was asked before.
        """
        if self.strategy == "evict" or self.workload is None:
            return 1
        return max(1, scaled(self.workload.max_surge, self.workload.replicas) or 1)

    @property
    def healthy(self) -> bool:
        """Every desired pod is there, up to date and Ready, and nothing is going on."""
        ready = sum(1 for pod in self.pods if pod.ready)
        if self.workload is None:
            return ready == len(self.pods)
        return settled(self.workload) and ready >= self.workload.replicas


def settled(workload: Workload) -> bool:
    """Return whether a controller has done all it was asked for."""
    rolls = workload.type in {"Deployment", "StatefulSet"}
    return (
        not workload.paused
        and workload.observed_generation >= workload.generation
        and workload.current == workload.replicas
        and workload.ready == workload.replicas
        and (not rolls or workload.updated == workload.replicas)
    )


def movers(ctx: ExecutionContext) -> tuple[WorkloadMoves, ...]:
    """Every workload that has something to do, by key."""
    places = {place.uid: place for place in ctx.plan.placements}
    groups = listed_by_workload(ctx.cluster)
    resizes = {resize.workload: resize.requests_after for resize in ctx.plan.resizes}
    leaving = [pod for name in ctx.disrupted for pod in ctx.evictable.get(name, ())]
    planned = [ctx.alive[uid] for uid in ctx.route.legs if uid in ctx.alive]
    concerned = {ctx.cluster.workload_key_of(pod) for pod in (*leaving, *planned)}
    keys = sorted(((concerned | resizes.keys()) & groups.keys()) | ctx.units.keys())
    found = [_movers(ctx, key, groups.get(key, ()), places, resizes.get(key)) for key in keys]
    return tuple(item for item in found if item is not None)


@derived
def listed_by_workload(cluster: Cluster) -> Mapping[str, tuple[Pod, ...]]:
    """Return the pods that a plan can list, by key of their workload, in the order of their own keys."""
    found: dict[str, list[Pod]] = {}
    for pod in listed(cluster):
        found.setdefault(cluster.workload_key_of(pod), []).append(pod)
    return {key: tuple(pods) for key, pods in found.items()}


def _movers(
    ctx: ExecutionContext, key: str, pods: Sequence[Pod], places: Mapping[str, Placement], requests: Amounts | None
) -> WorkloadMoves | None:
    planned = [places[pod.uid] for pod in pods if pod.uid in places]
    rolling = requests is not None or any(place.strategy == "rolling" for place in planned)
    victims = [pod for pod in pods if _leaves(ctx, key, pod, places.get(pod.uid))]
    if not victims and not rolling and key not in ctx.units:
        return None
    legs = {pod.uid: leg for pod in victims if (leg := _next_leg(ctx, key, pod)) is not None}
    without = {*ctx.disrupted, *ctx.unfit}
    return WorkloadMoves(
        key=key,
        workload=ctx.cluster.workload(key),
        strategy="rolling" if rolling else _strategy(ctx, key, victims, places),
        pods=tuple(pods),
        victims=tuple(sorted(victims, key=lambda pod: (ctx.turn_of(pod), pod.key))),
        targets={uid: leg.to for uid, leg in legs.items() if leg.to not in without},
        waves={pod.uid: legs[pod.uid].wave if pod.uid in legs else ctx.route.unplanned for pod in victims},
        requests=requests,
    )


def _next_leg(ctx: ExecutionContext, key: str, pod: Pod) -> Leg | None:
    """Return where the pod goes next, and when; None for one that the plan does not know."""
    legs = ctx.route.legs.get(pod.uid)
    return legs[0] if legs else ctx.stopovers.get((key, pod.node or ""))


def _leaves(ctx: ExecutionContext, key: str, pod: Pod, place: Placement | None) -> bool:
    """On a node that goes, at a stop on its way, or planned elsewhere than it is.

    By uid: a pod that took its place was never asked.
    """
    if pod.node is None:
        return False
    if pod.node in ctx.disrupted or (place is None and (key, pod.node) in ctx.stopovers):
        return True
    if place is None or place.source is None or place.to in (place.source, pod.node) or place.to in ctx.refused:
        return False
    node = ctx.cluster.node(pod.node)
    if node is not None and foreign_deletion(node) is not None:
        return False  # the other autoscaler moves its pods
    return pod.node == place.source and pod.node not in ctx.deletes and place.strategy != "rolling"


def _strategy(ctx: ExecutionContext, key: str, victims: list[Pod], places: Mapping[str, Placement]) -> Strategy:
    """Return what was begun goes on; else as planned; for pods that the plan does not know, as the rules say.

    `stay` when one of the pods may not move.
    """
    begun: tuple[tuple[StepKind, Strategy], ...] = (
        ("roll", "rolling"),
        ("resize", "rolling"),
        ("evict", "evict"),
        ("surge-up", "surge"),
    )
    for kind, strategy in begun:
        if ctx.unit(kind, key, ctx.units.get(key, 0)) is not None:
            return strategy
    if any(ctx.judge.held(pod.key) for pod in victims):
        return "stay"
    if not victims:
        return "stay"
    planned = [place.strategy for pod in victims if (place := places.get(pod.uid)) is not None]
    if "unknown" in planned:
        return "stay"
    chosen = next((way for way in planned if way in {"surge", "evict"}), None)
    way = chosen or ctx.judge.strategy(victims[0].key)
    # Its owner may have chosen evictions since the plan was made, and that no second copy runs. A rolling update that
    # the plan does not have would wait until every node is closed that is to go.
    forbidden = way == "surge" and any(no_second_copy(ctx.cluster, pod) for pod in victims)
    return "stay" if forbidden or way == "rolling" else way


def autoscalers_of(cluster: Cluster, workload: Workload) -> tuple[Autoscaler, ...]:
    """Return the horizontal pod autoscalers that set the workload's replicas: one, where its owners agree."""
    return tuple(
        scaler
        for scaler in cluster.autoscalers
        if scaler.namespace == workload.namespace
        and scaler.target_kind == workload.type
        and scaler.target_name == workload.name
    )

"""One look at an execution: the journal's part, the cluster state and the time, and the words to answer with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Final, TypeAlias

from kinema_core.events import (
    EMPTY,
    SKIPPED,
    ExecutionAborted,
    ExecutionCompleted,
    Figures,
    FrozenMap,
    Node,
    Offer,
    Placement,
    Plan,
    Pod,
    Step,
    StepFailed,
    StepStarted,
)
from kinema_core.model.cluster import Cluster
from kinema_core.model.derived import derived
from kinema_core.model.match import node_admits
from kinema_core.model.mobility import (
    Judge,
    MobilityOptions,
    is_resident,
    listed,
    next_end_of_protection,
)
from kinema_rescheduler.journal.execution import Execution, Progress, Verdict
from kinema_rescheduler.names import ABORT, REPLAN, keep_id, taint_id, unfit_id, unit_id, untaint_id
from kinema_rescheduler.plan.closing import Closing, closings_of, most_closed
from kinema_rescheduler.plan.limits import Limits
from kinema_rescheduler.plan.route import Leg, Route, route_of

REFUSALS: Final = frozenset({"stock-out", "quota", "permission", "denied", "invalid", "conflict"})
"""Refusals of a provider that mean that Kinema made no node; `conflict`: another client has a node of that name."""
Decision: TypeAlias = StepStarted | StepFailed | ExecutionCompleted | ExecutionAborted
"""What the rescheduler decides; the outcome of an effect is published by the code that tried it."""


@dataclass
class Wait:
    """Time for which an answer stays the same while nothing else changes than the time."""

    left: timedelta | None = None
    """None: for good."""

    def note(self, left: timedelta) -> None:
        """Take note of something that will hold, or hold no more, after this time."""
        self.left = left if self.left is None else min(left, self.left)


@dataclass(frozen=True)
class ExecutionContext:
    """Everything that a decision may look at."""

    execution: Execution
    plan: Plan
    cluster: Cluster
    now: datetime
    limits: Limits
    fencing: int
    """Lease revision of the process that decides."""
    offers: tuple[Offer, ...] = ()
    """What could be bought; nothing where the cluster's own autoscaler buys."""
    wait: Wait = field(default_factory=Wait, compare=False)
    """Where every question about the time is noted that will have another answer later."""

    # --- the plan and the state

    @property
    def blind(self) -> bool:
        """Return whether nothing is known of the cluster: then Kinema only reverts what the journal names."""
        return self.cluster.version == 0

    @cached_property
    def judge(self) -> Judge:
        """Return who says what may move and be deleted, by the rules of now."""
        end = next_end_of_protection(self.cluster, self.now)
        if end is not None:
            self.wait.note(end - self.now)
        return Judge(self.cluster, self.now, MobilityOptions(move_jobs=self.limits.move_jobs, hold_restless=False))

    @property
    def evictable(self) -> Mapping[str, tuple[Pod, ...]]:
        """Pods by node, without those that go with their node; terminating ones included."""
        return _evictable(self.cluster)

    @property
    def alive(self) -> Mapping[str, Pod]:
        """Pods that a plan can list, by uid: not terminating, not going with their node."""
        return _listed_by_uid(self.cluster)

    @cached_property
    def route(self) -> Route:
        """The order that the plan asks for."""
        return route_of(self.plan)

    @cached_property
    def boots(self) -> tuple[str, ...]:
        """Names of the nodes that the plan boots to stay, and of the temporary ones that it needs first, sorted."""
        planned = [node.name for node in self.plan.nodes if node.action == "boot"]
        return tuple(sorted([*planned, *(name for name, stay in self.route.temporary.items() if stay.boot == 0)]))

    @cached_property
    def refused(self) -> Mapping[str, str]:
        """Return the nodes to boot to stay that the plan does without, by name: refused by the provider, or unfit."""
        found = {name: self.progress(f"boot/{name}") for name in self.boots if self.plan_action.get(name) == "boot"}
        refusals = {
            name: progress.result
            for name, progress in found.items()
            if progress is not None and progress.lost and progress.result in REFUSALS
        }
        return refusals | {name: verdict.reason for name, verdict in self.unfit.items()}

    @cached_property
    def unfit(self) -> Mapping[str, Verdict]:
        """Return the booted nodes that are no use, by name: never Ready, too small, or without a Ready pod."""
        verdicts = self.execution.verdicts
        return {name: verdicts[unfit_id(name)] for name in self.boots if unfit_id(name) in verdicts}

    @cached_property
    def open_nodes(self) -> tuple[str, ...]:
        """Return the nodes that may take pods of this plan, sorted: those that stay, without booted ones of no use."""
        without = {*self.deletes, *self.unfit}
        return tuple(sorted(name for name in self.judge.open_nodes if name not in without))

    @cached_property
    def goes_on(self) -> bool:
        """Return whether nodes to do without leave exchanges of the plan that need none of them, or other boots."""
        others = any(not one.boots & self.refused.keys() for one in self.closings)
        return others if self.closings else len(self.refused) < len(self.boots)

    @cached_property
    def closings(self) -> tuple[Closing, ...]:
        """The nodes to delete in the order in which they are closed, without temporary ones."""
        return closings_of(self.plan, self.route)

    @cached_property
    def turns(self) -> Mapping[str, int]:
        """Return the place of each of them in that order, by name."""
        return {one.node: turn for turn, one in enumerate(self.closings)}

    def turn_of(self, pod: Pod) -> int:
        """Return when the node of a pod is closed; pods of nodes that stay come last."""
        return self.turns.get(pod.node or "", len(self.turns))

    @cached_property
    def to_close(self) -> tuple[Closing, ...]:
        """Return those that have yet to be closed: they are there, may go by the rules of now, and can be emptied."""
        return tuple(
            one
            for one in self.closings
            if self.progress(taint_id(one.node)) is None
            and not self.kept(one.node)
            and self.cluster.node(one.node) is not None
            and self.judge.why_kept(one.node) is None
            and one.node not in self.left_on
        )

    @property
    def being_closed(self) -> tuple[Closing, ...]:
        """Return those whose taint is under way, or is to be tried again."""
        taints = ((one, self.progress(taint_id(one.node))) for one in self.closings)
        return tuple(one for one, taint in taints if taint is not None and not taint.over)

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """Return where the pods were when the plan was made, by uid."""
        return {place.uid: place.source for place in self.plan.placements if place.source is not None}

    @cached_property
    def left_on(self) -> Mapping[str, str]:
        """Return the nodes with a pod of a workload that is left alone, and the first such pod by key."""
        if not self.skips:
            return {}
        left = [
            (pod.node, pod.key)
            for pod in self.alive.values()
            if pod.node is not None and self.skipped(self.cluster.workload_key_of(pod))
        ]
        return dict(sorted(left, reverse=True))

    @cached_property
    def closed(self) -> frozenset[str]:
        """Return the nodes that are closed or being closed, and not gone or opened again; without temporary ones."""
        return frozenset(
            one.node
            for one in self.closings
            if self.same_node(taint_id(one.node)) is not None
            and not self.lost(taint_id(one.node))
            and not self.done(untaint_id(one.node))
        )

    @cached_property
    def most_closed(self) -> int:
        """Return how many nodes may be closed at a time."""
        nodes = sum(1 for node in self.plan.nodes if node.action != "boot")
        return most_closed(self.limits.max_closed_nodes, nodes)

    @property
    def places_to_close(self) -> int:
        """Return how many more nodes may be closed now."""
        return max(0, self.most_closed - len(self.closed))

    @cached_property
    def plan_action(self) -> Mapping[str, str]:
        """What the plan does with each node, by name."""
        return {node.name: node.action for node in self.plan.nodes}

    @cached_property
    def coming(self) -> Mapping[str, tuple[Placement, ...]]:
        """Return the placements on the nodes that the plan boots to stay, by node."""
        found: dict[str, list[Placement]] = {}
        for place in self.plan.placements:
            if self.plan_action.get(place.to) == "boot":
                found.setdefault(place.to, []).append(place)
        return {name: tuple(places) for name, places in found.items()}

    @cached_property
    def in_vain(self) -> frozenset[str]:
        """Return the nodes to boot, not begun, that no pod would come to: the moves of all of them were abandoned."""
        pods = self.cluster.pods_by_uid

        def stays(place: Placement) -> bool:
            return place.uid in pods and self.skipped(self.cluster.workload_key_of(pods[place.uid]))

        return frozenset(
            name
            for name, places in self.coming.items()
            if self.progress(f"boot/{name}") is None and all(stays(place) for place in places)
        )

    @cached_property
    def awaited(self) -> Mapping[str, str]:
        """Return the booted nodes to which no move has begun, by name, and why none can; empty for one that is ready.

        A node may be Ready before the outcome of its boot is known, as after a restart: until then it may be another
        client's of that name. One that has just become Ready has the taint `not-ready` for a moment more, or one that
        an agent of its own takes off: pods that came now would go elsewhere. Kinema does not wait for the end of a
        cordon: an operator set it.
        """
        used = {name for progress in self.execution.steps.values() for name in progress.step.nodes}
        used |= {name for one in self.closings for name in one.boots if self.progress(taint_id(one.node)) is not None}
        retired = {name for name in self.route.temporary if self.progress(taint_id(name)) is not None}
        without = used | retired | self.refused.keys() | self.in_vain
        return {name: self._unready(name) for name in self.boots if name not in without}

    def _unready(self, name: str) -> str:
        node = self.cluster.node(name)
        if node is None or not node.ready:
            return "is not Ready"
        if not self.done(f"boot/{name}"):
            return "is being booted"
        if node.unschedulable:
            return ""
        for place in self.coming.get(name, ()):
            pod = self.cluster.pods_by_uid.get(place.uid)
            if pod is None:
                continue
            why = node_admits(pod.rules, name=node.name, labels=node.labels, taints=node.taints)
            if why is not None:
                return f"does not admit {pod.key} ({why})"
        return ""

    @cached_property
    def booted(self) -> tuple[str, ...]:
        """Names of all nodes that this plan boots at some time, sorted."""
        return tuple(sorted({*self.boots, *self.route.temporary}))

    @cached_property
    def deletes(self) -> tuple[str, ...]:
        """Names of the nodes to delete, temporary ones from when they are not needed any more, sorted."""
        planned = [node.name for node in self.plan.nodes if node.action == "delete"]
        retired = [name for name in self.route.temporary if self.progress(taint_id(name)) is not None]
        return tuple(sorted([*planned, *retired]))

    @cached_property
    def stopovers(self) -> Mapping[tuple[str, str], Leg]:
        """Return the next legs of pods that were sent to a stop, by workload and node of the stop.

        The pod that came up at the stop is not the one that the plan knows: its workload identifies it, of which the
        plan sends only one pod to any stop.
        """
        found: dict[tuple[str, str], Leg] = {}
        for progress in self.execution.steps.values():
            if progress.step.kind not in {"surge-up", "evict"}:
                continue
            for uid in progress.step.pods:
                legs = self.route.legs.get(uid, ())
                for leg, following in pairwise(legs):
                    found[progress.step.target, leg.to] = following
        return found

    @cached_property
    def disrupted(self) -> frozenset[str]:
        """Return the nodes to delete that carry the taint, still exist and whose deletion was not abandoned."""
        return frozenset(
            name
            for name in self.deletes
            if self.done(taint_id(name))
            and not self.kept(name)
            and self.progress(untaint_id(name)) is None
            and self.same_node(taint_id(name)) is not None
        )

    def same_node(self, step_id: str) -> Node | None:
        """Return the node that a step acted on, unless it is gone or another one of its name took its place."""
        progress = self.progress(step_id)
        if progress is None:
            return None
        node = self.cluster.node(progress.step.target)
        return node if node is not None and node.uid == progress.step.uid else None

    # --- the journal

    def progress(self, step_id: str) -> Progress | None:
        """Return where a step stands."""
        return self.execution.progress(step_id)

    def done(self, step_id: str) -> bool:
        """Return whether the step's effect was made."""
        progress = self.progress(step_id)
        return progress is not None and progress.state == "done"

    def over(self, step_id: str) -> bool:
        """Return whether the step is done or has failed for good."""
        progress = self.progress(step_id)
        return progress is not None and progress.over

    def lost(self, step_id: str) -> bool:
        """Return whether the step has failed for good."""
        progress = self.progress(step_id)
        return progress is not None and progress.lost

    def kept(self, node: str) -> bool:
        """Return whether the deletion of a node was abandoned, or failed and is not repeated, as after an abort."""
        deletion = self.progress(f"delete/{node}")
        failed = deletion is not None and deletion.state == "failed"
        repeated = deletion is not None and deletion.retry and self.execution.abort is None
        return keep_id(node) in self.execution.verdicts or (failed and not repeated)

    @cached_property
    def skips(self) -> frozenset[str]:
        """Return the workloads whose moves were abandoned, by key."""
        return frozenset(name.removeprefix(SKIPPED) for name in self.execution.verdicts if name.startswith(SKIPPED))

    def skipped(self, workload: str) -> bool:
        """Return whether the move of a workload was abandoned."""
        return workload in self.skips

    def unit(self, kind: str, workload: str, number: int) -> Progress | None:
        """Return a step of the `number`th move of a workload."""
        return self.progress(unit_id(kind, workload, number))

    @cached_property
    def last_step(self) -> datetime:
        """Return when a step last began or ended: since then Kinema has changed nothing."""
        times = [self.execution.cause.time]
        for progress in self.execution.steps.values():
            times += [progress.intended, *([progress.ended] if progress.ended is not None else [])]
        return max(times)

    @cached_property
    def last_event(self) -> datetime:
        """Time at which something last began, ended or was abandoned: waiting is counted from here."""
        return max([self.last_step, *(verdict.time for verdict in self.execution.verdicts.values())])

    def passed(self, since: datetime | None, seconds: float) -> bool:
        """Return whether more than so many seconds have passed since then."""
        if since is None:
            return False
        left = timedelta(seconds=seconds) - (self.now - since)
        if left < timedelta():
            return True
        self.wait.note(left)
        return False

    def ahead(self, moment: datetime) -> bool:
        """Return whether a moment has yet to come."""
        if moment <= self.now:
            return False
        self.wait.note(moment - self.now)
        return True

    @cached_property
    def units(self) -> Mapping[str, int]:
        """Number of the last move of every workload that was touched."""
        last: dict[str, int] = {}
        for progress in self.execution.steps.values():
            if progress.step.kind in {"prefer-nodes", "surge-up", "evict", "roll", "resize"}:
                number = int(progress.step.id.rpartition("/")[2])
                last[progress.step.target] = max(number, last.get(progress.step.target, 0))
        return last

    # --- answers

    def intend(self, step: Step) -> tuple[StepStarted, ...]:
        """Return the next attempt at a step, if it is due now; nothing while one is open, pausing or over."""
        before = self.progress(step.id)
        if before is None:
            return (self._attempt(step, 1),)
        if before.state != "failed" or not before.retry:
            return ()
        pause = timedelta(seconds=self.limits.pause_seconds(before.attempt)) - before.since(self.now)
        if pause > timedelta():
            self.wait.note(pause)
            return ()
        return (self._attempt(step, before.attempt + 1),)

    def _attempt(self, step: Step, attempt: int) -> StepStarted:
        deadline = self.now + timedelta(seconds=self.limits.deadline_seconds(step.kind))
        return StepStarted(
            plan=self.execution.plan_id, step=step, fencing=self.fencing, deadline=deadline, attempt=attempt
        )

    def verdict(self, id_: str, reason: str, detail: str, figures: Figures = EMPTY) -> tuple[StepFailed, ...]:
        """Give something up, once."""
        if id_ in self.execution.verdicts:
            return ()
        return (
            StepFailed(
                plan=self.execution.plan_id,
                step=id_,
                fencing=self.fencing,
                reason=reason,
                detail=detail,
                retry=False,
                figures=figures,
            ),
        )

    @property
    def stopping(self) -> bool:
        """Return whether only the moves under way go on: an operator aborts the plan, or its rest is planned again."""
        return self.execution.abort is not None or REPLAN in self.execution.verdicts

    def replan(self, reason: str, detail: str) -> tuple[StepFailed, ...]:
        """End the plan after the moves under way: what remains is planned again from the state that there is then."""
        return self.verdict(REPLAN, reason, detail)

    def do_without(self, name: str, reason: str, detail: str) -> tuple[StepFailed, ...]:
        """Leave a booted node that is no use; a temporary one ends the plan."""
        if self.plan_action.get(name) != "boot":
            return self.give_up(reason, detail)
        booted = self.progress(f"boot/{name}")
        offer = booted.step.offer if booted is not None else ""
        return self.verdict(unfit_id(name), reason, detail, FrozenMap(offer=offer))

    def give_up(self, reason: str, detail: str) -> tuple[StepFailed, ...]:
        """Give the whole plan up."""
        return self.verdict(ABORT, reason, detail)


def intents(groups: Iterable[Iterable[StepStarted]], most: int, open_now: int) -> tuple[StepStarted, ...]:
    """Return the first of these intents, so that no more than `most` steps are open together with `open_now`."""
    flat = [body for group in groups for body in group]
    return tuple(flat[: max(0, most - open_now)])


@derived
def _evictable(cluster: Cluster) -> Mapping[str, tuple[Pod, ...]]:
    return {
        name: tuple(pod for pod in pods if not is_resident(cluster, pod)) for name, pods in cluster.pods_by_node.items()
    }


@derived
def _listed_by_uid(cluster: Cluster) -> Mapping[str, Pod]:
    return {pod.uid: pod for pod in listed(cluster)}

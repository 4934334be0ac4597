"""Checks of a plan's pods: each listed once and as it is, moved only as it may be, left out only by priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kinema_core.events import Placement, Pod
from kinema_core.model.checker.free_places import FreePlaces
from kinema_core.model.checker.steps import awaits_healthy
from kinema_core.model.checker.view import PlannedPod, PlanView, Violation, expected_requests
from kinema_core.model.resizing import restarted
from kinema_core.model.strategy import no_second_copy


def check_lists(view: PlanView) -> Iterator[Violation]:
    """Check that every listed pod is placed or unplaced, exactly once, and no other one."""
    keys = [item.pod for item in view.plan.placements] + [item.pod for item in view.plan.unplaced]
    if len(keys) != len(view.pods) or set(keys) != view.pods.keys():
        yield from _wrongly_named(view, Counter(keys))
    yield from _unplaced(view)


def _wrongly_named(view: PlanView, named: Counter[str]) -> Iterator[Violation]:
    for key in view.pods:
        if named[key] != 1:
            code = "pod-missing" if named[key] == 0 else "pod-duplicate"
            yield Violation(code, key, f"named {named[key]} times in placements and unplaced")
    for key in sorted(named):
        if key not in view.pods:
            what = "it goes with its node or is terminating" if view.cluster.pod(key) else "no such pod"
            yield Violation("pod-unknown", key, what)


def _unplaced(view: PlanView) -> Iterator[Violation]:
    for item in view.plan.unplaced:
        pod = view.pods.get(item.pod)
        if pod is None:
            continue
        if item.uid != pod.uid:
            yield Violation("uid-mismatch", item.pod, f"{item.uid}, it has {pod.uid}")
        if not item.code or not item.reason:
            yield Violation("unplaced-reason", item.pod, "an unplaced pod has a code and a reason")
        if pod.node is not None and view.plan.status != "infeasible":
            yield Violation("running-unplaced", item.pod, f"it runs on {pod.node} and cannot be left without a node")


def check_placements(view: PlanView) -> Iterator[Violation]:
    """Check that each placement is true of its pod, and has the strategy for that pod."""
    pods, replaced = view.pods, bool(view.resized or view.rolled)
    for item in view.plan.placements:
        pod = pods.get(item.pod)
        if pod is None:
            continue
        workload = (view.workload_key(pod) or "") if replaced else ""
        if item.uid != pod.uid:
            yield Violation("uid-mismatch", item.pod, f"{item.uid}, it has {pod.uid}")
        if item.source != pod.node:
            yield Violation("from-mismatch", item.pod, f"from {item.source}, it is on {pod.node}")
        requests = expected_requests(pod, view.resized.get(workload))
        if item.requests != requests:
            yield Violation("requests-mismatch", item.pod, f"{dict(item.requests)}, it requests {dict(requests)}")
        expected = _expected(view, item, pod, workload)
        if item.strategy != expected:
            detail = f"{item.strategy} from {pod.node} to {item.to}, expected {expected}"
            yield Violation("strategy-mismatch", item.pod, detail)


def _expected(view: PlanView, item: Placement, pod: Pod, workload: str) -> str:
    """Return the strategy that the pod moves by. A rolling update restarts a whole workload or none of it."""
    if pod.node is None:
        return "schedule"
    allowed = view.mobility.strategy.get(item.pod, item.strategy)
    if workload in view.resized or (allowed == "rolling" and workload in view.rolled):
        return "rolling"
    return "stay" if item.to == pod.node else allowed


def check_held(view: PlanView) -> Iterator[Violation]:
    """Yield who may not move stays, and who may not be placed is not."""
    for seat in view.seats if view.rolled else view.arriving:
        held = view.mobility.held.get(seat.key)
        if held is not None and (seat.arrives or seat.workload in view.rolled):
            yield Violation(_held_code(seat), seat.key, f"{held.code}: {held.reason}")


def check_copies(view: PlanView) -> Iterator[Violation]:
    """No Deployment is rolled that wants a single pod and lets no second one run beside it."""
    for key in sorted(view.resized.keys() | view.rolled):
        if any(no_second_copy(view.cluster, pod) for pod in view.cluster.pods_by_workload.get(key, ())):
            yield Violation(
                "second-copy", key, "it is rolled, and its owner lets no second copy run beside the only one"
            )


def _held_code(seat: PlannedPod) -> str:
    if seat.pod.node is None:
        return "held-placed"
    return "held-restarted" if seat.to == seat.pod.node else "held-moved"


def check_reports(view: PlanView) -> Iterator[Violation]:
    """Check that the lists of held pods and of unreadable objects are complete and true."""
    held = {key: item for key, item in view.mobility.held.items() if view.pods[key].node is not None}
    said = {item.pod: item for item in view.plan.held}
    for key in sorted(held.keys() | said.keys()):
        if key in said and said[key].code == "pdb-unhealthy" and awaits_healthy(view, view.pods.get(key)):
            continue  # by what the plan leaves without a place, which options need not show
        if key not in said or key not in held:
            yield Violation("held-list", key, "not listed as held" if key in held else "listed as held, but it is not")
        elif said[key].code != held[key].code:
            yield Violation("held-list", key, f"held by {said[key].code}, expected {held[key].code}")
    frozen = {item.object for item in view.cluster.quarantined}
    named = {item.object for item in view.plan.quarantined}
    for name in sorted(frozen ^ named):
        what = "not listed as quarantined" if name in frozen else "listed as quarantined, but it is not"
        yield Violation("quarantined-list", name, what)
    for resize in view.plan.resizes:
        if view.cluster.workload(resize.workload) is None:
            yield Violation("resize-unknown", resize.workload, "no such workload")


def check_counts(view: PlanView) -> Iterator[Violation]:
    """Moves and restarts are as many as the placements say; pods that are resized in place are none of these."""
    bound = [item for item in view.plan.placements if item.source is not None]
    moves = sum(item.source != item.to for item in bound)
    restarts = restarted(view.plan, view.cluster, view.options)
    if view.plan.moves != moves:
        yield Violation("moves", "moves", f"{view.plan.moves}, the placements hold {moves}")
    if view.plan.restarts != restarts:
        yield Violation("restarts", "restarts", f"{view.plan.restarts}, the placements hold {restarts}")


def check_promises(view: PlanView) -> Iterator[Violation]:
    """Check status and mode: `nothing-better` changes nothing, `autoscale` only adds, unless it may move."""
    deleted = [node.name for node in view.plan.nodes if node.action == "delete"]
    booted = [node.name for node in view.plan.nodes if node.action == "boot"]
    moved = [seat.key for seat in view.arriving if seat.pod.node is not None]
    if view.plan.mode == "autoscale":
        yield from (Violation("autoscale-deletes", name, "an autoscale plan only adds nodes") for name in deleted)
    if view.plan.mode == "autoscale" and not view.options.autoscale_moves:
        yield from (Violation("autoscale-moves", key, "an autoscale plan moves no running pod") for key in moved)
    if view.plan.status == "nothing-better":
        changed = [*booted, *deleted, *moved]
        yield from (
            Violation("nothing-better", name, "a plan that finds nothing better changes it") for name in changed
        )


def check_priority(view: PlanView) -> Iterator[Violation]:
    """No pending pod is left out that could be on a node where pending pods of lower priority are placed.

    Equal pods are tried once. A pod that a rule between pods concerns is not taken away for the trial.
    """
    held, placed = view.mobility.held, _placed(view)
    keys = sorted(view.unplaced - held.keys()) if placed else []
    waiting = [pod for key in keys if (pod := view.pods.get(key)) is not None and pod.node is None]
    if not waiting:
        return
    vacancies, tried = FreePlaces(view), set[tuple[object, ...]]()
    for pod in waiting:
        facts = (pod.rules, pod.requests, pod.priority, pod.annotations, pod.labels, pod.namespace)
        kind = (*facts, view.workload_key(pod))
        found = None if kind in tried else vacancies.find_instead(pod, _lesser(placed, pod))
        tried.add(kind)
        if found is not None:
            names = ", ".join(one.key for one in found[1])
            yield Violation("priority-inverted", pod.key, f"{found[0].text} holds {names}, of lower priority")


def _placed(view: PlanView) -> Mapping[str, Sequence[Pod]]:
    """By node, the pending pods that the plan places there, the lowest priority first."""
    found: dict[str, list[Pod]] = {}
    for seat in view.arriving:
        if seat.pod.node is None:
            found.setdefault(seat.to, []).append(seat.pod)
    return {name: sorted(pods, key=lambda pod: (pod.priority, pod.key)) for name, pods in found.items()}


def _lesser(placed: Mapping[str, Sequence[Pod]], pod: Pod) -> Mapping[str, Sequence[Pod]]:
    lower = {name: [one for one in pods if one.priority < pod.priority] for name, pods in placed.items()}
    return {name: pods for name, pods in lower.items() if pods}

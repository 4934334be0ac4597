"""Check of who is left out: nobody whose place somebody of lower priority was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kinema_core.events import Pod
from kinema_core.model.checks.vacancies import Vacancies
from kinema_core.model.checks.view import View, Violation


def check_priority(view: View) -> Iterator[Violation]:
    """No pending pod is left out that could be on a node where pending pods of lower priority are placed.

    Equal pods are tried once. Whoever a rule between pods concerns is not taken away for the trial.
    """
    held, placed = view.mobility.held, _placed(view)
    keys = sorted(view.unplaced - held.keys()) if placed else []
    waiting = [pod for key in keys if (pod := view.pods.get(key)) is not None and pod.node is None]
    if not waiting:
        return
    vacancies, tried = Vacancies(view), set[tuple[object, ...]]()
    for pod in waiting:
        facts = (pod.rules, pod.requests, pod.priority, pod.annotations, pod.labels, pod.namespace)
        kind = (*facts, view.workload_key(pod))
        found = None if kind in tried else vacancies.find_instead(pod, _lesser(placed, pod))
        tried.add(kind)
        if found is not None:
            names = ", ".join(one.key for one in found[1])
            yield Violation("priority-inverted", pod.key, f"{found[0].text} holds {names}, of lower priority")


def _placed(view: View) -> Mapping[str, Sequence[Pod]]:
    """By node, the pending pods that the plan places there, the lowest priority first."""
    found: dict[str, list[Pod]] = {}
    for seat in view.arriving:
        if seat.pod.node is None:
            found.setdefault(seat.to, []).append(seat.pod)
    return {name: sorted(pods, key=lambda pod: (pod.priority, pod.key)) for name, pods in found.items()}


def _lesser(placed: Mapping[str, Sequence[Pod]], pod: Pod) -> Mapping[str, Sequence[Pod]]:
    lower = {name: [one for one in pods if one.priority < pod.priority] for name, pods in placed.items()}
    return {name: pods for name, pods in lower.items() if pods}

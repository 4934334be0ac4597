"""Pending pods that nothing can hold: disruption budgets wait for them, and no pod is evicted until then."""

from __future__ import annotations

from dataclasses import replace

from kinema_core.model.budgets import budgets_by_pod, covered
from kinema_core.model.mobility import listed_by_key
from kinema_core.model.strategy import strategy_of
from kinema_optimizer.problem.compile import compiled
from kinema_optimizer.problem.question import Question


def with_unplaceable(question: Question) -> Question:
    """Return the question with these pods in its options: evictions then count the pods that are healthy.

    Those that get no place only because others do are not known yet: the order of moves looks after them.
    """
    asked = replace(question, options=replace(question.options, waiting=frozenset()))
    concerned = _concerned(asked)
    if not concerned:
        return asked
    problem = compiled(asked)
    homeless = {pod.key for _, mover in problem.homeless for pod in (mover.pod, *mover.others)}
    waiting = concerned & (homeless | problem.sites.mobility.held.keys())
    return replace(asked, options=replace(asked.options, waiting=frozenset(waiting)))


def _concerned(question: Question) -> set[str]:
    """Return the pending pods under a budget that covers pods which could be evicted; there are few, or none."""
    cluster = question.cluster
    if question.mode == "autoscale" and not question.options.autoscale_moves:
        return set()
    budgets = budgets_by_pod(cluster)
    pending = [key for key, pod in listed_by_key(cluster).items() if pod.node is None and key in budgets]
    evicting = {
        budget.key: any(
            pod.node is not None and strategy_of(cluster, pod) == "evict" for pod in covered(cluster, budget)
        )
        for budget in {budget.key: budget for key in pending for budget in budgets[key]}.values()
    }
    return {key for key in pending if any(evicting[budget.key] for budget in budgets[key])}

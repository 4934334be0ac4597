"""Reasons of events in words: why an iteration began, why none did, why no plan was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_WORDS: Final[Mapping[str, str]] = {
    "ahead": "more replicas are expected soon",
    "disrupted-node-occupied": "a node that is to be deleted still runs pods",
    "iteration-running": "another iteration is running",
    "no-catalog": "no prices are known yet",
    "node-operation": "a node is being booted or deleted",
    "nodes-missing": "the state lacks nodes that pods run on",
    "not-searched": "the time was over before a search could begin",
    "nothing-better": "nothing better was found",
    "nothing-holds-pending": "pending pods fit no node and no machine on sale",
    "pods-coming-up": "pods come up after a plan that ended for one of them",
    "pods-missing": "the state lacks pods that are counted as Ready",
    "pods-waiting": "pods wait for a place",
    "policy-waits": "the policy waits",
    "price-missing": "a price is missing",
    "recheck-failed": "the plan broke a rule when it was checked again, which is a bug",
    "reschedule-recent": "the last iteration was too short a time ago",
    "restless": "too many workloads are changing",
    "settling": "the cluster has not been calm for long enough",
    "solver-crashed": "the solver crashed",
    "solver-hung": "the solver hung",
    "solver-memory": "the solver reached its memory limit",
    "stable": "the cluster is calm",
    "state-unknown": "some kinds of objects cannot be read now",
    "unschedulable-pods": "pods are unschedulable",
}
_REST: Final = "rest-after-"


def in_words(reason: str) -> str:
    """Return what the code of a reason means; a reason that is no code, or an unknown one, as it is."""
    if reason.startswith(_REST):
        return f"the rest of a plan that ended: {reason.removeprefix(_REST)}"
    return _WORDS.get(reason, reason)

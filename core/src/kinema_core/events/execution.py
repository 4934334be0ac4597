"""Bodies of the families exec and control: what is being done, and what the operator asks for."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Final, Literal, TypeAlias

from kinema_core.events.body import Body, Figures
from kinema_core.events.frozen import EMPTY
from kinema_core.events.objects import Amounts, Wire

# --- exec: what is being done

StepKind: TypeAlias = Literal[
    "boot",
    "taint",
    "prefer-nodes",
    "surge-up",
    "surge-down",
    "resize",
    "roll",
    "finalize-rollout",
    "evict",
    "delete",
    "untaint",
    "clear-preferred-nodes",
    "revert",
    "unknown",
]
"""`unknown`: what this version does not know."""


class Step(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """One effect on Kubernetes or the cloud. `id` is unique within its execution and the same after a restart."""

    id: str
    kind: StepKind
    target: str
    """What it acts on: a node's name, or a workload's `Type/namespace/name`; empty for all workloads of the plan."""
    uid: str = ""
    """Uid of the target as planned: the effect is refused when it is another object by now."""
    pods: tuple[str, ...] = ()
    """Uids of the pods concerned (victims of a surge, pods to evict), sorted."""
    nodes: tuple[str, ...] = ()
    """Names of the nodes concerned (where new pods are to go)."""
    offer: str = ""
    replicas_from: int = 0
    replicas_to: int = 0
    """Of `roll`, more than `replicas_from` where quotas admit fewer pods beside the wanted ones than the owner does."""
    requests: Amounts = EMPTY
    """New requests per pod, for `roll` and `resize`."""


class StepStarted(Body, frozen=True, kw_only=True):
    """The effect is about to be tried. `fencing` is the lease revision of the acting process."""

    TYPE: ClassVar[str] = "step-started.v1"
    FAMILY: ClassVar[str] = "exec"

    plan: str
    step: Step
    fencing: int
    deadline: datetime
    attempt: int = 1


class StepSucceeded(Body, frozen=True, kw_only=True):
    """The effect was made, or found made."""

    TYPE: ClassVar[str] = "step-succeeded.v1"
    FAMILY: ClassVar[str] = "exec"

    plan: str
    step: str
    fencing: int
    outcome: str
    """`done`, `adopted` (found made), or `void` (no longer needed)."""
    figures: Figures = EMPTY
    """`node`, of a boot: the name under which the machine registers, where it is not the planned one. `replicas`, of a
    restore: how many its workload asks for after it, as before or as set by another client."""


SKIPPED: Final = "skip/"
"""Beginning of the step of a `step-failed` that leaves a workload alone; the workload's key follows."""
UNFIT: Final = "unfit/"
"""The same of one that gives a booted node back; the node's name follows."""


class StepFailed(Body, frozen=True, kw_only=True):
    """The effect was not made. `retry` states whether it will be tried again.

    Steps that begin with `skip/`, `keep/` and `unfit/` are verdicts: the workload is not moved any further, the node
    not deleted, the booted node given back.
    `abort` ends the plan by a rollback; `replan` ends it after the moves under way, and what remains is planned again.
    """

    TYPE: ClassVar[str] = "step-failed.v1"
    FAMILY: ClassVar[str] = "exec"

    plan: str
    step: str
    fencing: int
    reason: str
    detail: str
    retry: bool
    figures: Figures = EMPTY
    """`offer`, of a boot or of a booted node that is given back: what was asked for."""


class ExecutionCompleted(Body, frozen=True, kw_only=True):
    """The plan is executed, but for what `figures` counts as kept or skipped; no mark of Kinema is left."""

    TYPE: ClassVar[str] = "execution-completed.v1"
    FAMILY: ClassVar[str] = "exec"

    plan: str
    fencing: int
    figures: Figures = EMPTY
    """Moves by strategy, placement misses, nodes booted, deleted and kept, most nodes closed at a time, workloads
    skipped, USD per hour saved."""
    replan: str = ""
    """Why what remains is to be planned again at once; empty where the plan was executed to its end."""


class ExecutionAborted(Body, frozen=True, kw_only=True):
    """The plan was aborted and rolled back. `leftovers` names what could not be taken back."""

    TYPE: ClassVar[str] = "execution-aborted.v1"
    FAMILY: ClassVar[str] = "exec"

    plan: str
    fencing: int
    reason: str
    detail: str
    leftovers: tuple[str, ...] = ()
    figures: Figures = EMPTY


def is_unfinished(end: ExecutionCompleted | ExecutionAborted) -> bool:
    """Return whether what remains of a plan is to be planned again at once, now that its execution has ended so."""
    return bool(end.replan) if isinstance(end, ExecutionCompleted) else end.reason == POD_WAITS


def saved_nothing(end: ExecutionCompleted | ExecutionAborted) -> bool:
    """Return whether the cluster costs no less than before; if its cost was unknown, whether no node was deleted."""
    saved = end.figures.get("saved_usd_per_hour", end.figures.get("deleted", 0))
    return not isinstance(saved, int | float) or saved <= 0


POD_WAITS: Final = "pod-waits"
"""Why a plan makes way for a pod that its closed nodes keep waiting; its rest is planned with that pod in place."""


class RestatedEvent(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """An event of LOG as it was stored."""

    sequence: int
    data: bytes
    """The event as JSON, compressed with zstd."""


class EventsRestated(Body, frozen=True, kw_only=True):
    """Events that are still in force, stated again before LOG, which drops its oldest events, drops them.

    A pause, the catalog, settings, a plan that waits for approval, and what was done of a plan that has not ended. A
    reader of LOG sees each of them at its sequence, as long as it is in the newest restatement or in LOG itself.
    """

    TYPE: ClassVar[str] = "events-restated.v1"
    FAMILY: ClassVar[str] = "exec"

    events: tuple[RestatedEvent, ...]
    """In the order of their sequences."""


# --- control: what the operator asks for


class ExecutionPaused(Body, frozen=True, kw_only=True):
    """The operator wants no new plan to be executed."""

    TYPE: ClassVar[str] = "execution-paused.v1"
    FAMILY: ClassVar[str] = "control"

    by: str
    reason: str = ""


class ExecutionResumed(Body, frozen=True, kw_only=True):
    """The operator ends the pause."""

    TYPE: ClassVar[str] = "execution-resumed.v1"
    FAMILY: ClassVar[str] = "control"

    by: str


class PlanApproved(Body, frozen=True, kw_only=True):
    """The operator approves a held plan."""

    TYPE: ClassVar[str] = "plan-approved.v1"
    FAMILY: ClassVar[str] = "control"

    plan: str
    by: str


class AbortRequested(Body, frozen=True, kw_only=True):
    """The operator wants the running plan to be aborted and rolled back."""

    TYPE: ClassVar[str] = "abort-requested.v1"
    FAMILY: ClassVar[str] = "control"

    by: str
    reason: str = ""

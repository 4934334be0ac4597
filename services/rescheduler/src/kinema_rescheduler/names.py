"""The marks that an execution leaves on a cluster while it runs, and the ids of its steps."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from kinema_core.events import SKIPPED, UNFIT
from kinema_core.model import vocabulary

DISRUPTED: Final = "kinema.io/disrupted"
"""Label and NoSchedule taint of nodes that are to go; its value is the iteration."""
PLAN: Final = "kinema.io/plan"
"""Annotation of each object that Kinema marks: id of the plan's proposal."""
FENCING: Final = "kinema.io/fencing"
"""Annotation beside it: lease revision of the process that set the mark; who has a lower one writes nothing there."""
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' own annotation: of equally ready pods, the cheapest are deleted first."""
COST_BEFORE: Final = "kinema.io/pod-deletion-cost-before"
"""Deletion cost of a pod before Kinema set one; empty when it had none."""
CHEAPEST: Final = "-2147483647"
"""Nearly the least deletion cost that Kubernetes takes (it is a 32-bit integer)."""
FLOOR_BEFORE: Final = "kinema.io/replicas-limits-before"
"""Annotation of an autoscaler during a surge: its own limits, as JSON."""
ROLLED: Final = vocabulary.ROLLED
"""Annotation of a workload under a rolling update by Kinema: what its template and strategy were before, as JSON."""
ROLLED_BY: Final = "kinema.io/rolled-by"
"""Annotation of a template under a rolling update by Kinema, and of the pods made by it: id of the plan's proposal."""
RESIZING: Final = "kinema.io/resizing"
"""Annotation of a Deployment that Kinema has paused while its template follows its resized pods: id of the plan's
proposal, with `/template` once the template is the new one."""
CLAIMED: Final = "claimed"
"""Why nothing was written: another Kinema acts on the cluster."""
STEERING_NAMESPACE: Final = "kube-system"
STEERING_NAME: Final = "kinema-steering"
"""The ConfigMap that the admission policy reads: by `steering_key`, names of the nodes that new pods prefer."""
LANDING_NAME: Final = "kinema-landing"
"""The ConfigMap that the policy on bindings reads: by names of pods, the nodes that they may be bound to for now."""
ANYWHERE: Final = "*"
"""Stands for every node in it."""
RENEWED: Final = "renewed"
"""When it was renewed, on the API server's clock."""
LANDING_SECONDS: Final = 5
"""Seconds on the API server's clock after which the policy ignores a ConfigMap that was not renewed."""

_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")

CORDONED: Final = "cordoned"
"""Figure of a mark's outcome: 1 where the node was cordoned by then, else 0."""
NODE: Final = "node"
"""Figure of a boot's outcome: the name under which the machine registers, where it is not the planned one."""


def label_value(iteration: str) -> str:
    """Return the iteration as a label value: itself where Kubernetes takes it, else a hash of it."""
    if _LABEL.fullmatch(iteration):
        return iteration
    return "i-" + sha256(iteration.encode()).hexdigest()[:16]


def steering_key(target: str, uid: str) -> str:
    """Return the key of a workload in the steering ConfigMap.

    A Deployment goes by its name: a rolling update creates the controller of its new pods only when they come. Every
    other controller goes by its uid.
    """
    return target.replace("/", ".") if target.startswith("Deployment/") else uid


GENERATED: Final = 5
"""Characters that Kubernetes adds to the beginning of a generated name."""
GENERATED_FROM: Final = 58
"""Characters to which it cuts that beginning."""


def landing_key(namespace: str, name: str, generate_name: str) -> str:
    """Return the key of pods in the landing ConfigMap: of all that are named alike, or of one with a fixed name.

    The policy sees names only.
    """
    return f"{namespace}.{generate_name[:GENERATED_FROM] or name}"


def taint_id(node: str) -> str:
    """Step that labels and taints a node as one to go."""
    return f"taint/{node}"


def untaint_id(node: str) -> str:
    """Step that takes label and taint off a node."""
    return f"untaint/{node}"


def unit_id(kind: str, workload: str, number: int) -> str:
    """Step of the `number`th move of a workload, from 1."""
    return f"{kind}/{workload}/{number}"


ABORT: Final = "abort"
"""Verdict: the plan is aborted."""


REPLAN: Final = "replan"
"""Verdict: the plan ends after the moves under way, and what remains is planned again."""


NEVER_READY: Final = "pods-never-ready"
"""Why a workload is left alone whose new pods are not Ready in time."""


ROLL_STUCK: Final = "roll-stuck"
"""Why a workload is left alone whose rolling update gets no further: the rest of a plan is planned without it."""


def skip_id(workload: str) -> str:
    """Verdict: this workload is not moved any further."""
    return f"{SKIPPED}{workload}"


def keep_id(node: str) -> str:
    """Verdict: this node is not deleted."""
    return f"keep/{node}"


def unfit_id(node: str) -> str:
    """Verdict: this booted node is no use to the plan."""
    return f"{UNFIT}{node}"


def is_verdict(step_id: str) -> bool:
    """Return whether a `step-failed` is a decision of the rescheduler, not the outcome of an effect."""
    return step_id in {ABORT, REPLAN} or step_id.startswith((SKIPPED, "keep/", UNFIT))

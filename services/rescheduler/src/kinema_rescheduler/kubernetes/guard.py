"""Admission policy that bounds what the rescheduler's account writes, whatever its roles allow. Data, pure.

RBAC grants verbs on whole objects: a right to patch Deployments for their requests is a right to any image. The policy
(no webhook, fails closed, for this account alone) refuses what the rescheduler never does. A person or a chart installs
it; no service has a right to change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kinema_kubernetes.objects import Json
from kinema_rescheduler.kubernetes.rights import OF_PROVIDER, RULES
from kinema_rescheduler.kubernetes.rollout import BOUNDS_BEFORE
from kinema_rescheduler.names import (
    COST_BEFORE,
    DELETION_COST,
    DISRUPTED,
    FENCING,
    FLOOR_BEFORE,
    PLAN,
    RESIZING,
    ROLLED,
    ROLLED_BY,
    STEERING_NAMESPACE,
)
from kinema_rescheduler.providers.cluster_api import DELETE_MACHINE, ORDERS
from kinema_rescheduler.providers.kwok import FAKE

NAME: Final = "kinema-guard"
_GROUP: Final = "admissionregistration.k8s.io/v1"

_ANNOTATIONS: Final = {
    "nodes": (PLAN, FENCING),
    "pods": (DELETION_COST, COST_BEFORE, PLAN, FENCING),
    "deployments": (ROLLED, RESIZING, PLAN, FENCING),
    "replicasets": (ROLLED, RESIZING, PLAN, FENCING),
    "horizontalpodautoscalers": (FLOOR_BEFORE, PLAN, FENCING),
    "machinedeployments": (ORDERS,),
    "machines": (DELETE_MACHINE,),
}
_LABELS: Final = {"nodes": (DISRUPTED,), "deployments": (BOUNDS_BEFORE,)}
_SPEC: Final = {
    "nodes": ("taints",),
    "deployments": ("strategy", "template", "paused"),
    "replicasets": ("template",),
    "horizontalpodautoscalers": ("minReplicas", "maxReplicas"),
    "machinedeployments": ("replicas",),
}
"""Fields that the rescheduler changes, by resource; all others stay."""
_OBJECT_FIELDS: Final = ("annotations", "labels", "managedFields", "resourceVersion", "generation")


def _names(resource: str) -> tuple[str, ...]:
    """Return the names of all objects of Kinema's own of a resource."""
    rules = (*RULES, *(rule for of in OF_PROVIDER.values() for rule in of))
    return tuple(sorted({name for rule in rules if resource in rule.resources for name in rule.names}))


def _list(values: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def _map(values: Mapping[str, tuple[str, ...]]) -> str:
    return "{" + ", ".join(f"'{key}': {_list(values.get(key, ()))}" for key in _ANNOTATIONS) + "}"


def _field(of: str, name: str, default: str = "{}") -> str:
    """Return an expression for a field that may be missing."""
    return f"('{name}' in {of} ? {of}.{name} : {default})"


def _same(new: str, old: str, but: str) -> str:
    """Return an expression: two maps are equal but for the keys in `but`, the text of a list."""
    kept = f"{new}.all(k, k in {but} || (k in {old} && {new}[k] == {old}[k]))"
    return f"({kept} && {old}.all(k, k in {but} || k in {new}))"


def _containers(spec: str) -> str:
    """Return an expression: of the containers of a pod's specification only requests of CPU and memory differ."""
    new, old = f"object.{spec}.containers", f"oldObject.{spec}.containers"
    resources = (_field("c", "resources"), _field("o", "resources"))
    requests = (_field(resources[0], "requests"), _field(resources[1], "requests"))
    same = f"o.name == c.name && {_same('c', 'o', _list(['resources']))}"
    bounded = f"{_same(*resources, _list(['requests']))} && {_same(*requests, _list(['cpu', 'memory']))}"
    return f"{new}.size() == {old}.size() && {new}.all(c, {old}.exists(o, {same} && {bounded}))"


_VARIABLES: Final = {
    "part": "has(request.subResource) ? request.subResource : ''",
    "kind": "request.resource.resource + (variables.part == '' ? '' : '/' + variables.part)",
    "updates": "request.operation == 'UPDATE' && variables.part == ''",
    "name": "request.operation == 'DELETE' ? request.name : object.metadata.name",
    "annotations": _field("object.metadata", "annotations"),
    "before": _field("oldObject.metadata", "annotations"),
    "labels": _field("object.metadata", "labels"),
    "labelsBefore": _field("oldObject.metadata", "labels"),
    "taints": _field("object.spec", "taints", "[]"),
    "taintsBefore": _field("oldObject.spec", "taints", "[]"),
    "replicas": _field("object.spec", "replicas", "0"),
    "replicasBefore": _field("oldObject.spec", "replicas", "0"),
    "template": _field("object.spec.template", "metadata"),
    "templateBefore": _field("oldObject.spec.template", "metadata"),
    "marks": _field("variables.template", "annotations"),
    "marksBefore": _field("variables.templateBefore", "annotations"),
    "conditions": _field("oldObject.status", "conditions", "[]"),
    "options": _field("object", "deleteOptions"),
}

_UPDATED: Final = f"!variables.updates || !(variables.kind in {_list(_ANNOTATIONS)})"
_CREATED: Final = ("nodes", "pods/eviction", "configmaps", "leases")
_IS: Final = "variables.kind != '{}'"
_TEMPLATES: Final = f"!(variables.kind in {_list(('deployments', 'replicasets'))})"
_CONTROLLERS: Final = "!(variables.kind.endsWith('/scale'))"
_OWN: Final = {"configmaps": _names("configmaps"), "leases": _names("leases")}
_FOREIGN_TAINTS: Final = f".filter(t, t.key != '{DISRUPTED}')"

VALIDATIONS: Final = (
    (
        f"request.operation == 'UPDATE' || variables.kind in {_list(_CREATED)}",
        "it creates or deletes an object that Kinema only changes",
    ),
    (
        f"{_UPDATED} || {_same('object.metadata', 'oldObject.metadata', _list(_OBJECT_FIELDS))}",
        "it changes owners, finalizers or names of an object",
    ),
    (
        f"{_UPDATED} || {_same('variables.annotations', 'variables.before', _map(_ANNOTATIONS) + '[variables.kind]')}",
        "it changes an annotation that Kinema does not set",
    ),
    (
        f"{_UPDATED} || {_same('variables.labels', 'variables.labelsBefore', _map(_LABELS) + '[variables.kind]')}",
        "it changes a label that Kinema does not set",
    ),
    (
        f"{_UPDATED} || {_same('object.spec', 'oldObject.spec', _map(_SPEC) + '[variables.kind]')}",
        "it changes a field of the specification that Kinema does not set",
    ),
    (
        f"{_IS.format('nodes')} || !variables.updates || "
        f"(variables.taints{_FOREIGN_TAINTS} == variables.taintsBefore{_FOREIGN_TAINTS} && "
        f"variables.taints.all(t, t.key != '{DISRUPTED}' || t.effect == 'NoSchedule'))",
        "it changes a taint of a node that Kinema does not set",
    ),
    (
        f"{_IS.format('nodes')} || request.operation != 'CREATE' || '{FAKE}' in variables.annotations",
        "it creates a node that is not one of KWOK",
    ),
    (
        f"{_IS.format('nodes')} || request.operation != 'DELETE' || '{DISRUPTED}' in variables.labelsBefore || "
        "!variables.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
        "it deletes a Ready node that no plan has marked",
    ),
    (
        f"{_IS.format('deployments')} || !variables.updates || "
        "object.spec.strategy.type == oldObject.spec.strategy.type",
        "it changes the type of a rollout",
    ),
    (
        f"{_TEMPLATES} || !variables.updates || "
        f"({_same('object.spec.template', 'oldObject.spec.template', _list(['metadata', 'spec']))} && "
        f"{_same('variables.template', 'variables.templateBefore', _list(['annotations']))} && "
        f"{_same('variables.marks', 'variables.marksBefore', _list([ROLLED_BY]))} && "
        f"{_same('object.spec.template.spec', 'oldObject.spec.template.spec', _list(['containers']))})",
        "it changes a pod template beyond the requests of its containers",
    ),
    (
        f"{_TEMPLATES} || !variables.updates || ({_containers('spec.template.spec')})",
        "it changes containers beyond their requests of CPU and memory",
    ),
    (
        f"{_IS.format('pods/resize')} || ({_containers('spec')})",
        "it resizes containers beyond their requests of CPU and memory",
    ),
    (
        f"{_IS.format('horizontalpodautoscalers')} || !variables.updates || "
        "object.spec.maxReplicas <= 2 * oldObject.spec.maxReplicas",
        "it more than doubles the limit of an autoscaler",
    ),
    (
        f"{_IS.format('machinedeployments')} || !variables.updates || "
        "(variables.replicas <= variables.replicasBefore + 1 && variables.replicas + 1 >= variables.replicasBefore)",
        "it scales a MachineDeployment by more than one Machine",
    ),
    (
        f"{_CONTROLLERS} || (variables.replicas >= 1 && variables.replicas <= 2 * variables.replicasBefore && "
        "2 * variables.replicas >= variables.replicasBefore)",
        "it scales to none, to more than twice as many or to less than half as many",
    ),
    (
        f"{_IS.format('pods/eviction')} || (!('gracePeriodSeconds' in variables.options) && "
        "'preconditions' in variables.options && 'uid' in variables.options.preconditions)",
        "it evicts without the pod's uid, or with a grace period of its own",
    ),
    (
        f"{_IS.format('pods/status')} || ("
        f"{_same('object.metadata', 'oldObject.metadata', _list(['managedFields', 'resourceVersion']))} && "
        f"{_same('object.status', 'oldObject.status', _list(['nominatedNodeName']))})",
        "it changes a pod's status beyond its nominated node",
    ),
    *(
        (
            f"{_IS.format(resource)} || (request.namespace == '{STEERING_NAMESPACE}' && "
            f"variables.name in {_list(names)})",
            f"it writes {resource} that do not belong to Kinema",
        )
        for resource, names in _OWN.items()
    ),
)
"""Conditions of a write, and what a write does that breaks it."""

_WRITES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "",
        ("nodes", "pods", "pods/eviction", "pods/status", "pods/resize", "replicationcontrollers/scale", "configmaps"),
    ),
    ("apps", ("deployments", "replicasets", "deployments/scale", "replicasets/scale")),
    ("autoscaling", ("horizontalpodautoscalers",)),
    ("coordination.k8s.io", ("leases",)),
    ("cluster.x-k8s.io", ("machinedeployments", "machines")),
)


def guard(user: str, name: str = NAME) -> list[Json]:
    """Return the policy for a user (`system:serviceaccount:NAMESPACE:NAME`), and the binding that enforces it."""
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": list(resources),
        }
        for group, resources in _WRITES
    ]
    policy = {
        "apiVersion": _GROUP,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [{"name": "rescheduler", "expression": f"request.userInfo.username == '{user}'"}],
            "variables": [{"name": name, "expression": text} for name, text in _VARIABLES.items()],
            "validations": [
                {"expression": text, "message": f"Kinema's rescheduler does not do this: {what}", "reason": "Forbidden"}
                for text, what in VALIDATIONS
            ],
        },
    }
    binding = {
        "apiVersion": _GROUP,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return [policy, binding]

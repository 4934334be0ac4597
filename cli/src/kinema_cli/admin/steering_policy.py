"""The admission policies that lead new pods to the planned nodes (no webhook, they fail open).

One gives new pods a preference; its parameter is the ConfigMap in which the rescheduler lists, by workload, the nodes
that new pods prefer. The other refuses to bind pods elsewhere, for seconds; its parameter is the ConfigMap in which the
rescheduler lists, by the names of pods, where they may be bound. While these are empty or missing, no pod is changed
and none refused. A setup step installs the policies; the rescheduler has no right to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kinema_kubernetes.client import APPLY, Client
from kinema_kubernetes.errors import NotFoundError
from kinema_kubernetes.objects import Json, uid
from kinema_kubernetes.rights import Rule
from kinema_rescheduler.names import (
    ANYWHERE,
    DISRUPTED,
    LANDING_NAME,
    LANDING_SECONDS,
    RENEWED,
    STEERING_NAME,
    STEERING_NAMESPACE,
)

UNSERVED: Final = (
    "this Kubernetes has no admission policies (1.30 has one that serves, 1.36 both); kube-scheduler places pods "
    "without regard to the plan"
)
Found = Literal["installed", "removed", "absent"]

GROUP: Final = "admissionregistration.k8s.io"
_VERSIONS: Final = ("v1", "v1beta1")
"""`v1` from Kubernetes 1.36 on; `v1beta1` on 1.34 and 1.35 where it is enabled."""
POLICIES: Final = "mutatingadmissionpolicies"
BINDINGS: Final = "mutatingadmissionpolicybindings"
VALIDATING: Final = "validatingadmissionpolicies"
VALIDATING_BINDINGS: Final = "validatingadmissionpolicybindings"
"""`v1` from Kubernetes 1.30 on."""

RULES: Final = (
    Rule(
        purpose="installs the placement policy",
        group=GROUP,
        resources=(POLICIES, BINDINGS),
        verbs=("get", "patch"),
        names=(STEERING_NAME,),
    ),
    Rule(
        purpose="installs the placement policy on bindings",
        group=GROUP,
        resources=(VALIDATING, VALIDATING_BINDINGS),
        verbs=("get", "patch"),
        names=(LANDING_NAME,),
    ),
    Rule(
        purpose="installs the placement policy",
        group=GROUP,
        resources=(POLICIES, BINDINGS, VALIDATING, VALIDATING_BINDINGS),
        verbs=("create",),
    ),
    Rule(
        purpose="names ConfigMaps as the policy's parameter: the API server asks for this right on all of them",
        resources=("configmaps",),
        verbs=("get",),
    ),
)
"""Rights that the installation takes; no service has them."""

_CONTROLLED: Final = (
    "has(params.data) && has(object.metadata.ownerReferences) && "
    "object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller)"
)
_VARIABLES: Final = {
    "controller": "object.metadata.ownerReferences.filter(o, has(o.controller) && o.controller)[0]",
    # A ReplicaSet of a Deployment is named `<deployment>-<pod-template-hash>`.
    "suffix": (
        "has(object.metadata.labels) && 'pod-template-hash' in object.metadata.labels "
        "? '-' + object.metadata.labels['pod-template-hash'] : ''"
    ),
    "key": (
        "variables.suffix != '' && variables.controller.kind == 'ReplicaSet' "
        "&& variables.controller.name.endsWith(variables.suffix) "
        "? 'Deployment.' + request.namespace + '.' + variables.controller.name.substring("
        "0, variables.controller.name.size() - variables.suffix.size()) "
        ": variables.controller.uid"
    ),
    "nodes": (
        "(variables.key in params.data ? params.data[variables.key] : '').split(',').filter(n, n != '')"
        ".map(n, n)"  # a list that was split keeps a type that no patch takes
    ),
}
_TERMS: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_TYPE: Final = f"Object.spec.affinity.nodeAffinity.{_TERMS}"
_HAS_AFFINITY: Final = "has(object.spec.affinity)"
_HAS_NODE: Final = f"{_HAS_AFFINITY} && has(object.spec.affinity.nodeAffinity)"
_HAS_TERMS: Final = f"{_HAS_NODE} && has(object.spec.affinity.nodeAffinity.{_TERMS})"
# A node is named by its field: the label `kubernetes.io/hostname` may have another value. A field has one value a term.
# The observer knows Kinema's terms by the label `kinema.io/disrupted` in them.
# One branch for each level that may be missing. A patch by `ApplyConfiguration` would have to own the list as a whole.
_PATCH: Final = f"""
variables.nodes.size() == 0 ? [] :
({_HAS_AFFINITY} ? [] : [JSONPatch{{op: "add", path: "/spec/affinity", value: Object.spec.affinity{{}}}}]) +
({_HAS_NODE} ? [] : [
  JSONPatch{{op: "add", path: "/spec/affinity/nodeAffinity", value: Object.spec.affinity.nodeAffinity{{}}}}
]) +
({_HAS_TERMS} ? [] : [JSONPatch{{op: "add", path: "/spec/affinity/nodeAffinity/{_TERMS}", value: []}}]) +
variables.nodes.map(n, JSONPatch{{
  op: "add",
  path: "/spec/affinity/nodeAffinity/{_TERMS}/-",
  value: {_TYPE}{{
    weight: 100,
    preference: {_TYPE}.preference{{
      matchFields: [
        {_TYPE}.preference.matchFields{{key: "metadata.name", operator: "In", values: [n]}}
      ],
      matchExpressions: [
        {_TYPE}.preference.matchExpressions{{key: "{DISRUPTED}", operator: "DoesNotExist"}}
      ]
    }}
  }}
}})
""".strip()


def policy(version: str) -> Json:
    """Return the policy itself."""
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": STEERING_NAME},
        "spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "matchConditions": [{"name": "controlled", "expression": _CONTROLLED}],
            "variables": [{"name": name, "expression": text} for name, text in _VARIABLES.items()],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": _PATCH}}],
        },
    }


def binding(version: str) -> Json:
    """Return the binding that puts the policy into force, everywhere."""
    reference = {"name": STEERING_NAME, "namespace": STEERING_NAMESPACE, "parameterNotFoundAction": "Allow"}
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": STEERING_NAME},
        "spec": {"policyName": STEERING_NAME, "paramRef": reference},
    }


_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of the names and hashes that Kubernetes generates."""
_LANDINGS: Final = {
    "data": "params.data",
    "pod": "object.metadata.name",
    # Kubernetes adds five characters to the beginning of the name that a controller gives its pods.
    "set": "variables.pod.size() > 5 ? variables.pod.substring(0, variables.pod.size() - 5) : ''",
    # Pods of a Deployment are named by its ReplicaSet, `<deployment>-<hash>-`.
    "deployment": (
        f"variables.set.matches('-[{_SAFE}]{{6,10}}-$') "
        "? variables.set.substring(0, variables.set.substring(0, variables.set.size() - 1).lastIndexOf('-')) : ''"
    ),
    "keys": (
        "[request.namespace + '.' + variables.pod, request.namespace + '.' + variables.set, "
        "'Deployment.' + request.namespace + '.' + variables.deployment].filter(k, k in variables.data)"
    ),
    "nodes": f"variables.keys.size() > 0 ? variables.data[variables.keys[0]] : '{ANYWHERE}'",
}
# A binding is stamped before it is admitted, by the API server's clock, on which the ConfigMap is renewed, too. A
# renewal that lies far ahead of it (another API server's clock, or a mistake) means nothing.
_STAMP: Final = "timestamp(object.metadata.managedFields[0].time)"
_RENEWED: Final = (
    f"has(params.data) && '{RENEWED}' in params.data && "
    f"{_STAMP} - timestamp(params.data.{RENEWED}) < duration('{LANDING_SECONDS}s') && "
    f"timestamp(params.data.{RENEWED}) - {_STAMP} < duration('{LANDING_SECONDS}s')"
)


def landing_policy() -> Json:
    """Return the policy on bindings."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": LANDING_NAME},
        "spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "failurePolicy": "Ignore",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
                ]
            },
            "matchConditions": [{"name": "renewed", "expression": _RENEWED}],
            "variables": [{"name": name, "expression": text} for name, text in _LANDINGS.items()],
            "validations": [
                {
                    "expression": (
                        f"variables.nodes == '{ANYWHERE}' || object.target.name in variables.nodes.split(',')"
                    ),
                    "messageExpression": (
                        "'Kinema moves this pod to ' + variables.nodes + ' and keeps it from ' + object.target.name + "
                        "' for a few seconds'"
                    ),
                    "reason": "Forbidden",
                }
            ],
        },
    }


def landing_binding() -> Json:
    """Return the binding that puts the policy on bindings into force, everywhere."""
    reference = {"name": LANDING_NAME, "namespace": STEERING_NAMESPACE, "parameterNotFoundAction": "Allow"}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": LANDING_NAME},
        "spec": {"policyName": LANDING_NAME, "paramRef": reference, "validationActions": ["Deny"]},
    }


@dataclass(frozen=True)
class Part:
    """One object of the placement policy."""

    plural: str
    body: Json

    @property
    def path(self) -> str:
        """Path of the object."""
        return f"/apis/{self.body['apiVersion']}/{self.plural}/{self.body['metadata']['name']}"

    def __str__(self) -> str:
        return f"{self.body['kind']} {self.body['metadata']['name']}"


async def parts(api: Client) -> tuple[Part, ...]:
    """Return the objects of the placement policy that the API server can have; none on an old one.

    Raises:
        KubernetesError: the server cannot be reached.
    """
    version, found = await version_served(api), []
    if version is not None:
        found += [Part(POLICIES, policy(version)), Part(BINDINGS, binding(version))]
    if VALIDATING in await api.served(f"/apis/{GROUP}/v1"):
        found += [Part(VALIDATING, landing_policy()), Part(VALIDATING_BINDINGS, landing_binding())]
    return tuple(found)


async def install(api: Client) -> Found:
    """Put the policies into force; `absent` where the API server knows no such policies.

    Raises:
        KubernetesError: it was refused, or the server cannot be reached.
    """
    found = await parts(api)
    for part in found:
        await api.patch(part.path, part.body, APPLY)
    return "installed" if found else "absent"


async def is_installed(api: Client) -> bool:
    """Return whether the server has the whole placement policy. Raises KubernetesError as `install`."""
    try:
        for part in await parts(api):
            await api.get(part.path)
    except NotFoundError:
        return False
    return True


async def remove(api: Client) -> Found:
    """Take the policies away; `absent` where there are none. Raises KubernetesError as `install`."""
    found: Found = "absent"
    for part in reversed(await parts(api)):
        try:
            await api.delete(part.path, uid(await api.get(part.path)))
            found = "removed"
        except NotFoundError:
            continue
    return found


async def version_served(api: Client) -> str | None:
    """Return the version in which the server has policies that change objects."""
    for version in _VERSIONS:
        if POLICIES in await api.served(f"/apis/{GROUP}/{version}"):
            return version
    return None

"""The admission policy that gives new pods a preference for the planned nodes (no webhook, fails open).

Its parameter is the ConfigMap in which the rescheduler lists, by workload, the nodes that new pods prefer. While that
is empty or missing, the policy changes no pod. A setup step installs it; the rescheduler has no right to.
"""

from __future__ import annotations

from typing import Final, Literal

from kinema_kubernetes.client import APPLY, Client
from kinema_kubernetes.errors import NotFoundError, PermanentError
from kinema_kubernetes.objects import Json, uid
from kinema_kubernetes.rights import Rule
from kinema_rescheduler.names import DISRUPTED, STEERING_NAME, STEERING_NAMESPACE

Found = Literal["installed", "removed", "absent"]

GROUP: Final = "admissionregistration.k8s.io"
_VERSIONS: Final = ("v1", "v1beta1")
"""`v1` from Kubernetes 1.36 on; `v1beta1` on 1.34 and 1.35 where it is enabled."""
POLICIES: Final = "mutatingadmissionpolicies"
BINDINGS: Final = "mutatingadmissionpolicybindings"

RULES: Final = (
    Rule(
        purpose="installs the placement policy",
        group=GROUP,
        resources=(POLICIES, BINDINGS),
        verbs=("get", "patch"),
        names=(STEERING_NAME,),
    ),
    Rule(purpose="installs the placement policy", group=GROUP, resources=(POLICIES, BINDINGS), verbs=("create",)),
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


async def install(api: Client) -> Found:
    """Put the policy into force; `absent` where the API server knows no such policies.

    Raises:
        KubernetesError: it was refused, or the server cannot be reached.
    """
    version = await version_served(api)
    if version is None:
        return "absent"
    await api.patch(path_of(version, POLICIES), policy(version), APPLY)
    await api.patch(path_of(version, BINDINGS), binding(version), APPLY)
    return "installed"


async def was_in_use(api: Client) -> bool:
    """Return whether the policy is absent beside the ConfigMap of a Kinema that has steered: it was removed in between.

    Raises:
        KubernetesError: the server cannot be reached.
    """
    version = await version_served(api)
    config_map = f"/api/v1/namespaces/{STEERING_NAMESPACE}/configmaps/{STEERING_NAME}"
    return version is not None and not await _exists(api, path_of(version, POLICIES)) and await _exists(api, config_map)


async def _exists(api: Client, path: str) -> bool:
    """Return whether the server has such an object."""
    try:
        await api.get(path)
    except PermanentError:
        return False
    return True


async def remove(api: Client) -> Found:
    """Take the policy away; `absent` where there is none. Raises KubernetesError as `install`."""
    version = await version_served(api)
    found: Found = "absent"
    for plural in (BINDINGS, POLICIES) if version is not None else ():
        path = path_of(version or "", plural)
        try:
            await api.delete(path, uid(await api.get(path)))
            found = "removed"
        except NotFoundError:
            continue
    return found


def path_of(version: str, plural: str) -> str:
    """Return the path of the policy or of its binding."""
    return f"/apis/{GROUP}/{version}/{plural}/{STEERING_NAME}"


async def version_served(api: Client) -> str | None:
    """Return the version in which the server has such policies."""
    for version in _VERSIONS:
        if POLICIES in await api.served(f"/apis/{GROUP}/{version}"):
            return version
    return None

"""Rights of the rescheduler in a cluster: exactly the requests of its adapters, each with its purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kinema_kubernetes.claim import CLAIM_NAME
from kinema_kubernetes.rights import Rule
from kinema_rescheduler.names import LANDING_NAME, STEERING_NAME, STEERING_NAMESPACE
from kinema_rescheduler.providers.gke import LEDGER as GKE_LEDGER
from kinema_rescheduler.providers.kwok import LEDGER as KWOK_LEDGER
from kinema_rescheduler.providers.static.provider import LEDGER as STATIC_LEDGER

_UNSTEERED: Final = "new pods go where the scheduler puts them"
_UNLED: Final = "new pods that the scheduler binds to other nodes than the planned ones stay there"


def _kept(purpose: str, resource: str, *names: str, group: str = "", without: str = "") -> tuple[Rule, ...]:
    """Return the rights to create, read and change objects of Kinema's; RBAC cannot bind `create` to a name."""
    return tuple(
        Rule(
            purpose=purpose,
            group=group,
            resources=(resource,),
            verbs=verbs,
            names=bound,
            namespace=STEERING_NAMESPACE,
            without=without,
        )
        for verbs, bound in ((("get", "patch"), names), (("create",), ()))
    )


RULES: Final = (
    Rule(
        purpose="marks nodes that are to go, and removes the marks, also those of a Kinema that is gone",
        resources=("nodes",),
        verbs=("list", "get", "patch"),
    ),
    Rule(
        purpose="finds the pods of a workload or a node, and sets their deletion cost",
        resources=("pods",),
        verbs=("list", "get", "patch"),
    ),
    Rule(
        purpose="changes the requests of pods while they run",
        resources=("pods/resize",),
        verbs=("patch",),
        without="requests change by rolling updates only",
    ),
    Rule(purpose="evicts pods within disruption budgets", resources=("pods/eviction",), verbs=("create",)),
    Rule(
        purpose="reads workloads, and patches the template of a Deployment that rolls or was resized",
        group="apps",
        resources=("deployments",),
        verbs=("list", "get", "patch"),
    ),
    Rule(
        purpose="reads the sets whose pods it moves",
        group="apps",
        resources=("replicasets", "statefulsets"),
        verbs=("get",),
    ),
    Rule(
        purpose="ends rolls and resizes: removes the annotations that the controller copied, and changes requests",
        group="apps",
        resources=("replicasets",),
        verbs=("list", "patch"),
    ),
    Rule(purpose="reads the sets whose pods it moves", resources=("replicationcontrollers",), verbs=("get",)),
    Rule(
        purpose="scales for the time of a surge",
        group="apps",
        resources=("deployments/scale", "replicasets/scale"),
        verbs=("get", "patch"),
    ),
    Rule(
        purpose="scales for the time of a surge",
        resources=("replicationcontrollers/scale",),
        verbs=("get", "patch"),
    ),
    Rule(
        purpose="raises the limits of an autoscaler for the time of a surge",
        group="autoscaling",
        resources=("horizontalpodautoscalers",),
        verbs=("list", "get", "patch"),
        without="autoscalers may take a surge back, which is then tried again",
    ),
    Rule(
        purpose="waits until a node's volumes are detached before it is deleted",
        group="storage.k8s.io",
        resources=("volumeattachments",),
        verbs=("list",),
    ),
    Rule(
        purpose="distinguishes volumes of pods that go with their node from those to be detached first",
        resources=("persistentvolumeclaims",),
        verbs=("get",),
    ),
    *_kept(
        "states which nodes new pods prefer, and where they may be bound for now",
        "configmaps",
        STEERING_NAME,
        LANDING_NAME,
        without=_UNSTEERED,
    ),
    Rule(
        purpose="nominates new pods for their planned nodes",
        resources=("pods/status",),
        verbs=("patch",),
        without=_UNLED,
    ),
    *_kept("keeps two Kinemas from acting on one cluster", "leases", CLAIM_NAME, group="coordination.k8s.io"),
    Rule(
        purpose="reports on nodes, workloads and pending pods what Kinema does and why",
        group="events.k8s.io",
        resources=("events",),
        verbs=("create",),
        without="only the log reports it",
    ),
)
"""Rights that the rescheduler needs with every provider."""


def _ledger(name: str) -> tuple[Rule, ...]:
    return _kept("remembers which nodes were ordered", "configmaps", name)


OF_PROVIDER: Final[Mapping[str, tuple[Rule, ...]]] = {
    "sim": (),
    "kwok": (
        Rule(
            purpose="creates and deletes fake nodes",
            resources=("nodes",),
            verbs=("list", "create", "delete"),
        ),
        *_ledger(KWOK_LEDGER),
    ),
    "delegate": (Rule(purpose="sees which nodes there are", resources=("nodes",), verbs=("list",)),),
    "gke": (
        Rule(purpose="sees which machine types the cluster has", resources=("nodes",), verbs=("list",)),
        *_ledger(GKE_LEDGER),
    ),
    "karpenter": (
        Rule(
            purpose="orders and ends machines by Karpenter's NodeClaims",
            group="karpenter.sh",
            resources=("nodeclaims",),
            verbs=("get", "list", "create", "delete"),
        ),
        Rule(
            purpose="reads the NodePool's template, requirements and limits",
            group="karpenter.sh",
            resources=("nodepools",),
            verbs=("get",),
        ),
        Rule(purpose="sees which machine types the cluster has", resources=("nodes",), verbs=("list",)),
        Rule(
            purpose="reads why Karpenter could not launch a machine",
            resources=("events",),
            verbs=("list",),
            namespace="default",
        ),
    ),
    "cluster-api": (
        Rule(
            purpose="orders and ends machines by raising and lowering MachineDeployments",
            group="cluster.x-k8s.io",
            resources=("machinedeployments",),
            verbs=("get", "list", "patch"),
        ),
        Rule(
            purpose="finds the Machine of a node, and marks the one that goes",
            group="cluster.x-k8s.io",
            resources=("machines",),
            verbs=("get", "list", "patch"),
        ),
        Rule(purpose="sees which machine types the cluster has", resources=("nodes",), verbs=("list",)),
    ),
    "static": (
        Rule(purpose="deletes the node of a machine that is off", resources=("nodes",), verbs=("list", "delete")),
        *_ledger(STATIC_LEDGER),
    ),
}
"""What a provider of nodes needs beside, by its kind."""


def rules(provider: str) -> tuple[Rule, ...]:
    """All rules of a rescheduler with a provider of that kind; raises KeyError for an unknown one."""
    return (*RULES, *OF_PROVIDER[provider])

"""Rights of a service in a Kubernetes cluster: rules as data, and manifests made of them. Pure.

Each service that speaks to Kubernetes states its own rules (`kinema_<service>.rights`): exactly what its adapters ask
for. Manifests, `kinema doctor` and the tests read the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

Manifest: TypeAlias = dict[str, Any]

_GROUP: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"app.kubernetes.io/part-of": "kinema"}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a service does in a cluster, and the rights that it takes, as in a Role."""

    purpose: str
    """What it is for: "evicts pods within disruption budgets"."""
    group: str = ""
    resources: tuple[str, ...]
    """Plurals, with `/subresource` where only that is meant."""
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Only objects of these names; empty: all."""
    namespace: str = ""
    """Where; empty: in the whole cluster."""
    without: str = ""
    """What happens where the right is missing; empty: the service cannot do its work."""


class Right(NamedTuple):
    """One verb on one resource: what an API server is asked about."""

    verb: str
    group: str
    resource: str
    """With `/subresource`, if any."""
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}{name}{where}"


def rights_of(rule: Rule) -> Iterator[Right]:
    """Every single right of a rule, in the order in which it states them."""
    for resource in rule.resources:
        for verb in rule.verbs:
            for name in rule.names or ("",):
                yield Right(verb, rule.group, resource, rule.namespace, name)


def covers(rule: Rule, right: Right) -> bool:
    """Return whether a rule allows what is asked for; a rule for some names allows nothing about all."""
    return (
        right.group == rule.group
        and right.resource in rule.resources
        and right.verb in rule.verbs
        and rule.namespace in {"", right.namespace}
        and (not rule.names or right.name in rule.names)
    )


def account(service: str) -> str:
    """Name of a service's account, and of its roles and bindings."""
    return f"kinema-{service}"


def manifests(service: str, rules: Sequence[Rule], *, namespace: str) -> list[Manifest]:
    """Return a service account in `namespace` with exactly these rights: what `kubectl apply` takes."""
    name = account(service)
    made: list[Manifest] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(name, namespace)},
    ]
    for where in sorted({rule.namespace for rule in rules}):
        kind = "Role" if where else "ClusterRole"
        made += [
            {
                "apiVersion": f"{_GROUP}/v1",
                "kind": kind,
                "metadata": _metadata(name, where),
                "rules": [as_written(rule) for rule in rules if rule.namespace == where],
            },
            {
                "apiVersion": f"{_GROUP}/v1",
                "kind": f"{kind}Binding",
                "metadata": _metadata(name, where),
                "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            },
        ]
    return made


def as_written(rule: Rule) -> dict[str, list[str]]:
    """Return a rule as it stands in a Role."""
    written = {"apiGroups": [rule.group], "resources": list(rule.resources), "verbs": list(rule.verbs)}
    return {**written, "resourceNames": list(rule.names)} if rule.names else written


def _metadata(name: str, namespace: str) -> dict[str, Any]:
    return {"name": name, "labels": dict(_LABELS), **({"namespace": namespace} if namespace else {})}

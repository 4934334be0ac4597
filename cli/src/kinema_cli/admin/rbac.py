"""`kinema rbac`: service accounts and rights of the services, for `kubectl apply`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinema_cli.output import Format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from kinema_kubernetes.rights import Rule


KINDS = ("sim", "kwok", "delegate", "gke", "karpenter", "cluster-api", "static")
"""Kinds of node providers."""
DEFAULT = "delegate"
"""The kind without the option."""


def rbac(
    provider: Annotated[
        str, typer.Option("--provider", metavar="|".join(KINDS), help="Kind of node provider.")
    ] = DEFAULT,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of the services.")
    ] = "kinema",
    output: Annotated[
        Format, typer.Option("--output", "-o", metavar="FORMAT", help="yaml or json for kubectl, or a table.")
    ] = Format.YAML,
) -> None:
    """Print namespace, service accounts and exactly the rights that the services use, for `kubectl apply -f -`.

    An admission policy for the rescheduler's account refuses what it never writes, such as the image of a Deployment.
    """
    raise typer.Exit(run_rbac(provider=provider, namespace=namespace, output=output))


def rules_by_service(provider: str) -> Mapping[str, Sequence[Rule]]:
    """Return the rules of the services that use the Kubernetes API with a kind of provider."""
    from kinema_observer.rights import RULES
    from kinema_rescheduler.kubernetes.rights import rules

    return {"observer": RULES, "rescheduler": rules(provider)}


def run_rbac(*, provider: str, namespace: str, output: Format) -> int:
    """Print manifests or a table; 0, or 2 for an unknown provider."""
    from kinema_cli.output import print_error, print_value, show
    from kinema_kubernetes.rights import account, manifests
    from kinema_rescheduler.kubernetes.guard import guard

    if provider not in KINDS:
        print_error(f"--provider {provider!r} is none of: {', '.join(KINDS)}")
        return 2
    rules = rules_by_service(provider)
    if output is Format.TABLE:
        show(_table(rules))
        return 0
    items: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}]
    for service in rules:
        items += [_labeled(item, service) for item in manifests(service, rules[service], namespace=namespace)]
    user = f"system:serviceaccount:{namespace}:{account('rescheduler')}"
    items += [_labeled(item, "rescheduler") for item in guard(user, f"kinema-guard-{namespace}")]
    if output is Format.JSON:
        print_value({"apiVersion": "v1", "kind": "List", "items": items}, output)
        return 0
    for item in items:
        sys.stdout.write("---\n")
        print_value(item, output)
    return 0


def _labeled(item: Mapping[str, Any], service: str) -> dict[str, Any]:
    """Return the object with Kubernetes' recommended labels."""
    labels = {"app.kubernetes.io/name": f"kinema-{service}", "app.kubernetes.io/part-of": "kinema"}
    labels["app.kubernetes.io/managed-by"] = "kinema-rbac"
    return {**item, "metadata": {**item["metadata"], "labels": labels}}


def _table(rules: Mapping[str, Sequence[Rule]]) -> RenderableType:
    from kinema_cli.output import table

    rows = []
    for service, mine in rules.items():
        for rule in mine:
            resources = ", ".join(f"{name}.{rule.group}" if rule.group else name for name in rule.resources)
            named = f" {', '.join(rule.names)}" if rule.names else ""
            lost = rule.without or "nothing works"
            verbs, where = ", ".join(rule.verbs), rule.namespace or "cluster"
            rows.append((service, rule.purpose, verbs, resources + named, where, lost))
    return table("Rights in the cluster", ("service", "purpose", "verbs", "resources", "where", "without it"), rows)

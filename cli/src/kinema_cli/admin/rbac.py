"""`kinema rbac`: accounts and rights of the services in a cluster, for `kubectl apply`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kinema_cli.output import Format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinema_core.runtime.kubernetes_rights import Rule


KINDS = ("sim", "kwok", "delegate", "static")
"""Of providers of nodes."""
DEFAULT = "delegate"
"""The one that is taken where none is named."""


def rbac(
    provider: Annotated[
        str, typer.Option("--provider", metavar="|".join(KINDS), help="Who boots and deletes nodes.")
    ] = DEFAULT,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the services.")] = "kinema",
    output: Annotated[
        Format, typer.Option("--output", "-o", help="Manifests as yaml or json, or a table for people.")
    ] = Format.YAML,
) -> None:
    """Print service accounts with exactly the rights that the services use, for `kubectl apply -f -`."""
    raise typer.Exit(run_rbac(provider=provider, namespace=namespace, output=output))


def rules_by_service(provider: str) -> Mapping[str, Sequence[Rule]]:
    """The rules of the services that speak to Kubernetes, with a kind of provider; all others need no right there."""
    from kinema_observer.rights import RULES
    from kinema_rescheduler.kubernetes.rights import rules

    return {"observer": RULES, "rescheduler": rules(provider)}


def run_rbac(*, provider: str, namespace: str, output: Format) -> int:
    """Print manifests or a table; 0, or 2 for an unknown provider."""
    from kinema_cli.output import complain, console, printed
    from kinema_core.runtime.kubernetes_rights import manifests

    if provider not in KINDS:
        complain(f"--provider {provider!r} is none of: {', '.join(KINDS)}")
        return 2
    rules = rules_by_service(provider)
    if output is Format.TABLE:
        console().print(_table(rules))
        return 0
    items = [item for service in rules for item in manifests(service, rules[service], namespace=namespace)]
    printed({"apiVersion": "v1", "kind": "List", "items": items}, output)
    return 0


def _table(rules: Mapping[str, Sequence[Rule]]) -> object:
    from rich.table import Table

    table = Table(title="Rights in the cluster", title_justify="left")
    for heading in ("service", "what for", "verbs", "resources", "where", "without it"):
        table.add_column(heading, overflow="fold")
    for service, mine in rules.items():
        for rule in mine:
            resources = ", ".join(f"{name}.{rule.group}" if rule.group else name for name in rule.resources)
            named = f" {', '.join(rule.names)}" if rule.names else ""
            where = rule.namespace or "cluster"
            lost = rule.without or "nothing works"
            table.add_row(service, rule.purpose, ", ".join(rule.verbs), resources + named, where, lost)
    return table

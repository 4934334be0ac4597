"""Checks of prices and of who else acts on the nodes: what is on sale against what is there."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from kinema_cli.doctor.finding import Finding, shortened
from kinema_cli.output import counted
from kinema_core.events import Node
from kinema_core.model.catalog import CatalogError, PriceError, machine_type, node_prices, offers_from
from kinema_core.model.cluster import Cluster
from kinema_core.model.vocabulary import FOREIGN_DELETION_TAINTS
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.settings import RuntimeSettings
from kinema_rescheduler.errors import EffectError
from kinema_rescheduler.kubernetes.client import connect
from kinema_rescheduler.providers.base import Catalog
from kinema_rescheduler.providers.open import open_provider
from kinema_rescheduler.settings import Settings

OLD: Final = timedelta(days=30)
"""Age of prices from which on they are called old."""
_KARPENTER: Final = "karpenter.sh/"


async def prices(provider: dict[str, object], kubeconfig: str, cluster: Cluster, *, context: str = "") -> list[Finding]:
    """Whether the provider can be used, and whether its price list has every machine of the cluster.

    Args:
        provider: the rescheduler's setting.
        kubeconfig: of the cluster.
        cluster: its nodes; the rest is not looked at.
        context: in the kubeconfig; empty: the current one.
    """
    try:
        catalog = await _catalog(provider, kubeconfig, context)
        offers = offers_from(catalog.rows, cluster)
    except (EffectError, CatalogError, msgspec.ValidationError) as error:
        detail = getattr(error, "detail", str(error))
        return [Finding("provider", "fail", shortened(detail), "correct what --provider names")]
    now = SystemClock().now()
    found = [Finding("provider", "ok", f"{provider['kind']}: {counted(len(offers), 'offer')} from {catalog.source}")]
    try:
        node_prices(cluster, offers)
    except PriceError as error:
        found.append(Finding("prices", "fail", shortened(str(error)), f"complete {catalog.source}"))
    else:
        types = len({machine_type(node.labels) for node in cluster.nodes})
        said = f"known for each of {counted(len(cluster.nodes), 'node')} ({counted(types, 'machine type')})"
        found.append(Finding("prices", "ok", said))
    return [*found, _age(catalog, now, simulated=provider["kind"] == "sim")]


async def _catalog(provider: dict[str, object], kubeconfig: str, context: str) -> Catalog:
    raw: dict[str, Any] = {"runtime": RuntimeSettings(cluster="doctor"), "kubeconfig": kubeconfig, "provider": provider}
    settings = msgspec.convert(msgspec.to_builtins(raw), Settings)
    async with AsyncExitStack() as stack:
        api = await connect(kubeconfig, context=context, timeout_seconds=settings.request_seconds)
        stack.push_async_callback(api.close)
        return await (await open_provider(settings, api, clock=SystemClock(), stack=stack)).catalog()


def _age(catalog: Catalog, now: datetime, *, simulated: bool) -> Finding:
    """How old the prices are; those of a simulated cloud do not grow old."""
    if catalog.priced is None:
        do = "make sure yourself that its prices are those of today"
        return Finding("price date", "warn", f"{catalog.source} does not say from when its prices are", do)
    # Some providers tell a day only, without a zone; a few hours do not matter here.
    age = now - (catalog.priced if catalog.priced.tzinfo is not None else catalog.priced.replace(tzinfo=UTC))
    days, said = age.days, f"the prices are those of {catalog.priced:%Y-%m-%d}"
    if age > OLD and not simulated:
        do = "write today's prices into it, so that the cheapest plan is the cheapest today"
        return Finding("price date", "warn", f"{catalog.source}: {said}, {days} days ago", do)
    return Finding("price date", "ok", said)


def neighbours(nodes: Iterable[Node], provider: str) -> list[Finding]:
    """Other autoscalers that have left their marks on nodes; beside the provider `delegate` they are welcome."""
    marked: dict[str, list[str]] = {}
    for node in nodes:
        for who in _marks(node):
            marked.setdefault(who, []).append(node.name)
    if not marked:
        return [Finding("neighbours", "ok", "no node carries the marks of another autoscaler")]
    told = (
        f"{counted(len(names), 'node')} ({names[0]} …) with marks of {who}" for who, names in sorted(marked.items())
    )
    said = ", ".join(told)
    if provider == "delegate":
        return [Finding("neighbours", "ok", f"{said}, which boots and deletes for Kinema")]
    do = "let them boot and delete (--provider delegate=CATALOG), or keep them off the nodes that Kinema works on"
    return [Finding("neighbours", "warn", f"{said}: it and Kinema would both boot and delete nodes", do)]


def _marks(node: Node) -> set[str]:
    found = {"Karpenter" for key in (*node.labels, *node.annotations) if key.startswith(_KARPENTER)}
    found |= {"Karpenter" for taint in node.taints if taint.key.startswith(_KARPENTER)}
    ours = {taint.key for taint in node.taints} & {*FOREIGN_DELETION_TAINTS}
    return found | {"Cluster Autoscaler" for key in ours if key.endswith("ClusterAutoscaler")}

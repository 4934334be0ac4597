"""Checks of prices, and of other autoscalers of the nodes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from kinema_cli.doctor.checks import Finding, Level, shortened
from kinema_cli.inputs import OLD_PRICES
from kinema_cli.output import counted
from kinema_core.events import Node
from kinema_core.model.catalog import (
    CatalogError,
    machine_type,
    offers_from,
    unpriced_nodes,
    unpriced_remedy,
    unpriced_text,
)
from kinema_core.model.cluster import Cluster
from kinema_core.model.vocabulary import FOREIGN_DELETION_TAINTS
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.settings import RuntimeSettings
from kinema_rescheduler.errors import EffectError
from kinema_rescheduler.providers.base import Catalog
from kinema_rescheduler.providers.open import missing_rights, read_catalog
from kinema_rescheduler.settings import Settings

_KARPENTER: Final = "karpenter.sh/"


async def prices(provider: dict[str, object], kubeconfig: str, cluster: Cluster, *, context: str = "") -> list[Finding]:
    """Check that the provider can be used, and that its price list has every machine of the cluster.

    Args:
        provider: the rescheduler's setting.
        kubeconfig: of the cluster.
        cluster: its nodes; the rest is not looked at.
        context: in the kubeconfig; empty: the current one.
    """
    try:
        settings = _settings(provider, kubeconfig, context)
        lacking = await missing_rights(settings, SystemClock())
        if lacking:
            said = f"the provider's account lacks {', '.join(lacking)}"
            return [Finding("provider", "fail", said, "grant the role of docs/clouds/gke.md")]
        catalog = await read_catalog(settings, SystemClock())
        offers = offers_from(catalog.rows, cluster)
    except (EffectError, CatalogError, msgspec.ValidationError) as error:
        detail = getattr(error, "detail", str(error))
        return [Finding("provider", "fail", shortened(detail), "correct what --provider names")]
    now = SystemClock().now()
    found = [Finding("provider", "ok", f"{provider['kind']}: {counted(len(offers), 'offer')} from {catalog.source}")]
    unknown = unpriced_nodes(cluster, offers)
    if unknown:
        said = f"{unpriced_text(cluster, unknown)}; no plan deletes them"
        level: Level = "fail" if len(unknown) == len(cluster.nodes) else "warn"
        found.append(Finding("prices", level, shortened(said), unpriced_remedy(cluster, unknown, catalog.source)))
    else:
        types = len({machine_type(node.labels) for node in cluster.nodes})
        message = f"known for each of {counted(len(cluster.nodes), 'node')} ({counted(types, 'machine type')})"
        found.append(Finding("prices", "ok", message))
    return [*found, _age(catalog, now, simulated=provider["kind"] == "sim")]


def _settings(provider: dict[str, object], kubeconfig: str, context: str) -> Settings:
    raw: dict[str, Any] = {
        "runtime": RuntimeSettings(cluster="doctor"),
        "kubeconfig": kubeconfig,
        "context": context,
        "provider": provider,
    }
    return msgspec.convert(msgspec.to_builtins(raw), Settings)


def _age(catalog: Catalog, now: datetime, *, simulated: bool) -> Finding:
    """Check the age of the prices; those of a simulated cloud do not age."""
    if catalog.priced is None:
        remedy = "check that its prices are current"
        return Finding("price date", "warn", f"{catalog.source} has no price date", remedy)
    # Some providers give a day only, without a zone; a few hours do not matter here.
    age = now - (catalog.priced if catalog.priced.tzinfo is not None else catalog.priced.replace(tzinfo=UTC))
    days, message = age.days, f"prices of {catalog.priced:%Y-%m-%d}"
    if age > OLD_PRICES and not simulated:
        remedy = "update its prices"
        return Finding("price date", "warn", f"{catalog.source}: {message}, {days} days ago", remedy)
    return Finding("price date", "ok", message)


def other_autoscalers(nodes: Iterable[Node], provider: str) -> list[Finding]:
    """Report autoscalers whose labels, annotations or taints are on nodes; the provider `delegate` relies on them."""
    marked: dict[str, list[str]] = {}
    for node in nodes:
        for tool in _marks(node):
            marked.setdefault(tool, []).append(node.name)
    if not marked:
        return [Finding("other autoscalers", "ok", "no node has labels, annotations or taints of one")]
    groups = (
        f"{counted(len(names), 'node')} ({names[0]} …) managed by {tool}" for tool, names in sorted(marked.items())
    )
    message = ", ".join(groups)
    if provider == "karpenter" and marked.keys() == {"Karpenter"}:
        remedy = 'set spec.disruption.budgets of the NodePools to `nodes: "0"`: Kinema consolidates in its place'
        return [Finding("other autoscalers", "warn", f"{message}, which may disrupt nodes during a plan", remedy)]
    if provider == "delegate":
        return [Finding("other autoscalers", "ok", f"{message}, which launches and deletes nodes for Kinema")]
    remedy = "use --provider delegate=CATALOG, or keep the other autoscaler off these nodes"
    return [
        Finding("other autoscalers", "warn", f"{message}: it and Kinema would both launch and delete nodes", remedy)
    ]


def _marks(node: Node) -> set[str]:
    found = {"Karpenter" for key in (*node.labels, *node.annotations) if key.startswith(_KARPENTER)}
    found |= {"Karpenter" for taint in node.taints if taint.key.startswith(_KARPENTER)}
    ours = {taint.key for taint in node.taints} & {*FOREIGN_DELETION_TAINTS}
    return found | {"Cluster Autoscaler" for key in ours if key.endswith("ClusterAutoscaler")}

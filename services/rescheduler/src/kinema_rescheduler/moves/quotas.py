"""Who else takes from the quotas of namespaces while pods move: daemon sets, and workloads that lack pods."""

from __future__ import annotations

from collections.abc import Iterator

from kinema_core.events import Pod
from kinema_core.model.checker.view import boot_site
from kinema_core.model.daemons import Daemon, landing_daemons, missing_daemons
from kinema_core.model.resource_quotas import no_copy, quotas_by_namespace, wanting
from kinema_rescheduler.plan.context import ExecutionContext


def coming_daemons(ctx: ExecutionContext) -> Iterator[Pod]:
    """Yield the pods of daemon sets that are yet to come to namespaces with quotas, on live nodes and booted ones."""
    spaces = quotas_by_namespace(ctx.cluster)
    if not spaces:
        return
    for daemon in (one for name in sorted({*ctx.open_nodes, *ctx.boots}) for one in _missing(ctx, name)):
        pod = daemon.pod
        if pod.namespace in spaces:
            yield pod


def _missing(ctx: ExecutionContext, name: str) -> list[Daemon]:
    """Return the daemon sets that lack a pod on a node, which may be yet to boot."""
    node = ctx.cluster.node(name)
    if node is not None:
        return missing_daemons(ctx.cluster, node)
    if name in ctx.refused or name in ctx.in_vain or ctx.done(f"delete/{name}"):
        return []
    chosen = next((one.offer for one in (*ctx.plan.nodes, *ctx.plan.temporary) if one.name == name), "")
    offer = next((one for one in ctx.offers if one.name == chosen), None)
    if offer is None:
        return []
    site = boot_site(ctx.cluster, offer, name)
    return landing_daemons(ctx.cluster, name=name, labels=site.labels, taints=site.taints)


def claimed(ctx: ExecutionContext, pod: Pod) -> str | None:
    """Return why an evicted pod's place in a quota would be taken by another workload; None where it would not."""
    other = wanting(ctx.cluster).get(pod.namespace)
    full = None if other is None else no_copy(ctx.cluster, pod)
    return None if full is None else f"{full}, and {other} waits for one"

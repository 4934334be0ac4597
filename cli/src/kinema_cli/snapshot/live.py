"""A snapshot of a live cluster: one list of every kind, read only."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from kinema_cli.snapshot.file import Snapshot, SnapshotError
from kinema_core.events import ClusterObject
from kinema_core.model.cluster import from_objects
from kinema_core.runtime.clock import SystemClock
from kinema_kubernetes.client import Client, connect
from kinema_kubernetes.errors import KubernetesError, SetupError
from kinema_kubernetes.kubeconfig import current_context
from kinema_kubernetes.watch import consistent
from kinema_observer.adapters.reflector import Resource
from kinema_observer.adapters.source import RESOURCES
from kinema_observer.errors import UnreadableListError
from kinema_observer.logic.drivers import Seen, assembled
from kinema_observer.logic.lists import Decoded, decode_list


class _Metadata(msgspec.Struct):
    continue_: str | None = msgspec.field(name="continue", default=None)


class _List(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


@dataclass(frozen=True)
class _Page:
    decoded: Decoded
    more: str | None


def live_snapshot(context: str, kubeconfig: Path | None = None) -> Snapshot:
    """List the cluster of a kubeconfig's context.

    Args:
        context: its name; empty: the current one.
        kubeconfig: the file; None: that of `KUBECONFIG`, else `~/.kube/config`.

    Raises:
        SnapshotError: the context cannot be used, or the server does not give what is needed.
    """
    file = str(kubeconfig or os.environ.get("KUBECONFIG") or Path("~/.kube/config").expanduser())
    option = "--kubeconfig" if kubeconfig is not None else "kubeconfig"
    where = f"--context {context}" if context else f"the current context of {option} {file}"
    try:
        return asyncio.run(_listed(file, context or current_context(Path(file)), SystemClock().now()))
    except SetupError as error:
        raise SnapshotError(str(error).replace("kubeconfig", option, 1)) from error
    except (KubernetesError, UnreadableListError, SnapshotError) as error:
        raise SnapshotError(f"{where}: {error}") from error


async def _listed(kubeconfig: str, context: str, now: datetime) -> Snapshot:
    api = await connect(kubeconfig, context=context)
    try:
        seen: list[Seen] = []
        finished: set[str] = set()
        for resource in RESOURCES:
            try:
                for page in await consistent(api, resource.path, _page):
                    seen += (*page.decoded.objects, *page.decoded.limits)
                    finished |= page.decoded.finished
            except KubernetesError as error:
                # A cluster without such a kind, or a user without rights to it, can still be planned for.
                if resource.essential or not await api.is_left_out(resource.path, error):
                    raise
    finally:
        await api.close()
    cluster = from_objects(assembled(seen))
    if not cluster.nodes:
        raise SnapshotError("the cluster has no nodes")
    return Snapshot(cluster=cluster, now=now, ignored={}, finished=frozenset(finished), live=True)


async def objects_of(api: Client, resource: Resource) -> list[ClusterObject]:
    """Return all objects of a kind, in one consistent state; raises KubernetesError, UnreadableListError."""
    return [item for page in await consistent(api, resource.path, _page) for item in page.decoded.objects]


def _page(body: bytes) -> _Page:
    return _Page(decode_list(body), msgspec.json.decode(body, type=_List).metadata.continue_)

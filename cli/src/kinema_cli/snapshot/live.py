"""A snapshot of a live cluster: one list of every kind, read only."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from kinema_cli.snapshot.file import Snapshot, SnapshotError
from kinema_core.events import ClusterObject
from kinema_core.model.cluster import from_objects
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.yaml_files import current_context
from kinema_observer.adapters.kubernetes import Api
from kinema_observer.adapters.reflector import PAGE, Resource
from kinema_observer.adapters.source import RESOURCES
from kinema_observer.errors import (
    ApiError,
    ApiExpiredError,
    ApiSetupError,
    UnreadableListError,
)
from kinema_observer.logic.drivers import Seen, assembled
from kinema_observer.logic.lists import Decoded, decode_list

_ATTEMPTS: Final = 3
"""Lists of a kind that the server may forget half-way."""


class _Meta(msgspec.Struct):
    continue_: str | None = msgspec.field(name="continue", default=None)


class _Page(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


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
    except ApiSetupError as error:
        raise SnapshotError(str(error).replace("kubeconfig", option, 1)) from error
    except (ApiError, UnreadableListError, SnapshotError) as error:
        raise SnapshotError(f"{where}: {error}") from error


async def _listed(kubeconfig: str, context: str, now: datetime) -> Snapshot:
    api = await Api.connect(kubeconfig=kubeconfig, context=context)
    try:
        seen: list[Seen] = []
        finished: set[str] = set()
        for resource in RESOURCES:
            try:
                for page in await _consistent(api, resource):
                    seen += (*page.objects, *page.limits)
                    finished |= page.finished
            except ApiError as error:
                # A cluster without such a kind, or a user without rights to it, can still be planned for.
                if resource.essential or not await api.is_left_out(resource.path, error):
                    raise
    finally:
        await api.close()
    cluster = from_objects(assembled(seen))
    if not cluster.nodes:
        raise SnapshotError("the cluster has no nodes")
    return Snapshot(cluster=cluster, now=now, ignored={}, finished=frozenset(finished), live=True)


async def objects_of(api: Api, resource: Resource) -> list[ClusterObject]:
    """Return all objects of a kind, in one consistent state; raises ApiError, UnreadableListError."""
    return [item for page in await _consistent(api, resource) for item in page.objects]


async def _consistent(api: Api, resource: Resource) -> list[Decoded]:
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(ApiExpiredError):
            return [page async for page in _pages(api, resource)]
    return [page async for page in _pages(api, resource)]


async def _pages(api: Api, resource: Resource) -> AsyncIterator[Decoded]:
    token: str | None = None
    while True:
        body = await api.get(resource.path, {"limit": str(PAGE)} | ({"continue": token} if token else {}))
        yield decode_list(body)
        token = msgspec.json.decode(body, type=_Page).metadata.continue_
        if not token:
            return

"""Volumes that are still attached to a node.

A pod that has ended leaves its volumes attached for as long as the driver takes to detach them. Where the machine is
gone by then, no kubelet confirms that, and Kubernetes keeps the volume from every other node for six minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from kinema_kubernetes.objects import Json
from kinema_rescheduler.errors import ATTACHED, NotFoundError, TransientError
from kinema_rescheduler.kubernetes.fenced import FencedClient

_ATTACHMENTS: Final = "/apis/storage.k8s.io/v1/volumeattachments"


class Attachments:
    """The cluster's attachments, listed once for all deletions that ask at the same time.

    The API server selects attachments by nothing but their names: each list is the whole one.
    """

    def __init__(self, api: FencedClient) -> None:
        self.api = api
        self._listing = asyncio.Lock()
        self._lists = 0
        self._items: list[Json] | None = None
        """Of the last list; None where that failed."""

    async def of(self, node: str) -> list[Json]:
        """Return the attachments of a node, of a list that began after the call; raises EffectError."""
        before = self._lists
        async with self._listing:
            if self._lists == before or self._items is None:
                self._lists += 1
                self._items = None
                self._items = await self.api.items(_ATTACHMENTS)
            return [item for item in self._items if item["spec"]["nodeName"] == node]


async def check_detached(attachments: Attachments, node: str, staying: Iterable[Json]) -> None:
    """Raise TransientError `attached` while the node has volumes but those of the pods that go with it."""
    found = await attachments.of(node)
    if not found:
        return
    resident = {await _volume(attachments.api, claim) for pod in staying for claim in _claims(pod)}
    left = sorted(_name(item) for item in found if _name(item) not in resident)
    if left:
        raise TransientError(ATTACHED, f"node {node} still has {', '.join(left[:5])} attached")


def _name(attachment: Json) -> str:
    """Return the volume that is attached; the attachment's own name where the volume has none."""
    return str(attachment["spec"]["source"].get("persistentVolumeName") or attachment["metadata"]["name"])


def _claims(pod: Json) -> list[str]:
    """Paths of the claims that a pod uses, of those that are made for it too."""
    meta, found = pod["metadata"], []
    for volume in pod["spec"].get("volumes") or []:
        if "persistentVolumeClaim" in volume:
            found.append(volume["persistentVolumeClaim"]["claimName"])
        elif "ephemeral" in volume:
            found.append(f"{meta['name']}-{volume['name']}")
    return [f"/api/v1/namespaces/{meta['namespace']}/persistentvolumeclaims/{claim}" for claim in found]


async def _volume(api: FencedClient, claim: str) -> str:
    """Return the volume that a claim is bound to; empty where there is none."""
    try:
        return str((await api.get(claim))["spec"].get("volumeName") or "")
    except NotFoundError:
        return ""

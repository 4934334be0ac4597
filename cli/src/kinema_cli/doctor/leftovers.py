"""Check for markers of a plan on nodes, and for a running Kinema that will remove them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from kinema_cli.doctor.finding import Finding
from kinema_cli.doctor.node_markers import GO_ON, markers_on
from kinema_core.events import Node
from kinema_core.runtime.clock import SystemClock
from kinema_kubernetes.claim import PATH
from kinema_kubernetes.client import Client
from kinema_kubernetes.errors import KubernetesError, NotFoundError

_CHECK: Final = "leftover taints"


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: datetime | None = None


class _Lease(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


async def leftovers(api: Client, nodes: Iterable[Node]) -> list[Finding]:
    """Return one finding where nodes have markers of a plan, else none."""
    marks = markers_on(nodes)
    if not marks:
        return []
    try:
        spec = msgspec.json.decode((await api.read(PATH)).body, type=_Lease).spec
    except NotFoundError:
        spec = _Spec()
    except (KubernetesError, msgspec.DecodeError) as error:
        return [Finding(_CHECK, "warn", f"{marks.told}; it is unknown whether a Kinema is running: {error}", GO_ON)]
    if _lives(spec, SystemClock().now()):
        return [Finding(_CHECK, "ok", f"{marks.told}; a running Kinema executes a plan")]
    said = f"{marks.told}, and no Kinema acts on this cluster: a plan is incomplete"
    return [Finding(_CHECK, "warn", said, f"{GO_ON}; {marks.by_hand}")]


def _lives(spec: _Spec, now: datetime) -> bool:
    """Return whether the Lease is held and was renewed in time."""
    if not spec.holder_identity or spec.renew_time is None:
        return False
    return now - spec.renew_time <= timedelta(seconds=spec.lease_duration_seconds or 0)

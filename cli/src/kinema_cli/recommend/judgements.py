"""The newest judgement of each workload, what it was made from, and its requests as patches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from kinema_cli.recommend.table import MEBIBYTE
from kinema_core.events import ContainerRequests, ForecastMade, ForecastRefused, Workload, WorkloadJudged
from kinema_core.model.cluster import Cluster, fold
from kinema_core.runtime.bus import Bus, Stored
from kinema_core.runtime.follow import Follower
from kinema_core.runtime.past import PastFollower
from kinema_predictor.logic.forecast import largest_node
from kinema_predictor.logic.retrace import Trace, retrace
from kinema_predictor.service import usage_past
from kinema_predictor.threads import one_thread

_PATCHED: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet"})


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What was last found for a workload."""

    judged: datetime
    found: WorkloadJudged

    @property
    def changes(self) -> bool:
        """Return whether other requests are recommended."""
        return any(amount != self.found.requests.get(name) for name, amount in self.found.recommended.items())


async def read_judgements(bus: Bus) -> tuple[dict[str, Judgement], dict[str, ForecastRefused]]:
    """Return the newest judgement of each workload, and why the newest forecast leaves workloads as they are, by key.

    Judgements of workloads that are gone are among them.
    """
    newest: dict[str, Judgement] = {}
    refused: dict[str, ForecastRefused] = {}
    async for item in bus.read("LOG", kinds=("forecast-made",)):
        if isinstance(item, Stored) and isinstance(item.event.body, ForecastMade):
            made = item.event.body
            newest |= {one.workload: Judgement(judged=item.event.time, found=one) for one in made.judged}
            refused = {one.workload: one for one in made.refused}
    return {key: newest[key] for key in sorted(newest)}, refused


async def read_traces(bus: Bus, one: Judgement) -> dict[str, Trace]:
    """Return by resource what a judgement was made from, as the broker still has it.

    Raises:
        BusError, StateLostError. ValueError: the stream keeps less usage than was judged.
    """
    state, _ = await Follower(bus, Cluster(), fold).latest()
    days = max((band.days for band in one.found.bands), default=0.0)
    history = await PastFollower(bus, usage_past(timedelta(days=days + 1))).until(one.judged)
    largest = largest_node(state)
    with one_thread():
        return {
            band.resource: retrace(history, one.found.workload, band, float(largest[band.resource]) or math.inf)
            for band in one.found.bands
        }


def named(found: Mapping[str, object], text: str) -> list[str]:
    """Return the keys that a text means: a whole key, or the end of one such as `shop/web` or `web`."""
    if text in found:
        return [text]
    wanted = text.lower().split("/")
    return [key for key in found if key.lower().split("/")[-len(wanted) :] == wanted]


def component(found: Sequence[Judgement], cluster: Cluster) -> tuple[dict[str, Any], list[str]]:
    """Return a kustomize component with a patch for each workload, and the workloads that cannot be patched.

    What is recommended for a pod is shared by its containers in proportion to what they request now.
    """
    patches: list[dict[str, Any]] = []
    left_out: list[str] = []
    for one in found:
        workload = cluster.workload(one.found.workload)
        stated = [] if workload is None else [item for item in workload.template_containers if not item.init]
        if workload is None or workload.type not in _PATCHED or not stated or not all(item.name for item in stated):
            left_out.append(one.found.workload)
            continue
        containers = [
            {"name": item.name, "resources": {"requests": requests}}
            for item in stated
            if (requests := _requests(one.found, item, workload))
        ]
        meta = {"name": workload.name, "namespace": workload.namespace}
        patch = {
            "apiVersion": "apps/v1",
            "kind": workload.type,
            "metadata": meta,
            "spec": {"template": {"spec": {"containers": containers}}},
        }
        target = {"group": "apps", "version": "v1", "kind": workload.type, **meta}
        patches.append({"target": target, "patch": msgspec.yaml.encode(patch).decode()})
    whole = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "patches": patches}
    return whole, left_out


def _requests(found: WorkloadJudged, one: ContainerRequests, workload: Workload) -> dict[str, str]:
    """Return the new requests of a container, as Kubernetes writes them."""
    requests = {}
    for name, amount in found.recommended.items():
        total = sum(item.requests.get(name, 0) for item in workload.template_containers if not item.init)
        mine = one.requests.get(name, 0)
        if total and mine and amount != found.requests.get(name):
            most = workload.template_ceiling.get(name)
            requests[name] = _quantity(name, -(-amount * mine // total), None if most is None else most * mine // total)
    return requests


def _quantity(name: str, amount: int, most: int | None) -> str:
    """Return millicores, or bytes in whole Mi, rounded up where the limits leave room for that."""
    if name == "cpu":
        return f"{amount}m"
    whole = -(-amount // MEBIBYTE)
    return f"{whole}Mi" if most is None or whole * MEBIBYTE <= most else str(amount)

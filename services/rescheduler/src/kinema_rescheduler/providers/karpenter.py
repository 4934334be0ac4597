"""Nodes of Karpenter: a boot creates a NodeClaim, and a deletion ends exactly one.

A NodeClaim of Kinema allows one machine type, zone and capacity type. It is filled from the template of a NodePool and
does not belong to it: Karpenter consolidates nodes of NodePools only, so it leaves these alone (ADR 16). Its name is
that of the plan's node: a process that takes over finds what was ordered before it by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from kinema_core.events import Amounts, FrozenMap, Labels, Offer, Quota, Requirement
from kinema_core.model.catalog import KUBELET_LABELS, CatalogRow
from kinema_core.model.match import parse_taints, requirement_matches
from kinema_core.model.quantity import QuantityError, parse_amount
from kinema_core.model.resources import limited
from kinema_kubernetes.objects import Json, annotations_of, labels_of, node_path, terminating, uid
from kinema_rescheduler.errors import ConflictError, NotFoundError, PermanentError, TransientError
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.providers.base import Catalog, Operation
from kinema_rescheduler.providers.catalog import catalog_of
from kinema_rescheduler.providers.causes import reason_of
from kinema_rescheduler.settings import KarpenterSettings

NODE_CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
NODE_POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
EVENTS: Final = "/api/v1/namespaces/default/events"
"""Events of objects without a namespace."""
OFFER: Final = "kinema.io/offer"
"""Annotation of a NodeClaim: the name of its offer."""
CAPACITY: Final = "kinema.io/capacity-"
"""Beginning of annotations of a NodeClaim: what its machine counts in the NodePool's limits, by resource."""
POOL: Final = "kinema.io/node-pool"
"""Label of a NodeClaim: the NodePool whose template and limits it has."""
_OWN_POOL: Final = "karpenter.sh/nodepool"
_TYPE: Final = "node.kubernetes.io/instance-type"
_ZONE: Final = "topology.kubernetes.io/zone"
_CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
_ARCH: Final = "kubernetes.io/arch"
_OS: Final = "kubernetes.io/os"
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
"""Operators that are evaluated here; Karpenter evaluates the others when it launches."""
_BOOT: Final = "boot/"
_DELETE: Final = "delete/"


class KarpenterProvider:
    """Karpenter behind one API server."""

    def __init__(self, api: FencedClient, settings: KarpenterSettings) -> None:
        self._api = api
        self._settings = settings
        self._ordering = asyncio.Lock()
        """Orders are counted and written one at a time: limits hold for boots side by side too."""

    async def catalog(self) -> Catalog:
        """Return what the file, or the tables that ship with Kinema, list of what the NodePool allows."""
        pool = await self._pool()
        found = await catalog_of(self._settings.catalog, self._api)
        taints = tuple(_taint_text(taint) for taint in _template(pool)["spec"].get("taints") or ())
        labels = {**_template_labels(pool), POOL: pool["metadata"]["name"]}
        left = await self._left(pool)
        rows = (
            replace(
                row,
                labels=FrozenMap({**labels, **row.labels}),
                taints=(*taints, *row.taints),
                quotas=tuple(
                    Quota(name=_limit_name(pool, resource), takes=takes, left=max(0, most))
                    for resource, most in left.items()
                    if (takes := _counted(row.capacity, resource))
                ),
            )
            for row in found.rows
            if allows(pool, row)
        )
        return replace(found, rows=tuple(rows))

    async def boot(self, name: str, offer: Offer, operation: str) -> Operation:
        """Create the NodeClaim, or find it."""
        async with self._ordering:
            claim = await self._claim(name)
            if claim is None:
                pool = await self._pool()
                await self._check_limits(pool, offer)
                claim = await self._create(claim_object(name, offer, pool))
        sold = annotations_of(claim).get(OFFER)
        if sold != offer.name:
            what = f"as {sold}, not as {offer.name}" if sold else "and is not Kinema's"
            raise PermanentError("conflict", f"NodeClaim {name} is there {what}")
        if terminating(claim):
            raise TransientError("conflict", f"NodeClaim {name} of an earlier order is still being deleted")
        return await self._standing(claim)

    async def delete(self, name: str, operation: str) -> Operation:
        """Delete the NodeClaim of a node, or of an order for it; Karpenter ends the machine and the node."""
        claim = await self._claim(name) or await self._claim_of(name)
        if claim is None:
            with suppress(NotFoundError):
                await self._api.get(node_path(name))
                raise PermanentError("permission", f"node {name} has no NodeClaim: Karpenter does not run it")
            raise PermanentError("not-found", f"there is no node {name}")
        if not terminating(claim):
            with suppress(NotFoundError):  # it went in between
                await self._api.delete(f"{NODE_CLAIMS}/{_name(claim)}", uid(claim))
        return await self._leaving(f"{_DELETE}{_name(claim)}/{uid(claim)}/{_node_name(claim)}")

    async def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that have a NodeClaim; of a NodeClaim whose node has not registered, its own name."""
        return tuple(sorted(_node_name(claim) for claim in await self._api.items(NODE_CLAIMS)))

    async def operation(self, id_: str) -> Operation:
        """Return how a boot or a deletion stands."""
        if id_.startswith(_DELETE) and id_.count("/") == 3:
            return await self._leaving(id_)
        kind, _, rest = id_.partition("/")
        name, _, order = rest.partition("/")
        if kind + "/" != _BOOT or not order:
            raise PermanentError("not-found", f"there is no operation {id_}")
        claim = await self._claim(name)
        if claim is None or uid(claim) != order:
            reason, message = await self._cause(name, order)
            gone = f"NodeClaim {name} was deleted by another client"
            return Operation(id_, name, "failed", reason or "conflict", message or gone)
        return await self._standing(claim)

    async def _standing(self, claim: Json) -> Operation:
        """Return how the boot of a NodeClaim stands; one that cannot succeed is taken back."""
        name, order = _name(claim), uid(claim)
        id_ = f"{_BOOT}{name}/{order}"
        if terminating(claim):
            reason, message = await self._cause(name, order)
            if not reason:  # Karpenter writes its Events a moment later
                return Operation(id_, name, "running")
            return Operation(id_, name, "failed", reason, message)
        if _condition(claim, "Registered").get("status") == "True" and (claim["status"].get("nodeName")):
            return Operation(id_, _node_name(claim), "done")
        launched = _condition(claim, "Launched")
        if launched.get("status") != "True":
            text = f"{launched.get('reason', '')}: {launched.get('message', '')}"
            reason = reason_of(text)
            if reason:
                with suppress(NotFoundError):  # Karpenter would go on trying, and buy it later
                    await self._api.delete(f"{NODE_CLAIMS}/{name}", order)
                return Operation(id_, name, "failed", reason, f"NodeClaim {name}: {text}")
        return Operation(id_, name, "running")

    async def _leaving(self, id_: str) -> Operation:
        """Return whether NodeClaim and node of a deletion are gone."""
        _, name, order, node = id_.split("/")
        claim = await self._claim(name)
        if claim is not None and uid(claim) == order:
            return Operation(id_, node, "running")
        return Operation(id_, node, "done")

    async def _cause(self, name: str, order: str) -> tuple[str, str]:
        """Return why Karpenter deleted a NodeClaim, by its Events; empty where none says so."""
        selector = f"involvedObject.kind=NodeClaim,involvedObject.name={name}"
        for event in reversed(await self._api.items(EVENTS, fieldSelector=selector)):
            text = f"{event.get('reason', '')}: {event.get('message', '')}"
            if (event.get("involvedObject") or {}).get("uid") == order and (reason := reason_of(text)):
                return reason, f"NodeClaim {name}: {text}"
        return "", ""

    async def _claim(self, name: str) -> Json | None:
        try:
            return await self._api.get(f"{NODE_CLAIMS}/{name}")
        except NotFoundError:
            return None

    async def _claim_of(self, node: str) -> Json | None:
        claims = await self._api.items(NODE_CLAIMS)
        return next((claim for claim in claims if _node_name(claim) == node), None)

    async def _create(self, body: Json) -> Json:
        try:
            return await self._api.create(NODE_CLAIMS, body)
        except ConflictError:  # an order whose answer was lost
            return await self._api.get(f"{NODE_CLAIMS}/{body['metadata']['name']}")

    async def _pool(self) -> Json:
        try:
            return await self._api.get(f"{NODE_POOLS}/{self._settings.node_pool}")
        except NotFoundError as error:
            detail = f"provider.node_pool: there is no NodePool {self._settings.node_pool}: name one of the cluster's"
            raise PermanentError("invalid", detail) from error

    async def _check_limits(self, pool: Json, offer: Offer) -> None:
        for resource, left in (await self._left(pool)).items():
            if _counted(offer.capacity, resource) > left:
                text = pool["spec"]["limits"][resource]
                detail = f"{_limit_name(pool, resource)} is {text}, {offer.name} would exceed it"
                raise PermanentError("quota", detail)

    async def _left(self, pool: Json) -> Mapping[str, int]:
        """Return what is left of the NodePool's limits: Karpenter counts its own NodeClaims, Kinema counts both."""
        limits = pool["spec"].get("limits") or {}
        claims = await self._api.items(NODE_CLAIMS) if limits else ()
        mine = [annotations_of(one) for one in claims if labels_of(one).get(POOL) == self._settings.node_pool]
        used = (pool.get("status") or {}).get("resources") or {}
        return {
            resource: _amount(resource, text)
            - _amount(resource, used.get(resource, "0"))
            - sum(int(marks.get(CAPACITY + resource, 0)) for marks in mine)
            for resource, text in sorted(limits.items())
        }


def claim_object(name: str, offer: Offer, pool: Json) -> Json:
    """Return the NodeClaim of an order: the NodePool's template, for one machine type, zone and capacity type."""
    template = _template(pool)
    spec = template["spec"]
    exact = {_TYPE: offer.machine_type, _ZONE: offer.zone, _CAPACITY_TYPE: offer.capacity_type}
    own = [dict(item) for item in spec.get("requirements") or () if item["key"] not in exact]
    requirements = own + [{"key": key, "operator": "In", "values": [value]} for key, value in exact.items()]
    known = {taint.key for taint in parse_taints(offer.taints)}
    taints = [{"key": t.key, "value": t.value, "effect": t.effect} for t in parse_taints(offer.taints)]
    taints += [taint for taint in spec.get("taints") or () if taint["key"] not in known]
    devices = {name: str(amount) for name, amount in offer.allocatable.items() if "/" in name and limited(name)}
    kept = ("nodeClassRef", "startupTaints", "expireAfter", "terminationGracePeriod")
    counted = {
        CAPACITY + resource: str(_counted(offer.capacity, resource)) for resource in pool["spec"].get("limits") or {}
    }
    labels = {key: value for key, value in offer.labels.items() if key not in {_TYPE, _ZONE, *KUBELET_LABELS}}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "labels": {**_template_labels(pool), **labels, POOL: pool["metadata"]["name"]},
            "annotations": {
                **((template.get("metadata") or {}).get("annotations") or {}),
                OFFER: offer.name,
                **counted,
            },
        },
        "spec": {
            **{key: spec[key] for key in kept if key in spec},
            "requirements": requirements,
            "resources": {"requests": devices},
            **({"taints": taints} if taints else {}),
        },
    }


def _counted(capacity: Amounts, resource: str) -> int:
    """Return how much of a limit a machine uses; `nodes` limits their number."""
    return 1 if resource == "nodes" else capacity.get(resource, 0)


def _limit_name(pool: Json, resource: str) -> str:
    return f"NodePool {pool['metadata']['name']}: limits.{resource}"


def _amount(resource: str, text: object) -> int:
    """Return an amount in the units of offers; raises PermanentError."""
    try:
        return parse_amount(resource, str(text))
    except QuantityError as error:
        raise PermanentError("invalid", f"a NodePool's {resource} is {text!r}: {error}") from error


def _template(pool: Json) -> Json:
    template: Json = pool["spec"]["template"]
    return template


def _template_labels(pool: Json) -> Labels:
    return FrozenMap((_template(pool).get("metadata") or {}).get("labels") or {})


def allows(pool: Json, row: CatalogRow) -> bool:
    """Return whether the NodePool's requirements allow a row, as far as a row says."""
    labels = FrozenMap(
        {
            _TYPE: row.machine_type,
            _CAPACITY_TYPE: row.capacity_type,
            _ARCH: "amd64",
            _OS: "linux",
            **_template_labels(pool),
            **row.labels,
            **({_ZONE: row.zone} if row.zone is not None else {}),
        }
    )
    return all(
        requirement_matches(
            Requirement(key=item["key"], operator=item["operator"], values=tuple(item.get("values") or ())), labels
        )
        for item in _template(pool)["spec"].get("requirements") or ()
        if item["key"] in labels and item["operator"] in _OPERATORS
    )


def _taint_text(taint: Mapping[str, str]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _condition(claim: Json, kind: str) -> Mapping[str, str]:
    conditions: Iterable[Mapping[str, str]] = (claim.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def _name(item: Json) -> str:
    return str(item["metadata"]["name"])


def _node_name(claim: Json) -> str:
    return str((claim.get("status") or {}).get("nodeName") or _name(claim))

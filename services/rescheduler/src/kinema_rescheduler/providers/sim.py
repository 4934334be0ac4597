"""The provider of the simulated cloud, over HTTP."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from kinema_core.events import FrozenMap, Offer
from kinema_core.model.catalog import CatalogRow
from kinema_core.model.match import parse_taints
from kinema_rescheduler.errors import EffectError, PermanentError, TransientError
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.providers.base import Catalog, Operation

T = TypeVar("T")

_FINAL: Final = frozenset({"stock-out", "quota", "permission", "conflict", "not-found", "invalid"})


class _Row(msgspec.Struct, frozen=True):
    machine_type: str
    zone: str
    capacity_type: Literal["on-demand", "spot"]
    vcpus: float
    memory_bytes: int
    usd_per_hour: float
    available: int | None = None
    watts: float | None = None
    max_pods: int | None = None
    allocatable_cpu_m: int | None = None
    allocatable_memory_bytes: int | None = None
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()


class _Offers(msgspec.Struct, frozen=True):
    source: str
    offers: tuple[_Row, ...]
    date: str = ""


class _Fault(msgspec.Struct, frozen=True):
    class_: str = msgspec.field(name="class")
    message: str = ""


class _Operation(msgspec.Struct, frozen=True):
    id: str
    node: str
    state: Literal["running", "done", "failed"]
    error: _Fault | None = None


class _Answer(msgspec.Struct, frozen=True):
    operation: _Operation


class _Refusal(msgspec.Struct, frozen=True):
    error: _Fault


class _Node(msgspec.Struct, frozen=True):
    name: str


def cloud_error(reason: str, message: str) -> EffectError:
    """Return the error for a refusal of the cloud."""
    return PermanentError(reason, message) if reason in _FINAL else TransientError("transient", message)


class SimProvider:
    """The simulated cloud at `url`. Close it when done."""

    def __init__(self, url: str, *, token: str = "", timeout_seconds: float = 10.0, fence: Fence | None = None) -> None:
        """`timeout_seconds` are real seconds for each request; `fence` is asked before every write."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._url = url.rstrip("/")
        self._fence = fence or Fence()
        self._session = aiohttp.ClientSession(
            headers=headers, timeout=aiohttp.ClientTimeout(total=timeout_seconds), raise_for_status=False
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()

    async def catalog(self) -> Catalog:
        """Return what is on sale now."""
        data = await self._request("GET", "/cloud/v1/offers")
        answer = _read(data, _Offers)
        priced = datetime.fromisoformat(answer.date) if answer.date else None
        rows = tuple(_row(line, row) for line, row in enumerate(answer.offers, start=1))
        return Catalog(source=answer.source, priced=priced, rows=rows)

    async def boot(self, name: str, offer: Offer, operation: str) -> Operation:
        """Begin to boot a node."""
        labels = {key: value for key, value in offer.labels.items() if not key.startswith("kubernetes.io/")}
        body = {
            "name": name,
            "machine_type": offer.machine_type,
            "zone": offer.zone,
            "capacity_type": offer.capacity_type,
            "operation": operation,
            "labels": labels,
            "taints": [{"key": t.key, "value": t.value, "effect": t.effect} for t in parse_taints(offer.taints)],
        }
        return _operation(await self._request("POST", "/cloud/v1/nodes", body))

    async def delete(self, name: str, operation: str) -> Operation:
        """Begin to delete a node."""
        path = f"/cloud/v1/nodes/{quote(name, safe='')}?operation={quote(operation, safe='')}"
        return _operation(await self._request("DELETE", path))

    async def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that the cloud knows."""
        data = await self._request("GET", "/cloud/v1/nodes")
        return tuple(sorted(node.name for node in _read(data, tuple[_Node, ...])))

    async def operation(self, id_: str) -> Operation:
        """Return how an operation stands."""
        return _operation(await self._request("GET", f"/cloud/v1/operations/{quote(id_, safe='')}"))

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        if method != "GET":
            self._fence.check()
        try:
            async with self._session.request(method, self._url + path, json=body) as response:
                data = await response.read()
                if response.status < 400:
                    return data
        except (aiohttp.ClientError, TimeoutError) as error:
            raise TransientError("unavailable", f"{method} {path}: {type(error).__name__} {error}") from error
        try:
            fault = msgspec.json.decode(data, type=_Refusal).error
        except msgspec.DecodeError:
            raise TransientError("transient", f"{method} {path}: status {response.status}") from None
        raise cloud_error(fault.class_, fault.message)


def _read(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise TransientError("transient", f"the cloud's answer cannot be read: {error}") from error


def _row(line: int, row: _Row) -> CatalogRow:
    return CatalogRow(
        line=line,
        machine_type=row.machine_type,
        vcpus=Fraction(str(row.vcpus)),
        memory=row.memory_bytes,
        micro_usd_per_hour=round(Fraction(str(row.usd_per_hour)) * 10**6),
        zone=row.zone or None,
        capacity_type=row.capacity_type,
        labels=FrozenMap(row.labels),
        taints=row.taints,
        max_pods=row.max_pods,
        allocatable_cpu=row.allocatable_cpu_m,
        allocatable_memory=row.allocatable_memory_bytes,
        watts=row.watts,
        available=row.available,
        extended=FrozenMap(),
    )


def _operation(data: bytes) -> Operation:
    answer = _read(data, _Answer).operation
    fault = answer.error
    return Operation(
        id=answer.id,
        node=answer.node,
        state=answer.state,
        reason=fault.class_ if fault is not None else "",
        message=fault.message if fault is not None else "",
    )

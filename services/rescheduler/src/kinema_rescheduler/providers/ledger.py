"""Ledger of a provider without a memory of its own: entries of one ConfigMap, each written once.

An entry is there before the first effect of an order, so that whoever takes over finds what was begun.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from kinema_kubernetes.objects import Json
from kinema_rescheduler.errors import NotFoundError, PermanentError
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.names import STEERING_NAMESPACE

E = TypeVar("E", bound=msgspec.Struct)

_CONFIG_MAPS: Final = f"/api/v1/namespaces/{STEERING_NAMESPACE}/configmaps"


class Ledger:
    """Entries by name, as JSON. Names are those of nodes."""

    def __init__(self, api: FencedClient, name: str) -> None:
        self._api = api
        self._name = name
        self._path = f"{_CONFIG_MAPS}/{name}"

    async def read(self, kind: type[E]) -> dict[str, E]:
        """Every entry, by name.

        Raises:
            PermanentError: `invalid`, another client wrote something else there.
        """
        try:
            data = (await self._api.get(self._path)).get("data") or {}
        except NotFoundError:
            return {}
        try:
            return {key: msgspec.json.decode(text, type=kind) for key, text in sorted(data.items())}
        except msgspec.DecodeError as error:
            detail = f"ConfigMap {STEERING_NAMESPACE}/{self._name}: {error}: take that entry away"
            raise PermanentError("invalid", detail) from error

    async def add(self, key: str, entry: msgspec.Struct) -> None:
        """Write an entry.

        Raises:
            PermanentError: `conflict`, there is one of that name that says something else.
        """
        text = msgspec.json.encode(entry).decode()

        def change(found: Json) -> Json | None:
            before = (found.get("data") or {}).get(key)
            if before not in {None, text}:
                raise PermanentError("conflict", f"{key} stands in ConfigMap {STEERING_NAMESPACE}/{self._name} already")
            return None if before == text else {"data": {key: text}}

        try:
            await self._api.modify(self._path, change)
        except NotFoundError:
            metadata = {"name": self._name, "namespace": STEERING_NAMESPACE}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: text}}
            await self._api.create(_CONFIG_MAPS, body)

    async def drop(self, key: str) -> None:
        """Take an entry away, if it is there."""
        with suppress(NotFoundError):
            await self._api.modify(
                self._path, lambda found: {"data": {key: None}} if key in (found.get("data") or {}) else None
            )

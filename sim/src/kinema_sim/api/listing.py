"""Lists in pages: every page of one list shows the same version."""

import base64
import binascii
from dataclasses import dataclass

import msgspec

from kinema_sim.api.errors import ApiError
from kinema_sim.engine.kinds import Kind
from kinema_sim.engine.objects import Key, Obj, key_of
from kinema_sim.engine.selectors import Predicate, parse_fields, parse_labels
from kinema_sim.engine.store import Store

_KEPT_SNAPSHOTS = 64
_TOKEN_LIFE_MS = 300_000


@dataclass(frozen=True)
class Query:
    """Selection of a list or watch.

    Attributes:
        namespace: one namespace, or None for all.
        labels: labelSelector as given, empty for none.
        fields: fieldSelector as given, empty for none.
    """

    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    def predicate(self) -> Predicate:
        """Give the test that an object must pass.

        Raises:
            ApiError: 400 when a selector cannot be read.
        """
        try:
            by_label, by_field = parse_labels(self.labels), parse_fields(self.fields)
        except ValueError as error:
            raise ApiError(400, str(error)) from error
        wanted = self.namespace
        return lambda obj: (
            (wanted is None or obj["metadata"].get("namespace", "") == wanted) and by_label(obj) and by_field(obj)
        )


@dataclass(frozen=True)
class _Snapshot:
    version: int
    until_ms: int
    objects: tuple[Obj, ...]


class _Token(msgspec.Struct, frozen=True):
    version: int
    after: Key
    consistent: bool


class Lister:
    """Serves lists; keeps the snapshots that continue tokens point to, for five virtual minutes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshots: dict[tuple[Kind, Query, int], _Snapshot] = {}

    def page(self, kind: Kind, query: Query, *, limit: int = 0, token: str = "") -> Obj:
        """Give one page of a list.

        Raises:
            ApiError: 400 for an unreadable token or selector, 410 for an expired token.
        """
        if token:
            return self._next_page(kind, query, limit=limit, token=token)
        keep = query.predicate()
        objects = tuple(sorted((obj for obj in self._store.each(kind) if keep(obj)), key=key_of))
        return self._cut(kind, query, limit=limit, version=self._store.version, objects=objects)

    def expire(self) -> None:
        """Forget all snapshots, so that every token out there is expired."""
        self._snapshots.clear()

    def _next_page(self, kind: Kind, query: Query, *, limit: int, token: str) -> Obj:
        try:
            read = msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Token)
        except (binascii.Error, ValueError, msgspec.DecodeError) as error:
            raise ApiError(400, "continue key is not valid") from error
        if not read.consistent:
            keep = query.predicate()
            rest = [obj for obj in self._store.sorted(kind, query.namespace) if key_of(obj) > read.after and keep(obj)]
            return self._cut(kind, query, limit=limit, version=self._store.version, objects=tuple(rest))
        snapshot = self._snapshots.get((kind, query, read.version))
        if snapshot is None or snapshot.until_ms < self._store.loop.now_ms:
            text = "The provided continue parameter is too old to display a consistent list result. Start a new list."
            fresh = _encode(_Token(self._store.version, read.after, consistent=False))
            raise ApiError(410, text, metadata={"continue": fresh})
        left = tuple(obj for obj in snapshot.objects if key_of(obj) > read.after)
        return self._cut(kind, query, limit=limit, version=snapshot.version, objects=left)

    def _cut(self, kind: Kind, query: Query, *, limit: int, version: int, objects: tuple[Obj, ...]) -> Obj:
        items = objects[:limit] if limit else objects
        metadata: Obj = {"resourceVersion": str(version)}
        if len(items) < len(objects):
            self._keep(kind, query, version=version, objects=objects)
            metadata["continue"] = _encode(_Token(version, key_of(items[-1]), consistent=True))
            if not query.labels and not query.fields:
                metadata["remainingItemCount"] = len(objects) - len(items)
        listed = [_bare(obj) for obj in items]
        return {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata, "items": listed}

    def _keep(self, kind: Kind, query: Query, *, version: int, objects: tuple[Obj, ...]) -> None:
        key = (kind, query, version)
        if key not in self._snapshots:
            while len(self._snapshots) >= _KEPT_SNAPSHOTS:
                del self._snapshots[next(iter(self._snapshots))]
            self._snapshots[key] = _Snapshot(version, self._store.loop.now_ms + _TOKEN_LIFE_MS, objects)


def _encode(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _bare(obj: Obj) -> Obj:
    """Items of a typed list carry neither kind nor apiVersion, as the real server writes them."""
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}

"""The object store: Kubernetes JSON with versions, a watch history and the indexes that controllers need."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from kinema_sim.engine.clock import Loop, digest
from kinema_sim.engine.kinds import ALL_KINDS, POD, Kind
from kinema_sim.engine.objects import Key, Obj, clone, controller_ref, key_of, node_of

_Inner = TypeVar("_Inner")
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True)
class Change:
    """One change of one object.

    Attributes:
        version: resource version that the change made.
        type: ADDED, MODIFIED or DELETED.
        kind: kind of the object.
        old: the object before, None when it was added.
        new: the object after; for DELETED its last state, at the new version.
    """

    version: int
    type: str
    kind: Kind
    old: Obj | None
    new: Obj


class Store:
    """All objects by kind and key. What it hands out is shared: clone before changing.

    Args:
        loop: gives the time.
        seed: from which uids and name suffixes follow.
        window: how many changes per kind a watch can look back.
    """

    def __init__(self, loop: Loop, seed: int, *, window: int = 20_000) -> None:
        self.loop = loop
        self.seed = seed
        self.version = 1
        self._objects: dict[Kind, dict[Key, Obj]] = {kind: {} for kind in ALL_KINDS}
        self._history: dict[Kind, deque[Change]] = {kind: deque(maxlen=window) for kind in ALL_KINDS}
        self._forgotten: dict[Kind, int] = dict.fromkeys(ALL_KINDS, 0)
        self._lives: dict[tuple[str, ...], int] = {}
        self._by_node: dict[str, dict[Key, Obj]] = {}
        self._by_owner: dict[str, dict[tuple[Kind, Key], Obj]] = {}
        self._pods_in: dict[str, dict[Key, Obj]] = {}
        self._subscribers: list[Callable[[Change], None]] = []
        self._admission: list[Callable[[Kind, Obj], None]] = []

    def subscribe(self, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call back on every change, in the order of subscription; returns how to stop that."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def admit_with(self, hook: Callable[[Kind, Obj], None]) -> None:
        """Let a hook complete every object before it is created; it may change what it is given."""
        self._admission.append(hook)

    # reading

    def get(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        """Give one object, or None."""
        return self._objects[kind].get((namespace, name))

    def find(self, kind: Kind, key: Key) -> Obj | None:
        """Give one object by key, or None."""
        return self._objects[kind].get(key)

    def each(self, kind: Kind) -> list[Obj]:
        """Give all objects of a kind in the order of their creation."""
        return list(self._objects[kind].values())

    def sorted(self, kind: Kind, namespace: str | None = None) -> list[Obj]:
        """Give all objects of a kind, or of one namespace, by namespace and name."""
        objects = self._objects[kind]
        return [objects[key] for key in sorted(objects) if namespace is None or key[0] == namespace]

    def count(self, kind: Kind) -> int:
        """Return how many objects of a kind exist."""
        return len(self._objects[kind])

    def pods_on(self, node: str) -> list[Obj]:
        """Give the pods bound to a node, in the order in which they were bound."""
        return list(self._by_node.get(node, {}).values())

    def pods_in(self, namespace: str) -> list[Obj]:
        """Give the pods of a namespace in the order of their creation."""
        return list(self._pods_in.get(namespace, {}).values())

    def owned(self, kind: Kind, owner_uid: str) -> list[Obj]:
        """Give the objects of a kind that an object controls, in the order of their creation."""
        return [obj for (of, _), obj in self._by_owner.get(owner_uid, {}).items() if of is kind]

    # writing

    def create(self, kind: Kind, draft: Obj) -> Obj:
        """Store a new object; fills version, uid, creation time and generation.

        Raises:
            KeyError: an object of that key exists.
        """
        obj = clone(draft)
        metadata = obj["metadata"]
        if not metadata.get("name"):
            metadata["name"] = self._free_name(kind, metadata.get("namespace", ""), metadata.get("generateName", ""))
        obj.setdefault("apiVersion", kind.api_version)
        obj.setdefault("kind", kind.name)
        for hook in self._admission:
            hook(kind, obj)
        key = key_of(obj)
        if key in self._objects[kind]:
            raise KeyError(f"{kind.qualified} {key[0]}/{key[1]} exists")
        metadata["uid"] = self._uid(kind, key)
        metadata["creationTimestamp"] = self.loop.now
        if kind.generation:
            metadata["generation"] = 1
        return self._put(Change(self._next(metadata), "ADDED", kind, None, obj))

    def replace(self, kind: Kind, obj: Obj) -> Obj:
        """Store another value of an object; takes over `obj`. Equal content makes no new version."""
        old = self._objects[kind][key_of(obj)]
        if obj == old:
            return old
        metadata = obj["metadata"]
        if kind.generation and obj.get("spec") != old.get("spec"):
            metadata["generation"] = old["metadata"].get("generation", 1) + 1
        return self._put(Change(self._next(metadata), "MODIFIED", kind, old, obj))

    def edit(self, kind: Kind, key: Key, change: Callable[[Obj], None]) -> Obj | None:
        """Change an object through a function that gets a clone; None when it is gone."""
        old = self._objects[kind].get(key)
        if old is None:
            return None
        draft = clone(old)
        change(draft)
        return self.replace(kind, draft)

    def edit_status(self, kind: Kind, key: Key, change: Callable[[Obj], None]) -> Obj | None:
        """Change an object's status as `edit` does; the function must leave the rest alone, which is not cloned."""
        old = self._objects[kind].get(key)
        if old is None:
            return None
        draft = {**old, "metadata": dict(old["metadata"])}
        if "status" in old:
            draft["status"] = clone(old["status"])
        change(draft)
        return self.replace(kind, draft)

    def remove(self, kind: Kind, key: Key) -> Obj | None:
        """Take an object out at once; None when it is gone already."""
        old = self._objects[kind].get(key)
        if old is None:
            return None
        last = clone(old)
        return self._put(Change(self._next(last["metadata"]), "DELETED", kind, old, last))

    # history

    def changes_since(self, kind: Kind, version: int) -> list[Change] | None:
        """Give the changes of a kind after a version, or None when some of them are forgotten."""
        if version < self._forgotten[kind]:
            return None
        found: list[Change] = []
        for change in reversed(self._history[kind]):
            if change.version <= version:
                break
            found.append(change)
        found.reverse()
        return found

    def forget(self, kind: Kind) -> None:
        """Drop the watch history of a kind, as a compaction does."""
        self._history[kind].clear()
        self._forgotten[kind] = self.version

    def dump(self) -> bytes:
        """Write the whole store as JSON, the same bytes for the same content."""
        content = {kind.qualified: self.sorted(kind) for kind in ALL_KINDS}
        return msgspec.json.encode({"version": self.version, "objects": content}, order="sorted")

    # names

    def _free_name(self, kind: Kind, namespace: str, base: str) -> str:
        name = base + self.suffix(base)
        while (namespace, name) in self._objects[kind]:
            name = base + self.suffix(base)
        return name

    def suffix(self, base: str) -> str:
        """Give the next five-character name suffix for a prefix; independent of what else is created."""
        number = digest("suffix", self.seed, base, self._count("suffix", base))
        letters: list[str] = []
        for _ in range(5):
            number, index = divmod(number, len(_SUFFIX_ALPHABET))
            letters.append(_SUFFIX_ALPHABET[index])
        return "".join(letters)

    def _uid(self, kind: Kind, key: Key) -> str:
        # By object and life, not by one global counter: requests that arrive in another order change no other uid.
        hexes = f"{digest('uid', self.seed, kind.qualified, *key, self._count('uid', kind.qualified, *key)):064x}"
        return f"{hexes[:8]}-{hexes[8:12]}-4{hexes[13:16]}-a{hexes[17:20]}-{hexes[20:32]}"

    def _count(self, *about: str) -> int:
        self._lives[about] = self._lives.get(about, 0) + 1
        return self._lives[about]

    def _next(self, metadata: Obj) -> int:
        self.version += 1
        metadata["resourceVersion"] = str(self.version)
        return self.version

    def _put(self, change: Change) -> Obj:
        key = key_of(change.new)
        if change.type == "DELETED":
            del self._objects[change.kind][key]
        else:
            self._objects[change.kind][key] = change.new
        self._index(change, key)
        history = self._history[change.kind]
        if len(history) == history.maxlen:
            self._forgotten[change.kind] = history[0].version
        history.append(change)
        for callback in tuple(self._subscribers):
            callback(change)
        return change.new

    def _index(self, change: Change, key: Key) -> None:
        gone = change.type == "DELETED"
        owner = controller_ref(change.new)
        if change.old is not None:
            before = controller_ref(change.old)
            if before is not None and (gone or owner is None or owner["uid"] != before["uid"]):
                _drop(self._by_owner, str(before["uid"]), (change.kind, key))
        if owner is not None and not gone:
            self._by_owner.setdefault(str(owner["uid"]), {})[(change.kind, key)] = change.new
        if change.kind is POD:
            self._index_pod(change, key)

    def _index_pod(self, change: Change, key: Key) -> None:
        node = node_of(change.new)
        if change.type == "DELETED":
            _drop(self._by_node, node, key)
            _drop(self._pods_in, key[0], key)
            return
        self._pods_in.setdefault(key[0], {})[key] = change.new
        if node:
            self._by_node.setdefault(node, {})[key] = change.new

    def kinds(self) -> Iterator[Kind]:
        """Go through the kinds that the store holds."""
        return iter(self._objects)


def _drop(index: dict[str, dict[_Inner, Obj]], outer: str, inner: _Inner) -> None:
    entries = index.get(outer)
    if entries is not None:
        entries.pop(inner, None)
        if not entries:
            del index[outer]

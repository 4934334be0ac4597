"""Patches: JSON patch, merge patch, strategic merge patch, and server-side apply.

Field ownership is kept for managers that apply; plain writes own nothing. Lists with a merge key are owned entry by
entry, other lists whole.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kinema_sim.api.errors import ApiError
from kinema_sim.engine.objects import Obj, clone, clone_any

MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"),
    "conditions": ("type",),
    "addresses": ("type",),
    "ownerReferences": ("uid",),
    "topologySpreadConstraints": ("topologyKey",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
}
"""Field name → the field by which the lists under that name merge. Any other list is replaced whole.

A node's taints have no merge key: a patch that names them replaces them all.
"""
_Fields = dict[str, Any]
_IDENTITY = ("apiVersion", "kind")
_IDENTITY_META = ("name", "namespace", "uid", "resourceVersion")


def json_patch(target: Obj, operations: Sequence[Obj]) -> Obj:
    """Apply a JSON patch (RFC 6902).

    Raises:
        ApiError: 422 when a path does not exist or a test fails, 400 when an operation is malformed.
    """
    document: Any = clone(target)
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            text = f"the server rejected our request due to an error in our request: {operation}: {error}"
            raise ApiError(422, text, reason="Invalid") from error
    if not isinstance(document, dict):
        raise ApiError(422, "the patch leaves no object", reason="Invalid")
    return document


def _operate(document: Any, operation: Obj) -> Any:  # noqa: ANN401  # a JSON patch may act on any JSON value
    path = _pointer(operation["path"])
    match operation["op"]:
        case "test":
            if _walk(document, path) != operation["value"]:
                raise ValueError("test failed")
            return document
        case "remove":
            return _remove(document, path)
        case "add":
            return _add(document, path, value=clone_any(operation["value"]), insert=True)
        case "replace":
            _walk(document, path)
            return _add(document, path, value=clone_any(operation["value"]), insert=False)
        case "move":
            source = _pointer(operation["from"])
            value = _walk(document, source)
            return _add(_remove(document, source), path, value=value, insert=True)
        case "copy":
            value = clone_any(_walk(document, _pointer(operation["from"])))
            return _add(document, path, value=value, insert=True)
        case other:
            raise ValueError(f"operation {other!r} does not exist")


def _pointer(text: str) -> list[str]:
    if text and not text.startswith("/"):
        raise ValueError(f"{text!r} is no JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _walk(document: Any, path: Sequence[str]) -> Any:  # noqa: ANN401  # see _operate
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _remove(document: Any, path: Sequence[str]) -> Any:  # noqa: ANN401  # see _operate
    parent = _walk(document, path[:-1])
    if isinstance(parent, list):
        del parent[int(path[-1])]
    else:
        del parent[path[-1]]
    return document


def _add(document: Any, path: Sequence[str], *, value: Any, insert: bool) -> Any:  # noqa: ANN401  # see _operate
    if not path:
        return value
    parent = _walk(document, path[:-1])
    if not isinstance(parent, list):
        parent[path[-1]] = value
    elif path[-1] == "-":
        parent.append(value)
    elif insert:
        if int(path[-1]) > len(parent):
            raise IndexError(f"{path[-1]} is past the end of the list")
        parent.insert(int(path[-1]), value)
    else:
        parent[int(path[-1])] = value
    return document


def merge_patch(target: Any, patch: Any) -> Any:  # noqa: ANN401  # RFC 7396 is defined on any JSON value
    """Apply a JSON merge patch (RFC 7396); null removes."""
    if not isinstance(patch, dict):
        return clone_any(patch)
    result: Obj = clone(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge(target: Obj, patch: Obj) -> Obj:
    """Apply a strategic merge patch: as a merge patch, but known lists merge by key.

    Directives understood: `$patch: delete|replace`, `$deleteFromPrimitiveList/…`; order and retain hints are ignored.
    """
    if patch.get("$patch") == "replace":
        return {key: clone_any(value) for key, value in patch.items() if key != "$patch"}
    result = clone(target)
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.partition("/")[2]
            result[name] = [item for item in result.get(name) or () if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            if value.get("$patch") == "delete":
                result.pop(key, None)
            else:
                old = result.get(key)
                result[key] = strategic_merge(old if isinstance(old, dict) else {}, value)
        elif isinstance(value, list) and key in MERGE_KEYS:
            result[key] = _merge_lists(key, result.get(key) or [], value)
        elif isinstance(value, list) and key == "finalizers":
            old = list(result.get(key) or ())
            result[key] = old + [item for item in value if item not in old]
        else:
            result[key] = clone_any(value)
    return result


def _merge_lists(field: str, old: Sequence[Obj], patch: Sequence[Obj]) -> list[Obj]:
    if any(item.get("$patch") == "replace" for item in patch):
        return [clone(item) for item in patch if "$patch" not in item]
    merged = [clone(item) for item in old]
    for item in patch:
        key = merge_key(field, item)
        if key is None:
            raise ApiError(400, f"{field}: an entry of the patch has none of the keys {', '.join(MERGE_KEYS[field])}")
        at = next((index for index, have in enumerate(merged) if have.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del merged[at]
        elif at is None:
            merged.append(clone(item))
        else:
            merged[at] = strategic_merge(merged[at], item)
    return merged


def merge_key(field: str, item: Obj) -> str | None:
    """Give the key by which an entry of a list field merges, None when it has none of them."""
    return next((key for key in MERGE_KEYS[field] if key in item), None)


def apply(live: Obj, intent: Obj, *, manager: str, force: bool, now: str) -> Obj:
    """Apply an intent to a live object (or to an empty one).

    Args:
        live: the object as it is.
        intent: the fields that the manager wants.
        manager: field manager.
        force: take fields over from other managers.
        now: time for the ownership record.

    Raises:
        ApiError: 409 when another manager owns a field with another value and `force` is off.
    """
    wanted = _without_identity(intent)
    mine = _fields(wanted)
    records: list[Obj] = [clone(entry) for entry in live["metadata"].get("managedFields") or ()]
    before: _Fields = {}
    others: list[Obj] = []
    for record in records:
        if record["manager"] == manager:
            before = record["fieldsV1"]
        else:
            others.append(record)
    _settle_conflicts(live, wanted, others=others, mine=mine, force=force)
    result = clone(live)
    shared: _Fields = {}
    for record in others:
        _unite(shared, record["fieldsV1"])
    _prune(result, before, keep=[mine, shared])
    _overlay(result, wanted)
    mine_record = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": intent.get("apiVersion", live.get("apiVersion")),
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": mine,
    }
    if before == mine:
        mine_record["time"] = next(r["time"] for r in records if r["manager"] == manager)
    result["metadata"]["managedFields"] = [*(r for r in others if r["fieldsV1"]), mine_record]
    return result


def _without_identity(intent: Obj) -> Obj:
    wanted = {key: clone_any(value) for key, value in intent.items() if key not in _IDENTITY}
    metadata = {key: value for key, value in (wanted.get("metadata") or {}).items() if key not in _IDENTITY_META}
    wanted.pop("metadata", None)
    if metadata:
        wanted["metadata"] = metadata
    return wanted


def _entry_name(field: str, item: Obj) -> str | None:
    if field not in MERGE_KEYS or not isinstance(item, dict):
        return None
    key = merge_key(field, item)
    return f"{key}={item[key]}" if key and key in item else None


def _keyed(field: str, value: object) -> dict[str, Obj] | None:
    """Give a list's entries by name when the list merges by key."""
    if field not in MERGE_KEYS or not isinstance(value, list):
        return None
    entries = {_entry_name(field, item): item for item in value}
    return None if None in entries else {str(name): item for name, item in entries.items()}


def _fields(value: Obj) -> _Fields:
    found: _Fields = {}
    for key, item in value.items():
        entries = _keyed(key, item)
        if entries is not None:
            found[f"f:{key}"] = {f"k:{name}": _fields(entry) for name, entry in entries.items()}
        else:
            found[f"f:{key}"] = _fields(item) if isinstance(item, dict) else {}
    return found


def _unite(into: _Fields, more: _Fields) -> None:
    for key, item in more.items():
        _unite(into.setdefault(key, {}), item)


def _settle_conflicts(live: Obj, wanted: Obj, *, others: list[Obj], mine: _Fields, force: bool) -> None:
    causes: list[Obj] = []
    for record in others:
        clashes = _clashes(live, wanted, record["fieldsV1"], path="")
        if force:
            if clashes:
                record["fieldsV1"] = _minus(record["fieldsV1"], mine)
            continue
        causes.extend(
            {"reason": "FieldManagerConflict", "message": f'conflict with "{record["manager"]}"', "field": path}
            for path in clashes
        )
    if causes:
        text = f"Apply failed with {len(causes)} conflict(s): " + ", ".join(
            f"{cause['message']}: {cause['field']}" for cause in causes
        )
        raise ApiError(409, text, details={"causes": causes})


def _clashes(live: Any, wanted: Any, owned: _Fields, *, path: str) -> list[str]:  # noqa: ANN401  # any JSON value
    found: list[str] = []
    for name, below in owned.items():
        key = name[2:]
        if not isinstance(wanted, dict) or key not in wanted:
            continue
        have = live.get(key) if isinstance(live, dict) else None
        entries, want_entries = _keyed(key, have), _keyed(key, wanted[key])
        if below and entries is not None and want_entries is not None:
            prefixed = {f"f:{entry[2:]}": item for entry, item in below.items()}
            found.extend(_clashes(entries, want_entries, prefixed, path=f"{path}.{key}"))
        elif isinstance(wanted[key], dict) and (below or isinstance(have, dict)):
            found.extend(_clashes(have, wanted[key], below, path=f"{path}.{key}"))
        elif have != wanted[key]:
            found.append(f"{path}.{key}")
    return found


def _minus(owned: _Fields, taken: _Fields) -> _Fields:
    left: _Fields = {}
    for key, below in owned.items():
        if key not in taken:
            left[key] = below
        elif below:
            rest = _minus(below, taken[key])
            if rest:
                left[key] = rest
    return left


def _prune(target: Obj, before: _Fields, *, keep: list[_Fields]) -> None:
    """Remove what the manager named last time and no manager names now."""
    for name, below in before.items():
        key = name[2:]
        kept = [fields[name] for fields in keep if name in fields]
        if key not in target:
            continue
        if not kept:
            del target[key]
            continue
        entries = _keyed(key, target[key])
        if entries is not None:
            target[key] = [
                item
                for entry, item in entries.items()
                if f"k:{entry}" not in below or any(f"k:{entry}" in fields for fields in kept)
            ]
        elif isinstance(target[key], dict):
            _prune(target[key], below, keep=kept)


def _overlay(target: Obj, wanted: Obj) -> None:
    for key, value in wanted.items():
        have, want = _keyed(key, target.get(key) or []), _keyed(key, value)
        if have is not None and want is not None:
            for name, item in want.items():
                if name in have:
                    _overlay(have[name], item)
                else:
                    have[name] = clone(item)
            target[key] = list(have.values())
        elif isinstance(value, dict):
            below = target.get(key)
            target[key] = below if isinstance(below, dict) else {}
            _overlay(target[key], value)
        else:
            target[key] = clone_any(value)

"""Patches: JSON patch, merge patch and strategic merge patch."""

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

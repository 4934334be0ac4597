"""Server-side apply: who owns which field, conflicts, and removal of what a manager no longer names.

Ownership is kept for managers that apply; plain writes own nothing. Lists with a merge key are owned entry by entry,
other lists whole.
"""

from typing import Any

from kinema_sim.api.errors import ApiError
from kinema_sim.api.merge import MERGE_KEYS, merge_key
from kinema_sim.engine.objects import Obj, clone, clone_any

_Fields = dict[str, Any]
_IDENTITY = ("apiVersion", "kind")
_IDENTITY_META = ("name", "namespace", "uid", "resourceVersion")


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

"""What right a request to a Kubernetes API server takes: written from the API's own rules, not from our tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from msgspec.structs import replace

from kinema_kubernetes.rights import Right, Rule

_ONE = {"GET": "get", "PATCH": "patch", "PUT": "update", "DELETE": "delete", "POST": "create"}
_ALL = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


def right_of(method: str, path: str, query: Mapping[str, str] | None = None) -> Right:
    """The right for one request."""
    parts = [unquote(part) for part in path.split("/") if part]
    group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    resource, name, part = (*parts, "", "")[:3]
    verb = _ONE[method] if name else _ALL[method]
    if verb == "list" and (query or {}).get("watch") in {"true", "1"}:
        verb = "watch"
    return Right(verb, group, f"{resource}/{part}" if part else resource, namespace, name)


def single(rules: Iterable[Rule]) -> list[Rule]:
    """The same rights as rules of one verb on one resource each."""
    return [
        replace(rule, resources=(resource,), verbs=(verb,))
        for rule in rules
        for resource in rule.resources
        for verb in rule.verbs
    ]

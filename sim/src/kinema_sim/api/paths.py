"""Paths of the Kubernetes API and what they name, and discovery of the kinds."""

from dataclasses import dataclass

from kinema_sim.engine.kinds import ALL_KINDS, NODE, POD, Kind
from kinema_sim.engine.objects import Obj

METRICS_GROUP = "metrics.k8s.io"
METRICS_VERSION = "v1beta1"
_BY_PATH = {(kind.group, kind.version, kind.plural): kind for kind in ALL_KINDS}
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


@dataclass(frozen=True)
class Target:
    """Object or collection that a path names.

    Attributes:
        kind: kind of the objects.
        namespace: namespace, None for all namespaces and for cluster-scoped kinds.
        name: one object, empty for the whole collection.
        part: subresource, empty for the object itself.
    """

    kind: Kind
    namespace: str | None
    name: str
    part: str


def parse_path(path: str) -> Target | None:
    """Read a path below /api or /apis; None when the server knows nothing there."""
    parts = [part for part in path.split("/") if part]
    group, rest = ("", parts[1:]) if parts[:1] == ["api"] else (parts[1] if len(parts) > 1 else "", parts[2:])
    if len(rest) < 2:
        return None
    version, rest = rest[0], rest[1:]
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) >= 3 and (group, version, rest[2]) in _BY_PATH:
        namespace, rest = rest[1], rest[2:]
    kind = _BY_PATH.get((group, version, rest[0]))
    if kind is None or len(rest) > 3:
        return None
    across_namespaces = kind.namespaced and namespace is None and len(rest) == 1
    if kind.namespaced != (namespace is not None) and not across_namespaces:
        return None
    return Target(kind, namespace, rest[1] if len(rest) > 1 else "", rest[2] if len(rest) > 2 else "")


def discovery(path: str) -> Obj | None:
    """Answer the discovery paths: /api, /apis, /apis/GROUP and the resource lists; None for other paths."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = [_group(name, version) for name, version in _groups() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", "v1"]:
            return _resources("", "v1")
        case ["apis", name] if name in dict(_groups()):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, dict(_groups())[name])}
        case ["apis", name, version] if (name, version) in _groups():
            return _resources(name, version)
        case _:
            return None


def _groups() -> list[tuple[str, str]]:
    found = {(kind.group, kind.version): None for kind in ALL_KINDS}
    return [*found, (METRICS_GROUP, METRICS_VERSION)]


def _group(name: str, version: str) -> Obj:
    spoken = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [spoken], "preferredVersion": spoken}


def _resources(group: str, version: str) -> Obj:
    listed: list[Obj] = []
    if group == METRICS_GROUP:
        listed = [_resource(NODE, "NodeMetrics", ["get", "list"]), _resource(POD, "PodMetrics", ["get", "list"])]
    for kind in ALL_KINDS:
        if (kind.group, kind.version) != (group, version):
            continue
        listed.append(_resource(kind, kind.name, _VERBS))
        parts = [*(["status"] if kind.has_status else []), *(["scale"] if kind.scale else [])]
        parts += ["eviction", "resize"] if kind is POD else []
        names = {"scale": "Scale", "eviction": "Eviction"}
        for part in parts:
            listed.append(
                {
                    "name": f"{kind.plural}/{part}",
                    "singularName": "",
                    "namespaced": kind.namespaced,
                    "kind": names.get(part, kind.name),
                    "verbs": ["create"] if part == "eviction" else ["get", "patch", "update"],
                }
            )
    full = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": full, "resources": listed}


def _resource(kind: Kind, name: str, verbs: list[str]) -> Obj:
    entry: Obj = {
        "name": kind.plural,
        "singularName": name.lower(),
        "namespaced": kind.namespaced,
        "kind": name,
        "verbs": verbs,
    }
    if kind.short and verbs == _VERBS:
        entry["shortNames"] = list(kind.short)
    return entry

"""Settings of services that `kinema up` takes: a file of all, and `--provider KIND=LOCATION`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin
from urllib.parse import urlsplit

import msgspec

from kinema_cli.agreement import disagreement
from kinema_cli.inputs import InputError, UsageError
from kinema_cli.local.pipeline import SERVICES
from kinema_core.ranges import alternatives
from kinema_core.runtime.settings import known_names
from kinema_core.runtime.yaml_files import yaml_fault
from kinema_observer.logic.prometheus import NAME as PROMETHEUS
from kinema_observer.settings import PrometheusSettings

_PLACES: Final = {
    "sim": "url",
    "kwok": "catalog",
    "delegate": "catalog",
    "karpenter": "node_pool",
    "gke": "project/location/cluster",
    "cluster-api": "namespace/cluster",
    "static": "inventory",
}
"""Kind of provider → the setting that its location is, or several of them."""
_WRONG_TYPE: Final = re.compile(r"^(?:Expected|Invalid enum value) .* - at `\$\.([a-z_.]+)`$")
_WORDS: Final[Mapping[type, str]] = {
    str: "text, in quotes where it looks like a number",
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    NoneType: "null",
}


UNATTENDED: Final[Mapping[str, Mapping[str, object]]] = {
    "optimizer": {"planning": {"max_moves_fraction": 1.0, "redundancy": False, "headroom": 0}},
    "decider": {"limits": {"approval": "automatic", "max_moves_fraction": 1.0, "redundancy": False}},
    "rescheduler": {"limits": {"max_moves_fraction": 1.0}},
}
"""Settings by service with which Kinema does at once all that saves: for clusters on which nothing matters."""


def layered(*layers: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings of all layers together, objects within objects too; a later layer wins."""
    found: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            known = found.get(name)
            if isinstance(value, Mapping):
                found[name] = layered(known if isinstance(known, dict) else {}, value)
            else:
                found[name] = value
    return found


def provider_setting(text: str) -> dict[str, object]:
    """Return the rescheduler's setting for `KIND=LOCATION`; raises UsageError, and InputError without the file."""
    kind, equals, where = text.partition("=")
    if kind not in _PLACES or not equals or not where:
        forms = ", ".join(f"{kind}={place.upper()}" for kind, place in _PLACES.items())
        raise UsageError(f"--provider {text!r}: write one of {forms}")
    if kind == "sim":
        address = urlsplit(where)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise UsageError(f"--provider {text!r}: {where!r} is no http or https address")
        return {"kind": kind, "url": where}
    if kind in {"karpenter", "gke", "cluster-api"}:
        names, parts = _PLACES[kind].split("/"), where.split("/")
        if len(parts) != len(names) or not all(parts):
            raise UsageError(f"--provider {text!r}: write {kind}={_PLACES[kind].upper()}")
        return {"kind": kind, **dict(zip(names, parts, strict=True))}
    if not Path(where).is_file():
        raise InputError(f"--provider {text}: no such file")
    return {"kind": kind, _PLACES[kind]: str(Path(where).resolve())}


def read_service_settings(path: Path, supplied: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Return the settings by service, each checked as the service itself would.

    Args:
        path: the file.
        supplied: what is set beside, by service; part of the result only where it completes a value that says of which
            kind it is, as a `provider` in the file that does not.

    Raises:
        InputError: names the file, the service, the place in its settings and what is wrong there.
    """
    try:
        found = msgspec.yaml.decode(path.read_bytes(), type=dict[str, dict[str, Any]])
    except OSError as error:
        raise InputError(f"--settings {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise InputError(
            f"--settings {path}: {yaml_fault(error)}: write settings by service, as in `decider: {{…}}`"
        ) from error
    for service, settings in found.items():
        if service not in SERVICES:
            raise InputError(f"--settings {path}: {service!r} is no service: there are {', '.join(SERVICES)}")
        beside = supplied.get(service, {})
        found[service] = whole = _completed(settings, beside)
        runtime = {"cluster": "checked", **whole.get("runtime", {})}
        try:
            kind = import_module(f"kinema_{service}.settings").Settings
            given = {**beside, **whole, "runtime": runtime}
            msgspec.convert(given, kind)
        except (msgspec.ValidationError, TypeError) as error:
            raise InputError(f"--settings {path}: {service}: {error}{_may_be(kind, str(error), given)}") from error
    return found


def disagreement_of(settings: Mapping[str, Mapping[str, object]]) -> str:
    """Return where services would differ that should not, by the checked settings of each service."""

    def whole(service: str) -> dict[str, Any]:
        kind = import_module(f"kinema_{service}.settings").Settings
        provider = {"provider": {"kind": "sim", "url": "http://checked"}} if service == "rescheduler" else {}
        given = {**provider, **settings.get(service, {}), "runtime": {"cluster": "checked"}}
        return dict(msgspec.to_builtins(msgspec.convert(given, kind)))

    return disagreement({service: whole(service) for service in ("optimizer", "decider", "rescheduler")})


def prometheus_setting(settings: Mapping[str, Mapping[str, Any]]) -> PrometheusSettings | None:
    """Return the server of the observer's settings; None where usage comes from the metrics API."""
    observer = settings.get("observer", {})
    if observer.get("usage_source") != PROMETHEUS:
        return None
    return msgspec.convert(observer["prometheus"], PrometheusSettings)


def _completed(settings: Mapping[str, Any], beside: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings, those with the kind and all else that is set beside that say part of such a value only."""
    whole = dict(settings)
    for name, value in beside.items():
        given = settings.get(name)
        if isinstance(given, dict) and isinstance(value, Mapping) and "kind" in value and "kind" not in given:
            whole[name] = {**value, **given}
    return whole


def _may_be(kind: object, fault: str, given: object) -> str:
    """Return which value or name may stand where another was found; empty where that takes more than a word."""
    if names := known_names(kind, fault, given):
        return names
    place = _WRONG_TYPE.search(fault)
    for name in place[1].split(".") if place is not None else ():
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            return ""
        kind = next((field.type for field in msgspec.structs.fields(kind) if field.encode_name == name), None)
    if place is None:
        return ""
    if get_origin(kind) is Literal:
        quote = '"' if "got `bool`" in fault else ""  # YAML reads a bare off as false
        return f": write {' or '.join(f'{quote}{value}{quote}' for value in get_args(kind) if value)}"
    words = [_WORDS[one] for one in alternatives(kind) if isinstance(one, type) and one in _WORDS]
    return f": write {' or '.join(words)}" if words else ""

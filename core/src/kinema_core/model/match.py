"""Selectors, node affinity, taints and tolerations, as kube-scheduler evaluates them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, cast

from kinema_core.events import (
    HostPort,
    Labels,
    NodeTerm,
    PlacementRules,
    Requirement,
    Selector,
    Taint,
    Toleration,
)

HOSTNAME: Final = "kubernetes.io/hostname"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""Of taints."""
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::")  # noqa: S104 - the words for "any address" in pod specs, nothing is bound


def requirement_matches(req: Requirement, labels: Labels) -> bool:
    """Return whether labels meet one expression; `NotIn` and `DoesNotExist` are met where the key is missing."""
    value = labels.get(req.key)
    match req.operator:
        case "In":
            return value is not None and value in req.values
        case "NotIn":
            return value is None or value not in req.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return len(req.values) == 1 and _compares(value, req.operator, req.values[0])


def _compares(value: str | None, operator: Literal["Gt", "Lt"], bound: str) -> bool:
    """Integer comparison; whatever is no integer compares false, as in kube-scheduler."""
    if value is None or not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(bound):
        return False
    return int(value) > int(bound) if operator == "Gt" else int(value) < int(bound)


def selector_matches(selector: Selector | None, labels: Labels) -> bool:
    """Return whether a label selector selects these labels: None selects nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.labels.items()) and all(
        requirement_matches(req, labels) for req in selector.expressions
    )


def node_term_matches(term: NodeTerm, *, name: str, labels: Labels) -> bool:
    """Return whether a node meets one alternative of a node affinity; an empty alternative is met by no node."""
    if not term.expressions and not term.fields:
        return False
    fields: Labels = cast("Labels", {"metadata.name": name})
    return all(requirement_matches(req, labels) for req in term.expressions) and all(
        requirement_matches(req, fields) for req in term.fields
    )


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    """Return whether one of the tolerations covers the taint."""
    return any(_covers(item, taint) for item in tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.key == "":
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "Equal":
            return toleration.value == taint.value
        case "Gt" | "Lt":
            return _compares(taint.value, toleration.operator, toleration.value)


def node_admits(rules: PlacementRules, *, name: str, labels: Labels, taints: tuple[Taint, ...]) -> str | None:
    """Return why a pod with these rules may not be on a node like this; None when it may.

    Node selector, required node affinity, and the taints that keep pods out (`NoSchedule`, `NoExecute`). Whether the
    node is cordoned or Ready is no property of the rules: see `Mobility.open_nodes`.
    """
    selector = rules.node_selector
    for key in sorted(selector) if selector else ():
        if labels.get(key) != selector[key]:
            return f"node selector {key}={selector[key]}"
    if rules.node_terms is not None and not any(
        node_term_matches(term, name=name, labels=labels) for term in rules.node_terms
    ):
        return "required node affinity"
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(rules.tolerations, taint):
            return f"taint {taint_text(taint)}"
    return None


def taint_text(taint: Taint) -> str:
    """`key[=value]:effect`."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


@lru_cache(maxsize=1024)
def parse_taint(text: str) -> Taint:
    """Return the taint written as `key[=value]:effect`.

    Raises:
        ValueError: the text has no key or no known effect.
    """
    left, _, effect = text.strip().rpartition(":")
    key, _, value = left.partition("=")
    if not key.strip() or effect not in EFFECTS:
        raise ValueError(f"taint {text!r} cannot be read: write key=value:effect, effect one of {', '.join(EFFECTS)}")
    return Taint(key=key.strip(), value=value.strip(), effect=cast("Literal['NoSchedule']", effect))


def parse_taints(texts: tuple[str, ...]) -> tuple[Taint, ...]:
    """Return the taints of an offer.

    Raises:
        ValueError: one of them cannot be read.
    """
    return tuple(parse_taint(text) for text in texts)


def ports_clash(a: tuple[HostPort, ...], b: tuple[HostPort, ...]) -> HostPort | None:
    """Return a host port of `a` that cannot be had on a node where `b` is taken; None when there is none."""
    for port in a:
        for other in b:
            same = port.port == other.port and port.protocol == other.protocol
            anywhere = port.host_ip in _ANY_ADDRESS or other.host_ip in _ANY_ADDRESS
            if same and (anywhere or port.host_ip == other.host_ip):
                return port
    return None

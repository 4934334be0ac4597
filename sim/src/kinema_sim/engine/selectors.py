"""Selectors: label selectors (object and query form), field selectors and node selector terms."""

import re
from collections.abc import Callable, Mapping, Sequence

from kinema_sim.engine.objects import Obj, labels_of, name_of, namespace_of, node_of, phase_of

Predicate = Callable[[Obj], bool]

_SET_TERM = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)\s*$")
_PLAIN_TERM = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s=,()]*)\s*$")
_EXISTS_TERM = re.compile(r"^\s*(?P<no>!?)\s*(?P<key>[^\s!=,()]+)\s*$")
_FIELDS: dict[str, Callable[[Obj], str]] = {
    "metadata.name": name_of,
    "metadata.namespace": namespace_of,
    "spec.nodeName": node_of,
    "status.phase": phase_of,
}


def match_expression(labels: Mapping[str, str], expression: Obj) -> bool:
    """Return whether labels satisfy one expression (key, operator, values).

    Raises:
        ValueError: the operator does not exist.
    """
    key, operator = expression["key"], expression["operator"]
    values: Sequence[str] = expression.get("values") or ()
    have = labels.get(key)
    match operator:
        case "In":
            return have is not None and have in values
        case "NotIn":
            return have is None or have not in values
        case "Exists":
            return have is not None
        case "DoesNotExist":
            return have is None
        case "Gt" | "Lt":
            return _compare(have, operator, values)
        case _:
            raise ValueError(f"selector on {key}: operator {operator} does not exist")


def _compare(have: str | None, operator: str, values: Sequence[str]) -> bool:
    try:
        left, right = int(have or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


def matches(selector: Obj | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy a LabelSelector; None selects nothing, an empty one everything."""
    if selector is None:
        return False
    wanted: Mapping[str, str] = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(match_expression(labels, expression) for expression in selector.get("matchExpressions") or ())


def match_node_term(term: Obj, node: Obj) -> bool:
    """Return whether a node satisfies a node selector term; an empty term selects nothing."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    if any(not match_expression({"metadata.name": name_of(node)}, field) for field in fields):
        return False
    return all(match_expression(labels_of(node), expression) for expression in expressions)


def parse_labels(text: str) -> Predicate:
    """Read the labelSelector of a query.

    Raises:
        ValueError: the text is no label selector.
    """
    equal: dict[str, str] = {}
    others: list[Obj] = []
    for part in re.split(r",(?![^()]*\))", text):
        if part.strip():
            term = _label_term(part)
            if term["operator"] == "In" and len(term["values"]) == 1 and term["key"] not in equal:
                equal[term["key"]] = term["values"][0]
            else:
                others.append(term)

    def keeps(obj: Obj) -> bool:
        labels = labels_of(obj)
        # Nearly all selectors are equalities: one comparison for all of them spares thousands of objects the words.
        return equal.items() <= labels.items() and all(match_expression(labels, term) for term in others)

    return keeps


def _label_term(text: str) -> Obj:
    if found := _SET_TERM.match(text):
        values = [value.strip() for value in found["values"].split(",")]
        return {"key": found["key"], "operator": "In" if found["op"] == "in" else "NotIn", "values": values}
    if found := _PLAIN_TERM.match(text):
        operator = "NotIn" if found["op"] == "!=" else "In"
        return {"key": found["key"], "operator": operator, "values": [found["value"]]}
    if found := _EXISTS_TERM.match(text):
        return {"key": found["key"], "operator": "DoesNotExist" if found["no"] else "Exists"}
    raise ValueError(f"unable to parse the label selector {text!r}")


def parse_fields(text: str) -> Predicate:
    """Read the fieldSelector of a query; known fields are name, namespace, node and phase.

    Raises:
        ValueError: the text is no field selector, or the field is not supported.
    """
    terms: list[tuple[Callable[[Obj], str], bool, str]] = []
    for term in text.split(","):
        if not term.strip():
            continue
        found = re.match(r"^\s*(?P<key>[^\s!=]+)\s*(?P<op>==|=|!=)\s*(?P<value>\S*)\s*$", term)
        if found is None:
            raise ValueError(f"unable to parse the field selector {text!r}")
        if found["key"] not in _FIELDS:
            raise ValueError(f"field label not supported: {found['key']}")
        terms.append((_FIELDS[found["key"]], found["op"] != "!=", found["value"]))
    return lambda obj: all((read(obj) == value) is equal for read, equal, value in terms)

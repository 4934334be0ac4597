"""Reader of a scenario's text: YAML without doubt about what it says, and faults in plain words with their place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec
import yaml

from kinema_core.runtime.yaml_files import yaml_fault
from kinema_observer.errors import UnreadableFieldError
from kinema_observer.logic.requests import requests_of
from kinema_observer.logic.rules import TolerationIn, rules_of
from kinema_observer.logic.wire import PodSpec

_T = TypeVar("_T")
DURATION: Final = "expected a duration such as 90s, 1h30m or 7d"
_DURATIONS: Final = re.compile(
    r"duration|past|.*\.(grace|after|at|lasts|start|end)|workloads\[\d+\]\.replicas\[\d+\]\[0\]|applications\[\d+\]\.users\[\d+\]\[0\]"
)
_AMOUNTS: Final = re.compile(
    r"(workloads|daemons|arrivals|cloud\.machines)\[\d+\]\.(cpu|memory)(_limit)?|cloud\.machines\[\d+\]\.allocatable_(cpu|memory)"
)
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_TYPES: Final = {
    "array": "a list",
    "bool": "true or false",
    "date": "a date",
    "float": "a number",
    "int": "a whole number",
    "null": "nothing",
    "object": "keys with values",
    "str": "a text",
}
_BOUNDS: Final = {">=": "of {} or more", ">": "above {}", "<=": "of at most {}", "<": "below {}"}
POD_FIELDS: Final = (
    "affinity",
    "initContainers",
    "nodeSelector",
    "overhead",
    "priority",
    "priorityClassName",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
)
"""Fields of a pod's spec that the simulated cluster heeds; containers follow from the scenario's own keys."""


class ReadingError(Exception):
    """A text is no scenario; says where, and what is expected there."""


def parse(data: bytes, kind: type[_T]) -> _T:
    """Read YAML as a type; amounts may be written as numbers.

    Raises:
        ReadingError: the first fault.
    """
    try:
        found = _plain(data)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: of numbers and dates that cannot be
        problem = msgspec.DecodeError(str(error))
        problem.__context__ = error
        raise ReadingError(yaml_fault(problem)) from error
    if found is None:
        raise ReadingError("the file is empty; expected a scenario: name, duration, nodes and what runs on them")
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise ReadingError(_in_words(str(error), kind, found)) from error


def pod_faults(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with fields of a pod's spec, by place in it."""
    for key in pod:
        if key not in POD_FIELDS:
            yield key, f"the simulator heeds no such field of a pod; expected one of {', '.join(POD_FIELDS)}"
    try:
        spec = msgspec.json.decode(msgspec.json.encode({**pod, "containers": [{}]}), type=PodSpec)
        requests_of(spec)
        unknown = rules_of(spec, host_ports=(), claims=(), unmodeled=()).unmodeled
    except UnreadableFieldError as error:
        yield error.path.removeprefix("spec."), error.reason
        return
    except msgspec.ValidationError as error:
        place, _, problem = _in_words(str(error), PodSpec, pod).partition(": ")
        yield place, problem
        return
    known = {one.encode_name for one in msgspec.structs.fields(TolerationIn)}
    found = [f"tolerations[{i}].{key}" for i, one in enumerate(pod.get("tolerations") or ()) for key in one]
    strange = [place for place in found if place.rpartition(".")[2] not in known]
    for place in (*(path.removeprefix("spec.") for path in unknown), *strange):
        yield place, "unknown key; remove it or correct its name"


def _plain(data: bytes) -> object:
    """Return YAML as plain objects.

    Raises:
        ReadingError: a key is there twice, of which YAML would take the last, or a part contains itself.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(data)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        for place, mapping in _mappings(root):
            lines: dict[str, int] = {}
            for key, value in mapping.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue
                path, line = f"{place}.{key.value}".lstrip("."), key.start_mark.line + 1
                if key.value in lines:
                    first = lines[key.value]
                    raise ReadingError(f"{path}: line {line}: the key is there twice, first in line {first}; keep one")
                lines[key.value] = line
                if isinstance(value, yaml.ScalarNode) and value.tag in _NUMBERS and _AMOUNTS.fullmatch(path):
                    value.tag = "tag:yaml.org,2002:str"
        return loader.construct_document(root)  # type: ignore[no-any-return,unused-ignore]
    finally:
        loader.dispose()


def _mappings(root: yaml.Node) -> Iterator[tuple[str, yaml.MappingNode]]:
    """Yield all mappings by place, each once: aliases may stand for the same one many times.

    Raises:
        ReadingError: an alias stands for what it is a part of.
    """
    seen: set[int] = set()
    around: set[int] = set()
    waiting = [("", root, False)]
    while waiting:
        place, node, is_left = waiting.pop()
        if is_left:
            around.remove(id(node))
            continue
        if id(node) in around:
            line = node.start_mark.line + 1
            raise ReadingError(f"{place}: the alias stands for what it is a part of, from line {line} on; write it out")
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield place, node
            inner = [(f"{place}.{getattr(key, 'value', '')}".lstrip("."), value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            inner = [(f"{place}[{index}]", value) for index, value in enumerate(node.value)]
        else:
            continue
        around.add(id(node))
        waiting.append((place, node, True))
        waiting += [(where, value, False) for where, value in reversed(inner)]


def _in_words(fault: str, kind: type, whole: object) -> str:
    """Return msgspec's fault with the place first: `workloads[2].cpu: expected …`."""
    found = re.fullmatch(r"(.*?)(?: - at (?:`key` in )?`\$\.?(.*?)`)?", fault)
    text, place = (found[1], found[2] or "") if found is not None else (fault, "")
    for pattern, words in (
        (r"Object contains unknown field `(.*)`", r"unknown key \1; remove it or correct its name"),
        (r"Object missing required field `(.*)`", r"the key \1 is missing"),
        (r"Expected `str` matching regex .*", "expected small letters, digits, - and . within, at most 253"),
        (r"Expected `str`", "expected keys that are text"),
        (r"Expected `str` of length >= 1", "expected a text that is not empty"),
    ):
        text = re.sub(f"^{pattern}$", words, text)
    if bound := re.fullmatch(r"Expected `(\w+)` ([<>]=?) (.*?)(?:\.0)?", text):
        text = f"expected {_TYPES[bound[1]]} {_BOUNDS[bound[2]].format(bound[3])}"
    elif other := re.fullmatch(r"Expected `(.*?)`(?: of length (\d+))?, got `?(.*?)`?", text):
        wanted = " or ".join(_TYPES.get(one, one) for one in other[1].split(" | "))
        text = f"expected {wanted}{f' of {other[2]}' if other[2] else ''}, got {_TYPES.get(other[3], other[3])}"
        if other[1] == "str" and other[3] in ("int", "float"):
            text = _with_unit(_value(whole, place)) if _DURATIONS.fullmatch(place) else f"{text}: put it in quotes"
    elif choice := re.fullmatch(r"Invalid enum value (.*)", text):
        text = f"expected one of {', '.join(one for one in _choices(kind, place) if one)}, got {choice[1]}"
    text = text[:1].lower() + text[1:]
    return f"{place.replace('[...]', '[]')}: {text}" if place else text


def _with_unit(value: object) -> str:
    return f"{DURATION}, got {value}: write its unit, as in {value}s"


def _names(place: str) -> list[str]:
    return re.findall(r"[^.\[\]]+", place)


def _value(whole: object, place: str) -> object:
    for name in _names(place):
        if isinstance(whole, list):
            whole = whole[int(name)]
        elif isinstance(whole, dict):
            whole = whole[name]
    return whole


def _choices(kind: object, place: str) -> tuple[str, ...]:
    """Return the values that a field of a struct may have, by its place."""
    for name in _names(place):
        if get_origin(kind) is tuple:
            kind = get_args(kind)[0]
        elif isinstance(kind, type):
            kind = next(one.type for one in msgspec.structs.fields(kind) if one.encode_name == name)
    return get_args(kind)

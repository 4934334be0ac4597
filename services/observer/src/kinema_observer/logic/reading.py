"""Small conversions that all kinds of objects share. Texts that many objects repeat are parsed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeVar, cast

import msgspec

from kinema_core.events import EMPTY, Amounts, FrozenMap, Labels, Owner, Requirement, Selector
from kinema_core.model.quantity import QuantityError, parse_amount
from kinema_core.model.vocabulary import RESIZED_AT_ADMISSION
from kinema_observer.errors import UnreadableFieldError
from kinema_observer.logic.faults import in_words
from kinema_observer.logic.wire import NOTHING, Condition, Meta, OwnerReference, Scalar

T = TypeVar("T")

EMPTY_TEXTS: Final = frozenset({b"", b"null", b"{}", b"[]"})
"""JSON that says no more than a missing field."""

KEPT_ANNOTATIONS: Final = (
    "kinema.io/",
    "cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/",
    "descheduler.alpha.kubernetes.io/",
    "controller.kubernetes.io/",
    "cloud.google.com/",
    "argocd.argoproj.io/tracking-id",
    RESIZED_AT_ADMISSION,
)
"""Vocabularies that may forbid or steer a move. All other annotations are left out: they are large and change often."""

DROPPED_ANNOTATIONS: Final = ("cloud.google.com/cluster_autoscaler_unhelpable",)
"""Written again and again by an autoscaler, about its own thoughts."""

MIRROR: Final = "kubernetes.io/config.mirror"
_TEXTS: Final = msgspec.json.Decoder(dict[str, str])
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)
_CACHED: Final = 65536
"""Distinct texts kept parsed: enough for the labels of the largest clusters' workloads, a few ten MB."""


def meaning(text: bytes) -> bytes:
    """Return the JSON text of a part; empty where it says no more than a missing one."""
    return b"" if text in EMPTY_TEXTS else text


def text_of(raw: msgspec.Raw) -> bytes:
    """Return the JSON text of a raw part; empty for what is missing or null."""
    if raw is NOTHING:
        return b""
    text = bytes(raw)
    return b"" if text in EMPTY_TEXTS else text


def fault_of(error: msgspec.DecodeError | UnicodeDecodeError) -> UnreadableFieldError:
    """Return where and why msgspec could not read a text; its paths begin with `$`."""
    if isinstance(error, UnicodeDecodeError):
        return UnreadableFieldError("", f"is no UTF-8 ({error.reason}): write it again in UTF-8")
    said, _, path = str(error).partition(" - at `$")
    lacking, reason = in_words(said)
    inner = path.rstrip("`").lstrip(".")
    return UnreadableFieldError(f"{inner}.{lacking}" if inner and lacking else inner or lacking, reason)


def decoded(decoder: msgspec.json.Decoder[T], text: bytes | msgspec.Raw, path: str) -> T:
    """Decode the JSON text of a part.

    Raises:
        UnreadableFieldError: it cannot be decoded; its path begins with `path`.
    """
    try:
        return decoder.decode(text)
    except msgspec.DecodeError as error:
        raise fault_of(error).under(path) from error


@lru_cache(maxsize=_CACHED)
def _labels(text: bytes, path: str) -> Labels:
    found = decoded(_TEXTS, text, path)
    return FrozenMap(found)


def labels_of(raw: msgspec.Raw, path: str = "metadata.labels") -> Labels:
    """Labels; objects with equal text share one map.

    Raises:
        UnreadableFieldError: a value is no text.
    """
    text = text_of(raw)
    return _labels(text, path) if text else EMPTY


def annotations_of(raw: msgspec.Raw) -> tuple[Labels, bool]:
    """Return the annotations that count, and whether the object is the mirror of a static pod.

    Raises:
        UnreadableFieldError: a value is no text.
    """
    text, path = text_of(raw), "metadata.annotations"
    if not text:
        return EMPTY, False
    found = decoded(_PARTS, text, path)
    honored = [key for key in found if key.startswith(KEPT_ANNOTATIONS) and not key.startswith(DROPPED_ANNOTATIONS)]
    kept = {key: decoded(_TEXT, found[key], path) for key in sorted(honored)} if honored else None
    return (FrozenMap(kept) if kept else EMPTY), MIRROR in found


def amounts_of(found: Mapping[str, Scalar] | None, path: str) -> Amounts:
    """Amounts of resources; those of 0 are left out.

    Raises:
        UnreadableFieldError: a quantity cannot be read.
    """
    amounts = {}
    for resource, quantity in (found or {}).items():
        try:
            amount = parse_amount(resource, quantity if isinstance(quantity, str) else repr(quantity))
        except QuantityError as error:
            raise UnreadableFieldError(f"{path}.{resource}", str(error)) from error
        if amount:
            amounts[resource] = amount
    return FrozenMap(amounts) if amounts else EMPTY


def one_of(value: str | None, allowed: tuple[str, ...], path: str) -> str:
    """Return the value; the first one allowed is what a missing value means.

    Raises:
        UnreadableFieldError: it is another one.
    """
    if value is None or value == "":
        return allowed[0]
    if value not in allowed:
        raise UnreadableFieldError(path, f"{value!r} is none of {', '.join(filter(None, allowed))}")
    return value


def controller_of(references: Iterable[OwnerReference] | None) -> Owner | None:
    """Return the controlling owner."""
    for reference in references or ():
        if reference.controller:
            return Owner(kind=reference.kind, name=reference.name, uid=reference.uid)
    return None


def condition_holds(conditions: Sequence[Condition] | None, type_: str) -> bool:
    """Return whether the condition is there and True."""
    return any(item.type == type_ and item.status == "True" for item in conditions or ())


def uid_of(meta: Meta) -> str:
    """Return the object's uid; hand-written lists may lack it, then its key stands for it."""
    return meta.uid or key_of(meta)


def name_of(meta: Meta) -> str:
    """Return the object's name.

    Raises:
        UnreadableFieldError: it has none.
    """
    if not meta.name:
        raise UnreadableFieldError("metadata.name", "is missing")
    return meta.name


def namespace_of(meta: Meta) -> str:
    """Return the object's namespace; `default` where none is written, as in the API."""
    return meta.namespace or "default"


def key_of(meta: Meta) -> str:
    """`namespace/name`, or `name` for what has no namespace: unique within one Kubernetes kind."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else str(meta.name)


# --- selectors


class RequirementIn(msgspec.Struct, gc=False):
    """An expression of a selector, as written."""

    key: str
    operator: str
    values: list[str] | None = None


class SelectorIn(msgspec.Struct, rename="camel", gc=False):
    """A label selector, as written."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[RequirementIn] | None = None


_LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS: Final = (*_LABEL_OPERATORS, "Gt", "Lt")
_SELECTORS: Final = msgspec.json.Decoder(SelectorIn)


def requirements_of(found: list[RequirementIn] | None, path: str, *, node: bool = False) -> tuple[Requirement, ...]:
    """Expressions of a label selector, or of a node selector, which may also compare.

    Raises:
        UnreadableFieldError: an operator is not known.
    """
    allowed = _NODE_OPERATORS if node else _LABEL_OPERATORS
    for index, item in enumerate(found or ()):
        if item.operator not in allowed:
            raise UnreadableFieldError(
                f"{path}[{index}].operator", f"{item.operator!r} is none of {', '.join(allowed)}"
            )
    return tuple(
        Requirement(key=item.key, operator=cast("Literal['In']", item.operator), values=tuple(item.values or ()))
        for item in found or ()
    )


def selector_from(found: SelectorIn | None, path: str) -> Selector | None:
    """Return a label selector; None where none is written.

    Raises:
        UnreadableFieldError: an operator is not known.
    """
    if found is None:
        return None
    return Selector(
        labels=FrozenMap(found.match_labels) if found.match_labels else EMPTY,
        expressions=requirements_of(found.match_expressions, f"{path}.matchExpressions"),
    )


@lru_cache(maxsize=_CACHED)
def _selector(text: bytes, path: str) -> Selector | None:
    return selector_from(decoded(_SELECTORS, text, path), path)


def selector_of(raw: msgspec.Raw, path: str = "spec.selector") -> Selector | None:
    """Return a label selector from its text: None where it is missing, everything where it is empty.

    Raises:
        UnreadableFieldError: it cannot be read.
    """
    text = bytes(raw)
    return None if text in (b"", b"null") else _selector(text, path)

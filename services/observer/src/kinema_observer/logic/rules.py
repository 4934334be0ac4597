"""Reader of a pod's placement rules: from the text of its spec to `PlacementRules`.

Rules repeat over all pods of a workload, so they are kept by their text. What restricts placement in a way that we do
not model is named in `unmodeled`; what cannot be understood at all makes the object unreadable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, cast, get_args, get_origin

import msgspec

from kinema_core.events import (
    NO_RULES,
    HostPort,
    NodeTerm,
    PlacementRules,
    PodTerm,
    PreferredNodeTerm,
    Spread,
    Toleration,
)
from kinema_core.model.match import EFFECTS
from kinema_core.model.vocabulary import KINEMA_PREFIX
from kinema_observer.errors import UnreadableFieldError
from kinema_observer.logic.reading import (
    RequirementIn,
    SelectorIn,
    decoded,
    labels_of,
    one_of,
    requirements_of,
    selector_from,
    text_of,
)
from kinema_observer.logic.wire import PodSpec


class _In(msgspec.Struct, rename="camel", gc=False):
    pass


class NodeTermIn(_In):
    """A node selector term, as written."""

    match_expressions: list[RequirementIn] | None = None
    match_fields: list[RequirementIn] | None = None


class NodeSelectorIn(_In):
    """A node selector, as written."""

    node_selector_terms: list[NodeTermIn] | None = None


class PreferredNodeIn(_In):
    """A preferred node term, as written."""

    weight: int
    preference: NodeTermIn


class NodeAffinityIn(_In):
    """`nodeAffinity`, as written."""

    required: NodeSelectorIn | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredNodeIn] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class PodTermIn(_In):
    """A pod affinity term, as written."""

    topology_key: str
    label_selector: SelectorIn | None = None
    namespaces: list[str] | None = None
    namespace_selector: SelectorIn | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PreferredPodIn(_In):
    """A preferred pod affinity term, as written."""

    weight: int
    pod_affinity_term: PodTermIn


class PodAffinityIn(_In):
    """`podAffinity` or `podAntiAffinity`, as written."""

    required: list[PodTermIn] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[PreferredPodIn] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class AffinityIn(_In):
    """`affinity`, as written."""

    node_affinity: NodeAffinityIn | None = None
    pod_affinity: PodAffinityIn | None = None
    pod_anti_affinity: PodAffinityIn | None = None


class TolerationIn(_In):
    """A toleration, as written."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class SpreadIn(_In):
    """A topology spread constraint, as written."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: SelectorIn | None = None
    min_domains: int | None = None
    match_label_keys: list[str] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


_NODE_SELECTORS: Final = msgspec.json.Decoder(NodeSelectorIn)
_AFFINITY: Final = msgspec.json.Decoder(AffinityIn)
_TOLERATIONS: Final = msgspec.json.Decoder(list[TolerationIn])
_SPREADS: Final = msgspec.json.Decoder(list[SpreadIn])
_POLICIES: Final = ("Honor", "Ignore")


def rules_of(
    spec: PodSpec, *, host_ports: tuple[HostPort, ...], claims: tuple[str, ...], unmodeled: tuple[str, ...]
) -> PlacementRules:
    """Return the placement rules of a pod or a template; pods with equal text share one value.

    Raises:
        UnreadableFieldError: an operator, an effect or a shape is not known.
    """
    return _rules(
        (
            text_of(spec.node_selector),
            text_of(spec.affinity),
            text_of(spec.tolerations),
            text_of(spec.topology_spread_constraints),
        ),
        host_ports,
        claims,
        unmodeled,
        spec.scheduler_name or NO_RULES.scheduler,
        bool(spec.scheduling_gates),
    )


@lru_cache(maxsize=65536)
def _rules(
    texts: tuple[bytes, bytes, bytes, bytes],
    host_ports: tuple[HostPort, ...],
    claims: tuple[str, ...],
    unmodeled: tuple[str, ...],
    scheduler: str,
    gated: bool,  # noqa: FBT001 - positional arguments make the cheapest cache key
) -> PlacementRules:
    selector, affinity_text, tolerations, spread = texts
    affinity = decoded(_AFFINITY, affinity_text, "spec.affinity") if affinity_text else AffinityIn()
    nodes = affinity.node_affinity or NodeAffinityIn()
    spreads, strange = _spread(spread)
    return PlacementRules(
        node_selector=labels_of(msgspec.Raw(selector), "spec.nodeSelector"),
        node_terms=node_terms(nodes.required, f"spec.affinity.nodeAffinity.{_REQUIRED}"),
        preferred_nodes=_preferred_nodes(nodes.preferred or ()),
        tolerations=_tolerations(tolerations),
        affinity=_pod_terms(affinity.pod_affinity, "spec.affinity.podAffinity"),
        anti_affinity=_pod_terms(affinity.pod_anti_affinity, "spec.affinity.podAntiAffinity"),
        spread=spreads,
        host_ports=host_ports,
        claims=claims,
        scheduler=scheduler,
        gated=gated,
        unmodeled=tuple(sorted({*unmodeled, *_strange_affinity(affinity_text, affinity), *strange})),
    )


# --- affinity

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def _strange_affinity(text: bytes, affinity: AffinityIn) -> tuple[str, ...]:
    """Return paths of rules that cannot be kept: fields of a later Kubernetes, and label keys that must differ.

    `mismatchLabelKeys` is merged into the selector of a pod when it is created, but stays unmerged in a template.
    """
    if not text:
        return ()
    found = set(_unknown_fields(AffinityIn, msgspec.json.decode(text), "spec.affinity"))
    for path, part in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
        if part is not None and any(term.mismatch_label_keys for term in part.required or ()):
            found.add(f"spec.affinity.{path}.{_REQUIRED}.mismatchLabelKeys")
    return tuple(sorted(found))


def node_terms(found: NodeSelectorIn | None, path: str) -> tuple[NodeTerm, ...] | None:
    """Alternatives of a required node selector; a term without any expression matches no node and is left out.

    Raises:
        UnreadableFieldError: an operator or a field of nodes is not known.
    """
    if found is None:
        return None
    terms = (
        _node_term(term, f"{path}.nodeSelectorTerms[{i}]") for i, term in enumerate(found.node_selector_terms or ())
    )
    return tuple(term for term in terms if term.expressions or term.fields)


def _node_term(term: NodeTermIn, path: str) -> NodeTerm:
    for index, item in enumerate(term.match_fields or ()):
        one_of(item.key, ("metadata.name",), f"{path}.matchFields[{index}].key")
    return NodeTerm(
        expressions=requirements_of(term.match_expressions, f"{path}.matchExpressions", node=True),
        fields=requirements_of(term.match_fields, f"{path}.matchFields", node=True),
    )


def _preferred_nodes(found: Sequence[PreferredNodeIn]) -> tuple[PreferredNodeTerm, ...]:
    """Return the owner's preferences without those that Kinema added to steer the pod in an earlier plan."""
    path = f"spec.affinity.nodeAffinity.{_PREFERRED}"
    terms = (
        PreferredNodeTerm(weight=_weight(item.weight), term=_node_term(item.preference, f"{path}[{index}].preference"))
        for index, item in enumerate(found)
    )
    return tuple(
        one for one in terms if not any(wanted.key.startswith(KINEMA_PREFIX) for wanted in one.term.expressions)
    )


def _weight(weight: int) -> int:
    """Return what the API admits: less must not turn a wish into a rule, nor more make it worth any machine."""
    return min(100, max(1, weight))


def _pod_terms(found: PodAffinityIn | None, path: str) -> tuple[PodTerm, ...]:
    if found is None:
        return ()
    required = (_pod_term(term, f"{path}.{_REQUIRED}[{i}]", 0) for i, term in enumerate(found.required or ()))
    preferred = (
        _pod_term(item.pod_affinity_term, f"{path}.{_PREFERRED}[{i}].podAffinityTerm", _weight(item.weight))
        for i, item in enumerate(found.preferred or ())
    )
    return (*required, *preferred)


def _pod_term(term: PodTermIn, path: str, weight: int) -> PodTerm:
    return PodTerm(
        topology_key=term.topology_key,
        selector=selector_from(term.label_selector, f"{path}.labelSelector"),
        namespaces=tuple(term.namespaces or ()),
        namespace_selector=selector_from(term.namespace_selector, f"{path}.namespaceSelector"),
        match_label_keys=tuple(term.match_label_keys or ()),
        weight=weight,
    )


# --- tolerations and spread


@lru_cache(maxsize=4096)
def _tolerations(text: bytes) -> tuple[Toleration, ...]:
    path = "spec.tolerations"
    found = decoded(_TOLERATIONS, text, path) if text else []
    return tuple(
        Toleration(
            key=item.key or "",
            operator=cast(
                "Literal['Equal']",
                one_of(item.operator, ("Equal", "Exists", "Gt", "Lt"), f"{path}[{index}].operator"),
            ),
            value=item.value or "",
            effect=one_of(item.effect, ("", *EFFECTS), f"{path}[{index}].effect"),
        )
        for index, item in enumerate(found)
    )


@lru_cache(maxsize=4096)
def _spread(text: bytes) -> tuple[tuple[Spread, ...], tuple[str, ...]]:
    path = "spec.topologySpreadConstraints"
    found = decoded(_SPREADS, text, path) if text else []
    strange = _unknown_fields(list[SpreadIn], msgspec.json.decode(text), path) if text else ()
    return tuple(_one_spread(item, f"{path}[{index}]") for index, item in enumerate(found)), strange


def _one_spread(item: SpreadIn, path: str) -> Spread:
    if item.max_skew < 1:
        raise UnreadableFieldError(f"{path}.maxSkew", f"is {item.max_skew}, must be 1 or more")
    when = one_of(item.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway"), f"{path}.whenUnsatisfiable")
    affinity = one_of(item.node_affinity_policy, _POLICIES, f"{path}.nodeAffinityPolicy")
    taints = one_of(item.node_taints_policy, _POLICIES[::-1], f"{path}.nodeTaintsPolicy")
    return Spread(
        topology_key=item.topology_key,
        max_skew=item.max_skew,
        when_unsatisfiable=cast("Literal['DoNotSchedule']", when),
        selector=selector_from(item.label_selector, f"{path}.labelSelector"),
        min_domains=item.min_domains or 1,
        match_label_keys=tuple(item.match_label_keys or ()),
        node_affinity_policy=cast("Literal['Honor']", affinity),
        node_taints_policy=cast("Literal['Ignore']", taints),
    )


def selector_terms_of(raw: msgspec.Raw, path: str) -> tuple[NodeTerm, ...] | None:
    """Return the terms of a node selector from its text, as persistent volumes have it.

    Raises:
        UnreadableFieldError: it cannot be read.
    """
    text = text_of(raw)
    return node_terms(decoded(_NODE_SELECTORS, text, path), path) if text else None


# --- fields of a later Kubernetes, which must not be ignored

_SILENT: Final[tuple[object, ...]] = (None, [], {}, "", False)


def _unknown_fields(kind: object, value: object, path: str) -> tuple[str, ...]:
    """Paths of the fields in `value` (plain JSON) that say something and that `kind` (a struct or list of one) lacks.

    Fields that are null or empty restrict nothing and are passed over.
    """
    return tuple(sorted(_walk(kind, value, path)))


def _walk(kind: object, value: object, path: str) -> Iterator[str]:
    known, inner = _shape(kind)
    if inner is not None and isinstance(value, list):
        for item in value:
            yield from _walk(inner, item, path)
    elif known and isinstance(value, dict):
        for key, item in value.items():
            if key not in known:
                if item not in _SILENT:
                    yield f"{path}.{key}"
            elif isinstance(item, (dict, list)):
                yield from _walk(known[key], item, f"{path}.{key}")


@lru_cache(maxsize=256)
def _shape(kind: object) -> tuple[Mapping[str, object], object]:
    """Return the fields of a struct by their name in JSON, and the item type of a list; `X | None` counts as `X`."""
    options = [option for option in get_args(kind) if option is not type(None)]
    if get_origin(kind) is list:
        return MappingProxyType({}), options[0]
    if len(options) == 1:
        return _shape(options[0])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return MappingProxyType({field.encode_name: field.type for field in msgspec.structs.fields(kind)}), None
    return MappingProxyType({}), None

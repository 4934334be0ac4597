"""Table of publishers and consumers, from which streams, consumers and rights are made.

Names on the broker: streams `KINEMA_STATE`, `KINEMA_LOG`, `KINEMA_USAGE`, `KINEMA_DLQ`, bucket `kinema_lease`, and one
durable consumer `<service>-<cluster token>` for every service that answers events.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from kinema_core.events import (
    BODIES,
    PREFIX,
    AbortRequested,
    Body,
    CatalogPublished,
    ClusterDelta,
    ClusterSnapshot,
    DeadLetter,
    EventsRestated,
    ExecutionAborted,
    ExecutionCompleted,
    ExecutionPaused,
    ExecutionResumed,
    ForecastMade,
    IterationSkipped,
    IterationStarted,
    NodeDeletionRequested,
    NoPlanFound,
    ObserverHeartbeat,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanApproved,
    PlanRejected,
    PolicyEvaluated,
    ServiceStarted,
    StepFailed,
    StepStarted,
    StepSucceeded,
    UsageCompacted,
    UsageResampled,
    UsageSampled,
    kind_of_type,
    token,
)
from kinema_core.events.upcast import UPCASTERS
from kinema_core.runtime.bus import STREAM_OF_FAMILY, StreamName

_EVERY_SERVICE: Final[tuple[type[Body], ...]] = (ServiceStarted, DeadLetter)

PUBLISHES: Final[dict[str, tuple[type[Body] | type[Plan], ...]]] = {
    "observer": (
        ClusterSnapshot,
        ClusterDelta,
        UsageSampled,
        ObserverHeartbeat,
        UsageResampled,
        UsageCompacted,
        IterationStarted,
        IterationSkipped,
        NodeDeletionRequested,
        *_EVERY_SERVICE,
    ),
    "predictor": (ForecastMade, *_EVERY_SERVICE),
    "optimizer": (Plan, NoPlanFound, PolicyEvaluated, *_EVERY_SERVICE),
    "decider": (PlanAccepted, PlanRejected, PlanApprovalRequested, *_EVERY_SERVICE),
    "rescheduler": (
        CatalogPublished,
        StepStarted,
        StepSucceeded,
        StepFailed,
        ExecutionCompleted,
        ExecutionAborted,
        EventsRestated,
        *_EVERY_SERVICE,
    ),
    "operator": (Plan, ExecutionPaused, ExecutionResumed, PlanApproved, AbortRequested),
}
"""Bodies that each user of the broker may publish."""

CONSUMES: Final[dict[str, tuple[type[Body] | type[Plan], ...]]] = {
    "predictor": (IterationStarted,),
    "optimizer": (ForecastMade, IterationStarted),
    "decider": (Plan, PlanApproved),
}
"""Bodies delivered to the durable consumer of each service that answers events."""

LEASES: Final[tuple[str, ...]] = ("observer", "rescheduler")
"""Services of which only one process may act: each may write the lease of its own name."""

STREAMS: Final[dict[StreamName, str]] = {
    "STATE": "KINEMA_STATE",
    "LOG": "KINEMA_LOG",
    "DLQ": "KINEMA_DLQ",
    "USAGE": "KINEMA_USAGE",
}
READS_USAGE: Final[tuple[str, ...]] = ("observer", "predictor", "operator")
"""Users that read what workloads used."""
LEASE_BUCKET: Final = "kinema_lease"
CHUNK: Final = "chunk.v1.part"
WORK_STREAM: Final = "KINEMA_WORK"
"""The work queue: holds no events, and nothing that is worth keeping."""
WORKS: Final[tuple[str, ...]] = ("optimizer",)
"""Services whose processes share work."""

_BODY_OF_KIND: Final[dict[str, type[Body] | type[Plan]]] = {kind_of_type(body.TYPE): body for body in BODIES}


def kinds_of(bodies: tuple[type[Body] | type[Plan], ...]) -> tuple[str, ...]:
    """Kinds of these bodies, as they stand in subjects."""
    return tuple(kind_of_type(body.TYPE) for body in bodies)


def stream_of(family: str) -> StreamName:
    """Return the stream that holds a family's events."""
    return STREAM_OF_FAMILY[family]


def _body_of(kind: str) -> type[Body] | type[Plan]:
    body = _BODY_OF_KIND.get(kind)
    if body is None:
        raise ValueError(f"{kind!r} is no kind of event: use one of {', '.join(sorted(_BODY_OF_KIND))}")
    return body


def subject(cluster: str, kind: str) -> str:
    """Return the subject on which events of a kind are published in a cluster.

    Raises:
        ValueError: no event has that kind.
    """
    body = _body_of(kind)
    return f"{PREFIX}.{token(cluster)}.{body.FAMILY}.{body.TYPE}"


def types_of(kinds: Iterable[str]) -> frozenset[str]:
    """Return the types that this version reads of these kinds: the current one, and older ones that it lifts.

    Raises:
        ValueError: no event has that kind.
    """
    wanted = {kind: _body_of(kind).TYPE for kind in kinds}
    return frozenset([*wanted.values(), *(old for old in UPCASTERS if kind_of_type(old) in wanted)])


def subjects(cluster: str, kinds: Iterable[str]) -> list[str]:
    """Return the subjects from which events of these kinds are read in a cluster, sorted."""
    prefix = f"{PREFIX}.{token(cluster)}"
    return sorted(f"{prefix}.{_body_of(kind_of_type(type_)).FAMILY}.{type_}" for type_ in types_of(kinds))


def all_events(cluster: str) -> str:
    """Return the wildcard over all events of a cluster. Chunks have one token more and stay outside."""
    return f"{PREFIX}.{token(cluster)}.*.*.*"


def chunk_subject(cluster: str, family: str, digest: str) -> str:
    """Return where the chunks of a big event lie; `*` as digest gives the wildcard over all of them."""
    return f"{PREFIX}.{token(cluster)}.{family}.{CHUNK}.{digest[:32]}"


def type_in(subject_: str) -> str:
    """Return the type in a subject (`plan-proposed.v1`), empty where there is none."""
    tokens = subject_.split(".")
    return ".".join(tokens[4:]) if len(tokens) == 6 else ""


def kind_in(subject_: str) -> str:
    """Return the kind in a subject (`plan-proposed`), empty where there is none."""
    return kind_of_type(type_in(subject_))


def consumer_name(service: str, cluster: str) -> str:
    """Name of a service's durable consumer for a cluster."""
    return f"{service}-{token(cluster)}"


def lease_subject(cluster: str, name: str) -> str:
    """Subject of a lease; keys take no `%`, so tokens are written with `=` in its place."""
    return f"$KV.{LEASE_BUCKET}.{token(cluster).replace('%', '=')}.{token(name).replace('%', '=')}"


def inbox_prefix(user: str) -> str:
    """Prefix of the reply subjects that a user may listen on, `service` or `service@cluster`."""
    return f"_INBOX_{user.partition('@')[0] or 'kinema'}"


def work_subject(cluster: str, service: str) -> str:
    """Subject of the items that a service's processes share."""
    return f"{PREFIX}.{token(cluster)}.work.{service}.item"


def blob_subject(cluster: str, service: str, digest: str, index: int | Literal["*"]) -> str:
    """Subject of one chunk of what several items need; `*` for digest and index gives the wildcard over all."""
    return f"{PREFIX}.{token(cluster)}.work.{service}.blob.{digest[:32]}.{index}"


def work_consumer(cluster: str, service: str) -> str:
    """Name of the durable consumer from which a service's processes take items."""
    return f"work-{service}-{token(cluster)}"

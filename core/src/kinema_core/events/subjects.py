"""Subjects of events: `kinema.v1.<cluster>.<family>.<kind>`.

Names may hold dots, stars and spaces; a subject token may not. Tokens are percent-encoded over what NATS and its
command line take without quoting.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from kinema_core.events.codec import Event

PREFIX = "kinema.v1"


def token(name: str) -> str:
    """Encode a name as one subject token; raises ValueError for an empty name."""
    if not name:
        message = "a subject token cannot be empty: give the cluster a name"
        raise ValueError(message)
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")


def untoken(encoded: str) -> str:
    """The name that `token` encoded."""
    return unquote(encoded)


def kind_of_type(type_: str) -> str:
    """`plan-proposed.v1` → `plan-proposed`."""
    return type_.rpartition(".")[0]


def subject_of(event: Event) -> str:
    """The subject that an event is published on."""
    return f"{PREFIX}.{token(event.cluster)}.{event.body.FAMILY}.{kind_of_type(event.type)}"


def family_subjects(cluster: str, family: str) -> str:
    """The wildcard over all kinds of a family in one cluster."""
    return f"{PREFIX}.{token(cluster)}.{family}.>"

"""Subjects of events: `kinema.v1.<cluster>.<family>.<kind>.<version>`.

The version of an event is in its subject: a reader that asks for the versions it knows never gets a newer one, which
others may read already. The `v1` in front is the version of the subjects themselves.

Names may hold dots, stars and spaces; a subject token may not. Tokens are percent-encoded over what NATS and its
command line take without quoting.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from kinema_core.events.codec import Event

PREFIX = "kinema.v1"


def token(name: str) -> str:
    """Encode a name as one subject token.

    Raises:
        ValueError: the name is empty.
    """
    if not name:
        raise ValueError("a subject token cannot be empty: give the cluster a name")
    return quote(name, safe="").replace(".", "%2E").replace("~", "%7E")


def untoken(encoded: str) -> str:
    """Return the name that `token` encoded."""
    return unquote(encoded)


def kind_of_type(type_: str) -> str:
    """Return a type without its version: `plan-proposed.v1` → `plan-proposed`."""
    return type_.rpartition(".")[0]


def subject_of(event: Event) -> str:
    """Return the subject that an event is published on."""
    return f"{PREFIX}.{token(event.cluster)}.{event.body.FAMILY}.{event.type}"

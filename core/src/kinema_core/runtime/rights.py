"""Rights on the broker: one user per service, with exactly the rights that it needs. Pure.

NATS checks rights by subject. Reading goes through API subjects that name a stream, so a service may read all events of
the pipeline's streams; it may publish nothing but its own kinds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from kinema_core.runtime.topology import (
    CONSUMES,
    LEASE_BUCKET,
    LEASES,
    PUBLISHES,
    STREAMS,
    WORK_STREAM,
    WORKS,
    blob_subject,
    chunk_subject,
    consumer_name,
    inbox_prefix,
    kinds_of,
    lease_subject,
    stream_of,
    subject,
    work_consumer,
    work_subject,
)

ADMIN: Final = "admin"
"""Creates streams and consumers; publishes no event."""
OPERATOR: Final = "operator"
"""The command line: reads everything, publishes the operator's word."""
USERS: Final[tuple[str, ...]] = (*PUBLISHES, ADMIN)


def authorization(passwords: Mapping[str, str], clusters: Sequence[str]) -> dict[str, object]:
    """Return the `authorization` block of a nats-server's configuration (JSON is valid there).

    Args:
        passwords: by user; a bcrypt hash (`nats server passwd`) is taken as such by the server.
        clusters: names of the clusters whose pipelines the users serve.

    Raises:
        ValueError: a user has no password.
    """
    missing = [user for user in USERS if not passwords.get(user)]
    if missing:
        raise ValueError(f"no password for {', '.join(missing)}: every user of the broker needs one")
    return {
        "users": [
            {
                "user": user,
                "password": passwords[user],
                "permissions": {
                    "publish": {"allow": publish_rights(user, clusters)},
                    "subscribe": {"allow": [f"{inbox_prefix(user)}.>"]},
                },
            }
            for user in USERS
        ]
    }


def authorization_text(clusters: Sequence[str]) -> str:
    """Return the block as text, with a variable of the server's environment as each password: `$OBSERVER_PASSWORD`."""
    block = authorization({user: f"${user.upper()}_PASSWORD" for user in USERS}, clusters)
    # The server replaces a variable only where no quotes stand around it.
    return re.sub(r'"(\$[A-Z]+_PASSWORD)"', r"\1", json.dumps(block, indent=2))


def publish_rights(user: str, clusters: Sequence[str]) -> list[str]:
    """Subjects that a user may publish on, API calls included, sorted."""
    if user == ADMIN:
        return ["$JS.API.>"]
    rights = set(_reading(user))
    for cluster in clusters:
        rights.update(_publishing(user, cluster))
        rights.update(_consuming(user, cluster))
        if user in LEASES:
            rights.add(lease_subject(cluster, user))
            rights.update(f"$JS.API.STREAM.{call}.KV_{LEASE_BUCKET}" for call in ("INFO", "MSG.GET"))
        if user in WORKS:
            rights.update(_working(user, cluster))
    return sorted(rights)


def _reading(user: str) -> list[str]:
    streams = [STREAMS["STATE"], STREAMS["LOG"]]
    if user == OPERATOR:
        streams.append(STREAMS["DLQ"])
    calls = ("STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET")
    rights = [f"$JS.API.{call}.{stream}" for stream in streams for call in calls]
    if user == OPERATOR:
        rights.append(f"$JS.API.CONSUMER.INFO.{STREAMS['LOG']}.*")
    return rights


def _publishing(user: str, cluster: str) -> list[str]:
    bodies = PUBLISHES[user]
    rights = [subject(cluster, kind) for kind in kinds_of(bodies)]
    for family in sorted({body.FAMILY for body in bodies}):
        stream = STREAMS[stream_of(family)]
        rights.append(chunk_subject(cluster, family, "*"))
        # An ambiguous publish is settled by reading the subject back.
        rights += [f"$JS.API.STREAM.MSG.GET.{stream}", f"$JS.API.STREAM.INFO.{stream}"]
    return rights


def _consuming(user: str, cluster: str) -> list[str]:
    if user not in CONSUMES:
        return []
    log, consumer = STREAMS["LOG"], consumer_name(user, cluster)
    return [
        f"$JS.API.CONSUMER.INFO.{log}.{consumer}",
        f"$JS.API.CONSUMER.MSG.NEXT.{log}.{consumer}",
        f"$JS.ACK.{log}.{consumer}.>",
    ]


def _working(user: str, cluster: str) -> list[str]:
    """Sharing work among the processes of one service: they ask, take items, and answer each other."""
    consumer = work_consumer(cluster, user)
    return [
        work_subject(cluster, user),
        blob_subject(cluster, user, "*", "*"),
        f"$JS.API.STREAM.MSG.GET.{WORK_STREAM}",
        f"$JS.API.CONSUMER.INFO.{WORK_STREAM}.{consumer}",
        f"$JS.API.CONSUMER.MSG.NEXT.{WORK_STREAM}.{consumer}",
        f"$JS.ACK.{WORK_STREAM}.{consumer}.>",
        f"{inbox_prefix(user)}.>",
    ]

"""Rights on the broker: one user per service, with exactly the rights that it needs. Pure.

NATS checks rights by subject. Reading goes through API subjects that name a stream, so a service may read all events of
the pipeline's streams; it may publish nothing but its own kinds.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final, Literal, TypeAlias

from kinema_core.runtime.setup import GIBIBYTE, Layout, storage_bytes
from kinema_core.runtime.topology import (
    CONSUMES,
    LEASE_BUCKET,
    LEASES,
    PUBLISHES,
    READS_USAGE,
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
"""Creates, copies and restores streams and consumers; publishes no event."""
OPERATOR: Final = "operator"
"""The command line: reads everything, publishes the operator's word."""
USERS: Final[tuple[str, ...]] = (*PUBLISHES, ADMIN)
Proof: TypeAlias = Literal["password", "nkey"]
"""What a user proves itself with, as the server's configuration names it."""
ACCOUNT_BYTES: Final = ceil(storage_bytes(Layout(clusters=())) / GIBIBYTE) * GIBIBYTE
"""Storage of an account, in whole GiB: enough for the streams in the sizes that `setup` gives them."""
ACCOUNT_STREAMS: Final = 6
ACCOUNT_CONSUMERS: Final = 16
"""Those of the services, and some for a person who looks into a stream."""


def authorization(
    secrets: Mapping[str, str], clusters: Sequence[str], *, proof: Proof = "password"
) -> dict[str, object]:
    """Return the `authorization` block of a nats-server's configuration (JSON is valid there).

    Args:
        secrets: by user; a password or its bcrypt hash (`nats server passwd`), or the public key of an NKEY.
        clusters: names of the clusters whose pipelines the users serve.
        proof: what the secrets are.

    Raises:
        ValueError: a user has no secret.
    """
    return {"users": _users(secrets, clusters, proof, at="")}


def accounts(
    secrets: Mapping[str, str], clusters: Sequence[str], *, proof: Proof = "password", store: int = ACCOUNT_BYTES
) -> dict[str, object]:
    """Return the `accounts` block of a nats-server's configuration: one account per cluster, which imports nothing.

    As in `authorization`, but a user is named `service@cluster` in the secrets, and with passwords on the broker too:
    there a name may stand in one account only. `store` limits the bytes of an account's streams, all copies together.
    """
    return {
        account_name(cluster): {
            "jetstream": {"max_file": store, "max_streams": ACCOUNT_STREAMS, "max_consumers": ACCOUNT_CONSUMERS},
            "users": _users(secrets, [cluster], proof, at=f"@{cluster}"),
        }
        for cluster in clusters
    }


def account_name(cluster: str) -> str:
    """Return the name of a cluster's account."""
    return f"kinema-{cluster}"


def _users(secrets: Mapping[str, str], clusters: Sequence[str], proof: Proof, *, at: str) -> list[dict[str, object]]:
    missing = [user + at for user in USERS if not secrets.get(user + at)]
    if missing:
        raise ValueError(f"no {proof} for {', '.join(missing)}: every user of the broker needs one")
    return [
        {
            **({"user": user + at} if proof == "password" else {}),
            proof: secrets[user + at],
            "permissions": {
                "publish": {"allow": publish_rights(user, clusters)},
                "subscribe": {"allow": [f"{inbox_prefix(user)}.>"]},
            },
        }
        for user in USERS
    ]


def authorization_text(clusters: Sequence[str], proof: Proof = "password") -> str:
    """Return the block as text, with a variable of the server's environment as each secret: `$OBSERVER_PASSWORD`."""
    return _text(authorization({user: _variable(user, proof) for user in USERS}, clusters, proof=proof))


def accounts_text(clusters: Sequence[str], proof: Proof = "password", store: int = ACCOUNT_BYTES) -> str:
    """Return the accounts as text, with a variable as each secret: `$OBSERVER_PROD_PASSWORD`."""
    named = [f"{user}@{cluster}" for cluster in clusters for user in USERS]
    secrets = {name: _variable(name, proof) for name in named}
    return _text(accounts(secrets, clusters, proof=proof, store=store))


def nsc_text(clusters: Sequence[str], store: int = ACCOUNT_BYTES) -> str:
    """Return the commands of `nsc` that make the accounts and users of a broker that trusts signed tokens."""
    lines = []
    for cluster in clusters:
        name = shlex.quote(account_name(cluster))
        limits = f"--js-disk-storage {store} --js-streams {ACCOUNT_STREAMS} --js-consumer {ACCOUNT_CONSUMERS}"
        lines += [f"nsc add account --name {name}", f"nsc edit account --name {name} {limits}"]
        for user in USERS:
            publish = shlex.quote(",".join(publish_rights(user, [cluster])))
            subscribe = shlex.quote(f"{inbox_prefix(user)}.>")
            rights = f"--allow-pub {publish} --allow-sub {subscribe}"
            lines.append(f"nsc add user --account {name} --name {user} {rights}")
    return "\n".join(lines)


def _variable(name: str, proof: Proof) -> str:
    return "$" + re.sub(r"[^A-Z0-9]+", "_", f"{name}_{proof}".upper())


def _text(block: Mapping[str, object]) -> str:
    # The server replaces a variable only where no quotes stand around it.
    return re.sub(r'"(\$[A-Z0-9_]+_(PASSWORD|NKEY))"', r"\1", json.dumps(block, indent=2))


def publish_rights(user: str, clusters: Sequence[str]) -> list[str]:
    """Subjects that a user may publish on, API calls included, sorted."""
    if user == ADMIN:
        return ["$JS.API.>", "$JS.SNAPSHOT.>"]
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
    if user in READS_USAGE:
        streams.append(STREAMS["USAGE"])
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

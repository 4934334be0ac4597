"""Keys of operators, accounts and users, and the tokens that they sign, as `nsc` makes them."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from typing import Any

import nkeys

from kinema_core.runtime.rights import (
    ACCOUNT_BYTES,
    ACCOUNT_CONSUMERS,
    ACCOUNT_STREAMS,
    USERS,
    account_name,
    publish_rights,
)
from kinema_core.runtime.topology import inbox_prefix

_UNLIMITED = {"subs": -1, "data": -1, "payload": -1}


class Key:
    """A key pair with the name of its role: operator, account or user."""

    def __init__(self, prefix: int) -> None:
        self.seed: str = nkeys.encode_seed(secrets.token_bytes(32), prefix).decode()
        self._pair = nkeys.from_seed(bytearray(self.seed.encode()))
        self.public: str = self._pair.public_key.decode()

    def token(self, subject: Key, kind: str, name: str, nats: Mapping[str, Any], *, issued: int = 1) -> str:
        """Sign a token about another key."""
        claims = {"jti": f"{name}-{issued}", "iat": issued, "iss": self.public, "name": name, "sub": subject.public}
        parts = ({"typ": "JWT", "alg": "ed25519-nkey"}, {**claims, "nats": {**nats, "type": kind, "version": 2}})
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_encoded(self._pair.sign(signed.encode()))}"


def user_key() -> Key:
    """Make the key of a user."""
    return Key(nkeys.PREFIX_BYTE_USER)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Operator:
    """An operator, and an account for each of the clusters with the rights that `kinema nats-rights` prints."""

    def __init__(self, clusters: tuple[str, ...]) -> None:
        self._key = Key(nkeys.PREFIX_BYTE_OPERATOR)
        self._accounts = {cluster: Key(nkeys.PREFIX_BYTE_ACCOUNT) for cluster in (*clusters, "SYS")}
        self._issued = 1
        self._revoked: dict[str, int] = {}

    def revoke(self) -> None:
        """Take back all that users were given until now; it holds in the next configuration."""
        self._revoked = {"*": self._issued}
        self._issued += 1

    def config(self) -> dict[str, Any]:
        """Return the configuration of a broker that trusts this operator."""
        connections = {**_UNLIMITED, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
        stored = {"disk_storage": ACCOUNT_BYTES, "streams": ACCOUNT_STREAMS, "consumer": ACCOUNT_CONSUMERS}
        preload = {}
        for cluster, key in self._accounts.items():
            limits = connections if cluster == "SYS" else {**connections, **stored}
            preload[key.public] = self._key.token(
                key, "account", account_name(cluster), {"limits": limits, "revocations": self._revoked}
            )
        return {
            "operator": self._key.token(self._key, "operator", "kinema", {}),
            "resolver": "MEMORY",
            "resolver_preload": preload,
            "system_account": self._accounts["SYS"].public,
        }

    def creds(self, cluster: str, user: str) -> str:
        """Return the `.creds` file of a new key of a user."""
        assert user in USERS
        key = user_key()
        rights = {"pub": {"allow": publish_rights(user, [cluster])}, "sub": {"allow": [f"{inbox_prefix(user)}.>"]}}
        token = self._accounts[cluster].token(key, "user", user, {**rights, **_UNLIMITED}, issued=self._issued)
        return (
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{key.seed}\n------END USER NKEY SEED------\n"
        )

"""Connecting to a broker that the command line names."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit, urlunsplit

from kinema_core.runtime.settings import RuntimeSettings


class AddressError(ValueError):
    """The address of the broker cannot be used; the text says what is expected."""


def settings_for(nats: str, cluster: str) -> RuntimeSettings:
    """Settings of a client of the broker at `nats`; several addresses are separated by commas.

    User and password may stand in the first address: `nats://user:password@host:port`.

    Raises:
        AddressError: no such address, or no name of a cluster.
    """
    try:
        addresses = [urlsplit(address if "//" in address else f"nats://{address}") for address in nats.split(",")]
        usable = all(item.hostname and item.scheme in ("nats", "tls") and item.port != 0 for item in addresses)
    except ValueError:  # open brackets, or a port above 65535
        addresses, usable = [], False
    if not usable:
        # Never repeat the address: it may hold a password.
        raise AddressError("--nats is no address of a broker: write nats://user:password@host:port")
    if not cluster:
        raise AddressError("--cluster is empty: give the name under which the cluster's events are published")
    plain = [urlunsplit((item.scheme, item.netloc.rpartition("@")[2], "", "", "")) for item in addresses]
    return RuntimeSettings(
        cluster=cluster,
        nats_url=",".join(plain),
        nats_user=unquote(addresses[0].username or ""),
        nats_password=unquote(addresses[0].password or ""),
        nats_connect_seconds=5.0,
    )

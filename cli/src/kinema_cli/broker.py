"""Connection to the broker that the command line names."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from kinema_cli.inputs import UsageError, cluster_name
from kinema_core.runtime.bus import Bus
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import RuntimeSettings

T = TypeVar("T")

PASSWORD_FILE: Final = "KINEMA_NATS_PASSWORD_FILE"  # noqa: S105 - a name


class AddressError(UsageError):
    """The address of the broker cannot be used; the text says what is expected."""


def settings_for(nats: str, cluster: str = "") -> RuntimeSettings:
    """Return settings of a client of the broker at `nats`; several addresses are separated by commas.

    Without a cluster's name it is that of the current context.

    User and password may stand in the first address: `nats://user:password@host:port`; without a password there, it is
    that in the file named by `KINEMA_NATS_PASSWORD_FILE`.

    Raises:
        AddressError: the address has another form.
    """
    try:
        addresses = [urlsplit(address if "//" in address else f"nats://{address}") for address in nats.split(",")]
        usable = all(item.hostname and item.scheme in ("nats", "tls") and item.port != 0 for item in addresses)
    except ValueError:  # open brackets, or a port above 65535
        addresses, usable = [], False
    if not usable:
        # Never repeat the address: it may hold a password.
        raise AddressError("--nats is not the address of a broker; write nats://user:password@host:port")
    plain = [urlunsplit((item.scheme, item.netloc.rpartition("@")[2], "", "", "")) for item in addresses]
    return RuntimeSettings(
        cluster=cluster_name(cluster),
        nats_url=",".join(plain),
        nats_user=unquote(addresses[0].username or ""),
        nats_password=unquote(addresses[0].password or ""),
        nats_password_file="" if addresses[0].password else os.environ.get(PASSWORD_FILE, ""),
        nats_connect_seconds=5.0,
    )


async def on_bus(settings: RuntimeSettings, work: Callable[[Bus], Awaitable[T]]) -> T:
    """Connect, do the work, and close the connection; raises BusError."""
    bus = await connect(settings)
    try:
        return await work(bus)
    finally:
        await bus.close()

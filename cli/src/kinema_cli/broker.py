"""Connection to the broker that the command line names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kinema_cli.inputs import UsageError, as_variables, cluster_name
from kinema_cli.output import print_note
from kinema_core.runtime.bus import Bus
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import NATS_FILES, RuntimeSettings

T = TypeVar("T")

_FROM_ENVIRONMENT: Final = (*NATS_FILES, "nats_user", "nats_server_name")
"""Settings that a variable of the environment gives: `KINEMA_NATS_PASSWORD_FILE` and so on."""
_QUIET_SECONDS: Final = 1.0
"""After them a command that still connects shows that it does."""


class AddressError(UsageError):
    """The address of the broker cannot be used; the text says what is expected."""


def settings_for(nats: str, cluster: str = "") -> RuntimeSettings:
    """Return settings of a client of the broker at `nats`; several addresses are separated by commas.

    Without a cluster's name it is that of the current context.

    User and password may stand in the first address: `nats://user:password@host:port`. What does not stand there is
    taken from the environment: `KINEMA_NATS_USER`, `KINEMA_NATS_PASSWORD_FILE`, `KINEMA_NATS_CA_FILE` and so on.

    Raises:
        AddressError: the address has another form. UsageError: two variables contradict each other.
    """
    try:
        addresses = [urlsplit(address if "//" in address else f"nats://{address}") for address in nats.split(",")]
        usable = all(item.hostname and item.scheme in ("nats", "tls") and item.port != 0 for item in addresses)
    except ValueError:  # open brackets, or a port above 65535
        addresses, usable = [], False
    if not usable:
        # Never repeat the address: it may hold a password.
        raise AddressError("--nats is not the address of a broker; write nats://user@host:port")
    plain = [urlunsplit((item.scheme, item.netloc.rpartition("@")[2], "", "", "")) for item in addresses]
    given = _given()
    if addresses[0].username:
        given["nats_user"] = unquote(addresses[0].username)
    if addresses[0].password:
        given |= {"nats_password": unquote(addresses[0].password), "nats_password_file": ""}
    try:
        return RuntimeSettings(
            cluster=cluster_name(cluster), nats_url=",".join(plain), nats_connect_seconds=5.0, **given
        )
    except ValueError as error:
        raise UsageError(as_variables(str(error))) from error


def _given() -> dict[str, Any]:
    """Return the settings of the connection that the environment gives, files by absolute paths."""
    found = {name: os.environ.get(f"KINEMA_{name.upper()}", "") for name in _FROM_ENVIRONMENT}
    return {name: str(Path(text).absolute()) if name in NATS_FILES else text for name, text in found.items() if text}


def environment_of(settings: RuntimeSettings) -> dict[str, str]:
    """Return variables with which `kinema` connects as these settings do; their password is among them."""
    password = f":{quote(settings.nats_password, safe='')}" if settings.nats_password else ""
    user = f"{quote(settings.nats_user, safe='')}{password}@" if settings.nats_user else ""
    scheme, _, place = settings.nats_url.partition("://")
    others = {name: getattr(settings, name) for name in _FROM_ENVIRONMENT if name != "nats_user"}
    return {
        "KINEMA_NATS": f"{scheme}://{user}{place}",
        **{f"KINEMA_{name.upper()}": value for name, value in others.items() if value},
        "KINEMA_CLUSTER": settings.cluster,
    }


async def on_bus(settings: RuntimeSettings, work: Callable[[Bus], Awaitable[T]]) -> T:
    """Connect, do the work, and close the connection; a wait for the broker is shown. Raises BusError."""
    note = f"waiting up to {settings.nats_connect_seconds:g} s for the broker at {settings.nats_url}"
    shown = asyncio.get_running_loop().call_later(_QUIET_SECONDS, print_note, note)
    try:
        bus = await connect(settings)
    finally:
        shown.cancel()
    try:
        return await work(bus)
    finally:
        await bus.close()

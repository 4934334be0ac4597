"""Rights that a user of the broker lacks for a service, found without any effect."""

from __future__ import annotations

import asyncio
from typing import Final

from kinema_core.runtime.bus import BusDeniedError, BusUnavailableError
from kinema_core.runtime.nats_connection import Connection
from kinema_core.runtime.rights import publish_rights
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.topology import inbox_prefix

_REFUSED: Final = {"Nats-Expected-Stream": "none"}
"""Header with which no stream stores a message."""
_UNREADABLE: Final = b"{"
"""Body that each call of the API refuses, also the one that would take a message from a consumer."""
_SECONDS: Final = 2.0
"""Wait for the broker's refusal; an allowed message may stay without an answer."""


async def missing_rights(settings: RuntimeSettings, service: str) -> tuple[str, ...]:
    """Return the subjects on which a service publishes and the user of the settings may not.

    Raises:
        BusDeniedError: wrong credentials. BusUnavailableError.
    """
    own = inbox_prefix(settings.nats_user)
    rights = [right.replace(inbox_prefix(service), own) for right in publish_rights(service, [settings.cluster])]
    connection = Connection("kinema-doctor")
    await connection.open(settings)
    try:
        may = await asyncio.gather(*(_may_publish(connection, right) for right in rights))
    finally:
        await connection.close()
    return tuple(right for right, allowed in zip(rights, may, strict=True) if not allowed)


async def _may_publish(connection: Connection, right: str) -> bool:
    subject = right.replace("*", "none").replace(">", "none")
    try:
        await connection.request(subject, _UNREADABLE, headers=_REFUSED, seconds=_SECONDS)
    except BusDeniedError:
        return False
    except BusUnavailableError:  # an acknowledgment, and an inbox that is not open, get no answer
        return True
    return True

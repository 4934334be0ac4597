"""Publication of the settings that a service runs with, so that a replay decides under the same ones."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from kinema_core.events import ServiceStarted
from kinema_core.runtime.bus import Bus
from kinema_core.runtime.clock import Clock
from kinema_core.runtime.envelope import origin


def settings_text(settings: msgspec.Struct) -> str:
    """Return the settings as JSON with sorted keys, without the `runtime` section, which decides nothing."""
    fields = msgspec.to_builtins(settings)
    fields.pop("runtime", None)
    return msgspec.json.encode(fields, order="deterministic").decode()


async def announce(bus: Bus, clock: Clock, *, service: str, cluster: str, settings: msgspec.Struct) -> None:
    """Publish `service-started` when the settings differ from those of the service's last start."""
    text = settings_text(settings)
    count, last = 0, None
    async for item in bus.read("LOG", kinds=("service-started",)):
        body = getattr(getattr(item, "event", None), "body", None)
        if isinstance(body, ServiceStarted) and body.service == service:
            count, last = count + 1, body.settings
    if last == text:
        return
    # Two processes with different settings may start at once: the digest keeps both events.
    digest = sha256(text.encode()).hexdigest()[:8]
    await bus.publish(
        origin(
            ServiceStarted(service=service, settings=text),
            id_=f"{cluster}/{service}/started-{count + 1}-{digest}",
            cluster=cluster,
            iteration="",
            now=clock.now(),
        )
    )

"""An acceptance forged by whoever has the password of one user of the broker."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from nats.aio.client import Client

from kinema_core.events import PREFIX, Event, Plan, PlanAccepted, encode, subject_of
from kinema_core.runtime.envelope import answer
from kinema_core.runtime.framing import HEADER_ID, HEADER_MESSAGE_ID
from kinema_core.runtime.rights import ADMIN, USERS, publish_rights
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.topology import inbox_prefix

FORGERS: Final = sorted({*USERS} - {ADMIN, "decider"})
"""Users who may publish events, but no acceptance."""


def acceptance(proposal: Event, now: datetime) -> Event:
    """Return the decider's word that a plan is accepted."""
    assert isinstance(proposal.body, Plan)
    body = PlanAccepted(plan=proposal.id, version=proposal.body.base_version)
    return answer(body, cause=proposal, service="decider", n=0, now=now, state=1)


async def forge(settings: RuntimeSettings, event: Event) -> list[str]:
    """Publish an event on its own subject and wherever in LOG a user may publish; return where it may."""
    user, cluster = settings.nats_user, settings.cluster
    families = tuple(f"{PREFIX}.{cluster}.{family}." for family in ("plan", "exec", "control"))
    own = [right.replace("*", "forged") for right in publish_rights(user, (cluster,)) if right.startswith(families)]
    client = Client()
    inbox = inbox_prefix(user).encode()
    await client.connect(settings.nats_url, user=user, password=settings.nats_password, inbox_prefix=inbox)
    for number, subject in enumerate([subject_of(event), *own]):
        headers = {HEADER_ID: f"forged-{number}", HEADER_MESSAGE_ID: f"forged-{user}-{number}"}
        await client.publish(subject, encode(event), headers=headers)
    await client.flush()
    await client.close()
    return own

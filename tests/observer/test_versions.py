"""Versions of the state after the loss of its stream."""

from __future__ import annotations

from tests.support.builders import NOW, node

from kinema_core.events import IterationStarted
from kinema_core.runtime.envelope import origin
from kinema_observer.publishing import StatePublisher
from kinema_sim.memory_bus import MemoryBus


async def test_versions_do_not_begin_again_where_only_the_state_was_lost() -> None:
    """Ids of iterations, plans and operations derive from versions: a new one comes after the last one in LOG."""
    bus = MemoryBus()
    started = IterationStarted(mode="reschedule", version=41, reason="stable")
    await bus.publish(origin(started, id_="it-41", cluster="c", iteration="it-41", now=NOW, state=41))
    publisher = StatePublisher(bus, cluster="c", every=500, seconds=600)
    await publisher.restore()
    await publisher.publish_contents(lambda: [node("n1")], NOW)
    assert publisher.cluster is not None
    assert publisher.cluster.version == 42

"""What the publisher of the state finds in its stream: versions to go on from, or another cluster."""

from __future__ import annotations

import pytest
from tests.support.builders import NOW, node

from kinema_core.events import IterationStarted, Namespace
from kinema_core.runtime.envelope import origin
from kinema_observer.errors import AnotherClusterError
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


async def test_a_cluster_that_was_made_again_does_not_continue_the_streams() -> None:
    """Its nodes have the old names, its namespace kube-system another uid: nothing of it is published."""
    bus = MemoryBus()

    async def begin(system: str) -> StatePublisher:
        publisher = StatePublisher(bus, cluster="c", every=500, seconds=600)
        await publisher.restore()
        await publisher.publish_contents(lambda: [node("n1"), Namespace(name="kube-system", uid=system)], NOW)
        return publisher

    before = (await begin("u1")).cluster
    with pytest.raises(AnotherClusterError, match=r"another cluster of the name c .* had uid u1, now u2"):
        await begin("u2")
    assert (await begin("u1")).cluster == before

"""Who has lost the lease writes nothing, however far an effect has come."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.rescheduler.sim_world import sim_world
from tests.support.builders import NOW

from kinema_core.events import AnyBody, Event, PlanAccepted, Step, StepFailed, StepStarted, StepSucceeded
from kinema_core.runtime.bus import Lease
from kinema_core.runtime.envelope import origin
from kinema_rescheduler.errors import TransientError
from kinema_rescheduler.journal.execution import Journal, fold
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.fenced import connect
from kinema_rescheduler.kubernetes.writer import KubernetesWriter
from kinema_rescheduler.leadership.fence import Fence
from kinema_rescheduler.names import FENCING
from kinema_rescheduler.providers.sim import SimProvider
from kinema_sim.engine.kinds import NODE
from kinema_sim.scenarios.registry import SCENARIOS


class FakeLease(Lease):
    """A lease whose time a test sets."""

    def __init__(self, revision: int, left: float = 9.0) -> None:
        self._revision = revision
        self.seconds = left

    @property
    def revision(self) -> int:
        """Its fencing token."""
        return self._revision

    def left(self) -> float:
        """What the test says."""
        return self.seconds

    async def renew(self) -> None:
        """Do nothing."""

    async def release(self) -> None:
        """Do nothing."""


def held(revision: int, left: float = 9.0) -> Fence:
    """A fence under a lease."""
    fence = Fence()
    fence.hold(FakeLease(revision, left))
    return fence


def order(kind: str, uid: str) -> Order:
    """Mark the first node as one to go, or take the mark away."""
    id_, step_kind = ("taint/tiny-1", "taint") if kind == "taint" else ("untaint/tiny-1", "untaint")
    step = Step(id=id_, kind=step_kind, target="tiny-1", uid=uid)  # type: ignore[arg-type]  # one of two literals
    return Order(step=step, plan="plan-1", iteration="it-1")


async def test_nothing_is_written_after_the_lease(tmp_path: Path) -> None:
    """Reading goes on, but neither cluster nor provider is written to once the lease's time is over."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        fence = held(1, left=0.0)
        api, cloud = await connect(str(world.kubeconfig), fence=fence), SimProvider(world.url, fence=fence)
        before = world.sim.store.get(NODE, "", "tiny-1")
        assert before is not None
        with pytest.raises(TransientError) as caught:
            await KubernetesWriter(api).perform(order("taint", before["metadata"]["uid"]))
        assert caught.value.reason == "fenced"
        with pytest.raises(TransientError, match="fenced"):
            await cloud.delete("tiny-1", "op-1")
        assert world.sim.store.get(NODE, "", "tiny-1") == before
        await cloud.close()
        await api.close()


async def test_a_higher_revision_on_the_object_ends_it(tmp_path: Path) -> None:
    """A process whose clock stood still believes in its lease; what a later holder wrote tells it better."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        old, new = [await connect(str(world.kubeconfig), fence=held(revision)) for revision in (4, 7)]
        uid = await _uid(world.sim.store.get(NODE, "", "tiny-1"))
        await KubernetesWriter(new).perform(order("taint", uid))
        marked = world.sim.store.get(NODE, "", "tiny-1")
        assert marked is not None
        assert marked["metadata"]["annotations"][FENCING] == "7"
        with pytest.raises(TransientError, match="revision 7 has written there after revision 4"):
            await KubernetesWriter(old).perform(order("untaint", uid))
        assert world.sim.store.get(NODE, "", "tiny-1") == marked
        await KubernetesWriter(new).perform(order("untaint", uid))
        cleared = world.sim.store.get(NODE, "", "tiny-1")
        assert cleared is not None
        assert FENCING not in cleared["metadata"].get("annotations", {})
        for api in (old, new):
            await api.close()


async def _uid(node: dict[str, dict[str, str]] | None) -> str:
    assert node is not None
    return node["metadata"]["uid"]


def test_the_late_word_of_a_former_holder_does_not_count() -> None:
    """A failure under a lower revision leaves the step open; a success tells of something that is true."""

    def event(body: AnyBody, id_: str) -> Event:
        return origin(body, id_=id_, cluster="c", iteration="it-1", now=NOW)

    def state(body: StepFailed | StepSucceeded) -> str:
        first, second = (Step(id=f"boot/n{n}", kind="boot", target=f"n{n}", offer="o") for n in (1, 2))
        deadline = NOW + timedelta(seconds=60)
        journal = Journal()
        for number, each in enumerate(
            (
                PlanAccepted(plan="plan-1", version=1),
                StepStarted(plan="plan-1", step=first, fencing=1, deadline=deadline, attempt=1),
                StepStarted(plan="plan-1", step=second, fencing=2, deadline=deadline, attempt=1),
                body,
            )
        ):
            journal = fold(journal, event(each, f"e{number}"))
        assert journal.active is not None
        progress = journal.active.progress("boot/n1")
        assert progress is not None
        return progress.state

    failed = {"plan": "plan-1", "step": "boot/n1", "reason": "fenced", "detail": "", "retry": True}
    assert state(StepFailed(fencing=1, **failed)) == "open"  # type: ignore[arg-type]  # the fields as written above
    assert state(StepFailed(fencing=2, **failed)) == "failed"  # type: ignore[arg-type]  # the same
    assert state(StepSucceeded(plan="plan-1", step="boot/n1", fencing=1, outcome="done")) == "done"

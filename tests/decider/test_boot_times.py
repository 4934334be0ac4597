"""What the decider learns of boot times, and what they change in the payback."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.decider.cases import PROPOSED, Court
from tests.support.builders import NOW, cluster, deployed, node, offers
from tests.support.plans import plan_for

from kinema_core.events import (
    EMPTY,
    ExecutionAborted,
    ExecutionCompleted,
    FrozenMap,
    Plan,
    PlanAccepted,
    PlanRejected,
    Step,
    StepFailed,
    StepStarted,
    StepSucceeded,
)
from kinema_core.model.cluster import Cluster

M2, M8 = "m2/a/on-demand", "m8/a/on-demand"


def swapped() -> tuple[Cluster, Plan]:
    """Two m4 nodes (0.17) become an m2 (0.085)."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500))
    to = {"shop/web-0": "k1", "shop/web-1": "k1"}
    return before, plan_for(before, offers(), to=to, boot={"k1": M2}, delete=["n1", "n2"])


class Learner(Court):
    """A decider that has seen boots. Nodes side by side cost nothing else; restarts cost more than any plan saves."""

    def __init__(self, restart_price_usd: float = 9.0) -> None:
        super().__init__(
            expected_plan_lifetime_seconds=100,
            transition_seconds=0,
            restart_price_usd=restart_price_usd,
            cooldown_seconds=0.0,
        )
        self.seen = 0

    def start(self, offer: str, at: float, attempt: int = 1) -> str:
        """A node is ordered, or once more; return the id of the step."""
        self.seen += attempt == 1
        step = Step(id=f"boot/k{self.seen}", kind="boot", target=f"k{self.seen}", offer=offer)
        body = StepStarted(plan="old", step=step, fencing=1, deadline=NOW, attempt=attempt)
        self.tell(body, f"start-{self.seen}-{attempt}", PROPOSED + timedelta(seconds=at))
        return step.id

    def done(self, step: str, at: float, outcome: str = "done") -> None:
        """The provider reports the machine."""
        body = StepSucceeded(plan="old", step=step, fencing=1, outcome=outcome, figures=EMPTY)
        self.tell(body, f"done-{step}", PROPOSED + timedelta(seconds=at))

    def boot(self, offer: str, seconds: float) -> None:
        """One boot from its order to its end."""
        self.done(self.start(offer, 0), seconds)

    async def expected_usd(self) -> float:
        """What a plan that boots one m2 is said to pay while that boots, in USD; 0 where nothing is known."""
        before, plan = swapped()
        body = await self.judge(plan, before)
        assert isinstance(body, PlanRejected)
        assert body.rule == "payback"
        return float(body.figures.get("booting_usd", 0.0))


@pytest.mark.parametrize(("boot", "accepted"), [(300, True), (301, False)])
async def test_boot_time_of_an_offer_must_pay_back(boot: int, accepted: bool) -> None:
    """0.255 USD/h for 100 s pay 300 s of a machine at 0.085 USD/h that is paid for and not yet there."""
    court = Learner(restart_price_usd=0.0)
    court.boot(M2, boot)
    before, plan = swapped()
    body = await court.judge(plan, before)
    assert isinstance(body, PlanAccepted) is accepted, body
    if isinstance(body, PlanRejected):
        assert body.rule == "payback"
        assert body.figures["booting_usd"] == round(0.085 * boot / 3600, 6)


def usd(seconds: float) -> float:
    """What an m2 costs in so many seconds."""
    return round(0.085 * seconds / 3600, 6)


async def test_without_a_boot_in_the_log_nothing_is_added() -> None:
    """Older recordings, and a cluster that Kinema has just come to."""
    assert await Learner().expected_usd() == 0


async def test_the_mean_of_the_last_sixteen_counts() -> None:
    """A cloud that has become faster is believed after as many boots."""
    court = Learner()
    court.boot(M2, 100_000)  # long ago
    for seconds in [100] * 8 + [200] * 8:
        court.boot(M2, seconds)
    assert await court.expected_usd() == usd(150)


async def test_an_offer_that_was_never_booted_takes_the_mean_of_all() -> None:
    """What is known of the offer itself comes first."""
    court = Learner()
    court.boot(M8, 90)
    court.boot("m4/b/spot", 30)
    assert await court.expected_usd() == usd(60)
    court = Learner()
    court.boot(M8, 90)
    court.boot(M2, 30)
    assert await court.expected_usd() == usd(30)


async def test_only_boots_that_were_made_are_learned() -> None:
    """One that failed, one that was found made, one whose execution ended: how long they took is not known."""
    court = Learner()
    failed = court.start(M2, 0)
    failure = StepFailed(plan="old", step=failed, fencing=1, reason="transient", detail="-", retry=True)
    court.tell(failure, "failed", PROPOSED + timedelta(seconds=500))
    court.start(M2, 600, attempt=2)
    court.done(failed, 640)
    court.done(court.start(M2, 0), 9000, outcome="adopted")
    assert await court.expected_usd() == usd(40)


@pytest.mark.parametrize(
    "end",
    [
        ExecutionCompleted(plan="old", fencing=1, figures=FrozenMap({})),
        ExecutionAborted(plan="old", fencing=1, reason="operator", detail="-"),
    ],
)
async def test_a_boot_ends_with_its_execution(end: ExecutionCompleted | ExecutionAborted) -> None:
    """A node of the same name in a later plan is another order."""
    court = Learner()
    step = court.start(M2, 0)
    court.tell(end, "end")
    court.done(step, 5000)
    assert await court.expected_usd() == 0


async def test_temporary_nodes_take_their_time_too() -> None:
    """A second m2 on the way doubles what is paid before the machines are there."""
    court = Learner(restart_price_usd=0.0)
    court.boot(M2, 200)
    before, plan = swapped()
    assert isinstance(await court.judge(plan, before), PlanAccepted)
    booted = next(item for item in plan.nodes if item.action == "boot")
    twice = msgspec.structs.replace(plan, temporary=(msgspec.structs.replace(booted, name="way"),))
    court = Learner(restart_price_usd=0.0)
    court.boot(M2, 200)
    assert isinstance(await court.judge(twice, before), PlanRejected)

"""A good plan and the decider that judges it, each to be spoiled in one respect."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tests.support.builders import NOW, cluster, deployed, node, offers
from tests.support.plans import plan_for

from kinema_core.events import (
    AnyBody,
    CatalogPublished,
    Event,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanRejected,
)
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import Moment
from kinema_decider.logic.limits import Limits
from kinema_decider.service import Decider
from kinema_decider.settings import Settings

PROPOSED = NOW
PLAN_ID = "it-1/optimizer/0"


def event(body: AnyBody, id_: str = PLAN_ID, time: datetime = PROPOSED) -> Event:
    """An event of somebody else."""
    return origin(body, id_=id_, cluster="test", iteration="it-1", now=time)


def halved(**limits: Any) -> tuple[Cluster, Plan]:
    """Two m4 nodes with a pod each become one: half the cost, one move."""
    before = cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500), version=7)
    return before, plan_for(before, offers(), to={"shop/web-1": "n1"}, delete=["n2"], **limits)


class Court:
    """A decider with a catalog, which waits for no operator unless a limit says so."""

    def __init__(self, **limits: Any) -> None:
        self.decider = Decider(
            Settings(
                runtime=RuntimeSettings(cluster="test"),
                limits=Limits(**{"approval": "automatic", "redundancy": False, **limits}),
            )
        )
        self.tell(CatalogPublished(source="test", priced=None, offers=offers()), "catalog-1")

    def tell(self, body: AnyBody, id_: str, time: datetime = PROPOSED) -> None:
        """Something that was in the log before."""
        self.decider.recall(event(body, id_, time))

    async def judge(
        self, plan: Plan, now: Cluster, *, after: float = 1.0, id_: str = PLAN_ID
    ) -> PlanAccepted | PlanRejected | PlanApprovalRequested:
        """Propose a plan and hear the answer `after` seconds later, on the state of then."""
        proposal = event(plan, id_)
        return await self.answer_to(proposal, now, PROPOSED + timedelta(seconds=after))

    async def answer_to(
        self, asked: Event, now: Cluster, at: datetime
    ) -> PlanAccepted | PlanRejected | PlanApprovalRequested:
        """What the decider says, as the serve loop would have it recall its own answer."""
        self.decider.recall(asked)
        (body,) = await self.decider.handle(asked, now, Moment(now=at))
        assert isinstance(body, PlanAccepted | PlanRejected | PlanApprovalRequested)
        self.decider.recall(answer(body, cause=asked, service="decider", n=0, now=at, state=now.version))
        return body


async def refusal(court: Court, plan: Plan, now: Cluster, *, after: float = 1.0) -> PlanRejected:
    """The refusal that a test expects."""
    body = await court.judge(plan, now, after=after)
    assert isinstance(body, PlanRejected), body
    assert body.reason
    assert body.would_change
    assert body.version == now.version
    return body

"""Stage that judges every proposed plan, and held ones again once they are approved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from kinema_core.events import (
    AnyBody,
    Event,
    FrozenMap,
    Plan,
    PlanAccepted,
    PlanApprovalRequested,
    PlanApproved,
    PlanRejected,
)
from kinema_core.model.cluster import Cluster, fold
from kinema_core.model.foreign import beside_its_autoscaler
from kinema_core.runtime.stage import Latest, Moment, NoState, Want
from kinema_decider.logic.decision_input import DecisionInput
from kinema_decider.logic.memory import REMEMBERED, Memory, Proposal, remember
from kinema_decider.logic.rules import Rejection, first_rejection, whole
from kinema_decider.settings import Settings

NAME: Final = "decider"


class Decider:
    """A stage that accepts a proposed plan, holds it for the operator, or rejects it with the reason."""

    name = NAME
    consumes = REMEMBERED
    folds: tuple[str, ...] = ()
    past = None

    def __init__(self, settings: Settings) -> None:
        """`settings.limits` are what a plan must keep."""
        self._limits = settings.limits
        self._memory = Memory()

    def initial(self) -> Cluster:
        """Return the cluster before any event."""
        return Cluster()

    def fold(self, state: Cluster, event: Event) -> Cluster:
        """Fold one state event."""
        return fold(state, event)

    def recall(self, event: Event) -> None:
        """Take note of a log event."""
        self._memory = remember(self._memory, event)

    def wants(self, event: Event) -> Want:
        """Ask for the newest state for plans."""
        return Latest() if isinstance(event.body, Plan | PlanApproved) else NoState()

    async def handle(self, event: Event, state: Cluster | None, moment: Moment) -> Sequence[AnyBody]:
        """Judge a proposal, or a held one that was approved; all other events were recalled already."""
        cluster = state or Cluster()
        match event.body:
            case Plan() as plan:
                proposal = Proposal(id=event.id, plan=plan, time=event.time)
                return (self._judge(proposal, cluster, moment.now, approved=False),)
            case PlanApproved() as approved:
                return self._approved(approved, cluster, moment.now)
            case _:
                return ()

    def _approved(self, approved: PlanApproved, cluster: Cluster, now: datetime) -> Sequence[AnyBody]:
        memory = self._memory
        if approved.plan in memory.settled or approved.plan == memory.executing:
            return ()
        if approved.plan in memory.held:
            return (self._judge(memory.proposals[approved.plan], cluster, now, approved=True),)
        return (
            PlanRejected(
                plan=approved.plan,
                version=cluster.version,
                rule="not-held",
                reason=f"{approved.by} approved a plan that does not wait for approval",
                would_change="the id of a plan that kinema status shows as held",
            ),
        )

    def _judge(self, proposal: Proposal, cluster: Cluster, now: datetime, *, approved: bool) -> AnyBody:
        case = DecisionInput(
            id=proposal.id,
            plan=proposal.plan,
            proposed=proposal.time,
            approved=approved,
            memory=self._memory,
            cluster=beside_its_autoscaler(cluster, delegated=self._memory.delegated),
            now=now,
            limits=self._limits,
        )
        return _body(case, first_rejection(case))


def _body(case: DecisionInput, rejection: Rejection | None) -> PlanAccepted | PlanApprovalRequested | PlanRejected:
    version = case.cluster.version
    if rejection is None:
        figures = {
            f"cost_now_{case.figure}": whole(case.cost_now),
            f"cost_new_{case.figure}": whole(case.cost_new),
            "moves": case.plan.moves,
            "restarts": case.plan.restarts,
            "drifted": case.adapted.drift.changed,
        }
        return PlanAccepted(plan=case.id, version=version, figures=FrozenMap(figures))
    kind = PlanApprovalRequested if rejection.rule == "approval" else PlanRejected
    return kind(
        plan=case.id,
        version=version,
        rule=rejection.rule,
        reason=rejection.reason,
        would_change=rejection.would_change,
        figures=rejection.figures,
    )

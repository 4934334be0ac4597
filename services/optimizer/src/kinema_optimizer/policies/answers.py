"""Answers of policies to an iteration: the plan of the one in charge, and what every one says and remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from kinema_core.events import (
    Event,
    FrozenMap,
    Lasting,
    Mode,
    NoPlanFound,
    Plan,
    PolicyEvaluated,
    PolicyStep,
    Purpose,
)
from kinema_core.model.catalog import PriceError
from kinema_optimizer.policies.policy import Outcome, Policy, Since, Tick

Key: TypeAlias = tuple[str, bool]
"""Name of a policy, and whether it was in the shadow: a policy that comes into charge begins without a memory."""


@dataclass(frozen=True)
class Memories:
    """What every policy remembers: a fold of its own events."""

    since: Mapping[Key, Since] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, event: Event) -> Memories:
        """Return the memories with what a log event adds."""
        body = event.body
        if not isinstance(body, PolicyEvaluated):
            return self
        kept: dict[str, datetime] = {one.what: one.since for one in body.lasting}
        return Memories(MappingProxyType({**self.since, (body.policy, body.shadow): kept}))

    def of(self, policy: Policy, *, shadow: bool) -> Since:
        """Return what a policy remembers."""
        return self.since.get((policy.name, shadow), {})


def evaluated(
    policy: Policy, tick: Tick, mode: Mode, memories: Memories, *, shadow: bool
) -> tuple[Plan | NoPlanFound, PolicyEvaluated]:
    """Return the plan of a policy at a tick, or why it has none, and what it says."""
    version = tick.cluster.version
    try:
        outcome = policy.tick(replace(tick, since=memories.of(policy, shadow=shadow)))
    except PriceError as error:
        none = NoPlanFound(
            mode=mode, version=version, reason="price-missing", figures=FrozenMap({"detail": str(error)})
        )
        kept = _lasting(memories.of(policy, shadow=shadow))
        said = PolicyEvaluated(
            policy=policy.name,
            shadow=shadow,
            mode=mode,
            version=version,
            cost_before=0.0,
            cost_after=0.0,
            moves=0,
            lasting=kept,
            reason=str(error),
        )
        return none, said
    # A simulation may have the outcome of an earlier state that was the same but for its version.
    plan = msgspec.structs.replace(outcome.proposal.plan, base_version=version)
    return _plan(plan, outcome, mode, policy.name), _said(plan, outcome, policy.name, mode, shadow=shadow)


def _plan(plan: Plan, outcome: Outcome, mode: Mode, name: str) -> Plan | NoPlanFound:
    # The thesis has a decision processor of its own, whose rules are those of plans that save.
    purpose: Purpose | None = None if name == "thesis" else "policy"
    plan = msgspec.structs.replace(plan, mode=mode, objective=f"policy {name}", purpose=purpose)
    if plan.status != "nothing-better":
        return plan
    figures: dict[str, int | float | str] = {
        "policy": name,
        "cost_usd_per_hour": plan.cost.after,
        "pods_unplaced": len(plan.unplaced),
        "lasting": len(outcome.since),
    }
    return NoPlanFound(mode=mode, version=plan.base_version, reason="policy-waits", figures=FrozenMap(figures))


def _said(plan: Plan, outcome: Outcome, name: str, mode: Mode, *, shadow: bool) -> PolicyEvaluated:
    return PolicyEvaluated(
        policy=name,
        shadow=shadow,
        mode=mode,
        version=plan.base_version,
        cost_before=plan.cost.before,
        cost_after=plan.cost.after,
        moves=plan.moves,
        steps=tuple(
            PolicyStep(
                action=step.action,
                removed=step.removed,
                bought=step.bought,
                emptied=step.emptied,
                evictions=step.evictions,
            )
            for step in outcome.proposal.steps
        ),
        lasting=_lasting(outcome.since),
    )


def _lasting(since: Since) -> tuple[Lasting, ...]:
    return tuple(Lasting(what=what, since=since[what]) for what in sorted(since))

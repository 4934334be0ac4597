"""Goals of plans, so that the rest of one is made from it: the log has them, and a replay knows the same.

A replaced pod has another name, and a booted node may have one, too. So a goal counts pods by workload, and follows the
names that boots report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Final

from kinema_core.events import Event, Plan, StepSucceeded

_KEPT: Final = 4
"""Plans that are remembered: several may wait for an operator's approval while others are proposed."""
_BOOT: Final = "boot/"
_NODE: Final = "node"


@dataclass(frozen=True)
class Goal:
    """Where a plan leads."""

    boots: Mapping[str, str]
    """Names of its new nodes, each with the offer."""
    deleted: frozenset[str]
    """Names of the nodes that it deletes, and of those that exist on the way only."""
    seats: Mapping[str, Mapping[str, int]]
    """Of each workload that it moves, how many pods each node has in the end."""
    unmoved: frozenset[str]
    """Keys of the pods that it moves, as long as they have not moved: their successors have other names."""

    def renamed(self, planned: str, registered: str) -> Goal:
        """Return the goal with the name that a new node has in place of the planned one."""
        if planned not in self.boots:
            return self
        names = {planned: registered}
        return replace(
            self,
            boots={names.get(name, name): offer for name, offer in self.boots.items()},
            seats={
                workload: {names.get(name, name): pods for name, pods in wanted.items()}
                for workload, wanted in self.seats.items()
            },
        )


def goal_of(plan: Plan) -> Goal:
    """Return where a plan leads."""
    temporary = (node.name for node in plan.temporary)
    return Goal(
        boots={node.name: node.offer for node in plan.nodes if node.action == "boot"},
        deleted=frozenset([*(node.name for node in plan.nodes if node.action == "delete"), *temporary]),
        seats={one.workload: one.pods for one in plan.seats},
        unmoved=frozenset(one.pod for one in plan.placements if one.strategy != "stay"),
    )


@dataclass(frozen=True)
class Goals:
    """Goals of the plans that were proposed last, by the plan's id."""

    last: Mapping[str, Goal] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, event: Event) -> Goals:
        """Return the goals with what a log event adds."""
        match event.body:
            case Plan() as plan:
                newest = {**self.last, event.id: goal_of(plan)}
                return Goals(MappingProxyType(dict(islice(newest.items(), max(0, len(newest) - _KEPT), None))))
            case StepSucceeded(plan=plan, step=step, figures=figures) if plan in self.last and step.startswith(_BOOT):
                name = figures.get(_NODE)
                if not isinstance(name, str):
                    return self
                found = self.last[plan].renamed(step.removeprefix(_BOOT), name)
                return Goals(MappingProxyType({**self.last, plan: found}))
            case _:
                return self

    def of(self, plan: str) -> Goal | None:
        """Return the goal of a plan; None where the log does not have it, or it was written before plans had seats."""
        goal = self.last.get(plan)
        return goal if goal is not None and (goal.seats or not goal.unmoved) else None

"""Choice among plans of nearly equal cost by PROMETHEE II: cost, energy, restarts, spread, objects.

In the policy `promethee` the same ranking chooses a node, here a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Final

import msgspec

from kinema_core.events import FrozenMap, Offer, Plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.power import micro_watts
from kinema_core.ranges import between, check_ranges
from kinema_optimizer.request.objective import MICRO, worth
from kinema_optimizer.request.outranking import Criterion, flows

CRITERIA: Final = ("cost", "energy", "restarts", "spread", "objects")
PRICE_STEPS: Final = (0, 4, 16)
"""Alternatives: the price of a move times this."""


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice among plans of nearly equal cost, which are made with other prices of a move."""

    within_percent: Annotated[float, between(0, 100)] = 2.0
    """Plans that cost at most so much more than the cheapest are chosen from."""
    weights: Mapping[str, float] = {}
    """Of `cost`, `energy` (watts of the nodes), `restarts`, `spread` (nodes that each workload is on), and `objects`
    (nodes that come or go); 1 where not named, 0 leaves one out."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        check_ranges(self)
        for name, weight in self.weights.items():
            if name not in CRITERIA:
                message = f"weights has {name!r}: use {', '.join(CRITERIA)}"
                raise ValueError(message)
            if not 0 <= weight <= 1000:
                message = f"weight of {name} is {weight}: use 0 to 1000"
                raise ValueError(message)


def choose(plans: Sequence[Plan], cluster: Cluster, offers: Sequence[Offer], choice: Choice) -> int:
    """Return the number of the plan with the highest net flow, the cheaper of equal ones, then the earlier.

    Only plans that lack an order or leave pods out no more than the best one, and cost nearly as little, take part.
    """
    least = min(worth(plan) for plan in plans)
    most = least[2] * (1 + Fraction(str(choice.within_percent)) / 100)
    able = [index for index, plan in enumerate(plans) if worth(plan)[:2] == least[:2] and worth(plan)[2] <= most]
    found = flows([_criterion(name, [plans[index] for index in able], cluster, offers, choice) for name in CRITERIA])
    best = max(range(len(able)), key=lambda place: (found[place].net, -worth(plans[able[place]])[2], -place))
    return able[best]


def with_choice(plan: Plan, plans: int) -> Plan:
    """Return the plan with the number of plans that it was chosen from."""
    return msgspec.structs.replace(plan, figures=FrozenMap({**plan.figures, "chosen_from": plans}))


def _criterion(
    name: str, plans: Sequence[Plan], cluster: Cluster, offers: Sequence[Offer], choice: Choice
) -> Criterion:
    watts = {offer.machine_type: micro_watts(offer) for offer in offers}
    values = {
        "cost": lambda plan: round(plan.cost.after * MICRO),
        "energy": lambda plan: sum(watts.get(one.machine_type, 0) for one in plan.nodes if one.action != "delete"),
        "restarts": lambda plan: plan.moves + plan.restarts,
        "spread": lambda plan: _spread(plan, cluster),
        "objects": lambda plan: sum(one.action != "keep" for one in plan.nodes),
    }[name]
    weight = choice.weights.get(name, 1.0)
    return Criterion(tuple(map(values, plans)), "max" if name == "spread" else "min", weight)


def _spread(plan: Plan, cluster: Cluster) -> int:
    """Return on how many nodes workloads are, all together."""
    found = set()
    for item in plan.placements:
        pod = cluster.pod(item.pod)
        if pod is not None:
            found.add((cluster.controller_key_of(pod), item.to))
    return len(found)

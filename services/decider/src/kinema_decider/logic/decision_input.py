"""Input of the rules: a plan and its surroundings, in the unit that the plan was made for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import cached_property

from kinema_core.events import FrozenMap, Offer, Plan, Purpose
from kinema_core.model.catalog import machine_of, node_prices
from kinema_core.model.cluster import Cluster
from kinema_core.model.commitments import offers_left
from kinema_core.model.disruption_cost import ORDINARY, disruption_cost
from kinema_core.model.freed_room import freed_share
from kinema_core.model.mobility import MobilityOptions
from kinema_core.model.power import micro_watts, watts_by_type
from kinema_core.model.purpose import purpose_of
from kinema_core.model.resizing import disrupted
from kinema_decider.logic.adapt import Adapted, adapt
from kinema_decider.logic.limits import Limits
from kinema_decider.logic.memory import Memory
from kinema_decider.logic.undone import undone_in


@dataclass(frozen=True)
class DecisionInput:
    """A plan with all that the rules may look at."""

    id: str
    plan: Plan
    proposed: datetime
    approved: bool
    memory: Memory
    cluster: Cluster
    now: datetime
    limits: Limits

    @property
    def purpose(self) -> Purpose:
        """Return why the plan is made."""
        return purpose_of(self.plan)

    @property
    def continues(self) -> bool:
        """Return whether the plan is the rest of the one that was executed last; none that an operator proposes is."""
        rest_of = self.plan.continues
        return bool(rest_of) and rest_of == self.memory.unfinished and not self.plan.by

    @property
    def only_resizes(self) -> bool:
        """Return whether the plan changes requests, and moves no pod but those that restart for it."""
        plan, pods = self.plan, self.cluster.pods_by_workload
        renewed = {pod.key for one in plan.resizes for pod in pods.get(one.workload, ())}
        moving = {one.pod for one in plan.placements if one.source not in {None, one.to}}
        return bool(plan.resizes) and moving <= renewed and all(node.action == "keep" for node in plan.nodes)

    @cached_property
    def offers(self) -> tuple[Offer, ...]:
        """Return what is on sale; of commitments what the live nodes leave."""
        return offers_left(self.memory.offers or (), self.cluster)

    @property
    def energy(self) -> bool:
        """Return whether the plan was made to save energy: then all that is compared below is in microwatts."""
        return self.plan.cost.unit == "W"

    @property
    def unit(self) -> str:
        """Return the unit of costs, for people."""
        return "W" if self.energy else "USD/h"

    @property
    def figure(self) -> str:
        """Return the ending of names of figures in that unit."""
        return "watts" if self.energy else "usd_per_hour"

    @cached_property
    def prices(self) -> dict[str, int]:
        """Return micro-USD per hour, or microwatts, of every live node; raise PriceError where none is known."""
        if self.energy:
            watts = watts_by_type(self.cluster, self.offers)
            return {node.name: watts[machine_of(node)[0]] for node in self.cluster.nodes}
        return dict(node_prices(self.cluster, self.offers))

    @cached_property
    def offer_prices(self) -> dict[str, int]:
        """Return the same of every offer on sale."""
        return {one.name: micro_watts(one) if self.energy else one.micro_usd_per_hour for one in self.offers}

    @cached_property
    def options(self) -> MobilityOptions:
        """Return what may move by the operator's limits.

        A workload that has become restless since is left alone by the execution; the rest of the plan stays right.
        """
        limits = self.limits
        return MobilityOptions(
            move_jobs=limits.move_jobs,
            allow_spot=limits.allow_spot,
            spot_share=limits.spot.max_share,
            spot_pool_share=limits.spot.max_share_per_pool,
            redundancy=limits.redundancy,
            scope=tuple(map(FrozenMap, limits.scope)),
            hold_restless=False,
            resize_in_place=limits.resize_in_place,
        )

    @cached_property
    def adapted(self) -> Adapted:
        """Return the plan adapted to the present state."""
        return adapt(self.plan, self.cluster, self.prices, self.offer_prices, self.options)

    @cached_property
    def booted(self) -> int:
        """Return the price of what the plan boots, as in `prices`."""
        return sum(self.offer_prices[node.offer] for node in self.plan.nodes if node.action == "boot")

    @cached_property
    def boots(self) -> Mapping[str, int]:
        """Return the price of what the plan boots, for good and on the way, as in `prices`, by offer."""
        found: Counter[str] = Counter()
        for node in (*self.plan.nodes, *self.plan.temporary):
            if node.action == "boot":
                found[node.offer] += self.offer_prices[node.offer]
        return found

    @cached_property
    def stops(self) -> int:
        """Return how many moves of pods go to an intermediate stop."""
        moved = [step.pod for step in self.plan.steps if step.action == "move"]
        return len(moved) - len(set(moved))

    @cached_property
    def disruption_cost(self) -> Fraction:
        """Return what the restarts of the plan count, in ordinary ones; an intermediate stop is an ordinary one."""
        pods = self.cluster.pods_by_uid
        restarted = [one.uid for one in disrupted(self.plan, self.cluster, self.options)]
        gone = sum(uid not in pods for uid in restarted)
        cost = sum(disruption_cost(self.cluster, pods[uid]) for uid in restarted if uid in pods)
        return Fraction(cost, ORDINARY) + gone + self.stops

    @cached_property
    def cost_now(self) -> int:
        """Return the price of the cluster as it is."""
        return sum(self.prices.values())

    @cached_property
    def cost_new(self) -> int:
        """Return the price of the cluster after the plan."""
        deleted = {node.name for node in self.adapted.plan.nodes if node.action == "delete"}
        kept = sum(price for name, price in self.prices.items() if name not in deleted)
        return kept + self.booted

    @cached_property
    def undone_in(self) -> float | None:
        """Return in how many seconds expected replicas undo the plan; None: they do not."""
        offers = {offer.name: offer for offer in self.offers}
        return undone_in(self.adapted.plan, self.cluster, offers, self.memory.ahead, self.now)

    @cached_property
    def freed(self) -> Fraction:
        """Return the hourly price of the room that falling requests leave."""
        return freed_share(self.cluster, self.plan.resizes) * self.cost_now

    @cached_property
    def seconds_since_proposal(self) -> float:
        """Return the age of the proposal."""
        return (self.now - self.proposed).total_seconds()

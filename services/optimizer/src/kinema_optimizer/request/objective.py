"""Objective by time of the week: money or energy, with ceilings, room kept free, and a price on moves.

`objective_at` reads it from an operator's windows; `ObjectiveKey` is what plans are compared by, `price_of_moves` its
price of moves. `lowers`, `in_the_end`, `raised`, `rising` and `worth` decide whether requests that only fall stay as
they are; `served_purpose` states what a plan is for.

Source: the thesis, chapter 5.1 (a CPU threshold by day, cost alone by night).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec

from kinema_core.events import Plan, Purpose, Resize, WorkloadForecast
from kinema_core.model.cluster import Cluster
from kinema_core.model.disruption_cost import ORDINARY
from kinema_core.model.resizing import changed_pods
from kinema_core.model.schedule import Schedule
from kinema_core.ranges import between, check_ranges
from kinema_optimizer.request.headroom import Headroom, brings_room

Kind: TypeAlias = Literal["cost", "energy"]
MICRO: Final = 1_000_000
SLACK: Final = 1000
"""Costs up to 1/SLACK above the least count as equal when moves are counted."""
MOST_PRICE: Final = 1e6
"""Above any price of a move that makes sense: it forbids every move."""
MovePrice: TypeAlias = Annotated[float, between(0, MOST_PRICE)]


class Window(Schedule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hours of the week with an objective of their own."""

    objective: Literal["cost", "least-cost", "energy"] = "cost"
    """Quantity to minimize: USD per hour, or watts; energy needs the catalog's `watts` of every machine type in use.

    Where moves have neither price nor limit, each has to save a tenth of what a pod costs on average. `least-cost`: the
    least cost, however many pods move, and then the fewest moves within 0.1% of it.
    """
    max_utilization_percent: Annotated[int, between(1, 100)] = 100
    """Ceiling on every node's CPU and memory, requests over allocatable: nothing new is placed above it."""
    move_price_usd: MovePrice | None = None
    """USD per hour that a plan has to save for each pod that it moves; for the objective `cost`."""
    move_price_watts: MovePrice | None = None
    """The same in watts, for the objective `energy`."""
    max_moves: Annotated[int, between(0)] | None = None
    """Most pods that a plan moves; a pod that makes a stop on the way counts twice."""
    headroom: tuple[Headroom, ...] = ()
    """Room that is kept free for what may come."""

    def __post_init__(self) -> None:
        """Refuse what no type can."""
        super().__post_init__()
        check_ranges(self)
        wrong = "move_price_usd" if self.objective == "energy" else "move_price_watts"
        if getattr(self, wrong) is not None:
            message = f"{wrong} does not go with the objective {self.objective}: price moves in what is made small"
            raise ValueError(message)


@dataclass(frozen=True)
class Objective:
    """Objective of a moment, and its limits. A plan costs its nodes, and each move its price."""

    percent: int = 100
    """Ceiling on every node's CPU and memory utilization."""
    kind: Kind = "cost"
    move_price: int | None = None
    """Millionths of the objective's unit per move; None: the search chooses one, see `least_cost`."""
    max_moves: int | None = None
    headroom: tuple[Headroom, ...] = ()
    expected: int = 0
    """Number of the replicas that are expected soon and have room kept free for them."""
    least_cost: bool = False
    """Where moves have no price, they get none from the search: within 0.1% of the least cost, fewest moves."""

    @property
    def text(self) -> str:
        """As plans name it."""
        parts: list[str] = [self.kind]
        if self.percent < 100:
            parts.append(f"utilization at most {self.percent}%")
        if self.move_price is not None:
            unit = "USD/h" if self.kind == "cost" else "W"
            parts.append(f"{self.move_price / MICRO:g} {unit} per move")
        if self.max_moves is not None:
            parts.append(f"at most {self.max_moves} move{'' if self.max_moves == 1 else 's'}")
        parts += [one.text for one in self.headroom]
        if self.expected:
            parts.append(f"room for {self.expected} expected replica{'' if self.expected == 1 else 's'}")
        return ", ".join(parts)


def objective_at(windows: Sequence[Window], now: datetime) -> Objective:
    """Return the objective of the first window that contains `now`; without one, cost alone."""
    return next((_objective(window) for window in windows if window.contains(now)), Objective())


def _objective(window: Window) -> Objective:
    energy = window.objective == "energy"
    price = window.move_price_watts if energy else window.move_price_usd
    return Objective(
        percent=window.max_utilization_percent,
        kind="energy" if energy else "cost",
        least_cost=window.objective == "least-cost",
        move_price=None if price is None else round(price * MICRO),
        max_moves=window.max_moves,
        headroom=window.headroom,
    )


def price_of_moves(price: int | None, disruption_cost: int) -> int:
    """Return what moves cost at the price of an ordinary one (None: nothing), rounded down; see `disruption_cost`."""
    return (price or 0) * disruption_cost // ORDINARY


class ObjectiveKey(NamedTuple):
    """Key by which answers and plans are compared, most important first; less is better."""

    over_limit: int
    """Moves above the limit on moves."""
    unplaced: int
    """Pending pods without a place."""
    cost: int
    """Of nodes per hour, with moves and preferences at their price, in millionths of the objective's unit."""
    moves: int
    points: int = 0
    """Weight points of preferred rules that hold now and then do not."""


def lowers(changes: Iterable[Resize | WorkloadForecast]) -> bool:
    """Return whether the pods of some workload request less, and more of nothing."""
    return any(_only_falls(one) for one in changes)


def in_the_end(forecasts: Iterable[WorkloadForecast]) -> tuple[WorkloadForecast, ...]:
    """Return the same with the requests to which their steps lead in the end."""
    return tuple(
        msgspec.structs.replace(one, requests_after=one.recommended or one.requests_after) for one in forecasts
    )


def raised(forecasts: Iterable[WorkloadForecast]) -> tuple[WorkloadForecast, ...]:
    """Return those by which pods request more of something."""
    return tuple(one for one in forecasts if not _only_falls(one))


def affordable(
    forecasts: Iterable[WorkloadForecast],
    cluster: Cluster,
    most: int,
    *,
    resizable: Collection[str] = (),
    stay: bool = False,
) -> tuple[tuple[WorkloadForecast, ...], int]:
    """Return the forecasts that restart at most so many pods, and how many moves are left.

    A workload with new requests restarts all its pods. Those left out come with a later iteration; those that change
    nothing restart nothing. Those that rise come first, and of these those whose pods have to be replaced.

    Args:
        forecasts: new requests.
        cluster: the pods.
        most: how many may restart.
        resizable: workloads whose pods can run on with their new requests.
        stay: these pods stay where they are, and restart not.
    """
    given = tuple(one for one in forecasts if one.requests_after != one.requests_before)
    chosen, left = set[str](), most
    for one in sorted(given, key=lambda one: (_only_falls(one), one.workload in resizable, one.workload)):
        runs_on = stay and one.workload in resizable
        running = () if runs_on else cluster.pods_by_workload.get(one.workload, ())
        pods = sum(pod.node is not None for pod in running)
        if pods <= left:
            chosen.add(one.workload)
            left -= pods
    return tuple(one for one in given if one.workload in chosen), left


def rising(changes: Iterable[Resize]) -> frozenset[str]:
    """Workloads whose pods request more of something."""
    return frozenset(one.workload for one in changes if not _only_falls(one))


def served_purpose(plan: Plan) -> Purpose:
    """Return the purpose that a plan serves: one that saves nothing raises requests, or brings room to pending pods.

    Placeholders for headroom that is asked for, minimum nodes and usable resources are pending pods, too.
    """
    if plan.mode == "autoscale":
        return "room"
    if round(plan.cost.after * MICRO) < round(plan.cost.before * MICRO):
        return "saving"
    if rising(plan.resizes):
        return "safety"
    return "room" if brings_room(plan) else "saving"


def with_equal_costs(keys: Sequence[ObjectiveKey], *, priced: bool) -> list[ObjectiveKey]:
    """Return the keys with one cost for all within 1/SLACK of the best one's; where moves are priced, as they are."""
    least = min(keys).cost
    most = least if priced else least + least // SLACK
    return [key._replace(cost=max(key.cost, most)) for key in keys]


def worth(plan: Plan) -> tuple[bool, int, int]:
    """Return changes without an order, pods without a place, and micro-USD per hour; less is better."""
    disordered = not plan.steps and changed_pods(plan) > 0
    return disordered, len(plan.unplaced), round(plan.cost.after * MICRO)


def _only_falls(one: Resize | WorkloadForecast) -> bool:
    return all(amount <= one.requests_before.get(name, 0) for name, amount in one.requests_after.items())

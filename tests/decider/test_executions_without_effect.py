"""Which executions count as in vain, after which the decider rests longer each time."""

from __future__ import annotations

import msgspec
import pytest
from tests.decider.cases import Court, halved, refusal
from tests.support.builders import cluster, deployed, node, offer, offers
from tests.support.plans import plan_for

from kinema_core.events import (
    CatalogPublished,
    ExecutionAborted,
    ExecutionCompleted,
    Figures,
    FrozenMap,
    Plan,
    PlanAccepted,
    PlanNode,
)

ROUNDS = 4
SHORT, LONG = 60, 480
"""Rests after so many executions: of none in vain, of all."""
FLEET = tuple(f"n{number}" for number in range(11))


def cleared(*, boot: str | None = None, watts: bool = False) -> Plan:
    """Eleven m4 nodes become one, or ten of them one that is booted."""
    before = cluster([node(name) for name in FLEET], deployed("web", list(FLEET), cpu=200))
    to = "n0" if boot is None else "kinema-1"
    plan = plan_for(
        before,
        offers(),
        to={f"shop/web-{number}": to for number in range(1, 11)},
        boot={} if boot is None else {"kinema-1": boot},
        delete=FLEET[1:],
    )
    cost = msgspec.structs.replace(plan.cost, unit="W" if watts else plan.cost.unit)
    return msgspec.structs.replace(plan, cost=cost)


def finished(**figures: int) -> ExecutionCompleted:
    """An end that tells of one workload that was left."""
    return ExecutionCompleted(plan="", fencing=1, figures=FrozenMap({"workloads_skipped": 1, **figures}))


async def rest_after(plan: Plan, end: ExecutionCompleted | ExecutionAborted, court: Court | None = None) -> float:
    """How long the decider rests when the plan has ended like this four times in a row."""
    court = court or Court(cooldown_seconds=SHORT)
    for number in range(ROUNDS):
        court.tell(plan, f"old-{number}")
        court.tell(PlanAccepted(plan=f"old-{number}", version=1), f"accept-{number}")
        court.tell(msgspec.structs.replace(end, plan=f"old-{number}"), f"end-{number}")
    before, next_plan = halved()
    refused = await refusal(court, next_plan, before)
    assert refused.rule == "cooldown"
    return float(refused.figures["cooldown_seconds"])


async def test_what_saved_is_not_in_vain_though_a_workload_was_left() -> None:
    """An owner scales one workload in each plan: nine of ten nodes go all the same, and nobody is slowed down."""
    assert await rest_after(cleared(), finished(deleted=9, nodes_kept=1)) == SHORT


@pytest.mark.parametrize(("deleted", "rest"), [(0, LONG), (4, LONG), (5, SHORT), (10, SHORT)])
async def test_half_of_the_saving_is_asked_for(deleted: int, rest: int) -> None:
    """A refusal that comes again and again keeps most nodes: a few that go all the same are not what it is for."""
    assert await rest_after(cleared(), finished(deleted=deleted, nodes_kept=10 - deleted)) == rest


@pytest.mark.parametrize(("deleted", "rest"), [(2, LONG), (3, LONG), (5, LONG), (6, SHORT), (10, SHORT)])
async def test_what_was_booted_counts_against_it(deleted: int, rest: int) -> None:
    """A machine at the price of two was bought: of the price of ten nodes, eight were to be saved."""
    end = finished(booted=1, deleted=deleted, nodes_kept=10 - deleted)
    assert await rest_after(cleared(boot="m8/a/on-demand"), end) == rest


async def test_the_cheapest_nodes_are_taken_to_have_gone() -> None:
    """The end does not name them: where nine cheap ones went and the dear one may have stayed, nothing is proven."""
    plan = cleared()
    dear = tuple(msgspec.structs.replace(one, usd_per_hour=5.0) if one.name == "n3" else one for one in plan.nodes)
    plan = msgspec.structs.replace(plan, nodes=dear)
    assert await rest_after(plan, finished(deleted=9, nodes_kept=1)) == LONG
    assert await rest_after(plan, finished(deleted=10)) == SHORT


@pytest.mark.parametrize(("deleted", "rest"), [(11, SHORT), (1, LONG)])
async def test_nodes_on_the_way_save_nothing(deleted: int, rest: int) -> None:
    """One that is booted for a stop and deleted again leaves the saving as it is."""
    stop = PlanNode(
        name="kinema-9",
        machine_type="m8",
        zone="a",
        capacity_type="on-demand",
        offer="m8/a/on-demand",
        usd_per_hour=0.34,
        action="boot",
    )
    plan = msgspec.structs.replace(cleared(), temporary=(stop,))
    assert await rest_after(plan, finished(booted=1, deleted=deleted)) == rest


async def test_what_was_given_up_is_in_vain_whatever_it_saved() -> None:
    """An abort is no end that a plan is made for."""
    end = ExecutionAborted(plan="", fencing=1, reason="deadline", detail="", figures=FrozenMap({"deleted": 10}))
    assert await rest_after(cleared(), end) == LONG


async def test_a_plan_that_was_to_save_nothing_is_in_vain_when_it_left_something() -> None:
    """Nodes for pods that wait: what it moved for them was refused, and machines were bought."""
    before = cluster(node("n1"), deployed("web", ["n1"]))
    plan = plan_for(before, offers(), boot={"kinema-1": "m2/a/on-demand"}, mode="autoscale")
    assert await rest_after(plan, finished(booted=1)) == LONG


@pytest.mark.parametrize(("watts", "rest"), [(100.0, SHORT), (None, LONG)])
async def test_energy_is_counted_where_it_was_to_be_saved(watts: float | None, rest: int) -> None:
    """By what the machines draw; where that is not known, nothing is proven."""
    court = Court(cooldown_seconds=SHORT)
    on_sale = tuple(msgspec.structs.replace(one, watts=watts) for one in (offer("m4"), offer("m8")))
    court.tell(CatalogPublished(source="test", priced=None, offers=on_sale), "catalog-2")
    assert await rest_after(cleared(watts=True), finished(deleted=9), court) == rest


async def test_a_success_between_ends_the_count() -> None:
    """Three in vain, one that saved: the next rest is the shortest again."""
    court = Court(cooldown_seconds=SHORT)
    assert await rest_after(cleared(), finished(deleted=0), court) == LONG
    assert await rest_after(cleared(), finished(deleted=9), court) == SHORT


@pytest.mark.parametrize(("saved", "rest"), [(-0.1, LONG), (0.0, LONG), (0.1, SHORT)])
async def test_what_ended_early_and_saved_nothing_is_in_vain(saved: float, rest: int) -> None:
    """Two machines are bought and the two of the last plan deleted: the plan of the rest would do that again."""
    figures: Figures = FrozenMap({"booted": 2, "deleted": 2, "saved_usd_per_hour": saved})
    end = ExecutionCompleted(plan="", fencing=1, figures=figures, replan="no-room")
    assert await rest_after(cleared(), end) == rest

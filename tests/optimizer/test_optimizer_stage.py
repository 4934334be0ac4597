"""The optimizer as a stage: what it answers, why it proposes nothing, and replays to the byte."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest
from tests.optimizer.instances import boutique
from tests.support.builders import NOW, cluster, deployed, fragmented, full, node, offers, taint, tiny
from tests.support.planning import unguarded

from kinema_core.events import (
    AnyBody,
    CatalogPublished,
    ClusterSnapshot,
    Event,
    ForecastMade,
    IterationStarted,
    NoPlanFound,
    Offer,
    Plan,
    StepFailed,
    encode,
)
from kinema_core.model.checker.check import Violation
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import AtVersion, Moment, NoState
from kinema_optimizer.planning import task
from kinema_optimizer.process.job import recorded_solve
from kinema_optimizer.request.known import Refusals
from kinema_optimizer.service import Optimizer
from kinema_optimizer.settings import PlanningSettings, Settings


def event(body: AnyBody, n: int = 0) -> Event:
    """An event of that body."""
    return origin(body, id_=f"e{n}", cluster="test", iteration="i1", now=NOW)


def optimizer(on_sale: tuple[Offer, ...] | None = None, *, seconds: float = 10.0) -> Optimizer:
    """An optimizer that knows a catalog."""
    planning = unguarded(time_limit_seconds=seconds)
    stage = Optimizer(Settings(runtime=RuntimeSettings(cluster="test"), planning=planning))
    stage.recall(event(CatalogPublished(source="test", priced=NOW, offers=offers() if on_sale is None else on_sale)))
    return stage


def forecasts(version: int = 1) -> Event:
    """No forecasts, for a reschedule iteration."""
    return event(ForecastMade(version=version, forecasts=()), 1)


def autoscale(version: int = 1) -> Event:
    """An autoscale iteration."""
    return event(IterationStarted(mode="autoscale", version=version, reason="pending"), 2)


async def answered(
    stage: Optimizer, asked: Event, state: Cluster, recorded: AnyBody | None = None
) -> Plan | NoPlanFound:
    """The one answer."""
    assert stage.wants(asked) == AtVersion(state.version)
    (body,) = await stage.handle(asked, state, Moment(NOW, recorded))
    assert isinstance(body, Plan | NoPlanFound)
    return body


async def test_forecasts_are_answered_with_a_plan() -> None:
    """A reschedule iteration is planned when its forecasts are there, on its own version."""
    found = await answered(optimizer(), forecasts(), tiny())
    assert isinstance(found, Plan)
    assert (found.mode, found.base_version, found.cost.after) == ("reschedule", 1, 0.085)


async def test_an_autoscale_iteration_is_answered_at_once() -> None:
    """It waits for no forecasts."""
    found = await answered(optimizer(), autoscale(), full())
    assert isinstance(found, Plan)
    assert found.mode == "autoscale"


async def test_the_start_of_a_reschedule_iteration_is_not_answered() -> None:
    """Its forecasts will be."""
    started = event(IterationStarted(mode="reschedule", version=1, reason="stable"))
    stage = optimizer()
    assert stage.wants(started) == NoState()
    assert await stage.handle(started, None, Moment(NOW)) == []


async def test_the_rest_of_a_plan_is_planned_at_once_and_names_the_plan() -> None:
    """It waits for no forecasts, is made in its own time limit, and the decider knows it by the plan's id."""
    asked = event(IterationStarted(mode="reschedule", version=1, reason="rest-after-misplaced", continues="p1"))
    stage = optimizer()
    found = await answered(stage, asked, tiny())
    assert isinstance(found, Plan)
    assert found.continues == "p1"
    again = await answered(stage, asked, tiny(), recorded=found)
    assert isinstance(again, Plan)
    assert again.placements == found.placements
    assert PlanningSettings(time_limit_seconds=10, rest_seconds=2).for_a_rest().time_limit_seconds == 2


async def test_a_catalog_is_remembered_and_not_answered() -> None:
    """The newest catalog holds."""
    stage = optimizer(())
    newer = event(CatalogPublished(source="test", priced=None, offers=offers()), 5)
    assert stage.wants(newer) == NoState()
    stage.recall(newer)
    assert await stage.handle(newer, None, Moment(NOW)) == []
    assert isinstance(await answered(stage, forecasts(), tiny()), Plan)


def gave_up(workload: str, reason: str = "refused") -> Event:
    """An execution's word that it does not move this workload any further."""
    body = StepFailed(plan="p", step=f"skip/{workload}", fencing=1, reason=reason, detail="exceeded quota", retry=False)
    return event(body, 6)


def moved(found: Plan | NoPlanFound) -> set[str]:
    """Pods that the plan moves."""
    assert isinstance(found, Plan)
    return {place.pod for place in found.placements if place.source != place.to}


@pytest.mark.parametrize("reason", ["refused", "unschedulable", "taken-back", "pods-never-ready", "roll-stuck"])
async def test_a_workload_whose_moves_have_no_effect_stays_for_a_while(reason: str) -> None:
    """Its pods are held with the reason and others move; after the hour they may move again."""
    stage, state = optimizer(), fragmented()
    carts = {"shop/cart-0", "shop/cart-1", "shop/cart-2"}
    free = await answered(stage, forecasts(), state)
    assert moved(free) & carts
    stage.recall(gave_up("Deployment/shop/cart", "budget"))
    stage.recall(gave_up("Deployment/gone/away"))
    assert moved(await answered(stage, forecasts(), state)) == moved(free), "another reason, another workload"
    stage.recall(gave_up("Deployment/shop/cart", reason))
    kept = await answered(stage, forecasts(), state)
    assert moved(kept)
    assert not moved(kept) & carts
    assert isinstance(kept, Plan)
    held = {item.pod: item for item in kept.held if item.code == "refused"}
    assert held.keys() == carts
    assert "exceeded quota" in held["shop/cart-0"].reason
    (later,) = await stage.handle(forecasts(), state, Moment(NOW + timedelta(hours=1)))
    assert isinstance(later, Plan)
    assert moved(later) == moved(free)


@pytest.mark.parametrize("reason", ["pods-never-ready", "roll-stuck"])
async def test_a_workload_whose_node_was_to_blame_may_move_again_once(reason: str) -> None:
    """Its booted node is blamed later. Other reasons hold, other plans excuse nothing, and nothing is excused twice."""

    def blamed(node: str, plan: str = "p") -> Event:
        detail = "no pod is Ready"
        body = StepFailed(plan=plan, step=f"unfit/{node}", fencing=1, reason=reason, detail=detail, retry=False)
        return event(body, 7)

    def held(found: Plan | NoPlanFound) -> set[str]:
        assert isinstance(found, Plan)
        return {item.pod.rpartition("-")[0] for item in found.held if item.code == "refused"}

    stage, state = optimizer(), fragmented()
    stage.recall(gave_up("Deployment/shop/cart", reason))
    stage.recall(gave_up("StatefulSet/shop/db"))
    assert held(await answered(stage, forecasts(), state)) == {"shop/cart", "shop/db"}
    stage.recall(blamed("kinema-1", "another"))
    assert held(await answered(stage, forecasts(), state)) == {"shop/cart", "shop/db"}
    stage.recall(blamed("kinema-1"))
    assert held(await answered(stage, forecasts(), state)) == {"shop/db"}
    stage.recall(gave_up("Deployment/shop/cart", reason))
    stage.recall(blamed("kinema-2"))
    assert held(await answered(stage, forecasts(), state)) == {"shop/cart", "shop/db"}


def test_refusals_are_forgotten_once_they_no_longer_hold() -> None:
    """What is remembered of refusals is bounded by those of the last `refused_seconds`, however many there were."""
    known = Refusals()
    for n in range(100):
        body = gave_up(f"Deployment/shop/w{n}").body
        known = known.after(origin(body, id_="e", cluster="test", iteration="i1", now=NOW + timedelta(minutes=n)), 600)
    assert list(known.last) == [f"Deployment/shop/w{n}" for n in range(90, 100)]


def with_taint(state: Cluster, name: str, key: str) -> Cluster:
    """The state with a taint on a node."""
    old = state.node(name)
    assert old is not None
    new = msgspec.structs.replace(old, taints=(taint(f"{key}:PreferNoSchedule"),))
    return from_objects([new if item is old else item for item in all_objects(state)], state.version)


@pytest.mark.parametrize("delegated", [False, True])
async def test_a_node_that_another_autoscaler_empties_is_left_to_it(delegated: bool) -> None:
    """Its pods are held with the reason; where it deletes for us, one that it only considers is planned with."""
    plain = fragmented()
    stage = optimizer()
    stage.recall(event(CatalogPublished(source="test", priced=NOW, offers=offers(), delegated=delegated), 7))
    there = {pod.key for pod in plain.pods if pod.node == "n1" and "logger" not in pod.name}
    for key, ours in (("DeletionCandidateOfClusterAutoscaler", delegated), ("karpenter.sh/disrupted", False)):
        found = await answered(stage, forecasts(), with_taint(plain, "n1", key))
        assert isinstance(found, Plan)
        held = {item.pod: item for item in found.held if item.code == "foreign-node"}
        assert held.keys() == (set() if ours else there)
        assert all("n1" in item.reason and key in item.reason for item in held.values())
        assert bool(moved(found) & there) == ours
        assert {node.name for node in found.nodes if node.action == "delete"} >= ({"n1"} if ours else {"n2"})


async def test_without_a_catalog_there_is_no_plan() -> None:
    """The reason says so."""
    stage = Optimizer(Settings(runtime=RuntimeSettings(cluster="test")))
    found = await answered(stage, forecasts(), tiny())
    assert isinstance(found, NoPlanFound)
    assert found.reason == "no-catalog"


async def test_nothing_better_is_said_with_its_figures() -> None:
    """Cost, bound and how the solve went."""
    state = cluster(node("n1", cpu=2000, memory=8192, machine="m2"), deployed("web", ["n1"]))
    found = await answered(optimizer(), forecasts(), state)
    assert isinstance(found, NoPlanFound)
    assert found.reason == "nothing-better"
    assert found.figures["cost_usd_per_hour"] == found.figures["lower_bound_usd_per_hour"] == 0.085


async def test_pending_pods_that_nothing_holds_are_counted_by_reason() -> None:
    """An autoscale iteration that can boot nothing says what is lacking."""
    found = await answered(optimizer(), autoscale(), cluster(node("n1"), deployed("huge", [None] * 2, cpu=9000)))
    assert isinstance(found, NoPlanFound)
    assert (found.reason, found.figures["unplaced"]) == ("nothing-holds-pending", "resource-cpu: 2")


async def test_a_missing_price_is_said_with_the_nodes() -> None:
    """The detail names every node without a price."""
    found = await answered(optimizer(), forecasts(), cluster(node("odd", machine="unknown"), deployed("web", ["odd"])))
    assert isinstance(found, NoPlanFound)
    assert found.reason == "price-missing"
    assert "odd" in str(found.figures["detail"])


async def test_a_plan_that_the_checker_refuses_is_never_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is wrong with it is."""
    wrong = (Violation("over-capacity", "n1", "cpu: 9 wanted, room for 8"),)
    monkeypatch.setattr(task, "check_plan", lambda *_, **__: wrong)
    found = await answered(optimizer(), forecasts(), tiny())
    assert isinstance(found, NoPlanFound)
    assert found.reason == "recheck-failed"
    assert (found.figures["first_code"], found.figures["first_subject"]) == ("over-capacity", "n1")


@pytest.mark.parametrize("asked", [forecasts(), autoscale()])
@pytest.mark.parametrize("state", [tiny(), fragmented(), full()])
async def test_a_replay_gives_the_same_bytes(asked: Event, state: Cluster) -> None:
    """Handed the recorded answer, the stage repeats it, seconds included."""
    live = await answered(optimizer(), asked, state)
    again = await answered(optimizer(), asked, state, live)
    first, second = (
        encode(answer(one, cause=asked, service="optimizer", n=0, now=NOW, state=1)) for one in (live, again)
    )
    assert first == second


async def test_a_solve_that_the_clock_ended_is_replayed_to_the_byte() -> None:
    """It records phase and callback of its stops, and the replay ends there."""
    state, on_sale = boutique(20, seed=5, nodes=20)
    asked = forecasts(state.version)
    live = await answered(optimizer(on_sale, seconds=0.5), asked, state)
    solve = recorded_solve(live)  # on a busy machine half a second may not suffice for a plan
    assert solve is not None
    assert "time-limit" in {stop.reason for stop in solve.stops}
    assert await answered(optimizer(on_sale, seconds=99), asked, state, live) == live


def test_the_solve_behind_a_plan_none_is_recorded_too() -> None:
    """Nothing-better after a solve that the clock ended must be replayed like a plan."""
    figures = {
        "stops": "relaxation:optimal:5 cost:time-limit:7",
        "seconds": 1.5,
        "first_feasible_seconds": 0.1,
        "method": "m",
        "seed": 0,
    }
    body = {"mode": "reschedule", "version": 1, "reason": "nothing-better", "figures": figures}
    solve = recorded_solve(msgspec.convert(body, NoPlanFound, dec_hook=lambda kind, value: kind(value)))
    assert solve is not None
    assert [(stop.phase, stop.reason, stop.iteration) for stop in solve.stops] == [
        ("relaxation", "optimal", 5),
        ("cost", "time-limit", 7),
    ]


async def test_a_cancelled_solve_ends_its_thread() -> None:
    """When the service stops, the solver does not go on in the background."""
    state, on_sale = boutique(30, seed=6, nodes=30)
    task = asyncio.create_task(optimizer(on_sale, seconds=3600).handle(forecasts(41), state, Moment(NOW)))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.get_running_loop().shutdown_default_executor()


def test_snapshots_and_deltas_are_folded() -> None:
    """The stage folds what every service folds."""
    stage = optimizer()
    state = stage.fold(stage.initial(), event(ClusterSnapshot(version=4, objects=tuple(all_objects(tiny())))))
    assert (state.version, len(state.pods)) == (4, 3)


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_time_limit_of_nothing_is_refused(seconds: float) -> None:
    """The error names the setting."""
    with pytest.raises(msgspec.ValidationError, match="time_limit_seconds"):
        msgspec.convert({"time_limit_seconds": seconds}, PlanningSettings)

"""Policies in the optimizer: which one plans, which ones speak from the shadow, and what the log remembers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from tests.support.builders import NOW, cluster, deployed, fragmented, node, offers, tiny

from kinema_core.events import (
    AnyBody,
    CatalogPublished,
    Event,
    ForecastMade,
    NoPlanFound,
    Plan,
    PodUsage,
    PolicyEvaluated,
    UsageSampled,
    decode,
    encode,
)
from kinema_core.model.cluster import Cluster, fold
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import Moment
from kinema_optimizer.policies.cluster_autoscaler import UNNEEDED
from kinema_optimizer.policies.registry import policy_named
from kinema_optimizer.service import Optimizer
from kinema_optimizer.settings import PlanningSettings, PolicyName, PolicySettings, Settings


def event(body: AnyBody, n: int) -> Event:
    """An event of that body."""
    return origin(body, id_=f"e{n}", cluster="test", iteration="i1", now=NOW)


def optimizer(name: PolicyName, *shadow: PolicyName) -> Optimizer:
    """An optimizer with a policy in charge, that knows a catalog."""
    settings = Settings(
        runtime=RuntimeSettings(cluster="test"),
        planning=PlanningSettings(time_limit_seconds=5.0),
        policy=PolicySettings(name=name, shadow=shadow),
    )
    stage = Optimizer(settings)
    stage.recall(event(CatalogPublished(source="test", priced=NOW, offers=offers()), 0))
    return stage


async def asked(
    stage: Optimizer, state: Cluster, now: datetime = NOW, recorded: AnyBody | None = None
) -> tuple[Event, ...]:
    """Answers to an iteration, recalled as a service recalls its own."""
    cause = event(ForecastMade(version=state.version, forecasts=()), 1)
    bodies = await stage.handle(cause, state, Moment(now, recorded))
    found = tuple(
        answer(body, cause=cause, service="optimizer", n=n, now=now, state=state.version)
        for n, body in enumerate(bodies)
    )
    for one in found:
        stage.recall(one)
    return found


def said(events: Sequence[Event]) -> list[PolicyEvaluated]:
    """What policies say."""
    return [one.body for one in events if isinstance(one.body, PolicyEvaluated)]


def idle() -> Cluster:
    """Two nodes, one of which is not needed."""
    return cluster(node("n1"), node("n2"), deployed("web", ["n1", "n2"], cpu=500))


async def test_the_policy_in_charge_plans_and_remembers_through_the_log() -> None:
    """Nothing in the first iteration; after ten minutes of the memory in its event, a plan that drains the node."""
    stage = optimizer("cluster-autoscaler")
    first = await asked(stage, idle())
    assert isinstance(first[0].body, NoPlanFound)
    assert first[0].body.reason == "policy-waits"
    [memory] = said(first)
    assert [one.what for one in memory.lasting] == [UNNEEDED + "n1"]
    later = NOW + timedelta(seconds=600)
    plan, record = await asked(stage, idle(), later)
    assert isinstance(plan.body, Plan)
    assert (plan.body.objective, plan.body.purpose) == ("policy cluster-autoscaler", "policy")
    assert [one.name for one in plan.body.nodes if one.action == "delete"] == ["n1"]
    assert said([record])[0].steps[0].action == "drain"


async def test_another_process_goes_on_with_what_the_log_remembers() -> None:
    """An optimizer that only reads the events decides the same, byte by byte."""
    stage, other = optimizer("cluster-autoscaler"), optimizer("cluster-autoscaler")
    for one in await asked(stage, idle()):
        other.recall(decode(encode(one)))
    later = NOW + timedelta(seconds=600)
    assert [encode(one) for one in await asked(stage, idle(), later)] == [
        encode(one) for one in await asked(other, idle(), later)
    ]


async def test_a_policy_in_the_shadow_speaks_and_does_not_act() -> None:
    """The plan is Kinema's; beside it stands what the others would do, each by its name and in the shadow."""
    events = await asked(optimizer("kinema", "karpenter", "none"), fragmented())
    assert isinstance(events[0].body, Plan)
    assert not events[0].body.objective.startswith("policy")
    assert [(one.policy, one.shadow) for one in said(events)] == [("karpenter", True), ("none", True)]
    assert len([one for one in events if isinstance(one.body, Plan)]) == 1
    assert said(events)[1].cost_after == said(events)[1].cost_before


async def test_the_shadow_and_the_charge_have_a_memory_each() -> None:
    """Whoever comes into charge waits as if it had just been installed."""
    shadow, stage = optimizer("none", "cluster-autoscaler"), optimizer("cluster-autoscaler")
    for one in await asked(shadow, idle()):
        stage.recall(one)
    assert isinstance((await asked(stage, idle(), NOW + timedelta(seconds=600)))[0].body, NoPlanFound)


async def test_the_thesis_is_repeated_to_the_byte() -> None:
    """Its solve ends where the recorded one ended."""
    first = await asked(optimizer("thesis"), fragmented())
    again = await asked(optimizer("thesis"), fragmented(), recorded=first[0].body)
    assert isinstance(first[0].body, Plan)
    assert [encode(one) for one in first] == [encode(one) for one in again]


async def test_a_node_without_a_price_is_named() -> None:
    """The policy has no plan, says why, and keeps its memory."""
    stage = optimizer("cluster-autoscaler")
    await asked(stage, idle())
    unpriced = cluster(node("odd", machine="unknown"), deployed("web", ["odd"], cpu=500))
    none, record = await asked(stage, unpriced)
    assert isinstance(none.body, NoPlanFound)
    assert none.body.reason == "price-missing"
    assert "odd" in said([record])[0].reason
    assert said([record])[0].lasting


def test_readings_reach_only_policies_that_use_them() -> None:
    """The optimizer folds usage where a policy looks at it; the state carries the last reading of each pod."""
    assert optimizer("kinema").folds == ()
    assert optimizer("kinema", "metric-descheduler").folds == ("usage-sampled",)
    reading = UsageSampled(
        sampled=NOW, window_seconds=30.0, pods=(PodUsage(pod="shop/web-0", uid="u", cpu=5, memory=7),)
    )
    state = fold(tiny(), event(reading, 3))
    assert state.usage == {"shop/web-0": {"cpu": 5, "memory": 7}}
    assert state.objects == tiny().objects


@pytest.mark.parametrize("shadow", [("kinema",), ("karpenter",)])
def test_a_shadow_is_another_policy(shadow: tuple[PolicyName, ...]) -> None:
    """Kinema is no shadow, and the policy in charge is none of its own."""
    with pytest.raises(ValueError, match="shadow names other policies"):
        PolicySettings(name="karpenter", shadow=shadow)


def test_kinema_is_no_policy_of_rules() -> None:
    """Its plans are made by a solver."""
    with pytest.raises(ValueError, match="kinema is no policy of rules"):
        policy_named("kinema")

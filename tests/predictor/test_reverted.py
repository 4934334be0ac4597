"""Requests that an owner or a GitOps tool puts back after a roll are not written again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace
from tests.predictor.test_forecast import CALM, TENTH
from tests.support.builders import MIB, NOW, cluster, deployed, node

from kinema_core.events import (
    AnyBody,
    ForecastMade,
    FrozenMap,
    Step,
    StepFailed,
    StepStarted,
    StepSucceeded,
    Workload,
)
from kinema_core.model.cluster import Cluster, all_objects, from_objects
from kinema_predictor.logic.forecast import Memory, forecasts

WEB = "Deployment/shop/web"
BEGUN = StepStarted(
    plan="p1",
    step=Step(id=f"roll/{WEB}/1", kind="roll", target=WEB, requests=FrozenMap(cpu=360)),
    fencing=1,
    deadline=NOW,
)
DONE = StepSucceeded(plan="p1", step=BEGUN.step.id, fencing=1, outcome="done")
FAILED = StepFailed(plan="p1", step=BEGUN.step.id, fencing=1, reason="held", detail="-", retry=False)
REVERT = StepStarted(
    plan="p1", step=Step(id=f"revert/{WEB}", kind="revert", target=WEB), fencing=1, deadline=NOW, attempt=1
)


def shop(cpu: int, labels: dict[str, str] | None = None) -> Cluster:
    """One Deployment with that request, and labels that a tool has put on it."""
    state = cluster(node("n1"), deployed("web", ["n1", "n1"], cpu=cpu, memory=500))
    marked = [
        replace(item, labels=FrozenMap({**item.labels, **(labels or {})})) if isinstance(item, Workload) else item
        for item in all_objects(state)
    ]
    return from_objects(marked, version=state.version)


def after(*bodies: AnyBody) -> Memory:
    """What is remembered of steps."""
    memory = Memory()
    for body in bodies:
        memory = memory.with_step(body)
    return memory


def asked(state: Cluster, memory: Memory) -> tuple[ForecastMade, Memory]:
    """An answer, and what is remembered after it."""
    made = forecasts(state, CALM, NOW, TENTH, memory)
    return made, memory.with_answer(NOW + timedelta(seconds=1), made)


@pytest.mark.parametrize(
    ("labels", "manager"), [({}, "owner"), ({"argocd.argoproj.io/instance": "shop"}, "Argo CD")], ids=["owner", "argo"]
)
def test_requests_that_are_put_back_are_recommended_only(labels: dict[str, str], manager: str) -> None:
    """The refusal names the requests that are there and what manages them; the judgement goes on."""
    made, memory = asked(shop(400, labels), after(BEGUN, DONE))
    assert made.forecasts == ()
    (refused,) = made.refused
    assert (refused.reason, refused.figures) == ("reverted", {"manager": manager, "cpu": 400, "memory": 500 * MIB})
    assert made.judged
    again, memory = asked(shop(400, labels), memory)
    assert [one.reason for one in again.refused] == ["reverted"]
    later, _ = asked(shop(450, labels), memory)  # the owner has changed its mind
    assert [one.requests_after["cpu"] for one in later.forecasts] == [405]


@pytest.mark.parametrize(
    ("bodies", "cpu"),
    [((BEGUN, DONE), 360), ((BEGUN, FAILED), 400), ((BEGUN,), 400), ((BEGUN, DONE, REVERT), 400)],
    ids=["kept", "failed", "under-way", "taken-back"],
)
def test_requests_that_nobody_put_back_go_on_falling(bodies: tuple[AnyBody, ...], cpu: int) -> None:
    """Where the owner leaves them, where the roll was not made, and where Kinema itself took it back."""
    made, _ = asked(shop(cpu), after(*bodies))
    assert made.refused == ()
    assert [one.requests_after["cpu"] for one in made.forecasts] == [cpu * 9 // 10]

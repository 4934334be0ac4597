"""Of which moves the new pods are led to their planned nodes, and how long, as the journal shows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import pytest

from kinema_core.events import Event, PlanAccepted, Step, StepKind
from kinema_core.runtime.envelope import origin
from kinema_rescheduler.journal.execution import Execution, Progress, Verdict
from kinema_rescheduler.moves.landing import landing_steps
from kinema_rescheduler.names import ABORT, skip_id
from kinema_rescheduler.plan.limits import Limits

WEB = "Deployment/shop/web"
NOW = datetime(2026, 3, 2, tzinfo=UTC)
LIMITS = Limits()


def cause() -> Event:
    """An acceptance."""
    return origin(PlanAccepted(plan="p", version=1), id_="a", cluster="c", iteration="it-1", now=NOW)


def progress(kind: StepKind, number: int = 1, *, result: str = "done", ended: float | None = -1) -> Progress:
    """A step of the workload that ended so many seconds from now; None: it has not."""
    step = Step(id=f"{kind}/{WEB}/{number}", kind=kind, target=WEB, nodes=("n1", "n1"), pods=("u1", "u2"))
    over = ended is not None
    return Progress(
        step=step,
        attempt=1,
        first=NOW - timedelta(seconds=5),
        intended=NOW - timedelta(seconds=5),
        deadline=NOW,
        state="done" if over and result in {"done", "adopted", "void"} else "failed" if over else "open",
        result=result if over else "",
        ended=NOW + timedelta(seconds=ended) if ended is not None else None,
    )


def led(*steps: Progress, verdicts: tuple[str, ...] = (), limits: Limits = LIMITS) -> list[str]:
    """Ids of the steps whose pods are led."""
    execution = Execution(
        cause=cause(),
        plan_id="p",
        plan=None,
        steps=MappingProxyType({item.step.id: item for item in steps}),
        verdicts=MappingProxyType({id_: Verdict("r", "d", NOW) for id_ in verdicts}),
    )
    return [step.id for step in landing_steps(execution, NOW, limits)]


STEER = progress("prefer-nodes")
FIRST = [f"prefer-nodes/{WEB}/1"]


def test_pods_are_led_from_the_published_nodes_until_they_are_ready() -> None:
    """It begins before the pods are asked for, and ends when the surplus is taken away."""
    assert led(progress("prefer-nodes", ended=None)) == []
    assert led(STEER) == FIRST
    assert led(STEER, progress("surge-up", ended=None)) == FIRST
    assert led(STEER, progress("surge-up")) == FIRST
    assert led(STEER, progress("surge-up"), progress("surge-down", ended=None)) == []
    assert led(STEER, progress("roll"), progress("finalize-rollout", ended=None)) == []


@pytest.mark.parametrize("kind", ["surge-up", "evict"])
def test_pods_that_never_came_are_not_led_for_good(kind: StepKind) -> None:
    """What comes later than `observed_seconds` after the pods were asked for is not of the plan."""
    assert led(STEER, progress(kind, ended=-LIMITS.observed_seconds)) == FIRST
    assert led(STEER, progress(kind, ended=-LIMITS.observed_seconds - 1)) == []


@pytest.mark.parametrize("result", ["changed", "void"])
def test_a_move_that_failed_leads_no_pod(result: str) -> None:
    """A surge that was refused asked for none."""
    assert led(STEER, progress("surge-up", result=result)) == []


def test_only_the_last_move_of_a_workload_counts() -> None:
    """The next move has other victims and may have another node."""
    assert led(STEER, progress("evict"), progress("prefer-nodes", 2)) == [f"prefer-nodes/{WEB}/2"]


def test_operators_and_owners_can_refuse() -> None:
    """Steering that is off is a void step, an owner's refusal one without nodes, and the limit may be 0."""
    assert led(progress("prefer-nodes", result="void")) == []
    assert led(STEER, limits=Limits(landing_seconds=0)) == []
    assert landing_steps(None, NOW, LIMITS) == ()


def test_an_abandoned_move_leads_no_pod() -> None:
    """Neither that of one workload nor of the whole plan."""
    assert led(STEER, verdicts=(skip_id(WEB),)) == []
    assert led(STEER, verdicts=(ABORT,)) == []

"""The solver of a simulation: it does not solve again what has the same answer, and solves all else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
from tests.support.builders import LONG_AGO, NOW, deployed, node, offer
from tests.support.planning import unguarded

from kinema_core.events import Autoscaler, AutoscalerMetric, NoPlanFound, Plan
from kinema_core.model.cluster import all_objects, from_objects
from kinema_core.model.vocabulary import DO_NOT_DISRUPT
from kinema_optimizer.policies.answers import Memories, evaluated
from kinema_optimizer.policies.policy import Tick
from kinema_optimizer.process.job import Job, solve
from kinema_optimizer.solvers.stopping import WorkStop
from kinema_sim.simulate.pipeline import WorkSolver, WorkThesis


def asked(*, used: int, now: datetime = NOW, until: str | None = None) -> Job:
    """Two nodes with a pod each, of which one would do; the autoscaler of one sees so much usage of 60% targeted."""
    metric = AutoscalerMetric(name="cpu", current=used, target=60)
    scaler = Autoscaler(
        name="web",
        namespace="shop",
        uid="uid-hpa",
        target_kind="Deployment",
        target_name="web",
        max_replicas=5,
        current=1,
        desired=1,
        metrics=(metric,),
    )
    marks = {} if until is None else {DO_NOT_DISRUPT: until}
    cluster = from_objects(
        [
            node("n1", price="0.17"),
            node("n2", price="0.17"),
            *deployed("web", ["n1"], pod_annotations=marks),
            *deployed("api", ["n2"], pod_annotations=marks),
            scaler,
        ],
        version=used,
    )
    return Job(cluster, (offer(),), now, unguarded(), "reschedule")


def answers(*jobs: Job) -> list[Plan | NoPlanFound]:
    """What one solver says to these jobs, one after the other."""
    solver = WorkSolver(work=5)

    async def ask() -> list[Plan | NoPlanFound]:
        return [await solver.answer(job) for job in jobs]

    return asyncio.run(ask())


def test_figures_of_an_autoscaler_that_change_nothing_are_not_solved_again() -> None:
    """40% and 55% of a target of 60%: the same plan, on the newer state."""
    first, second = answers(asked(used=40), asked(used=55))
    assert isinstance(first, Plan)
    assert isinstance(second, Plan)
    assert first.moves == 1
    assert second.placements is first.placements
    assert (first.base_version, second.base_version) == (40, 55)


def test_a_workload_above_its_target_is_solved_anew() -> None:
    """At 90% its pods stay, although nothing but the autoscaler has changed; the other pod joins them."""
    _, busy = answers(asked(used=40), asked(used=90))
    assert isinstance(busy, Plan)
    assert [one.pod for one in busy.placements if one.source != one.to] == ["shop/api-0"]
    assert [one.code for one in busy.held] == ["restless"]


def test_protection_that_ends_with_time_is_solved_anew() -> None:
    """Pods that are not to be disrupted in their first three days may move on the third."""
    early, late = NOW, LONG_AGO + timedelta(days=3, seconds=1)
    first, second = answers(asked(used=40, now=early, until="72h"), asked(used=40, now=late, until="72h"))
    assert isinstance(first, NoPlanFound)
    assert isinstance(second, Plan)
    assert second.moves == 1


def test_what_constraints_cost_is_not_worked_out() -> None:
    """No figure of a simulation needs it; the plan is the same without."""
    job = asked(used=40)
    marks = {DO_NOT_DISRUPT: "true"}
    held = [*deployed("db", ["n3"], pod_annotations=marks), *deployed("mq", ["n4"], pod_annotations=marks)]
    objects = [*all_objects(job.cluster), node("n3", price="0.17"), node("n4", price="0.17"), *held]
    job = replace(job, cluster=from_objects(objects, version=1))
    priced, plan = solve(job, WorkStop(5)), answers(job)[0]
    assert isinstance(priced, Plan)
    assert isinstance(plan, Plan)
    assert priced.constraint_costs
    assert not plan.constraint_costs
    assert (plan.nodes, plan.placements, plan.steps) == (priced.nodes, priced.placements, priced.steps)


class _Unsolved(WorkStop):
    """Fails where a solve begins."""

    def begin(self, phase: str) -> None:
        raise AssertionError(phase)


def test_the_thesis_is_not_solved_again_for_the_same_state() -> None:
    """Its plan is the same on the newer state, of whose version it is."""
    thesis = WorkThesis()
    plans = []
    for used, stop in ((40, WorkStop(1000)), (55, _Unsolved(1))):
        tick = Tick(asked(used=used).cluster, (offer(),), NOW, stop=stop)
        plan, said = evaluated(thesis, tick, "reschedule", Memories(), shadow=False)
        assert isinstance(plan, Plan)
        assert plan.base_version == said.version == used
        plans.append(msgspec.structs.replace(plan, base_version=0))
    assert plans[0] == plans[1]
    assert plans[0].cost.after < plans[0].cost.before

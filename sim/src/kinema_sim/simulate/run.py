"""Runs of a scenario, one policy after the other, each on a cluster of its own from the same seed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, cast, get_args

import msgspec

from kinema_core.model.mobility import MobilityOptions
from kinema_optimizer.policies.policy import Policy
from kinema_optimizer.policies.registry import policy_named
from kinema_optimizer.policies.usage import target_load_score
from kinema_optimizer.settings import PolicyName
from kinema_sim.cluster import Cluster
from kinema_sim.engine.kinds import DEPLOYMENT
from kinema_sim.engine.objects import Obj, key_of
from kinema_sim.scheduler.books import Books, NodeInfo, PodInfo
from kinema_sim.scheduler.scores import Scorer, most_allocated, with_fit
from kinema_sim.simulate.build import build
from kinema_sim.simulate.course import Figures, Recorder, Sample, figures
from kinema_sim.simulate.executor import Neighbor
from kinema_sim.simulate.pipeline import WORK, Pipeline, Requests
from kinema_sim.simulate.scenario import Loaded, milliseconds
from kinema_sim.simulate.sizing import RULES, Sizer, Sizing
from kinema_sim.simulate.usage import READING, Watch, past_of
from kinema_sim.simulate.view import View

POLICIES: Final[tuple[PolicyName, ...]] = get_args(PolicyName)
PIPELINE: Final = frozenset({"kinema", "thesis"})
"""Policies that run as the services do; the others are executed as their systems execute."""
SIZINGS: Final[tuple[Sizing, ...]] = get_args(Sizing)
_PACKING: Final = frozenset({"optimize-utilization"})
_TRIMARAN_TARGET: Final = 40
_STRATEGY: Final = "kinema.io/strategy"


class Result(msgspec.Struct, frozen=True):
    """What came of one policy."""

    policy: str
    """Its name, with `+` and who sizes where requests follow usage."""
    whole: Figures
    phases: dict[str, Figures]
    evictions: int
    """Pods that the policy, or who sizes, moved or restarted."""
    disruptions: int
    """Pods that stopped serving while their workload had too few of them, whatever the reason."""
    booted: int
    deleted: int
    ticks: int
    """How often it was asked."""
    notes: dict[str, int]
    """Refused orders, plans that were rejected by rule, executions that were aborted."""
    samples: tuple[Sample, ...]
    resized: int = 0
    """Pods that got other requests, each time."""
    unread: tuple[str, ...] = ()
    """Annotations for right-sizing that cannot be read, with workload and value."""


def chosen(name: str) -> tuple[PolicyName, Sizing | None]:
    """Return the policy that places and who sizes: `karpenter+vpa` names both, `karpenter` leaves requests as they are.

    Raises:
        ValueError: says what to choose from.
    """
    policy, plus, sizing = name.partition("+")
    if policy not in POLICIES:
        raise ValueError(f"no such policy; choose from {', '.join(POLICIES)}")
    if plus and sizing not in SIZINGS:
        raise ValueError(f"no such recommender; choose from {', '.join(SIZINGS)}")
    if sizing == "kinema" and policy not in PIPELINE:
        raise ValueError(f"{policy} does not size with its placement; choose from {', '.join(RULES)}")
    return policy, cast("Sizing", sizing) if plus else None


def run(
    loaded: Loaded,
    name: str,
    *,
    seed: int = 0,
    work: int | None = None,
    rules: Policy | None = None,
    max_change: str = "",
    cpu_risk: float = 0.05,
) -> tuple[Result, float]:
    """Run a scenario under a policy; return the result, and the processor seconds that it took.

    `name` is as `chosen` reads it. `rules` is the policy where it has other settings than by default; not for those
    that run as the services do. `max_change` and `cpu_risk` are the predictor's settings, the former its
    `max_request_change_fraction`, by default 0.10.

    Raises:
        ValueError: there is no such policy.
    """
    policy, sizing = chosen(name)
    began = time.process_time()
    sim = build(loaded, seed)
    _schedule_like(sim, policy)
    recorder, end = Recorder(sim), milliseconds(loaded.scenario.duration)
    end_ms = sim.loop.now_ms + end
    view = View(sim)
    past = past_of(loaded, sim) if sizing is not None else ()
    rule = RULES.get(sizing or "")
    sizer = None if rule is None else Sizer(sim, rule, Watch(sim, past), recorder.tally)
    if policy in PIPELINE:
        requests = Requests(past if sizing == "kinema" else None, max_change, cpu_risk, sizer)
        notes, unread = asyncio.run(_services(recorder, view, policy, end_ms, work, requests))
    else:
        unread = ()
        neighbor = Neighbor(sim, rules or policy_named(policy), view, MobilityOptions(), recorder.tally)
        neighbor.start()
        if sizer is not None:
            sim.loop.every(round(READING.total_seconds() * 1000), lambda: sizer.look(view.refresh()), priority=899)
        sim.loop.run_until(end_ms)
        notes = {"refused": recorder.tally.refused} if recorder.tally.refused else {}
    recorder.take()
    tally, samples = recorder.tally, tuple(recorder.samples)
    phases = {
        phase.name: figures(samples, milliseconds(phase.start) / 1000, milliseconds(phase.end) / 1000)
        for phase in loaded.scenario.phases
    }
    result = Result(
        policy=name,
        whole=figures(samples, 0.0, end / 1000),
        phases=phases,
        evictions=tally.evictions,
        disruptions=recorder.restarts,
        booted=tally.booted,
        deleted=tally.deleted,
        ticks=tally.ticks,
        notes=dict(notes),
        samples=samples,
        resized=tally.resized,
        unread=unread,
    )
    return result, time.process_time() - began


async def _services(
    recorder: Recorder, view: View, policy: PolicyName, end_ms: int, work: int | None, requests: Requests
) -> tuple[Mapping[str, int], tuple[str, ...]]:
    pipeline = Pipeline(
        recorder.sim,
        view,
        policy=policy,
        work=work or WORK,
        lend=recorder.lend,
        requests=requests,
        tally=recorder.tally,
    )
    try:
        await pipeline.run_until(end_ms)
    finally:
        await pipeline.close()
    notes = {f"rejected: {rule}": count for rule, count in sorted(pipeline.rejections.items())}
    notes |= {"aborted": pipeline.aborted} if pipeline.aborted else {}
    return notes, tuple(sorted(pipeline.unread))


def _schedule_like(sim: Cluster, policy: PolicyName) -> None:
    """Configure the scheduler as the policy's system does, and mark Deployments for the thesis, which rolls them."""
    if policy in _PACKING:
        sim.scheduler.scorers = with_fit(most_allocated)
    if policy == "trimaran":
        sim.scheduler.scorers = with_fit(_target_load(sim))
    if policy == "thesis":
        for item in sim.store.each(DEPLOYMENT):
            sim.store.edit(DEPLOYMENT, key_of(item), _rolled)


def _rolled(draft: Obj) -> None:
    draft["metadata"].setdefault("annotations", {})[_STRATEGY] = "rolling"


def _target_load(sim: Cluster) -> Scorer:
    """Return the score of target load packing on what pods use now."""

    def score(pod: PodInfo, nodes: Sequence[NodeInfo], _: Books) -> list[int]:
        used: dict[str, int] = {}
        for key, usage in sim.load.usage().items():
            bound = sim.scheduler.books.bound(key)
            if bound is not None:
                used[bound[1]] = used.get(bound[1], 0) + usage.cpu_nano // 1_000_000
        return [
            round(
                target_load_score(
                    Fraction(100 * (used.get(node.name, 0) + pod.requests.get("cpu", 0)), node.allocatable["cpu"]),
                    _TRIMARAN_TARGET,
                )
            )
            for node in nodes
        ]

    return score

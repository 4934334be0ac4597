"""The process that solves: its plan, and what is answered when it dies, hangs or takes too much memory."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

import msgspec
import pytest
from tests.optimizer.instances import boutique
from tests.support.builders import NOW
from tests.support.faults import armed
from tests.support.planning import unguarded

from kinema_core.events import AnyBody, CatalogPublished, Event, ForecastMade, NoPlanFound, Offer, Plan, encode
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import Moment
from kinema_optimizer.process.client import InChild, Solver
from kinema_optimizer.service import Optimizer
from kinema_optimizer.settings import Settings, SolverSettings

FIRST = 1
"""Report of the search's first plan, which changes nothing."""
SECONDS = 2.5
PLANNING = unguarded(time_limit_seconds=SECONDS, max_moves=200)
"""A cap on moves leads to the search, which tells of plans as it goes."""


def asked(version: int) -> Event:
    """A reschedule iteration with no forecasts."""
    return origin(ForecastMade(version=version, forecasts=()), id_="e1", cluster="test", iteration="i1", now=NOW)


def stage(on_sale: tuple[Offer, ...], solving: Solver | None = None) -> Optimizer:
    """An optimizer that knows a catalog."""
    made = Optimizer(Settings(runtime=RuntimeSettings(cluster="test"), planning=PLANNING), solving)
    body = CatalogPublished(source="test", priced=NOW, offers=on_sale)
    made.recall(origin(body, id_="c", cluster="test", iteration="i1", now=NOW))
    return made


def problem() -> tuple[Cluster, tuple[Offer, ...]]:
    """A few hundred pods on thirty nodes."""
    return boutique(30, seed=6, nodes=30)


async def solved_in_child(settings: SolverSettings | None = None) -> AnyBody:
    """The answer for the problem, by way of a child process."""
    state, on_sale = problem()
    async with InChild(settings or SolverSettings()) as solving:
        async with asyncio.timeout(120):
            (body,) = await stage(on_sale, solving).handle(asked(state.version), state, Moment(NOW))
    return body


async def pid_of(solving: InChild) -> int:
    """The process that solves, once there is one."""
    while solving.pid is None:  # noqa: ASYNC110 - it tells nobody when it begins
        await asyncio.sleep(0.01)
    return solving.pid


async def replayed(recorded: AnyBody) -> AnyBody:
    """The answer of a replay, which solves in its own process."""
    state, on_sale = problem()
    (body,) = await stage(on_sale).handle(asked(state.version), state, Moment(NOW, recorded))
    return body


def wire(body: AnyBody) -> bytes:
    """The answer as it is stored."""
    cause = asked(41)
    return encode(answer(body, cause=cause, service="optimizer", n=0, now=NOW, state=41))


@pytest.mark.slow
async def test_a_child_gives_the_plan_that_a_replay_gives() -> None:
    """Whoever solves, the answer is the same to the byte."""
    body = await solved_in_child()
    assert isinstance(body, Plan)
    assert body.cost.after < body.cost.before
    assert wire(await replayed(body)) == wire(body)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("solver-before-answer", "solver-crashed"), ("solver-before-answer:1:stop", "solver-hung")],
)
async def test_the_incumbent_of_a_solve_that_failed_is_proposed(
    fault: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead or silent at the end, it had told of a better plan: that one is proposed, sound, with the failure in it."""
    for name, value in armed(fault).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(f"{__name__}.PLANNING", unguarded(time_limit_seconds=7.0, max_moves=200))
    body = await solved_in_child(SolverSettings(patience_seconds=2))
    assert isinstance(body, Plan)
    assert body.cost.after < body.cost.before
    assert body.figures[reason] == 1
    assert body.figures["incumbent"] > FIRST
    assert reason in body.solve.method
    state, on_sale = problem()
    assert check_plan(body, state, on_sale, NOW, PLANNING.mobility, ordered=True) == ()
    assert wire(await replayed(body)) == wire(body)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "settings", "reason", "detail"),
    [
        ("solver-after-incumbent", SolverSettings(), "solver-crashed", "killed by SIGKILL"),
        ("", SolverSettings(memory_limit_mib=16), "solver-memory", "16 allowed"),
    ],
)
async def test_without_a_better_plan_a_failed_solve_is_a_refusal(
    fault: str, settings: SolverSettings, reason: str, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first plan changes nothing: the answer has the reason and its figures, and a replay repeats it."""
    for name, value in armed(fault).items():
        monkeypatch.setenv(name, value)
    body = await solved_in_child(settings)
    assert isinstance(body, NoPlanFound)
    assert body.reason == reason
    assert detail in str(body.figures["detail"])
    assert float(body.figures["peak_mib"]) > 16
    assert wire(await replayed(body)) == wire(body)


@pytest.mark.slow
async def test_a_process_killed_from_outside_ends_one_solve_only() -> None:
    """After kill -9 the next iteration is solved by the next process."""
    state, on_sale = problem()
    async with InChild(SolverSettings()) as solving, asyncio.timeout(120):
        optimizer = stage(on_sale, solving)
        task = asyncio.create_task(optimizer.handle(asked(state.version), state, Moment(NOW)))
        first = await pid_of(solving)
        os.kill(first, signal.SIGKILL)
        (failed,) = await task
        assert isinstance(failed, Plan | NoPlanFound)
        (body,) = await optimizer.handle(asked(state.version), state, Moment(NOW))
    assert isinstance(body, Plan)
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


@pytest.mark.slow
async def test_one_process_solves_one_job_after_the_other() -> None:
    """It is kept warm for the next one."""
    state, on_sale = problem()
    pids = []
    async with InChild(SolverSettings()) as solving, asyncio.timeout(120):
        for _ in range(2):
            task = asyncio.create_task(stage(on_sale, solving).handle(asked(state.version), state, Moment(NOW)))
            pids.append(await pid_of(solving))
            (body,) = await task
            assert isinstance(body, Plan)
    assert pids[0] == pids[1]


@pytest.mark.slow
async def test_a_process_that_dies_while_it_waits_costs_nothing() -> None:
    """Killed between two jobs, it is replaced before the next one."""
    state, on_sale = problem()
    async with InChild(SolverSettings()) as solving, asyncio.timeout(120):
        optimizer = stage(on_sale, solving)
        task = asyncio.create_task(optimizer.handle(asked(state.version), state, Moment(NOW)))
        first = await pid_of(solving)
        await task
        os.kill(first, signal.SIGKILL)
        await asyncio.sleep(0.5)  # until the death is known
        (body,) = await optimizer.handle(asked(state.version), state, Moment(NOW))
    assert isinstance(body, Plan)
    assert "solver-crashed" not in body.figures


async def test_a_cancelled_solve_kills_its_process() -> None:
    """Nobody wants the answer: nothing of the solve goes on, and neither does the process held ready."""
    state, on_sale = problem()
    async with InChild(SolverSettings()) as solving, asyncio.timeout(60):
        task = asyncio.create_task(stage(on_sale, solving).handle(asked(state.version), state, Moment(NOW)))
        pid = await pid_of(solving)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.slow
async def test_a_process_without_its_parent_ends() -> None:
    """It ends when its standard input is closed, as it is when the parent dies."""
    module = ("-m", "kinema_optimizer.process.solver")
    child = await asyncio.create_subprocess_exec(sys.executable, *module, stdin=asyncio.subprocess.PIPE)
    assert child.stdin is not None  # made with a pipe
    child.stdin.close()
    async with asyncio.timeout(60):
        assert await child.wait() == 0


@pytest.mark.parametrize("field", ["memory_limit_mib", "patience_seconds"])
def test_limits_of_nothing_are_refused(field: str) -> None:
    """The error names the setting."""
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: 0}, SolverSettings)

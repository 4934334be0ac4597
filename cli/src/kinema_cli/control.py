"""`kinema pause`, `resume`, `approve` and `abort`: an operator's commands to the pipeline."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Collection, Mapping
from datetime import UTC
from pathlib import Path
from typing import Final

import msgspec

from kinema_cli.broker import on_bus, settings_for
from kinema_cli.inputs import InputError, UsageError, fail
from kinema_cli.output import Format, cell, emit, print_error, print_warning
from kinema_cli.status.plan_ids import LATEST, UnknownPlanError, matching_id, short_id
from kinema_cli.status.plans import HELD, PENDING, REFUSED, RUNNING, PlanState, read_plan_states
from kinema_core.events import OPERATOR, AbortRequested, ExecutionPaused, ExecutionResumed, Plan, PlanApproved
from kinema_core.runtime.bus import Bus, BusError, Stored
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.envelope import origin

Command = ExecutionPaused | ExecutionResumed | PlanApproved | AbortRequested
CONFLICT: Final = 4
_FILES: Final = (".json", ".yaml", ".yml")
_VERDICT_SECONDS: Final = 60
_NO_VERDICT: Final = "the decider has given no verdict yet; look at `kinema plans`"
_NO_PAUSE: Final = "an abort is no pause: the next plan may have the same aim; `kinema pause` keeps it from running"


def operator() -> str:
    """Return the name of this machine's user, or its number where it has no name, as in many pods."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the one before Python 3.13, the other since
        return f"uid {os.getuid()}"


class _RefusedError(Exception):
    """The command would change nothing; `code` is the exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def publish_command(*, nats: str, command: Command, cluster: str = "", output: Format = Format.TABLE) -> int:
    """Publish the operator's command.

    Returns:
        0 published, 1 the broker refused or the plan is not decided yet, 2 wrong arguments, 3 nothing to do or no such
        plan, 4 the plan was decided already, was rejected, or would be rejected in spite of the command.
    """
    try:
        settings = settings_for(nats, cluster)
        command, warning = asyncio.run(on_bus(settings, lambda bus: _publish(bus, settings.cluster, command)))
    except (UsageError, BusError) as error:
        return fail(error)
    except _RefusedError as error:
        print_error(str(error))
        return error.code
    what, done = _outcome(command, settings.cluster)
    emit({"object": what, "action": done, "by": command.by}, output, lambda: [cell(f"{what} {done} by {command.by}")])
    if warning:
        print_warning(warning)
    return 0


def _outcome(command: Command, cluster: str) -> tuple[str, str]:
    match command:
        case ExecutionPaused():
            return f"cluster/{cluster}", "paused"
        case ExecutionResumed():
            return f"cluster/{cluster}", "resumed"
        case PlanApproved():
            return f"plan/{short_id(command.plan)}", "approved"
        case AbortRequested():
            return f"cluster/{cluster}", "abort requested"


async def _publish(bus: Bus, cluster: str, command: Command) -> tuple[Command, str]:
    """Publish it; returns it with the plan's whole id, and a warning or nothing."""
    if isinstance(command, PlanApproved):
        command = PlanApproved(plan=await _plan_named(bus, command.plan), by=command.by)
    iteration = await _iteration(bus, command, cluster)
    now = SystemClock().now()
    kind = command.TYPE.rpartition(".")[0]
    stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    await bus.publish(
        origin(command, id_=f"{cluster}/operator/{kind}-{stamp}", cluster=cluster, iteration=iteration, now=now)
    )
    match command:
        case PlanApproved(plan=plan):
            state = await _verdict(bus, plan, before={PENDING, HELD})
            if state.phase == REFUSED:
                raise _RefusedError(CONFLICT, f"plan {short_id(plan)} was rejected: {state.rule}: {state.why}")
            return command, _NO_VERDICT if state.phase == HELD else ""
        case AbortRequested():
            return command, "" if await _paused(bus) else _NO_PAUSE
        case _:
            return command, ""


def approve_file(*, nats: str, path: Path, cluster: str = "", output: Format = Format.TABLE) -> int:
    """Propose the plan in a file as it is, approve it, and wait for the verdict on the state of now.

    Returns:
        0 it is executed, 1 the file holds no plan, the broker refused, or no verdict came, 2 wrong arguments, 4 the
        plan was rejected, or would be.
    """
    from kinema_cli.plan.plan_file import read_plan

    try:
        settings = settings_for(nats, cluster)
        plan = msgspec.structs.replace(read_plan(path), by=operator())
        name, state = asyncio.run(on_bus(settings, lambda bus: _propose(bus, settings.cluster, plan)))
    except (UsageError, InputError, BusError) as error:
        return fail(error)
    except _RefusedError as error:
        print_error(str(error))
        return error.code
    if state.phase == REFUSED:
        print_error(f"plan {short_id(name)} does not hold any more: {state.rule}: {state.why}")
        return CONFLICT
    if state.phase in {PENDING, HELD}:
        print_error(f"plan {short_id(name)}: {_NO_VERDICT}")
        return 1
    what = f"plan/{short_id(name)}"
    emit({"object": what, "action": "approved", "by": plan.by}, output, lambda: [cell(f"{what} approved by {plan.by}")])
    return 0


async def _propose(bus: Bus, cluster: str, plan: Plan) -> tuple[str, PlanState]:
    """Publish the plan and its approval; returns its id and phase once the decider has judged it."""
    other = _executing(await read_plan_states(bus))
    if await _paused(bus) or other is not None:
        why = f"while plan {short_id(other)} runs" if other else "during the pause"
        raise _RefusedError(CONFLICT, f"the plan would be rejected {why}")
    now = SystemClock().now()
    iteration = f"{cluster}{OPERATOR}{now.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"
    named = f"{iteration}/plan"
    for id_, body in ((named, plan), (f"{iteration}/approval", PlanApproved(plan=named, by=plan.by))):
        await bus.publish(origin(body, id_=id_, cluster=cluster, iteration=iteration, now=now))
    return named, await _verdict(bus, named, before={PENDING, HELD})


async def _verdict(bus: Bus, plan: str, *, before: Collection[str]) -> PlanState:
    """Return the phase of a plan once the decider has judged it, or when that takes too long.

    Args:
        bus: with the log.
        plan: its id.
        before: the phases in which the verdict is still to come.
    """
    state = PlanState()
    for _ in range(_VERDICT_SECONDS):
        state = (await read_plan_states(bus)).get(plan, state)
        if state.phase not in before:
            break
        await wait_a_second()
    return state


async def wait_a_second() -> None:
    """Wait between two looks at the log."""
    await asyncio.sleep(1)


async def _plan_named(bus: Bus, given: str) -> str:
    """Return the whole id of a decided plan; of plans that wait where it is named `latest`.

    A plan that was proposed a moment ago is not decided yet: its verdict is waited for.
    """
    if given.endswith(_FILES):
        raise _RefusedError(2, f"there is no file {given}: `kinema plan --out` writes one")
    given, states = given.removeprefix("plan/"), await read_plan_states(bus)
    newest = await bus.last("LOG", "plan-proposed")
    new = [newest.event.id] if isinstance(newest, Stored) and newest.event.id not in states else []
    waiting = [plan for plan, state in states.items() if state.phase == HELD]
    try:
        plan = matching_id(given, [*(waiting if given == LATEST else states), *new], "no plan waits for approval")
    except UnknownPlanError as error:
        raise _RefusedError(3, str(error)) from error
    if plan in new and (await _verdict(bus, plan, before={PENDING})).phase == PENDING:
        raise _RefusedError(1, f"plan {short_id(plan)} cannot be approved: {_NO_VERDICT}, then approve it")
    return plan


async def _iteration(bus: Bus, command: Command, cluster: str) -> str:
    """Return the iteration that the command belongs to, also in a trace; empty for a pause.

    Raises:
        _RefusedError: the command would change nothing.
    """
    match command:
        case PlanApproved(plan=plan):
            return _approved(await read_plan_states(bus), plan, paused=await _paused(bus))
        case AbortRequested():
            if _executing(await read_plan_states(bus)) is None:
                raise _RefusedError(3, f"no plan of cluster {cluster} is running")
            return ""
        case ExecutionPaused() | ExecutionResumed():
            paused = await _paused(bus)
            if isinstance(command, ExecutionPaused) == paused:
                raise _RefusedError(3, f"cluster {cluster} is {'already' if paused else 'not'} paused")
            return ""


def _executing(states: Mapping[str, PlanState]) -> str | None:
    """Return the running plan; others may have been decided since it was accepted."""
    begun = ((plan, state) for plan, state in reversed([*states.items()]) if state.phase not in {HELD, REFUSED})
    plan, newest = next(begun, ("", PlanState()))
    return plan if newest.phase == RUNNING else None


def _approved(states: Mapping[str, PlanState], plan: str, *, paused: bool) -> str:
    """Return the iteration of a plan that waits and may run now: a rejection would spend the approval."""
    found, short = states[plan], short_id(plan)
    if found.phase != HELD:
        raise _RefusedError(4, f"plan {short} does not wait for approval; its phase is {found.phase}")
    if paused:
        raise _RefusedError(4, f"plan {short} would be rejected during the pause; `kinema resume`, then approve it")
    other = _executing(states)
    if other is not None:
        raise _RefusedError(4, f"plan {short} would be rejected while plan {short_id(other)} runs; wait for its end")
    return found.iteration


async def _paused(bus: Bus) -> bool:
    """Return whether a pause came after the last resumption."""
    last = [await bus.last("LOG", kind) for kind in ("execution-paused", "execution-resumed")]
    paused, resumed = (item.sequence if item is not None else 0 for item in last)
    return paused > resumed

"""`kinema pause`, `resume`, `approve` and `abort`: an operator's commands to the pipeline."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Mapping
from datetime import UTC
from typing import Final

from kinema_cli.broker import on_bus, settings_for
from kinema_cli.inputs import UsageError, fail
from kinema_cli.output import Format, cell, emit, print_error, print_warning
from kinema_cli.status.plan_ids import LATEST, UnknownPlanError, matching_id, short_id
from kinema_cli.status.plans import HELD, REFUSED, RUNNING, PlanState, read_plan_states
from kinema_core.events import AbortRequested, ExecutionPaused, ExecutionResumed, PlanApproved
from kinema_core.runtime.bus import Bus, BusError
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.envelope import origin

Command = ExecutionPaused | ExecutionResumed | PlanApproved | AbortRequested
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
        0 published, 1 the broker refused, 2 wrong arguments, 3 nothing to do or no such plan, 4 the plan was decided
        already, or would be rejected in spite of the command.
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
    return command, _NO_PAUSE if isinstance(command, AbortRequested) and not await _paused(bus) else ""


async def _plan_named(bus: Bus, given: str) -> str:
    """Return the whole id of the plan; of plans that wait where one is not named clearly by a prefix or `latest`."""
    states = await read_plan_states(bus)
    waiting = [plan for plan, state in states.items() if state.phase == HELD]
    try:
        return matching_id(given, waiting if given == LATEST else [*states])
    except UnknownPlanError as error:
        raise _RefusedError(3, str(error)) from error


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

"""`kinema pause`, `resume`, `approve` and `abort`: what an operator says to the pipeline."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Mapping
from datetime import UTC
from typing import Final

from rich.console import Console

from kinema_cli.broker import AddressError, settings_for
from kinema_cli.status.plans import HELD, REFUSED, RUNNING, Fate, read_fates
from kinema_core.events import AbortRequested, ExecutionPaused, ExecutionResumed, PlanApproved
from kinema_core.runtime.bus import Bus, BusError
from kinema_core.runtime.clock import SystemClock
from kinema_core.runtime.envelope import origin
from kinema_core.runtime.nats_bus import connect
from kinema_core.runtime.settings import RuntimeSettings

Word = ExecutionPaused | ExecutionResumed | PlanApproved | AbortRequested
_NO_PAUSE: Final = (
    "; that is no pause, and the next plan may have the same aim: `kinema pause` lets none be carried out"
)


def operator() -> str:
    """Who speaks: the name of the user of this machine, or the user's number where that has none, as in many pods."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the one before Python 3.13, the other since
        return f"uid {os.getuid()}"


class _RefusedError(Exception):
    """There is nothing that the word could change; `code` is the command's exit code."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self.code = code


def say(*, nats: str, cluster: str, word: Word) -> int:
    """Publish the operator's word.

    Returns:
        0 said, 1 the broker refused, 2 wrong arguments, 3 nothing to do or no such plan, 4 the plan was judged already,
        or would be refused in spite of the word.
    """
    errors = Console(stderr=True)
    try:
        settings = settings_for(nats, cluster)
        more = asyncio.run(_say(settings, word))
    except AddressError as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return 2
    except BusError as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return 1
    except _RefusedError as error:
        errors.print(str(error), markup=False, soft_wrap=True)
        return error.code
    Console(highlight=False).print(f"{_told(word, cluster)} as {word.by}{more}", markup=False, soft_wrap=True)
    return 0


def _told(word: Word, cluster: str) -> str:
    match word:
        case ExecutionPaused():
            return f"paused cluster {cluster}"
        case ExecutionResumed():
            return f"resumed cluster {cluster}"
        case PlanApproved():
            return f"approved plan {word.plan} of cluster {cluster}"
        case AbortRequested():
            return f"asked to abort the running plan of cluster {cluster}"


async def _say(settings: RuntimeSettings, word: Word) -> str:
    """Publish it; returns what else there is to do, empty where nothing is."""
    cluster = settings.cluster
    bus = await connect(settings)
    try:
        iteration = await _iteration(bus, word, cluster)
        now = SystemClock().now()
        kind = word.TYPE.rpartition(".")[0]
        stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        await bus.publish(
            origin(word, id_=f"{cluster}/operator/{kind}-{stamp}", cluster=cluster, iteration=iteration, now=now)
        )
        return _NO_PAUSE if isinstance(word, AbortRequested) and not await _paused(bus) else ""
    finally:
        await bus.close()


async def _iteration(bus: Bus, word: Word, cluster: str) -> str:
    """The iteration that the word belongs to, also in a trace; empty for a pause.

    Raises:
        _RefusedError: the word would change nothing.
    """
    match word:
        case PlanApproved(plan=plan):
            return _approved(await read_fates(bus), plan, paused=await _paused(bus))
        case AbortRequested():
            if _executing(await read_fates(bus)) is None:
                raise _RefusedError(3, f"no plan of cluster {cluster} is being carried out")
            return ""
        case ExecutionPaused() | ExecutionResumed():
            paused = await _paused(bus)
            if isinstance(word, ExecutionPaused) == paused:
                raise _RefusedError(3, f"cluster {cluster} is {'paused already' if paused else 'not paused'}")
            return ""


def _executing(fates: Mapping[str, Fate]) -> str | None:
    """The plan that is being carried out; others may have been held or refused since it was accepted."""
    begun = ((plan, fate) for plan, fate in reversed([*fates.items()]) if fate.fate not in {HELD, REFUSED})
    plan, newest = next(begun, ("", Fate()))
    return plan if newest.fate == RUNNING else None


def _approved(fates: Mapping[str, Fate], plan: str, *, paused: bool) -> str:
    """The iteration of a plan that waits and may be carried out now: a refusal would spend the approval."""
    found = fates.get(plan)
    if found is None:
        raise _RefusedError(3, "no plan of that id waits for approval: `kinema plans` shows those that are held")
    if found.fate != HELD:
        became = "accepted" if found.fate == RUNNING else found.fate
        raise _RefusedError(4, f"plan {plan} does not wait any more: it was {became}")
    if paused:
        raise _RefusedError(4, f"plan {plan} would be refused during the pause: first `kinema resume`, then approve it")
    other = _executing(fates)
    if other is not None:
        raise _RefusedError(
            4, f"plan {plan} would be refused while plan {other} is being carried out: wait for its end"
        )
    return found.iteration


async def _paused(bus: Bus) -> bool:
    """Whether a pause came after the last resumption."""
    last = [await bus.last("LOG", kind) for kind in ("execution-paused", "execution-resumed")]
    paused, resumed = (item.sequence if item is not None else 0 for item in last)
    return paused > resumed

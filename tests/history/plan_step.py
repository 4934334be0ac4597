"""From a cluster to an accepted plan, by optimizer and decider as they are, and what is to be checked afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec import structs
from tests.e2e.auditor import Auditor
from tests.history.record import History, entries
from tests.optimizer.planned import Unpriced
from tests.support.planning import unguarded

from kinema_core.events import CatalogPublished, Event, IterationStarted, Offer, Plan, PlanAccepted, encode
from kinema_core.model.catalog import PriceError
from kinema_core.model.cluster import Cluster
from kinema_core.runtime.envelope import answer, origin
from kinema_core.runtime.settings import RuntimeSettings
from kinema_core.runtime.stage import Moment
from kinema_decider.logic.limits import Limits
from kinema_decider.service import Decider
from kinema_decider.settings import Settings
from kinema_observer.logic.logview import LogView, fold
from kinema_observer.logic.loop import Memory, tick
from kinema_observer.logic.settings import LoopSettings
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.process.job import price_missing
from kinema_optimizer.request.goal import Goals
from kinema_optimizer.request.known import Refusals, left_to_others
from kinema_sim.memory_bus import MemoryBus

WORK: Final = 5
"""How far each phase of a solve goes by default, in the solver's own rounds."""


def planned(
    cluster: Cluster,
    offers: tuple[Offer, ...],
    now: datetime,
    log: Iterable[Event] = (),
    *,
    work: int = WORK,
    rest_of: str = "",
) -> Plan:
    """The optimizer's plan, after an amount of work and not of time: everywhere the same for the same arguments.

    No constraint is priced: that takes as long as the plan, and changes nothing in it that is carried out. Of the
    guards that operators have by default only room for a pod that may preempt others is on: without it they do so by
    right.
    """
    refusals, goals, seconds = Refusals(), Goals(), unguarded().refused_seconds
    for event in log:
        refusals, goals = refusals.after(event, seconds), goals.after(event)
    cluster = refusals.shown_in(left_to_others(cluster), now, seconds)
    settings = unguarded(workers=1, headroom=1, max_headroom_fraction=0.0)
    return plan_for(cluster, offers, now=now, settings=settings, goal=goals.of(rest_of), stop=Unpriced(work))


async def accepted(
    bus: MemoryBus,
    plan: Plan,
    cluster: Cluster,
    now: datetime,
    *,
    name: str,
    begun: IterationStarted | None = None,
    iteration: str = "it-1",
) -> bool:
    """Publish the plan and the decider's verdict on it; whether that is yes. Any saving is enough."""
    begun = begun or IterationStarted(mode="reschedule", version=cluster.version, reason="random")
    started = origin(begun, id_=iteration, cluster=name, iteration=iteration, now=now, state=cluster.version)
    proposal = answer(plan, cause=started, service="optimizer", n=0, now=now, state=cluster.version)
    await bus.publish(started)
    await bus.publish(proposal)
    decider = Decider(
        Settings(
            runtime=RuntimeSettings(cluster=name),
            limits=Limits(min_savings_fraction=0.01, approval="automatic", max_moves_fraction=1.0, redundancy=False),
        )
    )
    for event in bus.events("LOG"):
        decider.recall(event)
    [verdict] = await decider.handle(proposal, cluster, Moment(now=now))
    await bus.publish(answer(verdict, cause=proposal, service="decider", n=0, now=now, state=cluster.version))
    return isinstance(verdict, PlanAccepted)


async def rest_accepted(bus: MemoryBus, cluster: Cluster, now: datetime, *, name: str, work: int = WORK) -> bool | None:
    """Plan the rest of an unfinished plan and publish it as `accepted` does; None where the observer asks for none.

    False also where no node that is left has a price: then the answer is the optimizer's, that there is no plan.
    """
    log, view = tuple(bus.events("LOG")), LogView()
    for number, event in enumerate(log, 1):
        view = fold(view, number, event)
    asked = tick(cluster, view, now=now, memory=Memory(), settings=LoopSettings())
    if asked.start is None or not asked.start.continues:
        return None
    offers = [event.body.offers for event in log if isinstance(event.body, CatalogPublished)][-1]
    rest_of = asked.start.continues
    try:
        plan = structs.replace(planned(cluster, offers, now, log, work=work, rest_of=rest_of), continues=rest_of)
    except PriceError as error:
        id_, version = asked.iteration, cluster.version
        started = origin(asked.start, id_=id_, cluster=name, iteration=id_, now=now, state=version)
        none = price_missing("reschedule", version, str(error))
        await bus.publish(started)
        await bus.publish(answer(none, cause=started, service="optimizer", n=0, now=now, state=version))
        return False
    return await accepted(bus, plan, cluster, now, name=name, begun=asked.start, iteration=asked.iteration)


def history_of(bus: MemoryBus, auditor: Auditor) -> History:
    """What the checker looks at, after a run whose events went over a bus in memory."""
    log, state = (entries(json.loads(encode(event)) for event in bus.events(name)) for name in ("LOG", "STATE"))
    return History(log, state, auditor.before, tuple(auditor.history), auditor.others)

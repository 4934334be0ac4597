"""Making steps real: nodes with the provider, everything else with the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from random import Random
from typing import Final

from kinema_core.events import EMPTY, FrozenMap, Offer
from kinema_core.runtime.clock import Clock
from kinema_kubernetes.backoff import BackOff
from kinema_rescheduler.errors import EffectError, PermanentError, TransientError
from kinema_rescheduler.kubernetes.cluster import ClusterWriter, Made, Order
from kinema_rescheduler.names import NODE
from kinema_rescheduler.providers.base import Operation, Provider

_UNREACHABLE: Final = frozenset({"unavailable", "throttled"})
_DENIED_SECONDS: Final = 60.0
"""An API server that has just started denies what it will allow: it has yet to read its roles. In cluster time.

On a busy machine that took half a minute.
"""
_POLL_SECONDS: Final = 2.0
"""Pause between two looks at a provider's operation, in cluster time."""


def operation_id(order: Order) -> str:
    """Name of a provider's operation: the same after a restart, another one for another attempt."""
    return "op-" + sha256(f"{order.plan}/{order.step.id}/{order.attempt}".encode()).hexdigest()[:24]


class Effects:
    """Performs steps of any kind."""

    def __init__(
        self, *, writer: ClusterWriter, provider: Provider, clock: Clock, report: Callable[[str | None], None]
    ) -> None:
        """`report` gets the reason when the other side cannot be reached, and None when it can be again."""
        self._writer = writer
        self._provider = provider
        self._clock = clock
        self._report = report

    async def perform(self, order: Order, deadline: datetime, offers: Mapping[str, Offer]) -> Made:
        """Make a step's effect, waiting for the provider where it takes time.

        While the other side cannot be reached it is asked again until the deadline: that costs no attempt. What it
        denies is asked again for a moment. Steps that fail together pause differently long, never less than the server
        asks for.

        Raises:
            TransientError, PermanentError: it was not made.
        """
        unreached = self._clock.now()
        waits = BackOff(shortest=2.0, longest=30.0, chance=Random(operation_id(order)))  # noqa: S311 - no cryptography
        while True:
            try:
                made = await self._once(order, deadline, offers)
            except EffectError as error:
                pause, now = waits.next(error.retry_after), self._clock.now()
                if error.reason in _UNREACHABLE:
                    unreached, until = now, deadline
                elif error.reason == "denied":
                    until = min(deadline, unreached + timedelta(seconds=_DENIED_SECONDS))
                else:
                    raise
                if now + timedelta(seconds=pause) > until:
                    raise
                self._report(str(error))
            else:
                self._report(None)
                return made
            await self._clock.sleep(pause)

    async def _once(self, order: Order, deadline: datetime, offers: Mapping[str, Offer]) -> Made:
        match order.step.kind:
            case "boot":
                return await self._boot(order, deadline, offers)
            case "delete":
                return await self._delete(order, deadline)
            case _:
                return await self._writer.perform(order)

    async def _boot(self, order: Order, deadline: datetime, offers: Mapping[str, Offer]) -> Made:
        step = order.step
        offer = offers.get(step.offer)
        if offer is None:
            raise PermanentError("not-found", f"offer {step.offer} is not in the catalog any more")
        known = await self._provider.nodes()
        operation = await self._provider.boot(step.target, offer, operation_id(order))
        operation = await self._until_done(operation, deadline)
        figures = FrozenMap({NODE: operation.node}) if operation.node != step.target else EMPTY
        return Made("adopted" if operation.node in known else "done", figures)

    async def _delete(self, order: Order, deadline: datetime) -> Made:
        """Delete the machine also where its node object is gone: what is paid for is the machine."""
        present = await self._writer.check_deletable(order)
        try:
            operation = await self._provider.delete(order.step.target, operation_id(order))
        except PermanentError as error:
            if error.reason != "not-found":
                raise
            return Made("adopted")
        await self._until_done(operation, deadline)
        return Made("done" if present or not order.step.uid else "adopted")

    async def _until_done(self, operation: Operation, deadline: datetime) -> Operation:
        """Return the operation once it is done: only then some providers know the name of the node."""
        waits = operation.message
        while operation.state == "running":
            if self._clock.now() > deadline:
                detail = f"operation {operation.id} on node {operation.node} does not end"
                raise TransientError("time-out", f"{detail}: {waits}" if waits else detail)
            await self._clock.sleep(_POLL_SECONDS)
            try:
                operation = await self._provider.operation(operation.id)
                waits = operation.message
            except TransientError as error:  # asked again: the operation goes on by itself
                waits = str(error)
        if operation.state == "failed":
            kind = TransientError if operation.reason in {"transient", ""} else PermanentError
            raise kind(operation.reason or "transient", operation.message)
        return operation

"""The rights that each provider of nodes takes in the cluster, beside those of the rescheduler itself."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest
from tests.contract.provider.rooms import ROOMS, Room
from tests.contract.provider.test_provider_contract import ended, is_ready, until
from tests.rescheduler.guarded import Guarded, fenced
from tests.support.kube_requests import single

from kinema_kubernetes.rights import covers
from kinema_rescheduler.errors import PermanentError
from kinema_rescheduler.kubernetes.fenced import FencedClient
from kinema_rescheduler.kubernetes.rights import OF_PROVIDER, RULES, rules


@pytest.mark.slow
@pytest.mark.parametrize("room", tuple(ROOMS), indirect=True)
async def test_every_rule_of_a_provider_is_needed_and_no_other(
    room: Room, api: FencedClient, request: pytest.FixtureRequest
) -> None:
    """Nodes can be sold, booted, listed and deleted with its rules; each verb that it adds is asked for."""
    kind = request.node.callspec.params["room"]
    guarded = Guarded(api.client, rules(kind))
    provider = room.provider(fenced(guarded))
    offer = await room.offer(provider)
    await provider.nodes()
    await room.shipped(fenced(guarded)).catalog()
    booted = "tiny-1"
    with suppress(PermanentError):  # the delegate boots nothing
        for name in ("kinema-1", "kinema-2"):
            done = await ended(provider, await provider.boot(name, offer, f"op-{name}"))
            booted = done.node
            await until(partial(is_ready, room, booted))
    deletion = await provider.delete(booted, "op-3")
    if kind != "delegate":
        await ended(provider, deletion)
    assert all(any(covers(rule, right) for rule in rules(kind)) for right in guarded.used)
    added = single(OF_PROVIDER[kind])
    assert [rule for rule in added if not any(covers(rule, right) for right in guarded.used)] == []
    assert [rule for rule in added if rule in single(RULES)] == []

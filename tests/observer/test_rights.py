"""The observer's rights are to list and watch what it follows, and nothing else."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

from tests.observer.scripted_api import QUICK, ScriptedApi, connected, page, stream
from tests.support.kube_requests import right_of

from kinema_kubernetes.errors import KubernetesError
from kinema_kubernetes.rights import rights_of
from kinema_observer.adapters.metrics import MetricsApi
from kinema_observer.adapters.source import RESOURCES, KubernetesSource
from kinema_observer.rights import RULES


async def test_rules_are_what_is_asked_for(tmp_path: Path) -> None:
    """Following all kinds and reading the metrics asks for each right of the rules, once each, and for no other."""
    scripted = ScriptedApi()
    scripted.lists = [page()]
    scripted.watches = [stream()]
    await scripted.start()
    api = await connected(scripted, tmp_path)
    source = KubernetesSource(api, patience=QUICK, chance=random.Random(0))
    following = asyncio.create_task(source.run())
    async with asyncio.timeout(30):
        while len(scripted.asked_watches()) < len(RESOURCES):  # noqa: ASYNC110 - nobody tells when it is so
            await asyncio.sleep(0.01)
    following.cancel()
    with suppress(asyncio.CancelledError, KubernetesError):
        await following
    with suppress(KubernetesError):
        await MetricsApi(api).read()
    await api.close()
    await scripted.stop()
    asked = {right_of("GET", path, query) for path, query, _ in scripted.asked}
    stated = [right for rule in RULES for right in rights_of(rule)]
    assert len(stated) == len(set(stated))
    assert asked == set(stated)


def test_the_observer_only_reads() -> None:
    """No rule lets it change anything or see secrets."""
    assert {verb for rule in RULES for verb in rule.verbs} == {"list", "watch"}
    assert not {"secrets", "configmaps", "*"} & {resource for rule in RULES for resource in rule.resources}

"""The rescheduler's rights are exactly what its adapters ask an API server for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.rescheduler.capabilities import CAPABILITIES, Ground, forget_all, prepare
from tests.rescheduler.guarded import Guarded, fenced
from tests.rescheduler.sim_world import sim_world
from tests.support.kube_requests import single

from kinema_core.events import FrozenMap, Step
from kinema_kubernetes.client import Client
from kinema_kubernetes.objects import Json
from kinema_kubernetes.rights import Right, Rule, covers
from kinema_rescheduler.errors import PermanentError
from kinema_rescheduler.kubernetes.cluster import Order
from kinema_rescheduler.kubernetes.fenced import connect
from kinema_rescheduler.kubernetes.pods import surge_up
from kinema_rescheduler.kubernetes.resize import resize
from kinema_rescheduler.kubernetes.rights import RULES
from kinema_sim.scenarios.registry import SCENARIOS

CONTROLLERS = "surge a ReplicationController"
"""The simulated cluster has none: a script answers for them."""
RESIZES = "resize a Deployment"
"""Nor has it kubelets that resize pods."""


class Scripted(Guarded):
    """Answers for a replication controller of two pods."""

    async def answer(self, method: str, path: str, **more: Any) -> Json:
        """The object of that path, as it was."""
        metadata = {"name": "old-0", "namespace": "shop", "uid": "pod-0", "resourceVersion": "1"}
        if path.endswith("/pods"):
            return {"items": [{"metadata": metadata}]}
        if "/pods/" in path:
            return {"metadata": metadata}
        if path.endswith("/horizontalpodautoscalers"):
            return {"items": []}
        return {"metadata": {"uid": "rc", "resourceVersion": "1"}, "spec": {"replicas": 2, "selector": {"app": "old"}}}


class Resizing(Guarded):
    """Answers for a Deployment whose one pod was resized at once, and for its controller."""

    def __init__(self, inner: Client, rules: Sequence[Rule]) -> None:
        super().__init__(inner, rules)
        self.known: dict[str, Json] = {kind: self._item(kind) for kind in ("deployments", "replicasets", "pods")}

    def _item(self, kind: str) -> Json:
        container = {"name": "c", "resources": {"requests": {"cpu": "10m"}}}
        template = {"spec": {"containers": [container]}}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template, **template["spec"]}
        owners = [{"uid": {"replicasets": "deployments", "pods": "replicasets"}.get(kind, "")}]
        metadata = {"name": "web", "namespace": "shop", "uid": kind, "resourceVersion": "1", "ownerReferences": owners}
        has = [{"name": "c", "resources": {"requests": {"cpu": "12m"}}}]
        return {"metadata": metadata, "spec": spec, "status": {"containerStatuses": has}}

    async def served(self, prefix: str) -> frozenset[str]:
        """As a recent API server."""
        return frozenset({"pods/resize"} if prefix == "/api/v1" else ())

    async def answer(self, method: str, path: str, **more: Any) -> Json:
        """The object of that path; the ReplicaSet has the Deployment's annotations, as its controller copies them."""
        kind = next(kind for kind in self.known if f"/{kind}" in path)
        if path.endswith(f"/{kind}"):
            return {"items": [self.known[kind]]}
        if method == "PATCH" and "annotations" in more["body"].get("metadata", {}):
            given = {key: value for key, value in more["body"]["metadata"]["annotations"].items() if value}
            for item in (self.known["deployments"], self.known["replicasets"]):
                item["metadata"]["annotations"] = given
        return self.known[kind]


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    """The tiny cluster with room for a few workloads more."""
    async with sim_world(SCENARIOS["tiny"](0), tmp_path) as world:
        admin = await connect(str(world.kubeconfig))
        await prepare(admin)
        yield Ground(admin, admin, "tiny-1")
        await admin.close()


async def used_by(ground: Ground, name: str, rules: Sequence[Rule]) -> set[Right]:
    """Do one thing with these rules only; what was asked for."""
    guarded: Guarded
    if name == CONTROLLERS:
        guarded = Scripted(ground.admin.client, rules)
        step = Step(
            id="u",
            kind="surge-up",
            target="ReplicationController/shop/old",
            uid="rc",
            pods=("pod-0",),
            replicas_from=2,
            replicas_to=3,
        )
        await surge_up(fenced(guarded), Order(step=step, plan="p", iteration="i"))
        return guarded.used
    if name == RESIZES:
        guarded = Resizing(ground.admin.client, rules)
        step = Step(id="r", kind="resize", target="Deployment/shop/web", requests=FrozenMap({"cpu": 12}))
        await resize(fenced(guarded), Order(step=step, plan="p", iteration="i"))
        return guarded.used
    guarded = Guarded(ground.admin.client, rules)
    await forget_all(ground.admin)
    await CAPABILITIES[name](Ground(ground.admin, fenced(guarded), ground.node))
    return guarded.used


@pytest.mark.slow
async def test_every_rule_is_needed_and_no_other(ground: Ground) -> None:
    """All that the rescheduler can do is allowed by its rules, and each verb of each rule is asked for by something."""
    asked = {name: await used_by(ground, name, RULES) for name in CAPABILITIES}
    every = single(RULES)
    idle = [rule for rule in every if not any(covers(rule, right) for used in asked.values() for right in used)]
    assert idle == []


@pytest.mark.slow
async def test_without_a_right_something_named_fails(ground: Ground) -> None:
    """Whichever verb is taken away, there is a thing that the rescheduler cannot do, and it says `denied`."""
    every = single(RULES)
    asked = {name: await used_by(ground, name, RULES) for name in CAPABILITIES}
    for missing in every:
        left = [rule for rule in every if rule is not missing]
        users = [name for name, used in asked.items() if any(covers(missing, right) for right in used)]
        assert await any_denied(ground, users, left), f"nothing fails without {missing}"


async def any_denied(ground: Ground, names: Sequence[str], rules: Sequence[Rule]) -> bool:
    """Whether one of these things cannot be done with these rules."""
    for name in reversed(names):  # a surge goes on without an autoscaler's right, holding one does not
        try:
            await used_by(ground, name, rules)
        except PermanentError as error:
            return error.reason == "denied"
    return False


def test_writes_are_narrow() -> None:
    """Only evictions, Events, steering and the lease are created, nothing is deleted, and Secrets are closed."""
    written = {resource for rule in RULES if {"create", "delete"} & {*rule.verbs} for resource in rule.resources}
    assert written == {"pods/eviction", "configmaps", "events", "leases"}
    assert not {"secrets", "*"} & {resource for rule in RULES for resource in rule.resources}
    assert not {"*", "update", "delete", "deletecollection"} & {verb for rule in RULES for verb in rule.verbs}

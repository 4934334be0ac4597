"""Which of a workload's waiting pods are led to a planned node, and which may go anywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rescheduler.effect_bench import WEB, Bench
from tests.support.manual_clock import ManualClock
from tests.support.waiting import until

from kinema_core.events import Step
from kinema_rescheduler.kubernetes.landing import Landing, LandingKeeper, nomination, outlook
from kinema_rescheduler.names import ANYWHERE, RENEWED
from kinema_sim.engine.kinds import CONFIG_MAP, DEPLOYMENT, POD, STATEFUL_SET
from kinema_sim.engine.objects import condition, uid_of
from kinema_sim.scenarios.objects import App, stateful_set

NOW = datetime(2026, 3, 2, tzinfo=UTC)
PATIENCE = timedelta(seconds=10)


def pod(name: str, node: str = "", nominated: str = "", age: int = 0) -> dict[str, Any]:
    """A pod that was created so many seconds ago."""
    created = (NOW - timedelta(seconds=age)).isoformat()
    return {
        "metadata": {"name": name, "uid": f"u-{name}", "namespace": "shop", "creationTimestamp": created},
        "spec": {"nodeName": node} if node else {},
        "status": {"nominatedNodeName": nominated} if nominated else {},
    }


def landing(*nodes: str, **fields: Any) -> Landing:
    """A move of as many pods as nodes."""
    step = Step(id="prefer-nodes/w/1", kind="prefer-nodes", target=WEB, nodes=nodes)
    return Landing(step, frozenset({"u-old"}), **fields)


def seen(known: Landing, pods: list[dict[str, Any]], seconds: float = 0) -> tuple[dict[str, str], list[str], int]:
    """Nominations by pod, free pods, and places left."""
    found = outlook(known, pods, now=NOW + timedelta(seconds=seconds), patience=PATIENCE)
    names = {one["metadata"]["name"]: node for one, node in found.nominate}
    return names, [one["metadata"]["name"] for one in found.free], found.left


def test_each_place_gets_one_pod() -> None:
    """Waiting pods are dealt to the places, the oldest first; pods that were there before take none."""
    pods = [pod("old", "n1"), pod("b", age=2), pod("a", age=1)]
    assert seen(landing("n1", "n2"), pods) == ({"b": "n1", "a": "n2"}, [], 2)


def test_pods_beyond_the_plan_are_free_at_once() -> None:
    """An autoscaler asked for more: as many as were planned are led, whichever they are."""
    pods = [pod("a", age=3), pod("b", age=2), pod("c", age=1)]
    assert seen(landing("n1"), pods) == ({"a": "n1"}, ["b", "c"], 1)


def test_a_place_that_is_taken_is_given_to_no_other() -> None:
    """By a pod that is bound there, or by one that is nominated for it."""
    assert seen(landing("n1", "n1"), [pod("a", "n1"), pod("b"), pod("c")]) == ({"b": "n1"}, ["c"], 1)
    assert seen(landing("n1"), [pod("a", age=9), pod("b", nominated="n1")]) == ({"b": "n1"}, ["a"], 1)


def test_a_pod_that_went_elsewhere_ends_its_place() -> None:
    """It is a miss: no later pod is kept for the place that it left."""
    assert seen(landing("n1"), [pod("a", "n9"), pod("b")]) == ({}, ["b"], 0)


def test_a_pod_waits_no_longer_than_its_patience() -> None:
    """Then it may go anywhere, and its place with it."""
    known = landing("n1", "n2", since={"u-a": NOW, "u-b": NOW + timedelta(seconds=5)})
    assert seen(known, [pod("a", age=1), pod("b")], 9.9) == ({"a": "n1", "b": "n2"}, [], 2)
    assert seen(known, [pod("a", age=1), pod("b")], 10) == ({"b": "n2"}, ["a"], 1)


@given(
    nodes=st.lists(st.sampled_from(["n1", "n2", "n3"]), min_size=1, max_size=4),
    pods=st.lists(
        st.tuples(
            st.sampled_from(["", "", "n1", "n2", "n9"]), st.sampled_from(["", "n1", "n2", "n9"]), st.integers(0, 20)
        ),
        max_size=8,
    ),
)
def test_no_pod_is_forgotten_and_no_place_given_twice(nodes: list[str], pods: list[tuple[str, str, int]]) -> None:
    """Each waiting pod is led or free, each place is given once, and none is led that has waited long enough."""
    all_pods = [pod(f"p{n}", node, "" if node else hint, age) for n, (node, hint, age) in enumerate(pods)]
    waits = {f"p{n}": age for n, (node, _, age) in enumerate(pods) if not node}
    known = landing(*nodes, since={f"u-{name}": NOW - timedelta(seconds=age) for name, age in waits.items()})
    led, free, left = seen(known, all_pods)
    assert sorted([*led, *free]) == sorted(waits)
    assert len(led) <= left
    assert not {name for name in led if waits[name] >= 10}
    there = [node for node, _, _ in pods if node]
    for node in {*led.values()}:
        assert [*led.values()].count(node) + there.count(node) <= nodes.count(node)


class Ground:
    """A keeper beside the tiny cluster, with a Deployment that asks for pods which nothing schedules."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.clock = ManualClock(NOW)
        self.keeper = LandingKeeper(bench.api, clock=self.clock, patience_seconds=10)
        self.step = Step(id=f"prefer-nodes/{WEB}/1", kind="prefer-nodes", target=WEB, nodes=("tiny-1",))

    async def keep(self, *, over: bool = False) -> dict[str, str]:
        """One look; what the policy on bindings then reads."""
        await self.keeper.keep([] if over else [self.step])
        found = self.bench.world.sim.store.get(CONFIG_MAP, "kube-system", "kinema-landing")
        return {**(found or {}).get("data", {})}

    async def add(self, name: str) -> None:
        """A pod of the Deployment that waits: the scheduler has tried it, and writes nothing more about it."""
        labels = {k: v for k, v in self.bench.pods()[0]["metadata"]["labels"].items() if k != "pod-template-hash"}
        metadata = {"namespace": "shop", "name": name, "generateName": "web-x-", "labels": labels}
        made = {"metadata": metadata, "spec": {"containers": [], "nodeSelector": {"nowhere": "true"}}}
        self.bench.world.sim.store.create(POD, made)
        await until(lambda: condition(self.pod(name), "PodScheduled"))

    def pod(self, name: str) -> dict[str, Any]:
        """A pod as the cluster has it."""
        found = self.bench.world.sim.store.get(POD, "shop", name)
        assert found is not None
        return found

    def nominated(self, name: str) -> str:
        """The node that a pod is nominated for."""
        return nomination(self.pod(name))


@pytest.fixture
def ground(bench: Bench) -> Ground:
    """No node is one that its waiting pods may run on."""
    return Ground(bench)


async def test_waiting_pods_are_nominated_and_the_rest_is_named_free(ground: Ground) -> None:
    """The policy reads one entry for all pods of the Deployment, and one for each pod that is free."""
    before = await ground.keep()
    assert set(before.values()) - {before[RENEWED]} == {"tiny-1"}
    assert before["Deployment.shop.web"] == "tiny-1"
    await ground.add("web-x-aaaaa")
    await ground.add("web-x-bbbbb")
    entries = await ground.keep()
    assert (ground.nominated("web-x-aaaaa"), ground.nominated("web-x-bbbbb")) == ("tiny-1", "")
    assert entries["shop.web-x-"] == "tiny-1"
    assert entries["shop.web-x-bbbbb"] == ANYWHERE
    assert "shop.web-x-aaaaa" not in entries


async def test_pods_of_a_stateful_set_are_led_by_their_own_names(ground: Ground) -> None:
    """They have a `generateName` as well, and the policy, which sees names only, would find nothing under it."""
    made = stateful_set(App("db", "shop", "example/none:1", cpu_m=10, memory_mi=10, replicas=1))
    made["spec"]["template"]["spec"]["nodeSelector"] = {"nowhere": "true"}
    target, store = "StatefulSet/shop/db", ground.bench.world.sim.store
    set_ = store.create(STATEFUL_SET, made)
    await until(lambda: store.get(POD, "shop", "db-0"))
    ground.step = Step(
        id=f"prefer-nodes/{target}/1", kind="prefer-nodes", target=target, uid=uid_of(set_), nodes=("elsewhere",)
    )
    entries = await ground.keep()
    assert {key for key in entries if key != RENEWED} == {"shop.db-0"}


async def test_a_pod_that_waited_is_free_and_nominated_no_longer(ground: Ground) -> None:
    """Its place ends with it: then nothing of the workload is kept from any node."""
    await ground.keep()
    await ground.add("web-x-aaaaa")
    await ground.keep()
    await ground.clock.sleep(10)
    entries = await ground.keep()
    assert ground.nominated("web-x-aaaaa") == ""
    assert entries == {}


async def test_the_config_map_is_renewed_only_while_pods_are_led(ground: Ground) -> None:
    """The policy ignores it soon after; between plans nothing is written."""
    first = (await ground.keep())[RENEWED]
    assert (await ground.keep())[RENEWED] == first, "a look that changes nothing writes nothing"
    await ground.clock.sleep(1.25)
    assert (await ground.keep())[RENEWED] != first
    assert await ground.keep(over=True) == {}


async def test_a_successor_takes_what_the_last_one_left(ground: Ground) -> None:
    """A process that leads next reads the ConfigMap before it writes, and takes away what no move needs."""
    await ground.keep()
    ground.keeper = LandingKeeper(ground.bench.api, clock=ground.clock, patience_seconds=10)
    assert await ground.keep(over=True) == {}


async def test_a_workload_that_is_gone_holds_no_other(ground: Ground) -> None:
    """Its Deployment was deleted in the middle of the move."""
    await ground.keep()
    ground.bench.world.sim.store.remove(DEPLOYMENT, ("shop", "web"))
    other = Step(id="prefer-nodes/x/1", kind="prefer-nodes", target="Deployment/shop/other", nodes=("tiny-1",))
    await ground.keeper.keep([ground.step, other])

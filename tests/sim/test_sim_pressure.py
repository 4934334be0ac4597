"""Pods that share a node: CPU by their requests, and who is killed where memory does not last."""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from kinema_sim.controllers.kubelet import BACK_OFF_MS, CALM_MS
from kinema_sim.controllers.memory import LOOK_MS, Holder, victims
from kinema_sim.engine.kinds import POD
from kinema_sim.engine.objects import is_ready, is_running
from kinema_sim.load.sharing import shared
from kinema_sim.simulate.build import build
from kinema_sim.simulate.run import run
from kinema_sim.simulate.scenario import Loaded, load_scenario

MIB = 2**20
TWO = """
name: two
duration: 1h
cloud: {machines: [{type: m4, vcpus: 4, memory: 8Gi, usd_per_hour: 0.1, reserved: false}], types: []}
nodes: [{type: m4, name: only}]
workloads:
  - {name: big, cpu: 2000m, memory: 4Gi, usage: big.csv}
  - {name: small, cpu: 1000m, memory: 2Gi, usage: small.csv}
"""
BIG = "seconds,cpu_m,memory_mi\n0,1500,3000\n600,4000,3000\n1200,1500,7000\n2400,1500,3000\n"
SMALL = "seconds,cpu_m,memory_mi\n0,500,1000\n600,3000,1000\n1200,500,1500\n2400,500,1000\n"


def two(text: str = TWO) -> Loaded:
    """Two workloads on one node: CPU is short from the tenth minute to the twentieth, memory from then to the 40th."""
    sources = {"two.yaml": text.encode(), "big.csv": BIG.encode(), "small.csv": SMALL.encode()}
    return load_scenario("two.yaml", sources.__getitem__, Path("two.yaml"))


@pytest.mark.parametrize(
    ("wants", "weights", "has", "gets"),
    [
        # All fit: everyone gets what it wants, whatever it requests.
        ({"a": 3000, "b": 500}, {"a": 100, "b": 100}, 4000, {"a": 3000, "b": 500}),
        # Two thirds and one third of 3000.
        ({"a": 4000, "b": 3000}, {"a": 2000, "b": 1000}, 3000, {"a": 2000, "b": 1000}),
        # b wants less than its third of 3000: a gets what b leaves.
        ({"a": 4000, "b": 400}, {"a": 2000, "b": 1000}, 3000, {"a": 2600, "b": 400}),
        # c leaves 900 of its 1000 of 4000, which a and b share two to one: 3900 → 2600 and 1300.
        ({"a": 4000, "b": 4000, "c": 100}, {"a": 2000, "b": 1000, "c": 1000}, 4000, {"a": 2600, "b": 1300, "c": 100}),
        # One without a request weighs 2.
        ({"a": 4000, "b": 4000}, {"a": 998}, 1000, {"a": 998, "b": 2}),
        ({"a": 10}, {"a": 10}, 0, {"a": 0}),
    ],
)
def test_cpu_is_shared_by_requests(
    wants: dict[str, int], weights: dict[str, int], has: int, gets: dict[str, int]
) -> None:
    """Worked by hand."""
    assert shared(wants, weights, has) == gets


@pytest.mark.parametrize("seed", range(50))
def test_no_pod_gets_less_than_its_share_by_weight(seed: int) -> None:
    """Each gets what it wants or at least its weight's part, and nothing is left over but what rounding loses."""
    rng = random.Random(seed)
    wants = {n: rng.randint(0, 5000) for n in range(rng.randint(1, 12))}
    weights = {n: rng.choice([0, 10, 250, 1000]) for n in wants}
    has = rng.randint(0, 20_000)
    found = shared(wants, weights, has)
    heavy = sum(max(2, weight) for weight in weights.values())
    assert all(found[n] >= min(wants[n], has * max(2, weights[n]) // heavy - 1) for n in wants)
    assert min(has, sum(wants.values())) - len(wants) <= sum(found.values()) <= has
    assert all(found[n] <= wants[n] for n in wants)


def holder(name: str, used: int, request: int, limit: int | None = None) -> Holder:
    """A pod that holds so many MiB."""
    return Holder(("shop", name), used * MIB, request * MIB, None if limit is None else limit * MIB)


@pytest.mark.parametrize(
    ("holders", "has", "killed"),
    [
        ([holder("a", 3000, 1000), holder("b", 4000, 4000)], 7000, []),
        # 7500 of 7000: a is 2000 above its request, b at it.
        ([holder("a", 3000, 1000), holder("b", 4500, 4500)], 7000, ["a"]),
        # b uses most, and is within its request.
        ([holder("a", 900, 800), holder("b", 6500, 7000)], 7000, ["a"]),
        # Two have to go: c by 900, then a by 500.
        ([holder("a", 1500, 1000), holder("b", 4000, 4000), holder("c", 1000, 100)], 5000, ["c", "a"]),
        # Above its limit it goes though the node has room; with it gone, the others have.
        ([holder("a", 1100, 1000, 1000), holder("b", 4000, 1000)], 4500, ["a"]),
        ([holder("a", 1000, 1000, 1000)], 4500, []),
        ([holder("a", 1000, 500), holder("b", 1000, 500)], 1500, ["a"]),
    ],
)
def test_memory_is_freed_by_the_pod_furthest_above_its_request(
    holders: list[Holder], has: int, killed: list[str]
) -> None:
    """Worked by hand."""
    assert victims(holders, has * MIB) == [("shop", name) for name in killed]


def test_pods_of_a_full_node_get_their_part_of_its_cpu() -> None:
    """4000m: big (request 2000m) wants 4000m, small (1000m) 3000m: they get two thirds and one third."""
    sim = build(two(), 0)
    got = {}
    for minute in (5, 15, 45):
        sim.loop.run_until(sim.loop.now_ms // 60_000 * 60_000)
        sim.run_for(minute * 60 - (sim.loop.now_ms - 1_767_600_000_000) / 1000)
        used = {name.split("-")[0]: one.cpu_nano // 1_000_000 for (_, name), one in sim.load.usage().items()}
        got[minute] = used["big"], used["small"]
    assert got == {5: (1500, 500), 15: (2666, 1333), 45: (1500, 500)}


def test_a_killed_pod_is_restarted_later_and_later() -> None:
    """8192 MiB: big at 7000 is 2904 above its request; while small has 1500, it is killed at each restart."""
    sim = build(two(), 0)
    sim.run_for(1185)
    big = next(pod for pod in sim.store.each(POD) if pod["metadata"]["name"].startswith("big"))
    key, kills = ("shop", big["metadata"]["name"]), []
    for _ in range(80):
        before = len(sim.memory.killed) if sim.memory is not None else 0
        sim.run_for(15)
        assert sim.memory is not None
        if len(sim.memory.killed) > before:
            kills.append((sim.loop.now_ms - 1_767_600_000_000) // 1000)
            killed = sim.store.find(POD, key)
            assert killed is not None
            (status,) = killed["status"]["containerStatuses"]
            assert status["lastState"]["terminated"]["reason"] == "OOMKilled"
            assert status["restartCount"] == len(kills)
            assert not is_ready(killed)
            assert not is_running(killed)
            assert key not in sim.load.usage()
    waits = [later - one for one, later in pairwise(kills)]
    assert len(waits) >= 4
    assert waits == sorted(waits), "the back-off doubles"
    assert waits[-1] <= BACK_OFF_MS[1] / 1000 + 30
    sim.run_for(CALM_MS / 1000 + 600)
    after = sim.store.find(POD, key)
    assert after is not None
    assert is_ready(after), "it has memory again"


def test_a_look_at_nodes_that_changed_kills_the_same_pods() -> None:
    """A node of which nothing has changed has memory as before: who looks at all of them kills no other pods."""
    found = []
    for everywhere in (False, True):
        sim = build(two(), 0)
        assert sim.memory is not None
        if everywhere:
            sim.loop.every(LOOK_MS, partial(setattr, sim.memory, "_seen", None), priority=-1)
        sim.run_for(3000)
        found.append(sim.memory.killed)
    assert found[0] == found[1]
    assert len(found[0]) >= 4


def test_a_limit_is_kept() -> None:
    """With a limit of 6000 MiB big is killed although it is alone on its node; CPU above a limit is not to be had."""
    text = TWO.replace("usage: big.csv", "usage: big.csv, memory_limit: 6000Mi, cpu_limit: 2500m")
    text = "\n".join(line for line in text.splitlines() if "small" not in line)
    sim = build(load_scenario("two.yaml", {"two.yaml": text.encode(), "big.csv": BIG.encode()}.__getitem__, Path()), 0)
    sim.run_for(900)
    assert [one.cpu_nano // 1_000_000 for one in sim.load.usage().values()] == [2500]
    assert sim.memory is not None
    assert len(sim.memory.killed) == 0
    sim.run_for(400)
    assert len(sim.memory.killed) > 0


def test_figures_say_how_often_pods_were_short() -> None:
    """Both pods want more than they request, and get less than they want, in 10 of 60 minutes."""
    result, _ = run(two(), "none")
    whole = result.whole
    running = 2 * 3600 - whole.missing_pod_seconds
    assert whole.cpu_short_percent == pytest.approx(100 * 2 * 600 / running, abs=0.5)
    assert whole.cpu_above_request_percent == whole.cpu_short_percent
    assert whole.killed >= 4
    assert whole.killed == result.samples[-1].killed
    assert whole.missing_pod_seconds > 600, "a killed pod is not Ready for most of the twenty minutes"
    assert whole.cpu_used_percent > 40


def test_a_series_that_went_on_is_measured_without_any_application() -> None:
    """Usage in the samples follows the series, also where nothing else happens at that time."""
    text = "\n".join(line for line in TWO.splitlines() if "big" not in line)
    result, _ = run(two(text), "none")
    used = {sample.at: sample.used_cpu for sample in result.samples}
    assert (used[600], used[1200]) == (3000, 500)


def test_a_series_began_before_the_simulation() -> None:
    """With a past of ten minutes, what the series says for its tenth minute holds at the beginning."""
    sim = build(two(TWO + "past: 10m\n"), 0)
    sim.run_for(60)
    assert sorted(one.cpu_nano // 1_000_000 for one in sim.load.usage().values()) == [1333, 2666]

"""Commitments and tiers of prices: the bill by hand, the model, the search, and trying everything."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from tests.optimizer.planned import planned
from tests.support.builders import NOW, deployed, node
from tests.support.planning import unguarded

from kinema_core.events import Offer, Plan
from kinema_core.model.catalog import node_prices, offers_from, parse_catalog
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster, from_objects
from kinema_core.model.commitments import covered_nodes, offers_left
from kinema_optimizer.planning import portfolio
from kinema_optimizer.policies.proposal import proposal
from kinema_optimizer.policies.world import World

HEADER = "machine_type,vcpus,memory_gib,usd_per_hour,zone,committed,committed_usd_per_hour,allocatable_cpu_m\n"
WORKED = HEADER + "m4,4,16,0.17,a,3,,4000\nm8,8,32,0.34,a,,,8000\n"
"""Three m4 are paid for; each further one costs $0.17."""
CPU = {"m4": 4000, "m8": 8000}


def cluster(nodes: Sequence[tuple[str, str]], pods: Sequence[tuple[str, int, str | None, bool]]) -> Cluster:
    """Nodes of (name, machine type); single pods of (name, millicores, node, whether it must stay)."""
    objects: list[Any] = [node(name, machine=kind, cpu=CPU[kind], memory=CPU[kind] * 4) for name, kind in nodes]
    for name, cpu, where, stays in pods:
        marks = {"kinema.io/strategy": "surge", **({"kinema.io/do-not-move": "true"} if stays else {})}
        objects += deployed(name, [where], cpu=cpu, memory=64, annotations=marks)
    return from_objects(objects)


def least(cluster: Cluster, offers: tuple[Offer, ...]) -> Plan:
    """The plan of least cost, accepted by the checker."""
    return planned(cluster, offers, work=400, settings=unguarded(move_price_usd=0.0))


def test_worked_example() -> None:
    """Four m4 run and three are paid for: the fourth costs $0.17, and its pod joins another, so that nothing is left.

    By hand: before 3 × 0 + 1 × 0.17 = 0.17. One pod of 1,000m is on each; any three nodes hold all four. After: 0.
    """
    state = cluster([(f"n{i}", "m4") for i in range(4)], [(f"p{i}", 1000, f"n{i}", False) for i in range(4)])
    offers = offers_from(parse_catalog(WORKED), state)
    assert [(one.name, one.micro_usd_per_hour, one.available) for one in offers] == [
        ("m4/a/on-demand", 170_000, None),
        ("m4/a/on-demand#2", 0, 0),
        ("m8/a/on-demand", 340_000, None),
    ]
    assert node_prices(state, offers) == {"n0": 0, "n1": 0, "n2": 0, "n3": 170_000}
    plan = least(state, offers)
    assert (plan.cost.before, plan.cost.after, plan.cost.lower_bound, plan.cost.gap) == (0.17, 0, 0, 0)
    assert [one.name for one in plan.nodes if one.action == "delete"] == ["n3"]
    assert [one.committed for one in plan.nodes] == [True, True, True, False]
    assert plan.moves == 1


def test_what_is_left_of_a_commitment_is_bought_first() -> None:
    """One m8 of $0.34 with 6,000m in pods, and three m4 paid for that do not run: they take all, for nothing."""
    state = cluster([("big", "m8")], [(f"p{i}", 2000, "big", False) for i in range(3)])
    offers = offers_from(parse_catalog(WORKED), state)
    plan = least(state, offers)
    assert (plan.cost.before, plan.cost.after) == (0.34, 0)
    boots = {(one.offer, one.committed) for one in plan.nodes if one.action == "boot"}
    assert boots == {("m4/a/on-demand#2", True)}


def test_a_commitment_covers_nodes_that_must_stay_first() -> None:
    """The pods of two of four nodes cannot move: those are covered, whatever their names, and the others may go."""
    pods = [("p0", 500, "n0", False), ("p1", 500, "n1", False), ("p2", 500, "n2", True), ("p3", 500, "n3", True)]
    state = cluster([(f"n{i}", "m4") for i in range(4)], pods)
    offers = offers_from(parse_catalog(WORKED.replace(",3,", ",2,")), state)
    assert covered_nodes(state, offers) == {"n2": 0, "n3": 0}
    plan = least(state, offers)
    assert plan.cost.after == 0
    assert {one.name for one in plan.nodes if one.action == "delete"} == {"n0", "n1"}


def test_the_first_machines_at_one_price_and_the_rest_at_another() -> None:
    """Two m4 at $0.10, then $0.17 each: four live ones cost 2 × 0.10 + 2 × 0.17 = $0.54, two of them $0.20."""
    catalog = HEADER + "m4,4,16,0.17,a,2,0.10,4000\n"
    state = cluster([(f"n{i}", "m4") for i in range(4)], [(f"p{i}", 2000, f"n{i}", False) for i in range(4)])
    offers = offers_from(parse_catalog(catalog), state)
    plan = least(state, offers)
    assert (plan.cost.before, plan.cost.after, plan.cost.lower_bound) == (0.54, 0.2, 0.2)


def test_a_stale_catalog_sells_no_more_than_is_left() -> None:
    """Offers of an earlier state are cut to what the nodes of now leave; the checker refuses one machine more."""
    before = cluster([("n0", "m4")], [("p0", 500, "n0", False)])
    after = cluster([(f"n{i}", "m4") for i in range(3)], [("p0", 500, "n0", False)])
    offers = offers_from(parse_catalog(WORKED), before)
    assert [one.available for one in offers] == [None, 2, None]
    assert [one.available for one in offers_left(offers, after)] == [None, 0, None]
    state = cluster([("big", "m8")], [(f"p{i}", 2000, "big", False) for i in range(3)])
    plan = least(state, offers_from(parse_catalog(WORKED), state))
    short = offers_from(parse_catalog(WORKED.replace(",3,", ",1,")), state)
    assert "offer-exhausted" in {one.code for one in check_plan(plan, state, short, NOW)}


@pytest.mark.parametrize("line", ["m4,4,16,0.17,a,3,0.2,", "m4,4,16,0.17,a,,0.1,", "m4,4,16,0.17,a,-1,,"])
def test_commitments_that_cannot_be_are_refused(line: str) -> None:
    """Dearer than the rest, a price without a number, a number below 0: each names its line and what to write."""
    with pytest.raises(ValueError, match="line 2"):
        parse_catalog(HEADER + line)


def bill(kept: Counter[str], price: dict[str, tuple[int, int, int]]) -> int:
    """What machines cost, by type: (committed, micro-USD of those, micro-USD of the rest)."""
    found = 0
    for kind, count in kept.items():
        committed, first, rest = price[kind]
        found += min(count, committed) * first + max(0, count - committed) * rest
    return found


def fits(bins: list[tuple[int, set[int]]], pods: list[int], at: int = 0) -> bool:
    """Whether all pods have a place: bins of (room, pods that are pinned there)."""
    if at == len(pods):
        return True
    pinned = [i for i, (_, own) in enumerate(bins) if at in own]
    seen = set()
    for i in pinned or range(len(bins)):
        room, own = bins[i]
        if room < pods[at] or (not pinned and (room, frozenset(own)) in seen):
            continue
        seen.add((room, frozenset(own)))
        bins[i] = (room - pods[at], own)
        if fits(bins, pods, at + 1):
            bins[i] = (room, own)
            return True
        bins[i] = (room, own)
    return False


def tried(nodes: list[tuple[str, str]], pods: list[Any], price: dict[str, tuple[int, int, int]]) -> int:
    """The least bill of all choices of nodes that stay and machines that come; nothing is shared with the model."""
    sizes = [cpu for _, cpu, _, _ in pods]
    pinned = {name: {i for i, (_, _, at, stays) in enumerate(pods) if at == name and stays} for name, _ in nodes}
    best = 10**12
    for kept in product([True, False], repeat=len(nodes)):
        if any(not here and pinned[name] for (name, _), here in zip(nodes, kept, strict=True)):
            continue
        stay = [one for one, here in zip(nodes, kept, strict=True) if here]
        for new in product(range(4), range(3)):
            count = Counter(kind for _, kind in stay)
            count.update({"m4": new[0], "m8": new[1]})
            cost = bill(count, price)
            bins = [(CPU[kind], pinned[name]) for name, kind in stay]
            bins += [(CPU[kind], set()) for kind, many in zip(("m4", "m8"), new, strict=True) for _ in range(many)]
            if cost < best and fits(bins, sizes):
                best = cost
    return best


def drawn(seed: int) -> tuple[list[tuple[str, str]], list[Any], dict[str, tuple[int, int, int]]]:
    """Up to four nodes, five pods, and commitments of either machine type."""
    draw = random.Random(seed)
    nodes = [(f"n{i}", draw.choice(["m4", "m4", "m8"])) for i in range(draw.randint(1, 4))]
    free = {name: CPU[kind] for name, kind in nodes}
    pods = []
    for i in range(draw.randint(1, 5)):
        cpu, name = draw.choice([700, 1500, 2500, 3900]), draw.choice(nodes)[0]
        if free[name] >= cpu:
            free[name] -= cpu
            pods.append((f"p{i}", cpu, name, draw.random() < 0.2))
    prices = {}
    for kind, price in (("m4", 170_000), ("m8", draw.choice([330_000, 350_000]))):
        committed = draw.choice([0, 1, 2, 3])
        prices[kind] = committed, draw.choice([0, 0, price // 2]), price
    return nodes, pods, prices


def sold(prices: dict[str, tuple[int, int, int]], state: Cluster) -> tuple[Offer, ...]:
    """The same prices as a catalog."""
    lines = [
        f"{kind},{CPU[kind] // 1000},{CPU[kind] // 250},{rest / 1e6},a,{committed},{first / 1e6},{CPU[kind]}\n"
        for kind, (committed, first, rest) in prices.items()
    ]
    return offers_from(parse_catalog(HEADER + "".join(lines)), state)


@pytest.fixture(params=["model", "search"])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The methods of the portfolio in their order, or the search alone."""
    if request.param == "search":
        for other in (portfolio.ExactModel, portfolio.AggregatedModel, portfolio.ExactBelow):
            monkeypatch.setattr(other, "applies", lambda *_: False)
    return str(request.param)


@pytest.mark.usefixtures("method")
@pytest.mark.parametrize("seed", range(40))
def test_model_and_search_pay_what_trying_everything_pays(seed: int) -> None:
    """On tiny clusters of one zone both find the least bill, whichever nodes the commitments cover."""
    nodes, pods, prices = drawn(seed)
    state = cluster(nodes, pods)
    offers = sold(prices, state)
    best = tried(nodes, pods, prices)
    plan = least(state, offers)
    assert round(plan.cost.before * 1e6) == bill(Counter(kind for _, kind in nodes), prices)
    assert round(plan.cost.after * 1e6) == best
    assert round(plan.cost.lower_bound * 1e6) <= best


def test_a_policy_names_the_covered_nodes_too() -> None:
    """Of four m4 three are paid for, also where none of the commitment is left to boot."""
    state = cluster([(f"n{i}", "m4") for i in range(4)], [(f"p{i}", 1000, f"n{i}", False) for i in range(4)])
    offers = offers_from(parse_catalog(WORKED), state)
    plan = proposal(World(state, offers, NOW), (), name="test").plan
    assert [one.committed for one in plan.nodes] == [True, True, True, False]

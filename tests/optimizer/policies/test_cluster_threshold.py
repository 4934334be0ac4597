"""Thresholds on the whole cluster and usable resources: the thesis's figures, and each check alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

from tests.support.builders import NOW, cluster, deployed, node, offer, on_every_node

from kinema_core.model.cluster import Cluster
from kinema_optimizer.policies.cluster_threshold import CANDIDATE, PLAIN, ClusterThreshold, candidates, usable_part
from kinema_optimizer.policies.policy import Since, Tick
from kinema_optimizer.request.usable import Ratio, UsableResources

GIGA = 10**9 / 2**20
"""The thesis counts memory in decimal G, the builders in MiB."""
OFFERS = (offer(),)
DELAY = timedelta(seconds=600)


def mib(giga: float) -> int:
    """Decimal G in MiB, rounded down."""
    return int(giga * GIGA)


def figure_4_1() -> Cluster:
    """Two nodes of 4 cores and 8 G with the pods of the figure."""
    return cluster(
        node("n1", memory=mib(8)),
        node("n2", memory=mib(8)),
        deployed("a", ["n1"], cpu=1800, memory=mib(0.5)),
        deployed("b", ["n1"], cpu=2000, memory=mib(1)),
        deployed("c", ["n2"], cpu=1400, memory=mib(4)),
        deployed("d", ["n2"], cpu=200, memory=mib(4)),
    )


RULE = UsableResources(
    max_percent={"cpu": 80, "memory": 80},
    min_free={"cpu": "100m", "memory": "400M"},
    ratios=(
        Ratio(resource="cpu", most="3600m", per="memory", amount="1G"),
        Ratio(resource="memory", most="20G", per="cpu", amount="1"),
    ),
)


def test_the_usable_part_is_that_of_the_figure() -> None:
    """Source: figure 4.1. Of 8 cores and 16 G, 5.6 cores and 13.5 G are usable, and 5.4 and 9.5 requested."""
    found = usable_part(Tick(figure_4_1(), OFFERS, NOW).world(), RULE)
    assert (found["cpu"].requested, found["cpu"].usable) == (5400, 5600)
    memory = found["memory"]
    assert round(memory.requested / 10**9, 2) == 9.5
    assert round(memory.usable / 10**9, 2) == 13.5


def half_empty(*names: str) -> Cluster:
    """Nodes of 4 cores that hold two pods of 0.7 cores each."""
    return cluster([node(name) for name in names], deployed("web", [*names, *names], cpu=700, memory=512))


def ticks(state: Cluster, *after: float, policy: ClusterThreshold | None = None) -> list[list[str]]:
    """Nodes that go at ticks so many seconds after the first, each with the memory of the one before."""
    policy, found = policy or ClusterThreshold(), []
    since: Since = {}
    for seconds in after:
        outcome = policy.tick(Tick(state, OFFERS, NOW + timedelta(seconds=seconds), since))
        since = outcome.since
        found.append([name for step in outcome.proposal.steps for name in step.removed])
    return found


def test_a_node_goes_only_after_the_delay() -> None:
    """It is a candidate from the first tick on, and goes at the first tick ten minutes later."""
    assert ticks(half_empty("n1", "n2", "n3"), 0, 599, 600) == [[], [], ["n1"]]


def test_a_node_that_fails_the_check_once_begins_again() -> None:
    """It leaves the list of candidates, and the delay counts from when it is back on it."""
    policy, empty, full = ClusterThreshold(), half_empty("n1", "n2"), half_empty("n1")
    first = policy.tick(Tick(empty, OFFERS, NOW))
    assert sorted(first.since) == [CANDIDATE + "n1", CANDIDATE + "n2"]
    assert first.due == NOW + DELAY
    between = policy.tick(Tick(full, OFFERS, NOW + DELAY / 2, first.since))
    assert not between.since
    late = policy.tick(Tick(empty, OFFERS, NOW + DELAY, between.since))
    assert not late.proposal.steps


def test_the_filter_is_strict_and_leaves_out_the_nodes_own_daemons() -> None:
    """4 cores of 5 that are left are 80 %: no candidate at 80, one at 81; a daemon's pod goes with its node."""
    names = ["n1", "n2"]
    state = cluster(
        node("n1", cpu=5000),
        node("n2", cpu=5000),
        deployed("web", [*names, *names], cpu=1000, memory=512),
        on_every_node("agent", names, cpu=0, memory=64),
    )
    at_80 = UsableResources(max_percent={"cpu": 80})
    at_81 = UsableResources(max_percent={"cpu": 81})
    assert candidates(Tick(state, OFFERS, NOW).world(), at_80) == []
    assert candidates(Tick(state, OFFERS, NOW).world(), at_81) == [0, 1]
    heavy = cluster(state.nodes, deployed("web", [*names, *names], cpu=900), on_every_node("agent", names, cpu=300))
    # Requests 3.6 + 0.6; without one daemon 3.9 of 5 cores are 78 %.
    assert candidates(Tick(heavy, OFFERS, NOW).world(), at_80) == [0, 1]


def test_the_last_node_never_goes() -> None:
    """Without it no capacity is left, and nothing is divided by it."""
    assert ticks(cluster(node("n1")), 0, 6000) == [[], []]


def test_what_is_left_but_unusable_keeps_a_node() -> None:
    """By plain capacity a node may go; where the rest would have memory and no CPU to use it, it stays."""
    names = ("n1", "n2", "n3")
    state = cluster([node(name) for name in names], deployed("web", [*names, *names], cpu=1000, memory=512))
    tight = UsableResources(
        max_percent={"cpu": 80, "memory": 30}, ratios=(Ratio(resource="memory", most="1G", per="cpu", amount="1"),)
    )
    plain = UsableResources(max_percent=tight.max_percent)
    assert ticks(state, 0, 600, policy=ClusterThreshold(rule=plain))[1] == ["n1"]
    assert ticks(state, 0, 600, policy=ClusterThreshold(rule=tight))[1] == []
    assert PLAIN.ratios == ()


def test_pods_that_fit_on_no_other_node_keep_theirs() -> None:
    """The filter on sums lets the node pass; bin packing finds no place for its one large pod."""
    state = cluster(
        [node(f"n{i}") for i in range(4)],
        deployed("big", ["n0"], cpu=3000, memory=512),
        deployed("web", ["n1", "n2", "n3"], cpu=1500, memory=512),
    )
    policy = ClusterThreshold()
    world = Tick(state, OFFERS, NOW).world()
    assert 0 in candidates(world, policy.rule)
    assert not policy.may_go(world, 0)
    assert policy.may_go(world, 1)


def test_the_dearest_of_several_nodes_goes_by_money_or_by_power() -> None:
    """m8 costs more, m4 draws more power here."""
    state = cluster(
        node("cheap"),
        node("dear", price="9.99"),
        node("other"),
        node("hungry", machine="m8"),
        deployed("web", ["cheap", "dear", "other", "hungry"], cpu=1000, memory=512),
    )
    sold = (offer(watts=50.0), offer("m8", price=100_000, watts=500.0))

    def gone(policy: ClusterThreshold) -> Sequence[str]:
        first = policy.tick(Tick(state, sold, NOW))
        later = policy.tick(Tick(state, sold, NOW + DELAY, first.since))
        return later.proposal.steps[0].removed

    assert gone(ClusterThreshold()) == ("dear",)
    assert gone(replace(ClusterThreshold(), dearest_by="energy")) == ("hungry",)


def test_pending_pods_come_first() -> None:
    """A tick that buys a node removes none; candidates keep their time."""
    state = half_empty("n1", "n2", "n3")
    waiting = cluster(state.nodes, deployed("web", ["n1", "n2", "n3"], cpu=100), deployed("big", [None], cpu=3950))
    first = ClusterThreshold().tick(Tick(state, OFFERS, NOW))
    outcome = ClusterThreshold().tick(Tick(waiting, OFFERS, NOW + DELAY, first.since))
    assert [step.action for step in outcome.proposal.steps] == ["scale-up"]
    assert outcome.since[CANDIDATE + "n1"] == NOW


def test_a_share_is_compared_exactly() -> None:
    """Nothing is rounded: a third of the room is above 33 % and below 34 %."""
    assert Fraction(100, 3) > 33
    state = cluster(node("n1", cpu=3000), node("n2", cpu=3000), deployed("web", ["n1"], cpu=1000, memory=1))
    for percent, expected in ((33, []), (34, [0, 1])):
        rule = UsableResources(max_percent={"cpu": percent})
        assert candidates(Tick(state, OFFERS, NOW).world(), rule) == expected

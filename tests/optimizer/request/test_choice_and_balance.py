"""Ideas of other systems inside Kinema: choice among plans of nearly equal cost, and balance over zones."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from tests.optimizer.planned import Unpriced
from tests.support.builders import NOW, cluster, deployed, node, offer, pod
from tests.support.planning import unguarded

from kinema_core.events import FrozenMap, Plan, Spread
from kinema_core.model.catalog import ZONE
from kinema_core.model.cluster import Cluster
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.request.balance import balanced
from kinema_optimizer.request.choice import Choice, choose
from kinema_optimizer.settings import PlanningSettings
from kinema_optimizer.solvers.stopping import RecordedStop, WorkStop

OFFERS = tuple(
    msgspec.structs.replace(offer(machine, zone=zone, cpu=cpu, memory=4 * cpu, price=price), watts=watts)
    for machine, cpu, price, watts in (("m2", 2000, 90_000, 30.0), ("m4", 4000, 180_000, 40.0))
    for zone in "abc"
)


def made(state: Cluster, **settings: object) -> Plan:
    """A plan, by amount of work."""
    given = unguarded(**settings)
    return plan_for(state, OFFERS, now=NOW, settings=given, stop=Unpriced(100_000))


def alternatives(state: Cluster) -> list[Plan]:
    """The plan of a cluster as the cheap one that moves much, a dearer one that moves nothing, and one far too dear."""
    cheap = made(state)
    cost = cheap.cost
    changed = msgspec.structs.replace
    calm = changed(
        cheap,
        cost=changed(cost, after=round(cost.after * 1.01, 6)),
        moves=0,
        steps=(),
        placements=tuple(changed(one, strategy="stay") for one in cheap.placements),  # spread no wider
        nodes=tuple(changed(one, action="keep") if one.action == "delete" else one for one in cheap.nodes),
    )
    return [cheap, calm, changed(calm, cost=changed(cost, after=cost.after * 2))]


def spread_out() -> Cluster:
    """Four nodes for what one holds."""
    nodes = [node(f"n{n}", machine="m4", cpu=4000, memory=16_000, zone="abca"[n]) for n in range(4)]
    return cluster(*nodes, *deployed("web", ["n0", "n1", "n2", "n3"], cpu=300, memory=256))


def test_the_weights_decide_among_plans_of_nearly_equal_cost() -> None:
    """Two against two: the cheaper; restarts that count twice outvote a hundredth of the cost, not twice the cost."""
    plans = alternatives(spread_out())
    assert choose(plans, spread_out(), OFFERS, Choice()) == 0
    assert choose(plans, spread_out(), OFFERS, Choice(weights={"restarts": 2.0})) == 1
    only = dict.fromkeys(("energy", "restarts", "spread", "objects"), 0.0)
    assert choose(plans, spread_out(), OFFERS, Choice(weights=only)) == 0
    assert choose(plans, spread_out(), OFFERS, Choice(within_percent=0.5, weights={"restarts": 2.0})) == 0
    assert choose(plans[:1], spread_out(), OFFERS, Choice()) == 0


def test_a_plan_that_leaves_pods_out_is_never_chosen() -> None:
    """Whatever else speaks for it."""
    plans = alternatives(spread_out())
    waiting = cluster(pod("late"))
    left_out = made(cluster(*spread_out().nodes, pod("huge", cpu=9000), *spread_out().pods, *spread_out().workloads))
    assert left_out.unplaced
    assert (
        choose([plans[0], msgspec.structs.replace(plans[1], unplaced=left_out.unplaced)], waiting, OFFERS, Choice())
        == 0
    )


def test_a_plan_that_was_chosen_is_checked_costs_nearly_the_least_and_states_from_how_many() -> None:
    """The figure `chosen_from`; without the setting there is none, and the same question has the same answer."""
    plain, chosen = made(spread_out()), made(spread_out(), choice=Choice(within_percent=5))
    assert "chosen_from" not in plain.figures
    assert chosen.figures["chosen_from"] == 4
    assert chosen.cost.after <= plain.cost.after * 1.05
    assert chosen.cost.lower_bound == plain.cost.lower_bound
    assert made(spread_out(), choice=Choice(within_percent=5)).placements == chosen.placements


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"within_percent": -1.0}, "within_percent is -1.0"),
        ({"weights": FrozenMap({"beauty": 1.0})}, "weights has 'beauty'"),
        ({"weights": FrozenMap({"cost": -1.0})}, "weight of cost is -1.0"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(given: dict[str, object], expected: str) -> None:
    """Names the setting."""
    with pytest.raises(ValueError, match=expected):
        Choice(**given)  # type: ignore[arg-type]


def test_a_wrong_choice_in_settings_names_its_place() -> None:
    """As any other setting."""
    with pytest.raises(msgspec.ValidationError, match=r"beauty.*choice"):
        msgspec.convert({"choice": {"weights": {"beauty": 1.0}}}, PlanningSettings)


def test_balance_is_a_wish_of_pods_that_have_none_about_zones() -> None:
    """Pods of a workload of two or more get it; a rule of their own about zones stays as it is."""
    own = Spread(topology_key=ZONE[0], max_skew=2, when_unsatisfiable="DoNotSchedule")
    ruled = msgspec.structs.replace(pod("x").rules, spread=(own,))
    state = cluster(
        node("n1"),
        *deployed("web", ["n1", "n1"]),
        *deployed("alone", ["n1"]),
        *deployed("ruled", ["n1", "n1"], rules=ruled),
        pod("bare", node="n1"),
    )
    found = {one.name.partition("-")[0]: one.rules.spread for one in balanced(state).pods}
    [wish] = found["web"]
    assert (wish.topology_key, wish.when_unsatisfiable, wish.max_skew) == (ZONE[0], "ScheduleAnyway", 1)
    assert (found["alone"], found["bare"], found["ruled"]) == ((), (), (own,))


def test_pods_that_move_anyway_go_where_their_workload_has_fewest() -> None:
    """A dear node goes: with the wish, one pod of each workload is in each zone."""
    sizes = {"machine": "m2", "cpu": 2000, "memory": 8000}
    nodes = [node(f"n{zone}", zone=zone, **sizes) for zone in "abc"]  # type: ignore[arg-type]
    far = node("old", machine="m4", cpu=4000, memory=16_000, zone="c", price="0.5")
    state = cluster(
        *nodes,
        far,
        *deployed("web", ["na", "old", "old"], cpu=400, memory=512),
        *deployed("api", ["nb", "old", "old"], cpu=400, memory=512),
        *deployed("db", ["nc", "na", "nb"], cpu=700, memory=512),
    )
    plan = made(state, balance=True)
    assert [one.name for one in plan.nodes if one.action == "delete"] == ["old"]
    for name in ("web", "api"):
        zones = Counter(one.to for one in plan.placements if one.pod.startswith(f"shop/{name}"))
        assert set(zones.values()) == {1}


def test_a_choice_is_made_again_from_its_record() -> None:
    """Stopped where the recorded solve stopped, the plans to choose from are the same, and so is the choice."""
    given = unguarded(choice=Choice(within_percent=5))
    first = plan_for(spread_out(), OFFERS, now=NOW, settings=given, stop=WorkStop(7))
    again = plan_for(spread_out(), OFFERS, now=NOW, settings=given, stop=RecordedStop(first.solve))
    assert msgspec.structs.replace(again, solve=first.solve) == first
    assert again.solve.stops == first.solve.stops

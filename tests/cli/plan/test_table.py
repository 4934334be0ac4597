"""Plans as tables for people, and what a large one costs to print."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from rich.console import Console
from tests.support.builders import NOW, cluster, deployed, node, offer, pod
from tests.support.planning import unguarded
from tests.support.plans import bare_plan, plan_node

from kinema_cli.plan.table import MOST_ROWS, plan_tables
from kinema_cli.report.from_plan import facts_of, format_requests
from kinema_cli.report.rules import rules_of
from kinema_core.events import (
    ConstraintCost,
    Cost,
    FrozenMap,
    Held,
    Placement,
    Plan,
    PlanStep,
    RedundancyLoss,
    Resize,
    Solve,
    Stop,
    Strategy,
    Unplaced,
    ViolatedPreference,
)
from kinema_core.model.cluster import Cluster
from kinema_optimizer.planning.planner import plan_for
from kinema_optimizer.planning.portfolio import DRAINED, UNSEARCHED
from kinema_optimizer.solvers.stopping import WorkStop

ONE_AND_TWO: tuple[tuple[str, Strategy], ...] = (("a", "surge"), ("b", "evict"), ("b", "evict"))


def planned(**more: Any) -> Plan:
    """A plan that keeps n0 and n1 and deletes n2."""
    nodes = (plan_node("n0"), plan_node("n1"), plan_node("n2", "delete"))
    cost = Cost(before=0.51, after=0.34, lower_bound=0.3, gap=0.133333)
    return bare_plan(*nodes, **{"cost": cost, **more})


def held(name: str, code: str) -> Held:
    """A pod of the shop that may not move."""
    return Held(pod=f"shop/{name}", code=code, reason="for a reason")


def state() -> Cluster:
    """Three nodes; two pods on n0, one on n1 and one on n2."""
    pods = [pod("a", node="n0"), pod("b", node="n0"), pod("c", node="n1"), pod("d", node="n2")]
    return cluster(node("n0"), node("n1"), node("n2"), *pods)


def shown(plan: Plan, of: Cluster | None = None, *, every_move: bool = False) -> str:
    """What a terminal would show."""
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(*plan_tables(plan, of or state(), every_move=every_move), sep="\n")
    return console.export_text()


def test_a_rule_is_told_with_the_nodes_that_stay_for_it_alone() -> None:
    """A node that two rules hold is neither's alone, and one that goes anyway is nobody's."""
    plan = planned(held=(held("a", "bare-pod"), held("b", "job"), held("c", "job"), held("d", "job")))
    found = {row.name: (row.pods, row.nodes, row.alone, row.usd_alone) for row in rules_of(plan, state())}
    assert found == {"pods of jobs": (3, 2, 1, 0.17), "pods without a controller": (1, 1, 0, 0.0)}


def test_nodes_that_a_rule_holds_alone_are_no_limit_of_what_it_costs() -> None:
    """Its pod leaves a node that another rule holds too, and a third node goes for the room: no "at most" is told."""
    stays = deployed("x", ["n0"], cpu=2500, pod_annotations={"karpenter.sh/do-not-disrupt": "true"})
    bare = (pod("y", node="n0", cpu=1000), pod("w", node="n2", cpu=1400))
    on = cluster(node("n0"), node("n1"), node("n2"), *stays, *bare, *deployed("z", ["n1"], cpu=2700))
    on_sale = (offer("m4", cpu=4000, price=170_000),)
    plan = plan_for(on, on_sale, now=NOW, settings=unguarded(), stop=WorkStop(20_000))
    rule = "annotation karpenter.sh/do-not-disrupt"
    (row,) = (one for one in rules_of(plan, on) if one.name == rule)
    assert (row.nodes, row.alone, row.usd_alone) == (1, 0, 0.0)
    assert {one.constraint: one.usd_per_hour for one in plan.constraint_costs}[rule] == pytest.approx(0.17)
    assert row.saves == pytest.approx(0.17)
    assert "$124/month" in shown(plan, on)


def test_a_rule_that_holds_pods_for_two_reasons_is_one() -> None:
    """What is told of budgets counts the same pods as the price of all budgets, under the same name."""
    plan = planned(held=(held("a", "pdb-never"), held("b", "two-budgets")))
    (row,) = rules_of(plan, state())
    assert (row.name, row.pods, row.nodes, row.alone, row.usd_alone) == ("disruption budgets (all)", 2, 1, 1, 0.17)


def test_node_rules_count_where_no_pod_is_held() -> None:
    """A node's own reason is told only for nodes that no held pod explains."""
    why = {"n0": "pod shop/a may not move: job", "n1": "it is a control-plane node", "n2": None}
    found = rules_of(planned(held=(held("a", "job"),)), state(), why)
    assert [(row.name, row.nodes, row.example) for row in found] == [
        ("pods of jobs", 1, "shop/a: for a reason"),
        ("node rule", 1, "n1: it is a control-plane node"),
    ]


def test_the_last_node_that_takes_pods_beside_one_that_is_not_ready_is_blocked_by_that() -> None:
    """Unless another rule says more of it, or others of its zone take pods."""
    stays = Placement(pod="shop/a", uid="a", source="n0", to="n0", strategy="stay", requests=FrozenMap())
    plan = planned(placements=(stays,))
    on = cluster(node("n0", ready=False), node("n1"), node("n2"))
    (row,) = rules_of(plan, on)
    assert (row.name, row.nodes, row.usd_alone) == ("zone with a node that is not Ready", 1, 0.17)
    assert row.example.startswith("n1: node n0 of its zone is not Ready and has pods")
    assert [one.name for one in rules_of(plan, on, {"n1": "it is a control-plane node"})] == ["node rule"]
    assert rules_of(plan, cluster(node("n0"), node("n1"), node("n2"))) == ()
    two = msgspec.structs.replace(plan, nodes=(*plan.nodes[:2], msgspec.structs.replace(plan.nodes[2], action="keep")))
    assert rules_of(two, on) == ()


def test_a_search_that_the_clock_ended_says_how_to_repeat_it() -> None:
    """Seconds are not repeatable, counted work is; pricing the rules after the search changes no plan."""
    as_it_is = planned(status="nothing-better")
    assert "clock" not in shown(as_it_is)
    ended = msgspec.structs.replace(as_it_is.solve, stops=(Stop(reason="time-limit", phase="search", iteration=240),))
    text = "stopped by the clock, so another run may differ: repeat with --work 240"
    assert text in shown(msgspec.structs.replace(as_it_is, solve=ended))
    priced = msgspec.structs.replace(
        as_it_is.solve, stops=(Stop(reason="time-limit", phase="rule-prices", iteration=3),)
    )
    assert "clock" not in shown(msgspec.structs.replace(as_it_is, solve=priced))


def resized(name: str, before: Mapping[str, int], after: Mapping[str, int]) -> Resize:
    """New requests of a Deployment of the shop."""
    return Resize(
        workload=f"Deployment/shop/{name}", requests_before=FrozenMap(before), requests_after=FrozenMap(after)
    )


def test_a_plan_that_costs_more_for_its_requests_says_so() -> None:
    """One line names what rises in all, then the workloads that rise most, with figures and pods."""
    names = [f"{name}-5d4f-x{n}" for name in ("web", "api") for n in range(3)]
    placements = [
        Placement(pod=f"shop/{name}", uid=name, source="n0", to="n0", strategy="rolling", requests=FrozenMap())
        for name in names
    ]
    plan = planned(
        cost=Cost(before=0.34, after=0.51, lower_bound=0.5, gap=0.02),
        resizes=(
            resized("api", {"cpu": 100}, {"cpu": 50}),
            resized("web", {"cpu": 100, "memory": 2**29}, {"cpu": 300, "memory": 2**30}),
        ),
        placements=tuple(placements),
    )
    ((heading, said),) = format_requests(plan, Cluster())
    assert heading == "costs more"
    assert said == (
        "as requests rise, by +450m cpu, +1536Mi memory in all: "
        "Deployment/shop/web cpu 100m → 300m, memory 512Mi → 1Gi (3 pods); "
        "Deployment/shop/api cpu 100m → 50m (3 pods)"
    )
    assert "as requests rise" in " ".join(shown(plan, Cluster()).split())
    assert (heading, said) in facts_of(plan, Cluster())


def test_new_requests_are_told_where_a_plan_costs_less_too() -> None:
    """A saving is not called a rise; a cluster that knows the workload says how many pods there are; bytes are none."""
    plan = planned(resizes=(resized("web", {"cpu": 300, "memory": 2**29}, {"cpu": 200, "memory": 398249165}),))
    known = cluster(node("n0"), *deployed("web", ["n0", "n0"], cpu=300))
    assert format_requests(plan, known) == (
        (
            "requests",
            "change by -200m cpu, -264Mi memory in all: "
            "Deployment/shop/web cpu 300m → 200m, memory 512Mi → 380Mi (2 pods)",
        ),
    )


def test_savings_and_what_waiting_pods_cost_are_told_apart() -> None:
    """A new machine is waiting pods' as far as they request what is requested there; the rest counts as before."""
    new = msgspec.structs.replace(planned().nodes[0], name="kinema-1", action="boot")
    places = [("a", "n2", 100), ("b", None, 300)]
    plan = planned(
        cost=Cost(before=0.51, after=0.51, lower_bound=0.5, gap=0.02),
        nodes=(*planned().nodes, new),
        placements=tuple(
            Placement(
                pod=f"shop/{name}",
                uid=name,
                source=source,
                to="kinema-1",
                strategy="surge" if source else "schedule",
                requests=FrozenMap(cpu=cpu, memory=cpu * 2**20),
            )
            for name, source, cpu in places
        ),
    )
    said = shown(plan)
    month = 0.17 * 0.75 * 730
    assert f"${month:,.0f}/month (25%), not counting pending pods" in said
    assert f"cost ${month:,.0f}/month: their share of the new machines" in said
    assert "pending pods" not in shown(planned())
    assert "0 pods (1 by surge); 1 pending pod placed" in said


def test_of_many_resized_workloads_few_are_named() -> None:
    """The line stays one line."""
    plan = planned(resizes=tuple(resized(f"w{n}", {"cpu": 100}, {"cpu": 200}) for n in range(5)))
    assert format_requests(plan, Cluster())[0][1].endswith("; and 2 workloads more")


def test_status_gap_and_limits_are_in_words() -> None:
    """People are told what the status means, how far from the best the plan may be, and what was asked for."""
    said = shown(planned(objective="cost, at most 3 moves"))
    assert "best plan found" in said
    assert "at most $0.04/h (12%) more could be saved" in said
    assert "cost, at most 3 moves" in said


def test_a_plan_made_without_a_search_does_not_say_that_nothing_is_better() -> None:
    """Nothing was looked for, so nothing was found."""
    solve = Solve(seconds=0.1, first_feasible_seconds=None, method=UNSEARCHED, seed=0)
    said = shown(planned(status="nothing-better", solve=solve))
    assert "no search was made: no running pod moves" in said
    assert "nothing better" not in said
    drained = msgspec.structs.replace(solve, method=DRAINED)
    said = shown(planned(status="feasible", moves=3, solve=drained))
    assert "no search was made: only nodes go whose pods fit on others" in said
    assert "best plan found" not in said


def test_only_what_is_proven_is_called_so() -> None:
    """Where moves had no order the cost may be proven; that no fewer moves do is not."""
    proven = planned(status="optimal", cost=Cost(before=0.51, after=0.34, lower_bound=0.34, gap=0.0))
    assert "proven best: least cost, and fewest moves within 0.1% of it" in shown(proven)
    said = shown(msgspec.structs.replace(proven, figures=FrozenMap({"kept_in_place_without_an_order": 1.0})))
    assert "proven: no plan costs less; fewer moves may suffice" in said
    assert "proven best" not in said


def test_the_bound_says_what_it_leaves_aside() -> None:
    """What could still be saved is money, a share of the cost, and names the limits that the bound does not have."""
    saved = "no plan costs less than $0.30/h: at most $0.04/h (12%) more could be saved"
    assert f"{saved}\n" in re.sub(" +\n", "\n", shown(planned()))
    assert f"{saved}, without the limit on moves" in shown(planned(objective="cost, at most 1 move"))
    both = planned(objective="cost, 0.5 USD/h per move, at most 3 moves")
    assert f"{saved}, without the limit on moves and the price of moves" in shown(both)
    still = planned(objective="cost, at most 0 moves", figures=FrozenMap({"bound_without_moves": 1.0}))
    assert "no plan without moves costs less than $0.30/h" in shown(still)
    proven = Cost(before=0.34, after=0.34, lower_bound=0.34, gap=0.0)
    resting = msgspec.structs.replace(still, status="nothing-better", cost=proven)
    assert "proven, no plan costs less without moving a pod" in shown(resting)


def steps(*of: tuple[int, str]) -> tuple[PlanStep, ...]:
    """Moves of pods by wave."""
    return tuple(PlanStep(wave=wave, action="move", node="n0", pod=f"shop/{name}") for wave, name in of)


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ((), "delete 1 node"),
        (((1, "a"),), "move 1 pod, then delete 1 node"),
        (((1, "a"), (1, "b")), "move 2 pods, then delete 1 node"),
        (((0, "a"), (2, "b"), (3, "a")), "move 2 pods in 3 waves, then delete 1 node"),
    ],
)
def test_the_order_counts_the_waves_in_which_pods_go(moves: tuple[tuple[int, str], ...], said: str) -> None:
    """Who boots, moves one pod and deletes has nothing to put in order."""
    last = PlanStep(wave=4, action="delete", node="n2")
    assert said in shown(planned(steps=(*steps(*moves), last)))


def test_evictions_are_not_said_to_be_at_once() -> None:
    """One goes when the last one's replacement is Ready; of two workloads that have one each, both may."""
    moved = tuple(
        Placement(pod=f"shop/{name}", uid=name, source="n2", to="n0", strategy="evict", requests=FrozenMap())
        for name in "ab"
    )
    said = shown(planned(steps=steps((1, "a"), (1, "b")), placements=moved))
    assert "move 2 pods (evictions of a workload one at a time)" in said
    waves = shown(planned(steps=steps((1, "a"), (2, "b")), placements=moved))
    assert "move 2 pods in 2 waves (evictions of a workload one at a time)" in waves


def test_workloads_that_come_together_are_told_in_a_line() -> None:
    """How many, and the largest by name; a report has them all."""
    close = tuple(
        RedundancyLoss(workload=f"Deployment/shop/w{n}", pods=9 - n, nodes_before=2, node="n0") for n in range(5)
    )
    said = shown(planned(redundancy_loss=close))
    assert "5 workloads lose node redundancy (all replicas on one node): Deployment/shop/w0 (9 replicas)" in said
    assert "Deployment/shop/w2 (7 replicas) and 2 more. Add topologySpreadConstraints" in said
    assert "1 workload loses node redundancy" in shown(planned(redundancy_loss=close[:1]))


def test_unknown_gap_is_no_number() -> None:
    """Without a bound nothing is claimed about the gap."""
    assert "no bound is known" in shown(planned(cost=Cost(before=0.51, after=0.34, lower_bound=0.0, gap=None)))


def test_nothing_better_tells_whether_it_is_proven() -> None:
    """An unproven standstill does not look like a proof."""
    proven = planned(status="nothing-better", cost=Cost(before=0.34, after=0.34, lower_bound=0.34, gap=0.0))
    assert "proven, no plan costs less" in shown(proven)
    assert "proven" not in shown(planned(status="nothing-better"))


def test_dearest_constraint_comes_first() -> None:
    """The table of prices is in order of what there is to gain."""
    said = shown(
        planned(
            constraint_costs=(
                ConstraintCost(constraint="pdb a", usd_per_hour=0.1),
                ConstraintCost(constraint="z", usd_per_hour=2),
            )
        )
    )
    assert said.index("\nz ") < said.index("pdb a")
    assert "$1,460/month" in said


def test_single_budgets_stand_below_all_budgets() -> None:
    """One table has a rule once: what lifting it saves first, and a single budget below the row that contains it."""
    costs: tuple[tuple[str, float], ...] = (("taints", 0.2), ("pdb *", 0.1), ("pdb shop/ads", 0.1), ("limit m4", 0.05))
    costs += (("node annotations", 0.04), ("node n0", 0.03), ("node selectors and node affinity", 0.02))
    plan = planned(
        held=(held("a", "pdb-never"), held("b", "restart-risk-unknown")),
        constraint_costs=tuple(ConstraintCost(constraint=name, usd_per_hour=usd) for name, usd in costs),
    )
    assert [(row.name, row.part, row.saves) for row in rules_of(plan, state())] == [
        ("taints", False, 0.2),
        ("disruption budgets (all)", False, 0.1),
        ("pdb shop/ads", True, 0.1),
        ("limit m4", False, 0.05),
        ("node annotations", False, 0.04),
        ("node n0", True, 0.03),
        ("node selectors and node affinity", False, 0.02),
        ("restart-risk-unknown", False, None),
    ]
    assert re.search(r"\n  pdb shop/ads +\$73/month", shown(plan))
    assert re.search(r"restart-risk-unknown +not priced", shown(plan))


def test_the_result_comes_last() -> None:
    """A reader of a long output sees warnings and result without scrolling; moves are a line for each namespace."""
    moved = tuple(
        Placement(pod=f"shop/{name}", uid=name, source="n2", to="n0", strategy="surge", requests=FrozenMap())
        for name in "ab"
    )
    lost = (RedundancyLoss(workload="Deployment/shop/w", pods=2, nodes_before=2, node="n0"),)
    lines = shown(planned(placements=moved, moves=2, redundancy_loss=lost)).splitlines()
    assert lines[-1].strip() == "Saves $124/month (33%): $0.51/h → $0.34/h, 3 → 2 nodes, 2 pods moved."
    assert any("lose" in line for line in lines[-6:])
    assert any(line.split() == ["shop", "2", "2", "2", "surge"] for line in lines)
    unproven = shown(planned(status="nothing-better", cost=Cost(before=0.51, after=0.51, lower_bound=0.3, gap=0.7)))
    assert "Nothing better found" in unproven.splitlines()[-1]


def test_room_that_cannot_be_had_is_told() -> None:
    """Headroom and minimum nodes that the plan misses are not kept quiet."""
    assert "2 of the 5 requested spare rooms and nodes" in shown(
        planned(figures=FrozenMap({"placeholders": 5.0, "placeholders_missing": 2.0}))
    )


def test_workloads_with_most_moves_come_first() -> None:
    """Where a table is cut, what matters most is still in it."""
    pods = tuple(
        Placement(pod=f"shop/{name}", uid=name, source="n2", to="n0", strategy=way, requests=FrozenMap({}))
        for name, way in ONE_AND_TWO
    )
    said = shown(planned(placements=pods, moves=3), every_move=True)
    assert said.index("Pod/shop/b") < said.index("Pod/shop/a")


def test_large_plan_is_a_short_table() -> None:
    """Every table counts what it does not show: no table grows with the cluster."""
    many = 5_000
    pods = tuple(
        Placement(pod=f"shop/p{i}", uid=str(i), source="n2", to="n0", strategy="surge", requests=FrozenMap({}))
        for i in range(many)
    )
    lost = tuple(Unplaced(pod=f"shop/q{i}", uid=str(i), code="rule", reason="no [place]") for i in range(many))
    said = shown(planned(placements=pods, unplaced=lost, moves=many))
    assert len(said.splitlines()) < 4 * MOST_ROWS
    assert f"and {many - MOST_ROWS:,} more" in said
    assert "5,000 pods (5,000 by surge)" in said
    assert "no [place]" in said


def test_preferences_given_up_are_told_with_their_worth() -> None:
    """By workload, the heaviest first; none, no table."""
    given = (
        ViolatedPreference(workload="Deployment/shop/b", preference="zone", weight=10, pods=1, price=0.00001),
        ViolatedPreference(workload="Deployment/shop/a", preference="taint", weight=100, pods=3, price=0.0003),
    )
    text = shown(planned(violated_preferences=given))
    assert "Preferences that the plan violates" in text
    assert text.index("Deployment/shop/a") < text.index("Deployment/shop/b")
    assert "0.000300" in text
    assert "Preferences that the plan violates" not in shown(planned())


def test_moves_say_what_each_restart_counts_where_it_is_no_ordinary_one() -> None:
    """By workload, from the least to the most."""
    on = cluster(
        node("n0"),
        node("n1"),
        deployed("calm", ["n0", "n0"]),
        deployed("risky", ["n0", "n0"], annotations={"kinema.io/disruption-cost": "7.5"}),
    )
    keys = [f"shop/{name}-{index}" for name in ("calm", "risky") for index in range(2)]
    moves = tuple(
        Placement(pod=key, uid="", source="n0", to="n1", strategy="surge", requests=FrozenMap()) for key in keys
    )
    lines = shown(planned(placements=moves), on, every_move=True).splitlines()
    assert "7.5" in next(line for line in lines if "Deployment/shop/risky" in line)
    assert next(line for line in lines if "Deployment/shop/calm" in line).rstrip("│ ").endswith("n1 (2)")


def test_rules_that_cost_nothing_are_told_to_have_been_looked_at() -> None:
    """No table of costs says nothing: nobody may have looked."""
    quiet = planned()
    looked = msgspec.structs.replace(quiet.solve, stops=(Stop(reason="optimal", phase="rule-prices", iteration=4),))
    told = "no rule increases the cost (3 checked)"
    assert told in shown(msgspec.structs.replace(quiet, solve=looked))
    assert "checked" not in shown(quiet)
    late = msgspec.structs.replace(quiet.solve, stops=(Stop(reason="time-limit", phase="rule-prices", iteration=0),))
    assert "checked" not in shown(msgspec.structs.replace(quiet, solve=late))
    priced = (ConstraintCost(constraint="taints", usd_per_hour=0.1),)
    assert told not in shown(msgspec.structs.replace(quiet, solve=looked, constraint_costs=priced))


def test_machines_that_are_committed_have_a_row_of_their_own() -> None:
    """Of two machines of a type one is committed: a column, shown only then, distinguishes them."""
    paid = msgspec.structs.replace(plan_node("n3", "delete"), committed=True)
    nodes = (plan_node("n0"), plan_node("n2", "delete"), paid)
    [*_, line] = [line for line in shown(planned(nodes=nodes)).splitlines() if " yes " in line]
    assert line.split()[:4] == ["m4", "a", "on-demand", "yes"]
    assert "committed" in shown(planned(nodes=nodes))
    assert "committed" not in shown(planned())

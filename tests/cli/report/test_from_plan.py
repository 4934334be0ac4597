"""The HTML report of a plan alone."""

from __future__ import annotations

import re
from dataclasses import replace as replace_box
from pathlib import Path

from msgspec.structs import replace
from tests.support.builders import amounts, cluster, deployed, node
from tests.support.plans import bare_plan, plan_node

from kinema_cli.report.build import MOST_ROWS, build_report
from kinema_cli.report.drawings import BOXES_WIDTH, CHARACTER, MOST_NODES, boxes_picture, legend
from kinema_cli.report.from_plan import boxes_of, fates_of, headline_of, plan_report
from kinema_core.events import (
    Cost,
    Held,
    Placement,
    Plan,
    RedundancyLoss,
    Resize,
    Unplaced,
    ViolatedPreference,
)
from kinema_core.model.cluster import Cluster


def large(nodes: int) -> tuple[Plan, Cluster]:
    """So many nodes with a pod each; the last one goes, its pod to the first."""
    names = [f"n{index:04}" for index in range(nodes)]
    state = cluster(*(node(name) for name in names), *deployed("web", names, cpu=500))
    last = names[-1]
    plan = bare_plan(
        *(plan_node(name, "delete" if name == last else "keep") for name in names),
        before=0.17 * nodes,
        after=0.17 * (nodes - 1),
        placements=tuple(
            Placement(
                pod=one.key,
                uid=one.uid,
                source=one.node,
                to=names[0] if one.node == last else one.node or "",
                strategy="surge" if one.node == last else "stay",
                requests=amounts(500, 128),
            )
            for one in state.pods
        ),
        held=(Held(pod="shop/web-0", code="job", reason="a <b>job</b>"),),
        moves=1,
    )
    return plan, state


def test_of_many_nodes_those_that_go_are_drawn_first() -> None:
    """The picture shows what changes, and pods are gathered only for nodes that are drawn."""
    plan, state = large(MOST_NODES + 40)
    before, after = boxes_of(plan, state, ())
    assert before[0].action == "delete"
    assert (len(before), len(after)) == (MOST_NODES + 40, MOST_NODES + 39)
    assert sum(bool(box.pods) for box in before) <= 2 * MOST_NODES
    assert all(box.pods for box in before[:MOST_NODES])


def test_of_few_nodes_those_that_stay_are_drawn_first() -> None:
    """Small clusters keep the order in which before and after are easily compared."""
    plan, state = large(5)
    before, _ = boxes_of(plan, state, ())
    assert [box.action for box in before] == ["keep"] * 4 + ["delete"]
    assert all(box.pods for box in before)


def test_report_tells_what_a_rule_blocks_in_a_month(tmp_path: Path) -> None:
    """Pods, nodes and money stand beside the rule, and what people wrote is no markup."""
    plan, state = large(5)
    path = build_report(plan_report(plan, state, (), title="t", subtitle="s"), tmp_path / "r.html")
    html = path.read_text(encoding="utf-8")
    assert re.search(r'<th scope="row">pods of jobs</th>\s*<td class="n">not priced</td><td class="n">1</td>', html)
    assert '<td class="n">1 nodes, $124/month</td>' in html
    assert "<b>job</b>" not in html


def test_long_lists_are_cut_and_counted(tmp_path: Path) -> None:
    """A report stays a page that a browser can show."""
    plan, state = large(3)
    many = tuple(
        Unplaced(pod=f"shop/p{index}", uid=str(index), code="rule", reason="no") for index in range(MOST_ROWS + 5)
    )
    spoiled = replace(plan, unplaced=many)
    path = build_report(plan_report(spoiled, state, (), title="t", subtitle="s"), tmp_path / "r.html")
    html = path.read_text(encoding="utf-8")
    assert html.count("shop/p") == MOST_ROWS
    assert "and 5 more" in html


def test_what_pods_lose_is_in_the_report(tmp_path: Path) -> None:
    """Preferences given up, and workloads that come together on a node."""
    plan, state = large(3)
    lost = ViolatedPreference(
        workload="Deployment/shop/web", preference="spread over zones", weight=100, pods=2, price=0.0
    )
    close = RedundancyLoss(workload="Deployment/shop/api", pods=7, nodes_before=2, node="n0")
    spoiled = replace(plan, violated_preferences=(lost,), redundancy_loss=(close,))
    html = build_report(plan_report(spoiled, state, (), title="t", subtitle="s"), tmp_path / "r.html").read_text(
        "utf-8"
    )
    assert "spread over zones" in html
    assert "Deployment/shop/api" in html
    without = build_report(plan_report(plan, state, (), title="t", subtitle="s"), tmp_path / "s.html").read_text(
        "utf-8"
    )
    assert "What pods lose" not in without


def test_pods_that_are_resized_where_they_run_do_not_restart(tmp_path: Path) -> None:
    """Where kubelets resize, a roll that leaves every pod on its node is no restart; elsewhere it is one."""
    _, state = large(2)
    rolled = tuple(
        Placement(
            pod=one.key, uid=one.uid, source=one.node, to=one.node or "", strategy="rolling", requests=one.requests
        )
        for one in state.pods
    )
    change = Resize(workload="Deployment/shop/web", requests_before=amounts(500, 128), requests_after=amounts(300, 128))
    plan = bare_plan(plan_node("n0000", "keep"), plan_node("n0001", "keep"), placements=rolled, resizes=(change,))
    assert set(fates_of(plan, state).values()) == {"restart"}
    able = cluster(*state.nodes, *(replace(one, resizable=("cpu",)) for one in state.pods), *state.workloads)
    assert set(fates_of(plan, able).values()) == {"resize"}
    assert headline_of(plan, able).strategies == {}
    html = build_report(plan_report(plan, able, (), title="t", subtitle="s"), tmp_path / "r.html").read_text("utf-8")
    assert "is resized in place" in html
    assert "restarts in place" not in html


def test_plan_in_watts_has_money_and_power_on_top(tmp_path: Path) -> None:
    """Money comes from the nodes, the bound is in watts."""
    plan, state = large(3)
    cost = Cost(before=300.0, after=200.0, lower_bound=190.0, gap=0.052632, unit="W")
    watts = replace(plan, cost=cost)
    head = headline_of(watts, state)
    assert (head.usd_before, head.usd_after, head.watts) == (0.51, 0.34, (300.0, 200.0))
    path = build_report(plan_report(watts, state, (), title="t", subtitle="s"), tmp_path / "r.html")
    html = path.read_text(encoding="utf-8")
    assert "300 → 200 W" in html
    assert "190 W" in html


def test_long_names_leave_each_other_room_and_the_price_is_whole() -> None:
    """A node's name and its machine share a line: both are cut short before they would meet."""
    name, machine = "ip-10-0-0-1.eu-central-1.compute.internal-and-more", "Standard_NC24ads_A100_v4-and-more"
    plan, state = large(1)
    box = replace_box(boxes_of(plan, state, ())[0][0], name=name, machine_type=machine, zone="eu-central-1a")
    drawn = boxes_picture([box], {}, longest=4000, label="x")
    left, right = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)[:2]
    assert right.endswith("… · $0.17/h")
    assert left.startswith("leaves: ip-10-0-0-1.")
    assert left.endswith("…")
    assert len(left) * CHARACTER * 11.5 + len(right) * CHARACTER * 11 < BOXES_WIDTH
    short = boxes_picture([replace_box(box, name="n1", machine_type="m4")], {}, longest=4000, label="x")
    assert ">leaves: n1<" in short
    assert ">m4, eu-central-1a · $0.17/h<" in short
    assert f"{name} ({machine}, eu-central-1a): CPU" in drawn


def test_pods_that_wait_are_placed_and_not_moved(tmp_path: Path) -> None:
    """They are told apart from those that move."""
    plan, state = large(3)
    seat = Placement(pod="shop/new", uid="u", source=None, to="n0000", strategy="schedule", requests=amounts(100))
    data = plan_report(replace(plan, placements=(*plan.placements, seat)), state, (), title="t", subtitle="s")
    html = build_report(data, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "1 surge, 1 pending pods placed" in html


def test_a_saving_beside_waiting_pods_is_told_with_what_the_bill_does(tmp_path: Path) -> None:
    """The saving leaves out what waiting pods cost, the cost per hour does not: a line leads from one to the other."""
    plan, state = large(3)
    new = replace(plan.nodes[0], name="kinema-1", action="boot")
    seat = Placement(pod="shop/new", uid="u", source=None, to="kinema-1", strategy="schedule", requests=amounts(100))
    waiting = replace(
        plan,
        nodes=(*plan.nodes, new),
        placements=(*plan.placements, seat),
        cost=Cost(before=0.60, after=0.46, lower_bound=0.4, gap=0.1),
    )
    html = build_report(plan_report(waiting, state, (), title="t", subtitle="s"), tmp_path / "r.html").read_text(
        "utf-8"
    )
    assert "$226</div>" in html  # (0.60 - 0.46 + 0.17) × 730
    assert "at 730 hours, not counting $124 for pending pods; the bill falls by $102" in html
    html = build_report(plan_report(plan, state, (), title="t", subtitle="s"), tmp_path / "s.html").read_text("utf-8")
    assert '<div class="note">at 730 hours</div>' in html


def test_the_legend_lists_daemon_sets_where_some_are_drawn() -> None:
    """A color that is nowhere in the picture is looked for in vain."""
    plan, state = large(2)
    before, _ = boxes_of(plan, state, ())
    assert legend(before, {"web": "red"}) == [("red", "web")]
    daemon = replace_box(before[0].pods[0], fate="system")
    (*_, last) = legend([replace_box(before[0], pods=(*before[0].pods, daemon))], {"web": "red"})
    assert last[1] == "daemon sets"
    nothing = replace_box(daemon, cpu=0)
    assert len(legend([replace_box(before[0], pods=(nothing,))], {"web": "red"})) == 1

"""The report of a recorded run: what it takes from events and what from the cluster's own history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.builders import NOW, offers, pod, tiny
from tests.support.planning import unguarded

from kinema_cli.report.build import build_report
from kinema_cli.report.data import ReportData
from kinema_cli.report.from_run import History, HistoryError, RunError, executions_of, read_history, run_report
from kinema_cli.report.protocol import in_a_line
from kinema_core.events import (
    AnyBody,
    Autoscaler,
    CatalogPublished,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    ExecutionCompleted,
    FrozenMap,
    IterationSkipped,
    IterationStarted,
    Node,
    NoPlanFound,
    ObjectKey,
    Plan,
    PlanAccepted,
    PlanRejected,
    Pod,
    Step,
    StepStarted,
)
from kinema_core.model.cluster import all_objects
from kinema_core.runtime.envelope import origin
from kinema_optimizer.planning.planner import plan_for

WEB = "Deployment/shop/web"


def at(seconds: float) -> datetime:
    """That many seconds into the run."""
    return NOW + timedelta(seconds=seconds)


def event(body: AnyBody, seconds: float, id_: str, iteration: str = "") -> Event:
    """An event at a second of the run."""
    return origin(body, id_=id_, cluster="demo", iteration=iteration, now=at(seconds))


def planned() -> Plan:
    """The optimizer's plan for the tiny cluster: one of its two nodes suffices, or one small new one."""
    return plan_for(tiny(), offers(), now=NOW, settings=unguarded())


def moment(seconds: float, *, nodes: Sequence[str], desired: int = 3, ready: int = 3) -> dict[str, Any]:
    """A sample of the history."""
    return {
        "time": at(seconds).isoformat(),
        "nodes": [{"name": n, "machine_type": "m4", "usd_per_hour": 0.17, "ready": True} for n in nodes],
        "usd_per_hour": 0.17 * len(nodes),
        "workloads": {
            "Deployment shop/web": {"desired": desired, "ready": ready},
            "DaemonSet kube-system/logger": {"desired": len(nodes), "ready": len(nodes)},
        },
        "pending": 0,
        "requested": {"cpu_m": 1500, "memory_bytes": 1},
        "allocatable": {"cpu_m": 4000 * len(nodes), "memory_bytes": 2},
        "used": {"cpu_m": 300, "memory_bytes": 1},
    }


def history(*samples: dict[str, Any]) -> History:
    """The history as the simulated cluster gives it."""
    return read_history(json.dumps({"samples": samples, "moves": []}).encode())


@dataclass
class Run:
    """A run in which one pod goes from n2 to n1 and n2 is given back; parts can be replaced."""

    samples: list[dict[str, Any]] = field(
        default_factory=lambda: [
            moment(-600, nodes=["n1", "n2", "n3"]),
            moment(-10, nodes=["n1", "n2"]),
            moment(30, nodes=["n1", "n2"], desired=4, ready=3),
            moment(40, nodes=["n1", "n2"], desired=4, ready=4),
            moment(45, nodes=["n1", "n2"]),
            moment(60, nodes=["n1"]),
            moment(90, nodes=["n1"]),
        ]
    )
    extra_state: list[Event] = field(default_factory=list)

    @property
    def state(self) -> list[Event]:
        """Snapshot, then the new pod, its readiness, the old one leaving and gone with its node."""
        new = pod("web-new", node="n1", owner=tiny().workload("ReplicaSet/shop/web-rs"), cpu=500, memory=512)
        old = tiny().pod("shop/web-2")
        assert old is not None
        starting = msgspec.structs.replace(new, ready=False)
        leaving = msgspec.structs.replace(old, terminating=True)
        gone = (ObjectKey(kind="Pod", key="shop/web-2"),)
        deltas: list[tuple[float, tuple[Pod | Node, ...], tuple[ObjectKey, ...]]] = [
            (30, (starting,), ()),
            (40, (new,), ()),
            (42, (leaving,), ()),
            (44, (), gone),
            (60, (), (ObjectKey(kind="Node", key="n2"),)),
        ]
        first = event(ClusterSnapshot(version=1, objects=tuple(all_objects(tiny()))), 0, "s1")
        return [
            first,
            *(
                event(ClusterDelta(version=n, upserts=upserts, deletes=deletes), seconds, f"s{n}")
                for n, (seconds, upserts, deletes) in enumerate(deltas, start=2)
            ),
            *self.extra_state,
        ]

    @property
    def log(self) -> list[Event]:
        """A skip, an iteration, a plan, its acceptance, a step and the end."""
        plan = msgspec.structs.replace(planned(), base_version=1)
        boot = Step(id="b", kind="boot", target="x", offer="m4/a/on-demand")
        return [
            event(CatalogPublished(source="test", priced=None, offers=offers()), 1, "c"),
            event(IterationSkipped(version=1, reason="settling"), 2, "i0"),
            event(IterationStarted(mode="reschedule", version=1, reason="stable"), 10, "i1", "i1"),
            event(plan, 15, "p1", "i1"),
            event(PlanAccepted(plan="p1", version=1), 20, "a1", "i1"),
            event(StepStarted(plan="p1", step=boot, fencing=1, deadline=at(99)), 21, "x1", "i1"),
            event(ExecutionCompleted(plan="p1", fencing=1, figures=FrozenMap({"moves_surge": 1})), 70, "f1", "i1"),
        ]

    def report(self) -> ReportData:
        """The report's data."""
        return run_report(self.state, self.log, history(*self.samples), title="Run")


def test_headline_is_what_the_cluster_recorded() -> None:
    """Nodes and cost come from the history, at the acceptance and at the end; moves from the execution's own count."""
    head = Run().report().headline
    assert (head.nodes_before, head.nodes_after) == (2, 1)
    assert (head.usd_before, head.usd_after) == (0.34, 0.17)
    assert head.lower_bound == planned().cost.lower_bound
    assert (head.moves, head.strategies) == (1, {"surge": 1})


def test_record_begins_five_minutes_before_the_first_event() -> None:
    """What was long before is left out, and all times count from the first sample shown."""
    data = Run().report()
    assert [sample.at for sample in data.samples] == [0, 40, 50, 55, 70, 100]
    assert data.window == (30, 80)
    assert data.events[0].at == 11


def test_surplus_is_no_demand() -> None:
    """The surge's fourth replica is not missing while it starts: the owner asks for three throughout."""
    audit = Run().report().audit
    assert audit is not None
    (web,) = audit.workloads
    assert (web.workload, web.strategy) == (WEB, "surge")
    assert (web.replicas, web.least_ready, web.violations, web.unready_pod_seconds) == (3, 3, 0, 0)
    shown = [sample.workloads[WEB] for sample in Run().report().samples]
    assert [count.ready - count.desired for count in shown] == [0, 0, 1, 0, 0, 0]


def test_taking_too_many_away_is_a_violation() -> None:
    """Fewer replicas set by whoever carries out the plan do not lower the floor."""
    run = Run()
    run.samples.insert(5, moment(46, nodes=["n1", "n2"], desired=2, ready=2))
    audit = run.report().audit
    assert audit is not None
    assert (audit.violations, audit.workloads[0].least_ready) == (1, 2)
    assert audit.unready_pod_seconds == 14


def test_autoscaler_may_lower_the_floor() -> None:
    """Fewer replicas that the autoscaler asked for are the owner's word."""
    scaler = Autoscaler(
        name="web", uid="uid-hpa", namespace="shop", target_kind="Deployment", target_name="web", desired=2
    )
    run = Run(extra_state=[event(ClusterDelta(version=7, upserts=(scaler,)), 61, "s7")])
    run.samples.insert(6, moment(62, nodes=["n1"], desired=2, ready=2))
    audit = run.report().audit
    assert audit is not None
    assert (audit.violations, audit.workloads[0].replicas) == (0, 2)


def test_timeline_holds_what_came_and_went() -> None:
    """The old pod, the new one and the node that left are on the timeline; pods that stayed are not."""
    data = Run().report()
    assert [(life.name, life.role) for life in data.pod_lives] == [("web-2", "old"), ("web-new", "new")]
    old, new = data.pod_lives
    assert (new.created, new.ready, new.gone) == (40, 50, None)
    assert (old.leaving, old.gone) == (52, 54)
    assert [(life.name, life.role, life.gone) for life in data.node_lives] == [("n2", "old", 70)]


def test_boxes_are_those_of_the_plan_on_its_own_state() -> None:
    """Before has both nodes with the pods of then, after has the plan's nodes with all pods."""
    data = Run().report()
    assert {box.name: len(box.pods) for box in data.before} == {"n1": 2, "n2": 1}
    assert sum(len([p for p in box.pods if p.fate != "system"]) for box in data.after) == 3


def test_events_are_told_and_refusals_marked() -> None:
    """Every event of the log has a line; what was not done is marked as such."""
    rows = Run().report().events
    assert [row.event for row in rows] == [
        "catalog-published",
        "iteration-skipped",
        "iteration-started",
        "plan-proposed",
        "plan-accepted",
        "step-started",
        "execution-completed",
    ]
    assert [row.event for row in rows if row.refusal] == ["iteration-skipped"]
    assert rows[1].text == "the cluster has not been calm for long enough"
    assert "boot x" in rows[5].text
    assert rows[5].service == "rescheduler"


def test_reasons_are_words_and_not_codes() -> None:
    """No iteration, no plan, a plan's rest: a reader of the report knows no codes; what is no code stays as it is."""
    assert "-" not in in_a_line(NoPlanFound(mode="autoscale", version=1, reason="nothing-holds-pending"))
    started = IterationStarted(mode="reschedule", version=3, reason="rest-after-operator", purpose="saving")
    assert in_a_line(started) == "reschedule at state 3: the rest of a plan that ended: operator"
    assert in_a_line(IterationSkipped(version=1, reason="as said")) == "as said"


def test_a_plan_carried_out_in_part_is_told_as_such() -> None:
    """The protocol uses the words of `kinema plans`; the figures behind them follow."""
    end = ExecutionCompleted(plan="p1", fencing=1, figures=FrozenMap({"workloads_skipped": 1}))
    assert in_a_line(end) == "plan PartlyCompleted (workloads skipped 1)"


def test_run_without_an_execution_has_no_audit() -> None:
    """A run in which every plan was refused still gives plots and protocol."""
    run = Run()
    refused = PlanRejected(plan="p1", version=1, rule="saving", reason="too little", would_change="more")
    log = [*run.log[:4], event(refused, 20, "r1", "i1")]
    data = run_report(run.state, log, history(*run.samples), title="Run")
    assert (data.audit, data.window, data.before) == (None, None, ())
    assert data.headline.status == "no plan was executed"
    assert data.events[-1].refusal
    assert "What would change it: more" in data.events[-1].text


def test_execution_without_an_end_lasts_to_the_end_of_the_record() -> None:
    """A run that was cut off is audited as far as it goes."""
    run = Run()
    (execution,) = executions_of(run.log[:-1])
    assert execution.ended is None
    data = run_report(run.state, run.log[:-1], history(*run.samples), title="Run")
    assert data.window == (30, 100)
    assert data.headline.moves == planned().moves


def test_report_of_a_run_is_written(tmp_path: Path) -> None:
    """The data of a run gives a whole report, with a row for the workload and all pictures."""
    html = build_report(Run().report(), tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count("<svg") == 7
    assert "shop/web" in html


def test_missing_parts_are_named() -> None:
    """An empty recording or a history of another time is an error that says so."""
    run = Run()
    with pytest.raises(RunError, match="no events"):
        run_report([], run.log, history(*run.samples), title="Run")
    with pytest.raises(RunError, match="another run"):
        run_report(run.state, run.log, history(moment(-6000, nodes=["n1"])), title="Run")
    with pytest.raises(HistoryError, match="samples"):
        read_history(b"{}")

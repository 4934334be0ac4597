"""A recorded cluster as a scenario: what becomes part of it, and what is left out as the recorded policy's own."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import (
    NOW,
    budget,
    cluster,
    deployed,
    labels,
    node,
    offer,
    on_every_node,
    pod,
    selector,
    stateful,
    toleration,
    workload,
)

from kinema_core.events import (
    AnyBody,
    CatalogPublished,
    ClusterDelta,
    ClusterObject,
    ClusterSnapshot,
    Event,
    FrozenMap,
    NodeTerm,
    ObjectKey,
    PlacementRules,
    Pod,
    PodTerm,
    PreferredNodeTerm,
    Requirement,
    Spread,
    Step,
    StepFailed,
    StepStarted,
    StepSucceeded,
)
from kinema_core.model.cluster import all_objects
from kinema_core.model.usage import Amounts, resampled
from kinema_core.runtime.envelope import origin
from kinema_observer.logic.kubernetes import decode_object
from kinema_sim.engine.kinds import NODE, POD
from kinema_sim.engine.objects import node_of
from kinema_sim.scenarios.placement import placement_spec
from kinema_sim.simulate.build import build
from kinema_sim.simulate.recorded import recorded_scenario
from kinema_sim.simulate.scenario import Loaded, ScenarioError

WEB = "Deployment/shop/web"


def event(body: AnyBody, minute: float) -> Event:
    """An event so many minutes after the beginning."""
    now = NOW + timedelta(minutes=minute)
    return origin(body, id_=f"prod/{body.TYPE}/{minute}", cluster="prod", iteration="", now=now, state=1)


class Recording:
    """A recording that is written event by event."""

    def __init__(self, *objects: ClusterObject | Iterable[ClusterObject]) -> None:
        first = ClusterSnapshot(version=1, objects=tuple(all_objects(cluster(*objects))))
        self.events = [("STATE", event(first, 0))]
        self.log(
            CatalogPublished(source="list", priced=None, offers=(offer(), offer(zone="b"), offer("m8", price=340_000))),
            0,
        )
        self._version = 1

    def delta(self, minute: float, *upserts: ClusterObject, gone: Iterable[tuple[str, str]] = ()) -> None:
        """A change of the cluster."""
        self._version += 1
        deletes = tuple(ObjectKey(kind=kind, key=key) for kind, key in gone)
        self.events.append(
            ("STATE", event(ClusterDelta(version=self._version, upserts=upserts, deletes=deletes), minute))
        )

    def log(self, body: AnyBody, minute: float) -> None:
        """An event of the log."""
        self.events.append(("LOG", event(body, minute)))

    def step(self, kind: str, target: str, minute: float, *, before: int = 0, after: int = 0) -> None:
        """An effect of Kinema, begun and at once made."""
        one = Step(id=f"{kind}/{target}/1", kind=kind, target=target, replicas_from=before, replicas_to=after)  # type: ignore[arg-type]
        self.log(StepStarted(plan="p", step=one, fencing=1, deadline=NOW), minute)
        figures: FrozenMap[int | float | str] = (
            FrozenMap({"replicas": after}) if kind == "surge-down" else FrozenMap({})
        )
        self.log(StepSucceeded(plan="p", step=one.id, fencing=1, outcome="done", figures=figures), minute + 0.01)

    def scenario(self, until: float = 60) -> Loaded:
        """The scenario of all of it."""
        self.delta(until)
        return recorded_scenario("prod", self.events)


def web(replicas: int, **more: object) -> ClusterObject:
    """The Deployment with so many replicas."""
    return workload("Deployment", "web", replicas=replicas, labels={"app": "site", "part": "web"}, **more)  # type: ignore[arg-type]


def start() -> list[ClusterObject]:
    """Two nodes, a Deployment on both, a StatefulSet and a daemon set."""
    return [
        node("n1", labels={"pool": "blue"}, taints=["only=web:NoSchedule"]),
        node("n2", zone="b"),
        *deployed("web", ["n1", "n1", "n2"], labels={"app": "site", "part": "web"}, cpu=300),
        *stateful("db", ["n2"]),
        *on_every_node("agent", ["n1", "n2"]),
        budget("web", selects={"part": "web"}, min_available="50%"),
    ]


def test_the_first_state_is_the_beginning() -> None:
    """Nodes with names, labels and taints of their own, pods where they were, budgets, daemon sets, prices."""
    loaded = Recording(*start()).scenario()
    scenario = loaded.scenario
    assert scenario.duration == "3600s"
    assert [(one.name, one.zone, one.labels, one.taints) for one in scenario.nodes] == [
        ("n1", "a", {"pool": "blue"}, ("only=web:NoSchedule",)),
        ("n2", "b", {}, ()),
    ]
    assert [(one.type, one.zones, one.usd_per_hour) for one in scenario.cloud.machines] == [
        ("m4", ("a", "b"), 0.17),
        ("m8", ("a",), 0.34),
    ]
    site, db = sorted(scenario.workloads, key=lambda one: one.name, reverse=True)
    assert (site.name, site.cpu, site.replicas, site.min_available) == ("web", "300m", 3, "50%")
    assert (site.places, db.kind, db.places) == ({"n1": 2, "n2": 1}, "StatefulSet", {"n2": 1})
    assert [one.name for one in scenario.daemons] == ["agent"]
    sim = build(loaded, 0)
    sim.run_for(120)
    there = {one["metadata"]["name"] for one in sim.store.each(NODE)}
    web_pods = sorted(node_of(one) for one in sim.store.each(POD) if one["metadata"]["labels"].get("part") == "web")
    assert there == {"n1", "n2"}
    assert web_pods == ["n1", "n1", "n2"]


def test_replicas_of_owners_are_kept_and_what_kinema_lent_is_not() -> None:
    """A surge from three to five and back leaves no trace; an autoscaler's step to eight and a deletion do."""
    recording = Recording(*start())
    recording.step("surge-up", WEB, 10, before=3, after=5)
    recording.delta(10.2, web(5))
    recording.step("surge-down", WEB, 11, before=5, after=3)
    recording.delta(11.2, web(3))
    recording.delta(20, web(8))
    recording.delta(30, gone=[("Workload", WEB)])
    recording.delta(40, workload("Deployment", "late", replicas=2))
    found = {one.name: one.replicas for one in recording.scenario().scenario.workloads}
    assert found["web"] == (("0s", 3), ("1200s", 8), ("1800s", 0))
    assert found["late"] == (("0s", 0), ("2400s", 2))


def test_what_others_did_to_nodes_is_a_fault() -> None:
    """Lost with pods on it, cordoned for ten minutes, sold out twice in a row; an emptied or deleted node is none."""
    recording = Recording(*start(), node("n3"), node("n4"), *deployed("api", ["n4"]))
    recording.delta(5, node("n2", zone="b", unschedulable=True))
    recording.delta(15, node("n2", zone="b"))
    for minute in (16, 18):
        refused: FrozenMap[int | float | str] = FrozenMap({"offer": "m8/a/on-demand"})
        body = StepFailed(
            plan="p", step="boot/x", fencing=1, reason="stock-out", detail="", retry=True, figures=refused
        )
        recording.log(body, minute)
    recording.delta(20, gone=[("Node", "n3")])
    recording.step("delete", "n4", 21)
    recording.delta(22, gone=[("Node", "n4")])
    recording.delta(30, gone=[("Node", "n1")])
    faults = recording.scenario().scenario.faults
    assert [(one.kind, one.at, one.lasts, one.node, one.type) for one in faults] == [
        ("node-lost", "1800s", "0s", "n1", ""),
        ("cordon", "300s", "600s", "n2", ""),
        ("stock-out", "960s", "420s", "", "m8"),
    ]


def test_usage_and_pods_of_jobs_follow_as_recorded() -> None:
    """Steps of usage become a series, pods that no workload replaces arrive, run and leave, and stay where they are."""
    recording = Recording(*start())
    recording.delta(10, pod("job-1", cpu=700))
    recording.delta(12, pod("job-1", cpu=700, node="n2"))
    recording.delta(30, gone=[("Pod", "shop/job-1")])
    for step, cpu in ((-5, 50), (5, 120), (10, 90)):
        body = resampled(
            {WEB: Amounts(3, cpu, 2**20 * cpu)}, start=NOW + timedelta(minutes=step), step=timedelta(minutes=5)
        )
        recording.events.append(("USAGE", event(body, step + 5)))
    loaded = recording.scenario()
    assert loaded.series["usage/shop.web.csv"] == (
        (0, 50, 50 * 2**20),
        (300_000, 120, 120 * 2**20),
        (600_000, 90, 90 * 2**20),
    )
    [row] = loaded.arrivals
    assert (row.at_ms, row.lasts_ms, row.cpu_m, row.held) == (600_000, 1_080_000, 700, True)
    assert set(loaded.sources) == {"prod.yaml", "jobs.csv", "usage/shop.web.csv"}


def test_a_recording_that_is_no_scenario_is_refused() -> None:
    """Without a state, prices, a price of a live node, or time there is one sentence that states what to do."""
    recording = Recording(*start())
    log = [item for item in recording.events if item[0] == "LOG"]
    for events, expected in (
        (log, "holds no full state"),
        (recording.events, "covers 0s"),
        ([item for item in recording.events if item[0] == "STATE"] + [("STATE", late())], "holds no prices"),
        ([*Recording(*start(), node("odd", machine="m99")).events, ("STATE", late())], "odd"),
    ):
        with pytest.raises(ScenarioError, match=expected):
            recorded_scenario("prod", events)


def late() -> Event:
    """A change after an hour."""
    return event(ClusterDelta(version=2, upserts=(), deletes=()), 60)


# --- rules of pods

KEYS = st.sampled_from(["zone", "pool", "example.com/size"])
REQUIREMENTS = st.one_of(
    st.builds(Requirement, key=KEYS, operator=st.just("In"), values=st.just(("x", "y"))),
    st.builds(Requirement, key=KEYS, operator=st.just("Exists")),
    st.builds(Requirement, key=KEYS, operator=st.just("Gt"), values=st.just(("3",))),
)
TERMS = st.builds(
    NodeTerm,
    expressions=st.tuples(REQUIREMENTS),
    fields=st.sampled_from([(), (Requirement(key="metadata.name", operator="In", values=("n1",)),)]),
)
PODS = st.builds(
    PodTerm,
    topology_key=KEYS,
    selector=st.just(selector(app="web")),
    namespaces=st.sampled_from([(), ("shop",)]),
    namespace_selector=st.sampled_from([None, selector(team="a")]),
    weight=st.sampled_from([0, 30]),
)
RULES = st.builds(
    PlacementRules,
    node_selector=st.sampled_from([labels(), labels({"pool": "blue"})]),
    node_terms=st.one_of(st.none(), st.tuples(TERMS), st.tuples(TERMS, TERMS)),
    preferred_nodes=st.one_of(st.just(()), st.tuples(st.builds(PreferredNodeTerm, weight=st.just(7), term=TERMS))),
    tolerations=st.sampled_from([(), (toleration("only", "web"),), (toleration(),)]),
    affinity=st.lists(PODS, max_size=2).map(lambda terms: tuple(sorted(terms, key=lambda one: one.weight))),
    anti_affinity=st.lists(PODS, max_size=1).map(tuple),
    spread=st.sampled_from(
        [
            (),
            (
                Spread(
                    topology_key="zone",
                    max_skew=2,
                    when_unsatisfiable="ScheduleAnyway",
                    selector=selector(app="web"),
                    node_taints_policy="Honor",
                ),
            ),
            (Spread(topology_key="zone", max_skew=1, when_unsatisfiable="DoNotSchedule", min_domains=3),),
        ]
    ),
)


@given(RULES)
def test_rules_are_written_as_the_observer_reads_them(rules: PlacementRules) -> None:
    """Whatever restricts a pod's place comes back from the written spec unchanged."""
    spec = {"containers": [{"name": "main"}], **placement_spec(rules)}
    raw = {"metadata": {"name": "p", "namespace": "shop", "uid": "u"}, "spec": spec, "status": {"phase": "Pending"}}
    read = decode_object("Pod", msgspec.json.encode(raw))
    assert isinstance(read, Pod)
    assert read.rules == rules

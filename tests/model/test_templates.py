"""A pod stays where the template that its copy would be made from asks for something else than the pod does."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.builders import (
    amounts,
    cluster,
    deployed,
    deployment,
    labels,
    node,
    pod,
    replica_set,
    selector,
    stateful,
    stateful_set,
    toleration,
)
from tests.support.verdicts import code, judged

from kinema_core.events import (
    NO_RULES,
    ContainerRequests,
    FrozenMap,
    HostPort,
    NodeTerm,
    PlacementRules,
    PodTerm,
    Recommendation,
    Requirement,
    Selector,
    Spread,
)
from kinema_core.model.templates import template_doubt

HOST = "kubernetes.io/hostname"
HASH = Requirement(key="pod-template-hash", operator="In", values=("abc",))
SSD = Requirement(key="disk", operator="In", values=("ssd",))
ARM = Requirement(key="arch", operator="In", values=("arm64",))
AWAY = Requirement(key="kinema.io/disrupted", operator="DoesNotExist")


def asks(name: str, cpu: int, memory: int = 0) -> ContainerRequests:
    """What one container asks for, millicores and MiB."""
    found = amounts(cpu, memory)
    return ContainerRequests(name=name, requests=FrozenMap({key: amount for key, amount in found.items() if amount}))


def doubt(template: dict[str, Any], own: dict[str, Any], *more: Any) -> str | None:
    """What is said of a pod of a Deployment with this template."""
    top = deployment("web", replicas=2, **template)
    set_ = replica_set("web-rs", replicas=2, owner=top)
    mine = pod("web-0", node="n1", owner=set_, **own)
    return template_doubt(cluster(node("n1"), top, set_, mine, *more), mine)


def stated(*containers: ContainerRequests) -> dict[str, Any]:
    """A template with these containers."""
    return {"template_containers": containers}


def ruled(template: PlacementRules, own: PlacementRules) -> str | None:
    """What is said of a pod with these rules, and a template with those."""
    return doubt({"rules": template}, {"rules": own})


def test_a_pod_that_asks_for_less_than_its_template_is_held_with_both_amounts() -> None:
    """It was resized in place, or an update waits: its copy would ask for what the template says."""
    found = doubt(stated(asks("c", 1500, 128)), {"cpu": 200})
    assert found is not None
    assert "Deployment/shop/web" in found
    assert "container c requests 1500m of cpu where the pod asks for 200m" in found
    assert doubt(stated(asks("c", 200, 128)), {"cpu": 200}) is None
    assert doubt(stated(asks("c", 100, 128)), {"cpu": 200}) is not None  # a copy would be too small for its work


def test_the_rule_holds_pods_of_every_set_and_one_pod_of_many() -> None:
    """Each pod is looked at by itself: one of two that was resized stays, the other may go."""
    top = stateful_set("db", replicas=2, template_containers=(asks("c", 300, 128),))
    two = [pod(f"db-{i}", node="n1", owner=top, cpu=cpu) for i, cpu in enumerate((300, 100))]
    assert judged(top, two).held.keys() == {"shop/db-1"}
    assert code("shop/db-1", top, two) == "template-differs"
    assert judged(top, two).strategy.keys() == {"shop/db-0"}


def test_only_what_the_template_states_counts() -> None:
    """Defaults of a LimitRange and injected containers are in the pod alone, and come to its copy as well."""
    assert doubt(stated(), {"cpu": 250}) is None
    assert doubt(stated(asks("c", 250)), {"cpu": 250, "memory": 64}) is None
    injected = (asks("c", 250, 64), asks("proxy", 100, 64))
    assert doubt(stated(asks("c", 250, 64)), {"cpu": 350, "memory": 128, "containers": injected}) is None


def test_containers_are_compared_by_name_not_by_their_sum() -> None:
    """What one container asks for less hides in what another one was given."""
    own = (asks("c", 200, 64), asks("proxy", 1300, 64))
    found = doubt(stated(asks("c", 1500, 64)), {"cpu": 1500, "memory": 128, "containers": own})
    assert found is not None
    assert "container c requests 1500m of cpu where the pod asks for 200m" in found


def test_a_container_that_the_template_has_more_is_a_difference() -> None:
    """A copy would bring it along."""
    two = stated(asks("c", 100, 64), asks("log", 100, 64))
    assert doubt(two, {"cpu": 200, "memory": 128}) is not None
    assert doubt(two, {"cpu": 100, "memory": 64, "containers": (asks("c", 100, 64), asks("x", 1))}) is not None


@pytest.mark.parametrize(("mode", "held"), [("Off", True), ("Initial", False), ("Auto", False), ("Recreate", False)])
def test_a_vertical_autoscaler_sets_requests_whatever_the_template_says(mode: str, held: bool) -> None:
    """It does so as pods are created, copies too; one that only recommends does not."""
    vertical = Recommendation(
        name="web", namespace="shop", uid="v", target_kind="Deployment", target_name="web", mode=mode
    )
    other = Recommendation(name="x", namespace="x", uid="x", target_kind="Deployment", target_name="web", mode="Auto")
    found = doubt(stated(asks("c", 1500)), {"cpu": 200}, vertical, other)
    assert (found is not None) == held


def test_what_a_vertical_autoscaler_wrote_on_a_pod_tells_of_it_too() -> None:
    """A list need not have the autoscaler itself."""
    own = {"cpu": 200, "annotations": {"vpaUpdates": "Pod resources updated by web"}}
    assert doubt(stated(asks("c", 1500)), own) is None


def test_copies_of_a_deployments_pods_come_from_its_template_not_from_their_sets() -> None:
    """In the middle of a rollout the old set's template is that of the old pods; new ones are made by another set."""
    top = deployment("web", replicas=2, template_containers=(asks("c", 1500),))
    old = replica_set("web-rs", replicas=2, owner=top, template_containers=(asks("c", 200),))
    mine = pod("web-0", node="n1", owner=old, cpu=200)
    assert code("shop/web-0", top, old, mine) == "template-differs"
    assert code("shop/web-0", replica_set("web-rs", replicas=2, template_containers=(asks("c", 200),)), mine) is None


TERM = PodTerm(topology_key=HOST, selector=selector(app="web"))
SPREAD = Spread(topology_key=HOST, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(app="web"))
DIFFERENT = {
    "node selector": PlacementRules(node_selector=labels({"disk": "ssd"})),
    "required node affinity": PlacementRules(node_terms=(NodeTerm(expressions=(SSD,)),)),
    "set of tolerations": PlacementRules(tolerations=(toleration("gpu", "yes", "NoSchedule"),)),
    "pod affinity": PlacementRules(affinity=(TERM,)),
    "pod anti-affinity": PlacementRules(anti_affinity=(TERM,)),
    "topology spread": PlacementRules(spread=(SPREAD,)),
    "set of host ports": PlacementRules(host_ports=(HostPort(port=80),)),
    "set of volume claims": PlacementRules(claims=("data",)),
    "scheduler": PlacementRules(scheduler="mine"),
    "field that this version does not model": PlacementRules(unmodeled=("spec.resourceClaims",)),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_rule_that_only_the_template_has_holds_the_pod(what: str) -> None:
    """Where the pod fits its copy may not; a rule that only the pod has came by admission."""
    found = ruled(DIFFERENT[what], NO_RULES)
    assert found is not None
    assert f"another {what}:" in found
    assert ruled(DIFFERENT[what], DIFFERENT[what]) is None
    assert ruled(NO_RULES, DIFFERENT[what]) is None


@pytest.mark.parametrize(
    ("template", "own"),
    [
        (
            PlacementRules(node_selector=labels({"disk": "ssd"})),
            PlacementRules(node_selector=labels({"disk": "ssd", "pool": "a"})),
        ),
        (
            PlacementRules(node_terms=(NodeTerm(expressions=(SSD,)), NodeTerm(expressions=(ARM,)))),
            PlacementRules(node_terms=(NodeTerm(expressions=(ARM, AWAY)), NodeTerm(expressions=(SSD, AWAY)))),
        ),
        (PlacementRules(node_terms=(NodeTerm(expressions=(AWAY,)),)), NO_RULES),
        (
            PlacementRules(node_terms=(NodeTerm(expressions=(SSD, AWAY)),)),
            PlacementRules(node_terms=(NodeTerm(expressions=(SSD,)),)),
        ),
        (
            PlacementRules(tolerations=(toleration("gpu", "yes", "NoSchedule"),)),
            PlacementRules(tolerations=(toleration("gpu"), toleration("node.kubernetes.io/not-ready"))),
        ),
        (
            PlacementRules(anti_affinity=(PodTerm(topology_key=HOST, selector=selector(app="web"), weight=10),)),
            NO_RULES,
        ),
        (
            PlacementRules(spread=(Spread(topology_key=HOST, max_skew=1, when_unsatisfiable="ScheduleAnyway"),)),
            NO_RULES,
        ),
        (
            PlacementRules(
                spread=(
                    Spread(
                        topology_key=HOST,
                        max_skew=1,
                        when_unsatisfiable="DoNotSchedule",
                        selector=selector(app="web"),
                        match_label_keys=("pod-template-hash",),
                    ),
                )
            ),
            PlacementRules(
                spread=(
                    Spread(
                        topology_key=HOST,
                        max_skew=1,
                        when_unsatisfiable="DoNotSchedule",
                        selector=Selector(labels=labels({"app": "web"}), expressions=(HASH,)),
                        match_label_keys=("pod-template-hash",),
                    ),
                )
            ),
        ),
        (PlacementRules(claims=("-scratch",)), PlacementRules(claims=("web-0-scratch",))),
        (PlacementRules(gated=True), NO_RULES),
        (PlacementRules(unmodeled=("spec.runtimeClassName",)), PlacementRules(node_selector=labels({"vm": "yes"}))),
    ],
    ids=[
        "node selector of a namespace",
        "expressions added to alternatives",
        "a rolling update of ours",
        "one of ours beside the owner's",
        "wider tolerations",
        "preferred terms",
        "preferred spread",
        "label keys merged",
        "ephemeral claims",
        "gates that are open",
        "runtime class",
    ],
)
def test_what_admission_and_schedulers_change_is_no_difference(template: PlacementRules, own: PlacementRules) -> None:
    """Real pods never look just as their templates do: none of this may hold them."""
    assert ruled(template, own) is None


@pytest.mark.parametrize(
    ("template", "own"),
    [
        (
            PlacementRules(node_terms=(NodeTerm(expressions=(SSD,)),)),
            PlacementRules(node_terms=(NodeTerm(expressions=(SSD,)), NodeTerm(expressions=(ARM,)))),
        ),
        (
            PlacementRules(node_selector=labels({"disk": "ssd"})),
            PlacementRules(node_selector=labels({"disk": "hdd"})),
        ),
        (
            PlacementRules(spread=(SPREAD,)),
            PlacementRules(spread=(Spread(topology_key=HOST, max_skew=2, when_unsatisfiable="DoNotSchedule"),)),
        ),
        (
            PlacementRules(anti_affinity=(TERM,)),
            PlacementRules(anti_affinity=(PodTerm(topology_key=HOST, selector=selector(app="db")),)),
        ),
        (
            PlacementRules(tolerations=(toleration("gpu", "yes", "NoSchedule"),)),
            PlacementRules(tolerations=(toleration("gpu", "no", "NoSchedule"),)),
        ),
    ],
)
def test_a_rule_that_the_pod_has_otherwise_holds_it(template: PlacementRules, own: PlacementRules) -> None:
    """An alternative more, another value, another skew, other pods."""
    assert ruled(template, own) is not None


def test_a_rolling_update_of_ours_does_not_hold_the_pods_that_it_replaces() -> None:
    """Its template is what the plan was made for; held pods would keep the nodes that it empties."""
    top = deployment("web", replicas=2, template_containers=(asks("c", 300),), annotations={"kinema.io/rolled": "{}"})
    set_ = replica_set("web-rs", replicas=2, owner=top)
    rolling = judged(top, set_, pod("web-0", node="n1", owner=set_, cpu=100))
    assert rolling.held == {}
    assert rolling.deletable["n1"] is None


def test_a_pending_pod_is_placed_as_it_is() -> None:
    """It exists already: nothing is made from the template."""
    top = stateful_set("db", replicas=2, template_containers=(asks("c", 300),))
    assert judged(top, pod("db-0", owner=top, cpu=100)).held == {}


def test_workloads_without_known_containers_hold_nobody() -> None:
    """States of an earlier version tell of sums alone, which defaults and injected containers change."""
    objects = deployed("web", ["n1", "n1"], cpu=100), stateful("db", ["n1", "n1"], cpu=100)
    raised = [pod("web-9", node="n1", owner=objects[0][1], cpu=900)]  # type: ignore[arg-type]
    assert judged(*objects, raised).held == {}

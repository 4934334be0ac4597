"""Single rules between pods: the checker accepts a plan that keeps one, and refuses a plan that breaks it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.model.checker.test_rules import HOSTNAME, ZONE, apart, even, near
from tests.model.checker.test_spoiled_rules import ON_SALE, SPOILED, codes, disk, with_disks, within
from tests.support.builders import cluster, deployed, labels, namespace, node, pod, selector, stateful, toleration
from tests.support.plans import plan_for

from kinema_core.events import (
    ClusterObject,
    HostPort,
    NodeTerm,
    PlacementRules,
    PodTerm,
    Requirement,
    Selector,
    Spread,
    StorageClass,
    VolumeClaim,
)


def nodes(*more: ClusterObject) -> list[ClusterObject]:
    """n1 and n2 in zone a, n3 in b, n4 in no zone."""
    return [
        node("n1", zone="a"),
        node("n2", zone="a"),
        node("n3", zone="b"),
        node("n4", zone=None, price="0.17"),
        *more,
    ]


def labeled(app: str, where: list[str | None], hash_: str, **more: Any) -> tuple[ClusterObject, ...]:
    """A Deployment with a pod template hash."""
    return deployed(app, where, labels={"app": app, "hash": hash_}, **more)


def waiting(of: str, terms: tuple[NodeTerm, ...]) -> list[ClusterObject]:
    """A claim without a volume yet, which its storage class makes in these places."""
    claim = VolumeClaim(name=f"{of}-data", namespace="shop", uid=f"uid-{of}", storage_class="late")
    return [claim, StorageClass(name="late", uid="uid-late", wait_for_consumer=True, node_terms=terms)]


def port(number: int = 80, **more: Any) -> PlacementRules:
    """A pod that takes a host port."""
    return PlacementRules(host_ports=(HostPort(port=number, **more),))


def spread_on(policy: dict[str, Any], **more: Any) -> PlacementRules:
    """A spread with other policies, for pods with other rules."""
    return msgspec.structs.replace(even("web", **policy), **more)


ABROAD = PodTerm(topology_key=ZONE, selector=selector(app="cache"), namespaces=("bank",))
QUIET = PodTerm(topology_key=ZONE, selector=selector(app="loud"), namespace_selector=selector(tier="back"))
SAME_HASH = PodTerm(topology_key=HOSTNAME, selector=selector(app="web"), match_label_keys=("hash",))
NOT_MINE = PodTerm(
    topology_key=HOSTNAME,
    selector=Selector(expressions=(Requirement(key="app", operator="NotIn", values=("alone",)),)),
)
SPACES = [namespace("shop", labels={"tier": "front"}), namespace("bank", labels={"tier": "back"})]
HASHED = Spread(
    topology_key=HOSTNAME,
    max_skew=1,
    when_unsatisfiable="DoNotSchedule",
    selector=selector(app="web"),
    match_label_keys=("hash",),
)
TEAM = Spread(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule", selector=selector(team="r"))

Case = tuple[list[Any], dict[str, str], dict[str, str], str]
CASES: dict[str, Case] = {
    "affinity to another namespace": (
        [
            deployed("web", ["n1"], rules=PlacementRules(affinity=(ABROAD,))),
            deployed("cache", ["n2"], namespace="bank"),
        ],
        {"shop/web-0": "n2"},
        {"shop/web-0": "n3"},
        "affinity-broken",
    ),
    "anti-affinity to namespaces by label": (
        [
            SPACES,
            deployed("shy", ["n1"], rules=PlacementRules(anti_affinity=(QUIET,))),
            deployed("loud", ["n3"]),
            deployed("loud", ["n3"], namespace="bank"),
        ],
        {"shop/loud-0": "n2"},
        {"bank/loud-0": "n2"},
        "anti-affinity-broken",
    ),
    "anti-affinity within one revision": (
        [
            labeled("web", ["n1"], "1", rules=PlacementRules(anti_affinity=(SAME_HASH,))),
            labeled("old", ["n2"], "0"),
            deployed("young", ["n3"], labels={"app": "web", "hash": "1"}),
        ],
        {"shop/old-0": "n1"},
        {"shop/young-0": "n1"},
        "anti-affinity-broken",
    ),
    "anti-affinity to everybody else": (
        [deployed("alone", ["n1"], rules=PlacementRules(anti_affinity=(NOT_MINE,))), deployed("web", ["n2"])],
        {"shop/alone-0": "n3"},
        {"shop/web-0": "n1"},
        "anti-affinity-broken",
    ),
    "a daemon set's pod keeps others away": (
        [
            msgspec.structs.replace(pod("guard-n3", node="n3", owner=None), mirror=True, rules=apart("loud", HOSTNAME)),
            deployed("loud", ["n1"]),
        ],
        {"shop/loud-0": "n2"},
        {"shop/loud-0": "n3"},
        "anti-affinity-broken",
    ),
    "two terms are two rules": (
        [
            deployed("web", ["n1"], rules=PlacementRules(affinity=(*near("cache").affinity, *near("log").affinity))),
            deployed("cache", ["n1", "n3"]),
            deployed("log", ["n2"]),
        ],
        {"shop/web-0": "n2"},
        {"shop/web-0": "n3"},
        "affinity-broken",
    ),
    "a pod that needs a topology that the node lacks": (
        [deployed("web", ["n1"], rules=near("web"))],
        {"shop/web-0": "n3"},
        {"shop/web-0": "n4"},
        "affinity-broken",
    ),
    "who arrives finds company even when it had none": (
        [deployed("web", ["n1"], rules=near("cache", HOSTNAME)), deployed("cache", ["n3"])],
        {"shop/web-0": "n3"},
        {"shop/web-0": "n2"},
        "affinity-broken",
    ),
    "who arrives is kept away even where it was no better": (
        [deployed("db", ["n1", "n1", "n2"], rules=apart("db", HOSTNAME))],
        {"shop/db-0": "n3"},
        {"shop/db-0": "n2"},
        "anti-affinity-broken",
    ),
    "nobody comes for another who leaves": (
        [deployed("shy", ["n1"], rules=apart("loud", HOSTNAME)), deployed("loud", ["n1", "n3"])],
        {"shop/loud-0": "n2"},
        {"shop/loud-0": "n2", "shop/loud-1": "n1"},
        "anti-affinity-broken",
    ),
    "who arrives finds its own spread even however uneven it is": (
        [node("n5", zone="c"), deployed("web", ["n1", "n1", "n2", "n3", "n3"], rules=even("web"))],
        {"shop/web-0": "n5"},
        {"shop/web-0": "n3"},
        "spread-broken",
    ),
    "who arrives needs the spread's topology": (
        [deployed("web", ["n1", "n3"], rules=even("web"))],
        {"shop/web-0": "n2"},
        {"shop/web-0": "n4"},
        "spread-broken",
    ),
    "spread over hosts": (
        [deployed("web", ["n1", "n2", "n3"], rules=even("web", HOSTNAME, max_skew=2))],
        {"shop/web-0": "n2"},
        {"shop/web-0": "n2", "shop/web-2": "n2"},
        "spread-broken",
    ),
    "spread within one revision": (
        [
            labeled("web", ["n1", "n2"], "1", rules=PlacementRules(spread=(HASHED,))),
            labeled("more", ["n1", "n1"], "0"),
        ],
        {"shop/more-0": "n2"},
        {"shop/web-1": "n1"},
        "spread-broken",
    ),
    "another's spread counts who has none": (
        [
            deployed("web", ["n1", "n3"], labels={"team": "r"}, rules=PlacementRules(spread=(TEAM,))),
            deployed("api", ["n2", "n3"], labels={"team": "r"}),
        ],
        {"shop/api-0": "n1"},
        {"shop/api-0": "n3"},
        "spread-broken",
    ),
    "a zone of tolerated taints counts": (
        [
            node("n5", zone="c", taints=["gpu:NoSchedule"]),
            deployed(
                "web",
                ["n1", "n3", "n5"],
                rules=spread_on({"node_taints_policy": "Honor"}, tolerations=(toleration("gpu"),)),
            ),
        ],
        {"shop/web-0": "n2"},
        {"shop/web-2": "n1"},
        "spread-broken",
    ),
    "a volume that waits for its pod": (
        [
            with_disks(stateful("db", [None, "n3"])),
            waiting("db-0", within(ZONE, "a")),
            disk("db-1", None),
        ],
        {"shop/db-0": "n1"},
        {"shop/db-0": "n3"},
        "volume-unreachable",
    ),
    "a port on one address": (
        [
            deployed("one", ["n1"], rules=port(host_ip="10.0.0.1")),
            deployed("two", ["n2"], rules=port(host_ip="10.0.0.2")),
            deployed("all", ["n3"], rules=port()),
        ],
        {"shop/two-0": "n1"},
        {"shop/all-0": "n1"},
        "host-port",
    ),
    "a port of one protocol": (
        [
            deployed("tcp", ["n1"], rules=port(53)),
            deployed("udp", ["n2"], rules=port(53, protocol="UDP")),
            deployed("more", ["n3"], rules=port(53)),
        ],
        {"shop/udp-0": "n1"},
        {"shop/more-0": "n1"},
        "host-port",
    ),
    "a port of a pod that is on its way out": (
        [pod("going", node="n1", rules=port(), terminating=True), deployed("web", ["n2"], rules=port())],
        {"shop/web-0": "n3"},
        {"shop/web-0": "n1"},
        "host-port",
    ),
    "a node selector": (
        [
            node("n5", labels={"disk": "ssd"}),
            node("n6", labels={"disk": "ssd"}),
            deployed("web", ["n5"], rules=PlacementRules(node_selector=labels({"disk": "ssd"}))),
        ],
        {"shop/web-0": "n6"},
        {"shop/web-0": "n1"},
        "not-admitted",
    ),
    "a required node affinity": (
        [deployed("web", ["n1"], rules=PlacementRules(node_terms=within(ZONE, "a")))],
        {"shop/web-0": "n2"},
        {"shop/web-0": "n3"},
        "not-admitted",
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_rule_is_kept_or_the_plan_is_refused(name: str) -> None:
    """The one plan is accepted, the other refused for the rule that it breaks."""
    objects, good, bad, expected = CASES[name]
    on = cluster(nodes(), *objects)
    assert codes(plan_for(on, ON_SALE, to=good), on, ON_SALE) == set()
    assert expected in codes(plan_for(on, ON_SALE, to=bad), on, ON_SALE)


def test_there_are_more_than_forty_ways() -> None:
    """Of spoiling plans by their rules."""
    assert len(SPOILED) + len(CASES) >= 40

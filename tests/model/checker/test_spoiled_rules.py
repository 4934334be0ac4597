"""Plans full of rules between pods: the checker accepts the right one and refuses each way of spoiling it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest
from tests.model.checker.test_rules import HOSTNAME, ZONE, apart, even, near
from tests.support.builders import (
    NOW,
    cluster,
    deployed,
    node,
    offer,
    on_every_node,
    stateful,
)
from tests.support.plans import change, describe, leave, place, plan_for

from kinema_core.events import (
    ClusterObject,
    HostPort,
    NodeTerm,
    Offer,
    PlacementRules,
    Plan,
    Pod,
    Requirement,
    Volume,
    VolumeClaim,
)
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster

NEW = "kinema-1-0"
DRIVER = "disk.example.com"
DISKS = f"attachable-volumes-csi-{DRIVER}"
ON_SALE = (
    offer("m4", zone="a", available=0),
    offer("m4", zone="b", available=1),
    offer("m4", zone="c", available=0),
    offer("m4", zone="d", available=1, price=160_000),
)
WEB = PlacementRules(host_ports=(HostPort(port=80),))
Objects = Iterable[ClusterObject]


def within(key: str, *values: str) -> tuple[NodeTerm, ...]:
    """A volume that is in these places."""
    return (NodeTerm(expressions=(Requirement(key=key, operator="In", values=values),)),)


def disk(of: str, terms: tuple[NodeTerm, ...] | None, driver: str = DRIVER) -> list[ClusterObject]:
    """The claim `<pod>-data` and its volume."""
    claim = VolumeClaim(name=f"{of}-data", namespace="shop", uid=f"uid-{of}", volume=f"pv-{of}")
    return [claim, Volume(name=f"pv-{of}", uid=f"uid-pv-{of}", node_terms=terms, driver=driver)]


def with_disks(objects: Objects) -> list[ClusterObject]:
    """The objects, each pod with its own claim."""

    def claimed(one: Pod) -> Pod:
        return msgspec.structs.replace(one, rules=msgspec.structs.replace(one.rules, claims=(f"{one.name}-data",)))

    return [claimed(one) if isinstance(one, Pod) else one for one in objects]


def state() -> Cluster:
    """Five small nodes in three zones: every kind of rule, none of them broken."""
    guard = [
        msgspec.structs.replace(one, rules=WEB) if isinstance(one, Pod) else one
        for one in on_every_node("guard", ["n5"])
    ]
    zones = {"n1": "a", "n2": "a", "n3": "b", "n4": "b", "n5": "c"}
    return cluster(
        [node(name, cpu=2000, zone=zone, extra={DISKS: 1}) for name, zone in zones.items()],
        guard,
        deployed("web", ["n1", "n3", "n5"], rules=even("web")),
        deployed("cache", ["n1", "n3"]),
        deployed("api", ["n1"], rules=near("cache")),
        deployed("pair", ["n3"], rules=near("cache", HOSTNAME)),
        with_disks(stateful("db", ["n1", "n3"], rules=apart("db", HOSTNAME))),
        disk("db-0", within(ZONE, "a")),
        disk("db-1", within(ZONE, "b", "c")),
        with_disks(stateful("local", ["n2", "n4"])),
        disk("local-0", within(HOSTNAME, "n2"), driver=""),
        disk("local-1", within(HOSTNAME, "n4"), driver=""),
        deployed("shy", ["n5"], rules=apart("loud")),
        deployed("loud", ["n3"]),
        deployed("edge", ["n2", "n4"], rules=WEB),
        deployed("team", [None, None], rules=near("team")),
        deployed("urgent", [None], cpu=3000, priority=1000),
        deployed("batch", [None], cpu=3000),
        deployed("ordinary", ["n2"]),
    )


def valid() -> Plan:
    """Moves api within its zone and loud within its own, places the team together and urgent on a new node."""
    return plan_for(
        state(),
        ON_SALE[:3],
        to={"shop/api-0": "n2", "shop/loud-0": "n4", "shop/team-0": "n4", "shop/team-1": "n3", "shop/urgent-0": NEW},
        boot={NEW: "m4/b/on-demand"},
        unplaced={"shop/batch-0": "sold-out"},
    )


def go(plan: Plan, key: str, to: str) -> Plan:
    """The plan with a pod on another node, by the strategy that fits."""
    item = next(one for one in plan.placements if one.pod == key)
    evicted = key.startswith(("shop/db", "shop/local"))
    way = "schedule" if item.source is None else "stay" if item.source == to else "evict" if evicted else "surge"
    changed = place(plan, key, to=to, strategy=way)
    return change(changed, moves=sum(one.source not in (None, one.to) for one in changed.placements))


def moved(key: str, to: str) -> Callable[[Plan], Plan]:
    """Puts a pod somewhere else."""
    return lambda plan: go(plan, f"shop/{key}", to)


def left_too(plan: Plan, key: str) -> Plan:
    """The plan with one more pod left out."""
    fewer = leave(plan, key)
    return change(fewer, unplaced=(*plan.unplaced, *fewer.unplaced))


def exchanged(plan: Plan) -> Plan:
    """The pod of low priority has the new node, that of high priority none."""
    without = leave(plan, "shop/urgent-0")
    batch = next(one for one in state().pods if one.name == "batch-0")
    item = msgspec.structs.replace(
        next(one for one in plan.placements if one.pod == "shop/urgent-0"), pod=batch.key, uid=batch.uid
    )
    return change(without, placements=(*without.placements, item))


def codes(plan: Plan, on: Cluster, on_sale: tuple[Offer, ...]) -> set[str]:
    """Everything that is wrong with a plan."""
    return {each.code for each in check_plan(plan, on, on_sale, NOW)}


def test_the_valid_plan_is_accepted() -> None:
    """It moves, places and boots, and breaks nothing."""
    assert check_plan(valid(), state(), ON_SALE[:3], NOW) == ()


SPOILED: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "a pod leaves the zone of whom it needs": (moved("api-0", "n5"), "affinity-broken"),
    "a pod leaves the node of whom it needs": (moved("pair-0", "n4"), "affinity-broken"),
    "a pod is booted away from whom it needs": (moved("pair-0", NEW), "affinity-broken"),
    "whom a pod needs leaves its node": (moved("cache-1", "n4"), "affinity-broken"),
    "whom a pod needs leaves its zone": (moved("cache-0", "n3"), "affinity-broken"),
    "the first of a kind is left alone": (moved("team-1", "n1"), "affinity-broken"),
    "the second of a kind goes elsewhere": (moved("team-0", "n5"), "affinity-broken"),
    "a replica comes to one that it keeps away": (moved("db-1", "n1"), "anti-affinity-broken"),
    "a replica comes to one that keeps it away": (moved("db-0", "n3"), "anti-affinity-broken"),
    "a pod comes to the zone of one that shuns it": (moved("loud-0", "n5"), "anti-affinity-broken"),
    "a pod comes to the zone of one that it shuns": (moved("shy-0", "n3"), "anti-affinity-broken"),
    "a pod is booted into the zone of one that it shuns": (moved("shy-0", NEW), "anti-affinity-broken"),
    "a zone loses its replica to another": (moved("web-0", "n3"), "spread-broken"),
    "a zone gains a replica from another": (moved("web-1", "n2"), "spread-broken"),
    "a replica leaves for the new node": (moved("web-2", NEW), "spread-broken"),
    "a volume stays behind in its zone": (moved("db-0", "n4"), "volume-unreachable"),
    "a volume cannot follow to the new node": (moved("db-0", NEW), "volume-unreachable"),
    "a volume is not in that zone": (moved("db-1", "n2"), "volume-unreachable"),
    "a local volume stays on its node": (moved("local-0", "n1"), "volume-unreachable"),
    "another local volume stays on its node": (moved("local-1", "n3"), "volume-unreachable"),
    "more volumes than a node attaches": (moved("db-1", "n1"), "over-capacity"),
    "a host port is taken by a replica": (moved("edge-0", "n4"), "host-port"),
    "a host port is taken by another replica": (moved("edge-1", "n2"), "host-port"),
    "a host port is taken by a daemon set": (moved("edge-1", "n5"), "host-port"),
    "the less urgent pod gets the place": (exchanged, "priority-inverted"),
    "the urgent pod is left out beside its place": (lambda plan: leave(plan, "shop/urgent-0"), "pending-placeable"),
    "the team has the wrong size": (
        lambda plan: change(
            leave(plan, "shop/team-0"), unplaced=(*plan.unplaced, *leave(plan, "shop/team-0").unplaced)
        ),
        "pending-placeable",
    ),
    "the team's second pod could follow": (
        lambda plan: change(
            leave(plan, "shop/team-1"), unplaced=(*plan.unplaced, *leave(plan, "shop/team-1").unplaced)
        ),
        "pending-placeable",
    ),
    "a zone that is sold out": (
        lambda plan: describe(plan, NEW, offer="m4/a/on-demand", zone="a"),
        "offer-exhausted",
    ),
    "a node goes with the last of whom a pod needs": (
        lambda plan: describe(go(go(plan, "shop/cache-0", "n4"), "shop/web-0", "n2"), "n1", action="delete"),
        "affinity-broken",
    ),
}


@pytest.mark.parametrize("name", sorted(SPOILED))
def test_a_spoiled_plan_is_refused(name: str) -> None:
    """Each way of breaking one of its rules is found."""
    spoil, expected = SPOILED[name]
    assert expected in codes(spoil(valid()), state(), ON_SALE[:3])

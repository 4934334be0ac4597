"""The plan checker on volumes, attachments and what new nodes bring with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.builders import NOW, cluster, daemon_set, deployed, node, offer, pod, stateful
from tests.support.plans import plan_for

from kinema_core.events import (
    ClusterObject,
    HostPort,
    NodeTerm,
    PlacementRules,
    Requirement,
    StorageClass,
    Volume,
    VolumeClaim,
)
from kinema_core.model.checker.check import check_plan
from kinema_core.model.cluster import Cluster
from kinema_core.model.volumes import attachments

ZONE = "topology.kubernetes.io/zone"
ON_SALE = tuple(offer(zone=zone) for zone in "ab")
CODES = {"volume-unreachable", "over-capacity", "host-port", "pending-placeable"}
DRIVER = "pd.csi.storage.gke.io"
CSI = f"attachable-volumes-csi-{DRIVER}"
OLD = "attachable-volumes-gce-pd"


def broken(on: Cluster, to: dict[str, str], **more: Any) -> set[str]:
    """What of this is wrong with a plan, whether or not its pods may move at all."""
    plan = plan_for(on, ON_SALE, to=to, **more)
    return {each.code for each in check_plan(plan, on, ON_SALE, NOW)} & CODES


def attached(on: Cluster, key: str) -> dict[str, int]:
    """What a pod's volumes take of its node."""
    return dict(attachments(on, on.pods_by_key[key]))


def in_zone(zone: str) -> tuple[NodeTerm, ...]:
    """What a zonal disk demands of its node."""
    return (NodeTerm(expressions=(Requirement(key=ZONE, operator="In", values=(zone,)),)),)


def disk(name: str, zone: str | None = None) -> list[ClusterObject]:
    """A volume with its claim of the same name; in a zone, or reachable from everywhere."""
    terms = None if zone is None else in_zone(zone)
    return [
        Volume(name=f"pv-{name}", uid=f"v-{name}", node_terms=terms, claim=f"shop/{name}", driver=DRIVER),
        VolumeClaim(name=name, namespace="shop", uid=f"c-{name}", volume=f"pv-{name}"),
    ]


def uses(*claims: str) -> PlacementRules:
    """The rules of a pod with these claims."""
    return PlacementRules(claims=claims)


def zones(*more: Iterable[ClusterObject], limit: dict[str, int] | None = None) -> Cluster:
    """Nodes n1 and n2 in zone a, n3 in zone b; n2 states how many volumes it takes."""
    return cluster(node("n1", zone="a"), node("n2", zone="a", extra=limit), node("n3", zone="b"), *more)


def test_a_pod_stays_where_its_volume_can_be_reached() -> None:
    """A zonal disk is used in its zone, one without a zone anywhere."""
    zonal = zones(disk("data", "a"), stateful("db", ["n1"], rules=uses("data")))
    assert broken(zonal, {"shop/db-0": "n2"}) == set()
    assert broken(zonal, {"shop/db-0": "n3"}) == {"volume-unreachable"}
    assert broken(zonal, {"shop/db-0": "new"}, boot={"new": "m4/b/on-demand"}) == {"volume-unreachable"}
    assert broken(zonal, {"shop/db-0": "new"}, boot={"new": "m4/a/on-demand"}) == set()
    assert broken(zones(disk("data"), stateful("db", ["n1"], rules=uses("data"))), {"shop/db-0": "n3"}) == set()


def test_a_pending_pods_volume_is_made_where_its_class_allows() -> None:
    """A volume that waits for its first pod is asked where it may be made."""
    made = StorageClass(name="fast", uid="s", wait_for_consumer=True, node_terms=in_zone("a"))
    claim = VolumeClaim(name="data", namespace="shop", uid="c", storage_class="fast")
    on = zones([made, claim], stateful("db", [None], rules=uses("data")))
    assert broken(on, {"shop/db-0": "n3"}) == {"volume-unreachable"}
    assert broken(on, {"shop/db-0": "n1"}) == set()


def test_a_node_takes_no_more_volumes_than_it_states() -> None:
    """By the driver's own name or by that of the part of Kubernetes that it replaced; unsaid is unlimited."""
    disks = [*disk("x"), *disk("y")]
    pods = [*stateful("db", ["n1"], rules=uses("x")), *stateful("log", ["n2"], rules=uses("y"))]
    for name in (CSI, OLD):
        assert broken(zones(disks, pods, limit={name: 1}), {"shop/db-0": "n2"}) == {"over-capacity"}
        assert broken(zones(disks, pods, limit={name: 2}), {"shop/db-0": "n2"}) == set()
    assert broken(zones(disks, pods), {"shop/db-0": "n2"}) == set()


def test_a_volume_that_is_yet_to_be_made_is_attached_too() -> None:
    """For the driver of its class, or of one that is named but not there yet, as kube-scheduler counts it."""
    made = StorageClass(name="fast", uid="s", wait_for_consumer=True, driver=DRIVER)
    claim = VolumeClaim(name="data", namespace="shop", uid="c", storage_class="fast")
    objects = [made, claim, *disk("x"), *stateful("log", ["n2"], rules=uses("x"))]
    waits = stateful("db", [None], rules=uses("data"))
    assert broken(zones(objects, waits, limit={CSI: 1}), {"shop/db-0": "n2"}) == {"over-capacity"}
    assert broken(zones(objects, waits, limit={CSI: 2}), {"shop/db-0": "n2"}) == set()
    bound = VolumeClaim(name="data", namespace="shop", uid="c", storage_class="fast", volume="pv-to-come")
    assert attached(zones(objects, [bound], waits), "shop/db-0") == {CSI: 1, OLD: 1}


def test_a_claim_that_a_pod_names_twice_is_attached_once() -> None:
    """Two volumes of a pod may be one claim."""
    assert attached(zones(disk("x"), stateful("db", ["n1"], rules=uses("x", "x"))), "shop/db-0") == {CSI: 1, OLD: 1}


def test_volumes_of_pods_that_no_plan_lists_are_attached_too() -> None:
    """A terminating pod and a daemon set's keep theirs."""
    disks = [*disk("x"), *disk("y")]
    mover = stateful("db", ["n1"], rules=uses("x"))
    leaving = pod("old", node="n2", rules=uses("y"), terminating=True)
    assert broken(zones(disks, mover, [leaving], limit={CSI: 1}), {"shop/db-0": "n2"}) == {"over-capacity"}
    guard = pod("guard", node="n2", owner=daemon_set("guard", namespace="shop"), rules=uses("y"))
    assert broken(zones(disks, mover, [guard], limit={CSI: 1}), {"shop/db-0": "n2"}) == {"over-capacity"}


def test_a_node_with_too_many_volumes_now_is_not_the_plans_fault() -> None:
    """Whoever comes without a volume asks for nothing that is lacking."""
    disks = [*disk("x"), *disk("y")]
    there = [*stateful("db", ["n2"], rules=uses("x")), *stateful("log", ["n2"], rules=uses("y"))]
    on = zones(disks, there, deployed("web", ["n1"]), limit={CSI: 1})
    assert broken(on, {"shop/web-0": "n2"}) == set()


def test_a_pending_pod_is_not_owed_a_node_that_cannot_have_its_volume() -> None:
    """Room alone is no place for it: the only zone of its disk may be full."""
    elsewhere = cluster(node("n1"), disk("data", "z"), stateful("db", [None], rules=uses("data")))
    assert broken(elsewhere, {}, unplaced={"shop/db-0": "rule"}) == set()
    here = cluster(node("n1"), disk("data", "a"), stateful("db", [None], rules=uses("data")))
    assert broken(here, {}, unplaced={"shop/db-0": "rule"}) == {"pending-placeable"}


def test_a_daemon_sets_host_port_is_taken_on_a_new_node() -> None:
    """Its pod will be there as well, where the set matches the node; it can give way nowhere."""
    web = PlacementRules(host_ports=(HostPort(port=80),))
    guard = daemon_set("guard", rules=web)
    on = cluster(node("n1"), guard, deployed("web", ["n1"], rules=web))
    assert broken(on, {"shop/web-0": "new"}, boot={"new": "m4/a/on-demand"}) == {"host-port"}
    choosy = PlacementRules(host_ports=web.host_ports, node_terms=in_zone("b"))
    fine = cluster(node("n1"), daemon_set("guard", rules=choosy), deployed("web", ["n1"], rules=web))
    assert broken(fine, {"shop/web-0": "new"}, boot={"new": "m4/a/on-demand"}) == set()
    pending = cluster(guard, deployed("web", [None], rules=web))
    assert broken(pending, {}, unplaced={"shop/web-0": "rule"}) == set()

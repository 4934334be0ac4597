"""CSI drivers: their limits become their nodes', and whose volumes are whose."""

from __future__ import annotations

import random

import pytest
from tests.observer.kube_json import JSON, listed, node, raw, thing
from tests.observer.one_of_each import csi_node

from kinema_core.events import Node, Quarantined, StorageClass, Volume
from kinema_core.model.cluster import Cluster, evolve, from_objects
from kinema_core.model.quarantine import quarantine_of
from kinema_observer.logic.changes import delta_of_changes
from kinema_observer.logic.drivers import DriverLimits, Seen, assembled, assembled_changes, identity
from kinema_observer.logic.kubernetes import decode_object, read
from kinema_observer.logic.lists import decode_list

DISKS = "attachable-volumes-csi-disk.example.com"
GROUP = "storage.k8s.io/v1"


def of_drivers(*drivers: JSON, name: str = "n1") -> JSON:
    """A CSINode."""
    return thing("CSINode", name, group=GROUP, namespace=None, spec={"drivers": list(drivers)})


def limits(*csi_nodes: JSON, on: JSON | None = None) -> dict[str, int]:
    """What node n1 says of volumes in a list of it and these."""
    (found,) = (item for item in decode_list(listed(*csi_nodes, on or node())).objects if isinstance(item, Node))
    return {name: amount for name, amount in found.allocatable.items() if name.startswith("attachable-volumes-")}


def test_counts_of_drivers_become_limits_of_the_node() -> None:
    """Of each driver that states one, 0 too; a driver without a count takes any number, as one that is not named."""
    drivers: list[JSON] = [
        {"name": "disk.example.com", "nodeID": "x", "allocatable": {"count": 26}},
        {"name": "full.example.com", "nodeID": "x", "allocatable": {"count": 0}},
        {"name": "nfs.example.com", "nodeID": "x"},
        {"name": "none.example.com", "nodeID": "x", "allocatable": {}},
        {"name": "null.example.com", "nodeID": "x", "allocatable": None, "topologyKeys": None},
    ]
    assert limits(of_drivers(*drivers)) == {DISKS: 26, "attachable-volumes-csi-full.example.com": 0}
    empty: list[JSON] = [{}, {"drivers": None}, {"drivers": []}]
    for nothing in empty:
        assert limits(thing("CSINode", "n1", group=GROUP, namespace=None, spec=nothing)) == {}
    assert limits(of_drivers(*drivers, name="n2")) == {}


def test_a_csinode_holds_over_what_its_node_states() -> None:
    """As for kube-scheduler, also where the node names the part of Kubernetes that the driver replaced."""
    stated = {"cpu": "4", "memory": "16Gi", "attachable-volumes-gce-pd": "15", DISKS: "9", "attachable-volumes-x": "3"}
    on = node(status={"allocatable": stated})
    said = [
        {"name": "pd.csi.storage.gke.io", "allocatable": {"count": 127}},
        {"name": "disk.example.com", "allocatable": {"count": 5}},
    ]
    assert limits(of_drivers(*said), on=on) == {
        "attachable-volumes-csi-pd.csi.storage.gke.io": 127,
        DISKS: 5,
        "attachable-volumes-x": 3,
    }
    assert limits(on=on) == {"attachable-volumes-gce-pd": 15, DISKS: 9, "attachable-volumes-x": 3}


@pytest.mark.parametrize("count", [-1, "many", 2.5])
def test_an_unreadable_csinode_freezes_its_node(count: object) -> None:
    """Nobody knows what may be attached there; other nodes are as ever."""
    odd = of_drivers({"name": "disk.example.com", "allocatable": {"count": count}})
    item = decode_object("CSINode", raw(odd))
    assert isinstance(item, Quarantined)
    assert (item.object, item.node, item.namespace) == ("CSINode n1", "n1", None)
    assert "count" in item.path
    cluster = from_objects(decode_list(listed(node("n1"), node("n2"), odd)).objects)
    frozen = quarantine_of(cluster)
    assert (dict(frozen.nodes), dict(frozen.namespaces)) == ({"n1": "CSINode n1"}, {})


def test_a_list_of_csinodes_alone_keeps_what_they_say() -> None:
    """For whoever lists each kind by itself; kubectl's list has them in any order, and counts none as passed over."""
    alone = decode_list(listed(of_drivers({"name": "disk.example.com", "allocatable": {"count": 2}})))
    nodes = decode_list(listed(node("n1"), node("n2")))
    assert (alone.objects, alone.ignored, [item.name for item in alone.limits]) == ((), {}, ["n1"])
    together = from_objects(assembled([*nodes.objects, *alone.limits]))
    assert [one.allocatable.get(DISKS) for one in together.nodes] == [2, None]


def test_deltas_of_nodes_and_csinodes_lead_to_what_a_list_shows() -> None:
    """Whichever of the two comes, changes, becomes unreadable or goes, in any order, and however many at a tick."""
    chance = random.Random(3)
    there: dict[str, dict[str, Seen]] = {"Node": {}, "CSINode": {}}
    changed: dict[tuple[str, str], Seen | None] = {}
    state, deltas = Cluster(), 0
    for _ in range(2000):
        kind, name = chance.choice(("Node", "CSINode")), f"n{chance.randrange(4)}"
        old, new = there[kind].pop(name, None), None
        if chance.random() < 0.7:
            new = read(kind, raw(_some(kind, name, chance))).item
        if new is not None:
            there[kind][name] = new
        # As a reflector notes it.
        if old is not None and (new is None or identity(old) != identity(new)):
            changed[identity(old)] = None
        if new is not None and new != old:
            changed[identity(new)] = new
        if chance.random() < 0.4:
            changes = assembled_changes(changed, node=there["Node"].get, limits=there["CSINode"].get)
            delta = delta_of_changes(state, changes)
            changed = {}
            if delta is not None:
                state, deltas = evolve(state, delta), deltas + 1
            full = from_objects(assembled([*there["CSINode"].values(), *there["Node"].values()]))
            assert state.objects == full.objects
    assert deltas > 300


def _some(kind: str, name: str, chance: random.Random) -> JSON:
    """An object of the kind, one in eight unreadable."""
    if kind == "Node":
        return node(name, spec={"unschedulable": "odd" if chance.random() < 1 / 8 else chance.random() < 0.5})
    count = -1 if chance.random() < 1 / 8 else chance.choice((None, 0, 1, 2))
    return {"apiVersion": GROUP, "kind": "CSINode", **csi_node(name, count)}


def test_what_is_read_of_a_csinode_is_no_object_of_the_state() -> None:
    """Only its node is."""
    said = raw(of_drivers({"name": "disk.example.com", "allocatable": {"count": 2}}))
    assert isinstance(read("CSINode", said).item, DriverLimits)
    assert decode_object("CSINode", said) is None


@pytest.mark.parametrize(
    ("source", "provisioner", "driver"),
    [
        ({"csi": {"driver": "disk.example.com"}}, "disk.example.com", "disk.example.com"),
        ({"gcePersistentDisk": {"pdName": "d"}}, "kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
        ({"awsElasticBlockStore": {"volumeID": "d"}}, "kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
        ({"azureDisk": {"diskName": "d"}}, "kubernetes.io/azure-disk", "disk.csi.azure.com"),
        ({"azureFile": {"shareName": "d"}}, "kubernetes.io/azure-file", "file.csi.azure.com"),
        ({"cinder": {"volumeID": "d"}}, "kubernetes.io/cinder", "cinder.csi.openstack.org"),
        ({"portworxVolume": {"volumeID": "d"}}, "kubernetes.io/portworx-volume", "pxd.portworx.com"),
        ({"vsphereVolume": {"volumePath": "d"}}, "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
        ({"hostPath": {"path": "/d"}}, "kubernetes.io/no-provisioner", ""),
        ({"gcePersistentDisk": None}, "", ""),
    ],
)
def test_volumes_and_classes_name_their_driver(source: JSON, provisioner: str, driver: str) -> None:
    """Also those that name a part of Kubernetes whose place a driver took; what is not attached has none."""
    volume = decode_object("PersistentVolume", raw(thing("PersistentVolume", "v", namespace=None, spec=source)))
    assert isinstance(volume, Volume)
    assert volume.driver == driver
    class_ = decode_object("StorageClass", raw(thing("StorageClass", "s", namespace=None, provisioner=provisioner)))
    assert isinstance(class_, StorageClass)
    assert class_.driver == driver

"""What `kinema plan` tells of new nodes that the catalog leaves open."""

from __future__ import annotations

from tests.cli.bench import Bench, node, pod, spread, text


def test_a_taint_that_all_nodes_of_a_type_have_and_their_offer_has_not_is_told(bench: Bench) -> None:
    """The next one may have it too, and then nobody fits there; a taint that tells of a state is none of the type."""
    nodes = [one for one in spread() if one["kind"] == "Node"]
    others = [one for one in spread() if one["kind"] != "Node"]
    for one in nodes:
        one["spec"] = {
            "taints": [
                {"key": "dedicated", "value": "web", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"},
            ]
        }
    bench.snapshot.write_bytes(text([*nodes, *others]))
    said = bench.run().stdout
    assert "have the taint dedicated=web:NoSchedule, but its offer does not;" in said
    assert "disk-pressure" not in said
    nodes[0]["spec"] = {}
    types = {one["metadata"]["labels"]["node.kubernetes.io/instance-type"] for one in nodes}
    bench.snapshot.write_bytes(text([*nodes, *others]))
    assert ("its offer has not" in bench.run().stdout) == (len(types) > 1)


def test_a_label_that_pods_ask_for_is_assumed_on_new_nodes_and_stated(bench: Bench) -> None:
    """Unless the row denies it: a new node without it is no place for them."""
    objects = spread()
    for one in objects:
        if one["kind"] == "Node":
            one["metadata"]["labels"] |= {"pool": "a", "color": "red"}
        if one["kind"] == "Pod":
            one["spec"]["nodeSelector"] = {"pool": "a"}
    bench.snapshot.write_bytes(text(objects))
    said = bench.run().stdout
    assert "are assumed to have the label pool=a (required by pods or daemon sets), as its" in said
    assert "color" not in said
    assert "hostname" not in said
    bench.catalog.write_text(
        "machine_type,vcpus,memory_gib,usd_per_hour,labels\nm2,2,8,0.09,pool-\nm4,4,16,0.17,pool-\n"
    )
    said = bench.run().stdout
    assert "have the label pool=a (required by pods or daemon sets), but its offer does not;" in said


def test_a_resource_that_offers_leave_out_is_told_where_that_means_no_limit(bench: Bench) -> None:
    """Ephemeral storage is not limited where an offer does not name it, and pods that request it would share it."""
    asking = pod("asking", "n0")
    asking["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"] = "20Gi"
    bench.snapshot.write_bytes(text([*spread(), asking]))
    assert "pods request ephemeral-storage, which" in bench.run().stdout
    bench.snapshot.write_bytes(text([*spread(), node("n7")]))
    assert "ephemeral-storage" not in bench.run().output


def test_a_number_of_pods_that_all_nodes_agree_on_is_told_beside_that_of_other_types(bench: Bench) -> None:
    """A type that no node is of takes 110 unless its row says otherwise; which is right nobody else knows."""
    objects = spread()
    nodes = [one for one in objects if one["kind"] == "Node"]
    for one in nodes:
        one["status"]["allocatable"]["pods"] = "30"
    bench.snapshot.write_bytes(text(objects))
    assert "every node takes 30 pods, but new nodes of other types (m2) are assumed to take 110;" in bench.run().stdout
    bench.catalog.write_text("machine_type,vcpus,memory_gib,usd_per_hour,max_pods\nm2,2,8,0.09,30\nm4,4,16,0.17,\n")
    assert "every node takes" not in bench.run().output
    nodes[0]["status"]["allocatable"]["pods"] = "110"
    bench.snapshot.write_bytes(text(objects))
    bench.catalog.write_text("machine_type,vcpus,memory_gib,usd_per_hour\nm2,2,8,0.09\nm4,4,16,0.17\n")
    assert "every node takes" not in bench.run().output

"""Reading whole lists, as `kubectl get … -A -o json` prints them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.observer.kube_json import container, listed, node, pod, raw, thing

from kinema_core.events import Node, Pod, Workload
from kinema_core.model.cluster import from_objects
from kinema_core.model.quarantine import quarantine_of
from kinema_observer.errors import UnreadableListError
from kinema_observer.logic.lists import decode_list


def test_a_list_of_mixed_kinds_is_read_and_other_kinds_are_counted() -> None:
    """Kinds may be missing or unknown; a foreign API's kind of the same name is none of ours."""
    found = decode_list(
        listed(
            node(),
            pod(),
            thing("Deployment", spec={"replicas": 1}),
            thing("Service", group="v1"),
            thing("Job", group="batch.volcano.sh/v1alpha1"),
        )
    )
    assert [type(item) for item in found.objects] == [Node, Pod, Workload]
    assert found.ignored == {"Service": 1, "Job": 1}
    assert found.quarantined == ()


def test_one_odd_object_is_quarantined_and_the_rest_goes_on() -> None:
    """It is named with path and reason, and freezes its node; everything else is read."""
    found = decode_list(
        listed(node("n1"), node("n2"), pod("ok"), pod("odd", node="n2", containers=[container(cpu="NaN")]))
    )
    (odd,) = found.quarantined
    assert (odd.object, odd.path, odd.node) == ("Pod shop/odd", "spec.containers[0].resources.requests.cpu", "n2")
    cluster = from_objects(found.objects)
    assert [item.key for item in cluster.pods] == ["shop/ok"]
    assert quarantine_of(cluster).nodes == {"n2": "Pod shop/odd"}


@pytest.mark.parametrize(
    ("spec", "frozen"), [({"nodeName": 7}, True), ([], True), (None, True), ({"containers": 7}, False)]
)
def test_a_pod_whose_node_cannot_be_told_freezes_every_node(spec: object, frozen: bool) -> None:
    """It may run anywhere: no node may go. One that can be seen to wait for a node disturbs nobody."""
    found = decode_list(listed(node("n1"), {**pod("odd"), "spec": spec}))
    assert len(found.quarantined) == 1
    assert quarantine_of(from_objects(found.objects)).nodes == ({"n1": "Pod shop/odd"} if frozen else {})


def test_a_list_of_one_kind_does_not_repeat_it_in_its_items() -> None:
    """The API's own lists leave kind and version out of the items."""
    item = {key: value for key, value in pod().items() if key not in ("kind", "apiVersion")}
    found = decode_list(listed(item, kind="PodList"))
    assert [type(item) for item in found.objects] == [Pod]


def test_a_single_object_is_a_list_of_one() -> None:
    """`kubectl get node n1 -o json` prints the object alone."""
    assert [item.key for item in decode_list(raw(node("n1"))).objects] == ["n1"]


def test_items_that_are_no_objects_are_quarantined_by_their_place() -> None:
    """Nothing is dropped silently."""
    found = decode_list(listed(node(), None, 5, {"metadata": {"name": "x"}}))
    assert [item.path for item in found.quarantined] == ["items[1]", "items[2]", "items[3]"]
    assert len({item.key for item in found.quarantined}) == 3


def test_an_empty_list_is_an_empty_cluster() -> None:
    """Null items are no items."""
    assert decode_list(listed()).objects == ()
    assert decode_list(b'{"kind": "List", "items": null}').objects == ()


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"kind": 3}', b'{"kind": "List", "items": 3}', b"\xff\xfe", b"{"]
)
def test_what_is_no_list_at_all_is_one_clear_error(data: bytes) -> None:
    """The error says what was expected instead."""
    with pytest.raises(UnreadableListError, match="kubectl get"):
        decode_list(data)


def test_the_newest_timestamp_stands_for_now() -> None:
    """Durations in a file count to its newest timestamp: heartbeats and container starts, not planned deletions."""
    started = {"state": {"running": {"startedAt": "2026-03-02T11:00:00Z"}}, "name": "main"}
    leaving = pod(metadata={"deletionTimestamp": "2026-03-05T00:00:00Z"}, status={"containerStatuses": [started]})
    assert decode_list(listed(leaving)).newest == datetime(2026, 3, 2, 11, tzinfo=UTC)
    assert decode_list(listed(leaving, node())).newest == datetime(2026, 3, 2, 11, 59, 30, tzinfo=UTC)
    assert decode_list(listed()).newest is None


def test_finished_pods_are_not_listed() -> None:
    """They take no room and pin nothing."""
    assert decode_list(listed(pod(status={"phase": "Succeeded"}))).objects == ()

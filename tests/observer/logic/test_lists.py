"""Reading lists as `kubectl get … -A -o json` prints them, whole and in pieces cut anywhere."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.observer.kube_json import JSON, container, listed, meta, node, pod, raw, thing

from kinema_core.events import Node, Pod, Workload
from kinema_core.model.cluster import from_objects
from kinema_core.model.quarantine import quarantine_of
from kinema_observer.errors import UnreadableListError
from kinema_observer.logic.kubernetes import read_from_list
from kinema_observer.logic.lists import Decoded, decode_list, decode_pieces


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


@pytest.mark.parametrize("cpu", ["NaN", "1_000", "\u0661", "1e30", "-1", "12e6Mi"])  # U+0661: the Arabic digit one
def test_one_odd_object_is_quarantined_and_the_rest_goes_on(cpu: str) -> None:
    """It is named with path and reason, and freezes its node; everything else is read."""
    found = decode_list(
        listed(node("n1"), node("n2"), pod("ok"), pod("odd", node="n2", containers=[container(cpu=cpu)]))
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


_OWNERS = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name} for name in ("a", "b")]
_TEXT = '},\n        {\n            "apiVersion": "v1"}, {"apiVersion"'


def items(number: int) -> list[JSON]:
    """Objects with parts that look like the place between two of them, in lists and in texts."""
    found: list[JSON] = [node("n1")]
    for index in range(number):
        more: dict[str, Any] = {"ownerReferences": _OWNERS, "annotations": {"note": _TEXT}}
        found.append(pod(f"web-{index}", metadata=meta(f"web-{index}", **more)))
        found.append(thing("Service", name=f"s-{index}", group="v1"))
    return found


def nameless(number: int) -> list[JSON]:
    """Items as the API's own lists of one kind have them."""
    return [
        {key: value for key, value in pod(f"web-{i}").items() if key not in ("apiVersion", "kind")}
        for i in range(number)
    ]


def kubectl(number: int) -> dict[str, Any]:
    """What `kubectl get` prints: the items come before the kind."""
    return {"apiVersion": "v1", "items": items(number), "kind": "List", "metadata": {"resourceVersion": ""}}


def first(number: int) -> dict[str, Any]:
    """The same as other tools write it, with the kind of the list first."""
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items(number)}


def server(number: int) -> dict[str, Any]:
    """What the API server sends: the kind comes first, and only once."""
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": "x"}, "items": nameless(number)}


ODD: dict[str, Callable[[], JSON]] = {
    "none": lambda: pod("odd"),
    "finished": lambda: pod("odd", status={"phase": "Succeeded"}),
    "of no namespace": lambda: {**pod("odd", status={"phase": "Failed"}), "metadata": {"name": "odd"}},
    "without a name": lambda: {**pod("odd", status={"phase": "Failed"}), "metadata": {"name": None, "namespace": None}},
    "later": lambda: pod("odd", spec={**pod("odd")["spec"], "later": True}),
    "unreadable": lambda: pod("odd", spec={"containers": 5}),
    "of no kind": lambda: {key: value for key, value in pod("odd").items() if key != "kind"},
    "of another kind": lambda: {**pod("odd"), "kind": "Gadget"},
    "of another group": lambda: {**pod("odd"), "apiVersion": "example.org/v1"},
    "a node": lambda: node("odd"),
}


def alone(odd: str) -> dict[str, Any]:
    """Pods, and one that is odd among them; the newest time is in the middle."""
    found = [pod(f"web-{i}", status={"phase": "Running", "startTime": "2026-03-02T12:00:00Z"}) for i in range(60)]
    found[30] = pod("newest", status={"phase": "Running", "startTime": "2026-03-02T13:00:00Z"})
    found[20] = ODD[odd]()
    return {"apiVersion": "v1", "items": found, "kind": "List"}


def turned(number: int) -> dict[str, Any]:
    """A list of one kind that names it last."""
    return {"items": nameless(number), "kind": "PodList"}


def cut(text: bytes, size: int) -> Iterator[bytes]:
    """The text in pieces of one size."""
    return (text[start : start + size] for start in range(0, len(text), size))


@given(
    shape=st.sampled_from([kubectl, first, server, turned]),
    number=st.integers(0, 12),
    layout=st.sampled_from([{"indent": 4}, {}, {"separators": (",", ":")}]),
    size=st.integers(100, 5000),
    window=st.integers(100, 20_000),
)
def test_it_does_not_matter_where_a_list_is_cut(
    shape: Any, number: int, layout: dict[str, Any], size: int, window: int
) -> None:
    """Order, times and what was passed over are those of the whole."""
    text = json.dumps(shape(number), **layout).encode()
    whole = decode_list(text)
    assert decode_pieces(cut(text, size), window) == whole
    assert len(whole.objects) == number + (shape in (kubectl, first))


@pytest.mark.parametrize("odd", ODD)
def test_pods_are_read_a_window_at_a_time(odd: str) -> None:
    """Where all of a window are pods as they should be, none is read by itself; what is read is the same."""
    text = json.dumps(alone(odd), indent=4).encode()
    whole = decode_list(text)
    with patch("kinema_observer.logic.lists.read_from_list", wraps=read_from_list) as single:
        found = decode_pieces(cut(text, 1000), 6000)
    assert found == whole
    assert found.newest == datetime(2026, 3, 2, 13, tzinfo=UTC)
    assert 0 < single.call_count < 30


def test_little_of_a_large_list_is_held() -> None:
    """Of thirty million bytes, a few at a time."""
    body = json.dumps({**pod("web-0"), "filler": "x" * 30_000}, indent=4).encode()
    head, tail = b'{"apiVersion": "v1", "items": [' + body, b'], "kind": "List"}'

    def text() -> Iterator[bytes]:
        yield head
        for _ in range(1000):
            yield b", " + body
        yield tail

    tracemalloc.start()
    found = decode_pieces(text(), 2**20)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found.objects) == 1001
    assert most < 10 * 2**20


def test_an_object_larger_than_the_window_is_read() -> None:
    """A window grows until something whole is in it."""
    large = pod("large", metadata=meta("large", annotations={"note": "x" * 50_000}))
    text = json.dumps({**kubectl(3), "items": [large, *items(3)]}, indent=4).encode()
    assert decode_pieces(cut(text, 700), 1000) == decode_list(text)


@pytest.mark.parametrize("end", [b"", b"]", b'], "kind": "List"', b"], nonsense}"])
def test_a_list_that_breaks_off_is_no_list(end: bytes) -> None:
    """Nothing of it is used, though its beginning was read."""
    text = json.dumps(kubectl(20), indent=4).encode()
    broken = text[: text.rindex(b"]")] + end
    with pytest.raises(UnreadableListError, match="no JSON list"):
        decode_pieces(cut(broken, 4096), 4096)


def test_a_fault_is_told_by_its_place_in_the_whole_text() -> None:
    """Whoever looks for it has the whole file, not our piece of it."""
    text = json.dumps(kubectl(20), indent=4).encode()
    place = text.rindex(b'"kind": "List"')
    with pytest.raises(UnreadableListError, match=rf"\(byte {place}\)"):
        decode_pieces(cut(text[:place] + b"?" + text[place:], 4096), 4096)


def test_what_ends_as_something_else_is_no_list() -> None:
    """Only the end of a text may tell that its items are no Kubernetes list."""
    text = json.dumps({**kubectl(20), "kind": "Bundle"}, indent=4).encode()
    with pytest.raises(UnreadableListError, match="its kind is 'Bundle'"):
        decode_pieces(cut(text, 4096), 4096)


def test_items_that_are_no_objects_are_named_by_their_place_in_the_list() -> None:
    """Their number counts from the beginning of the list, not of a piece."""
    text = json.dumps({**kubectl(0), "items": [*items(20), 5, *items(3)]}, indent=4).encode()
    found: Decoded = decode_pieces(cut(text, 4096), 4096)
    assert [item.path for item in found.quarantined] == ["items[41]"]

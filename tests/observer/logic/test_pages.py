"""Pages of lists are read some dozens of objects at a time: that shows in the time it takes, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.observer.kube_json import JSON, container, pod, thing

from kinema_core.events import Quarantined
from kinema_observer.errors import UnreadableListError
from kinema_observer.logic import kubernetes
from kinema_observer.logic.kubernetes import read, read_page

FEW = 100
"""Bytes: each object is a part of its own."""
CLAIMS = [{"metadata": {"name": name}, "spec": {}} for name in ("data", "log")]


def nameless(item: JSON) -> JSON:
    """An item as lists of one kind have it."""
    return {key: value for key, value in item.items() if key not in ("apiVersion", "kind")}


def page(items: list[JSON], **metadata: str) -> bytes:
    """A page as API servers write it."""
    body: dict[str, Any] = {"kind": "AnyList", "apiVersion": "v1", "metadata": metadata, "items": items}
    return json.dumps(body, separators=(",", ":")).encode()


def pods(number: int) -> list[JSON]:
    """Pods that differ, one of which has finished."""
    found = [pod(f"web-{index}", node=f"n{index}", metadata={"resourceVersion": str(index)}) for index in range(number)]
    return [nameless(item) for item in [*found, pod("done", status={"phase": "Succeeded"})]]


def test_parts_give_what_each_object_alone_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same order, with the version and the token of the page."""
    monkeypatch.setattr(kubernetes, "_PART_BYTES", FEW)
    items = pods(50)
    found = read_page("Pod", page(items, resourceVersion="9", **{"continue": "more"}))
    assert found.readings == [read("Pod", json.dumps(item).encode()) for item in items]
    assert (found.resource_version, found.more) == ("9", "more")


def test_a_page_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its objects would not stay near the processor until they are converted."""
    monkeypatch.setattr(kubernetes, "_PART_BYTES", FEW)
    parts = list(kubernetes._parts(page(pods(50))))
    assert [len(json.loads(part)["items"]) for part in parts] == [1] * 51


def test_one_odd_pod_is_quarantined_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in the same part and in all others are read."""
    monkeypatch.setattr(kubernetes, "_PART_BYTES", 4000)
    items = pods(50)
    items[20] = nameless(pod("odd", containers=[container(cpu="NaN")]))
    readings = read_page("Pod", page(items, resourceVersion="9")).readings
    assert readings == [read("Pod", json.dumps(item).encode()) for item in items]
    assert [item.item for item in readings if isinstance(item.item, Quarantined)] == [readings[20].item]


def test_what_looks_like_a_seam_within_an_object_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of objects inside of one: no object is lost, halved or made of it."""
    monkeypatch.setattr(kubernetes, "_PART_BYTES", FEW)
    sets = [nameless(thing("StatefulSet", f"db-{index}", spec={"volumeClaimTemplates": CLAIMS})) for index in range(5)]
    found = read_page("StatefulSet", page(sets, resourceVersion="9"))
    assert [reading.key for reading in found.readings] == [f"shop/db-{index}" for index in range(5)]
    assert not [reading for reading in found.readings if isinstance(reading.item, Quarantined)]


@pytest.mark.parametrize("body", [b"{}", b'{"items":[]}', b'{"metadata":{},"items":[{"metadata":{', b'{"items":3}'])
def test_what_is_no_page_is_one_error(body: bytes) -> None:
    """It is never taken for an empty list."""
    with pytest.raises(UnreadableListError, match="the answer is no list"):
        read_page("Pod", body)

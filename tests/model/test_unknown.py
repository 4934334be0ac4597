"""What a newer version wrote and this one does not know is kept as unknown, and is never taken to be harmless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import deployed
from tests.support.verdicts import judged

from kinema_core.events import (
    AnyBody,
    ClusterDelta,
    ClusterObject,
    ClusterSnapshot,
    EventError,
    Node,
    ObjectKey,
    Plan,
    StepStarted,
    Unknown,
    decode,
    encode,
)
from kinema_core.model.cluster import all_objects, evolve, from_objects

SAMPLES = Path(__file__).parents[1] / "contract" / "events"
POOL = {"kind": "NodePool", "name": "spot", "uid": "u1", "budget": {"nodes": "10%"}}
GANG = {"kind": "PodGroup", "name": "train", "namespace": "shop", "uid": "u2"}
CLONES = {"kind": "Workload", "type": "CloneSet", "name": "web", "namespace": "shop", "uid": "u3"}
NODE = {"kind": "Node", "name": "n1", "uid": "u5"}


def written(type_: str, **body: Any) -> AnyBody:
    """The body of a sample as a newer version writes it: with these fields."""
    event = json.loads((SAMPLES / f"{type_}.json").read_bytes())
    event["body"] |= body
    return decode(json.dumps(event).encode()).body


def seen(*objects: dict[str, Any]) -> tuple[ClusterObject, ...]:
    """Objects of a snapshot as this version reads them."""
    body = written("cluster-snapshot.v1", objects=list(objects))
    assert isinstance(body, ClusterSnapshot)
    return body.objects


def test_an_unknown_object_leaves_the_others() -> None:
    """An object of an unknown kind, or a workload of an unknown type, costs itself alone, in snapshots and deltas."""
    kept, *unknown = seen(NODE, POOL, GANG, CLONES)
    assert kept == Node(name="n1", uid="u5")
    assert unknown == [
        Unknown(of="NodePool", at="spot"),
        Unknown(of="PodGroup", at="shop/train", namespace="shop"),
        Unknown(of="Workload", at="CloneSet/shop/web", namespace="shop"),
    ]
    body = written("cluster-delta.v1", upserts=[GANG, NODE])
    assert isinstance(body, ClusterDelta)
    assert body.upserts == (unknown[1], kept)


def test_what_was_read_as_unknown_is_written_and_read_again() -> None:
    """A recording of events with unknown objects is the same when it is read back."""
    event = json.loads((SAMPLES / "cluster-snapshot.v1.json").read_bytes())
    event["body"]["objects"] = [POOL]
    once = decode(json.dumps(event).encode())
    assert decode(encode(once)) == once


def test_an_unknown_object_ends_where_a_known_one_would() -> None:
    """The delete that a newer version writes takes an unknown object away."""
    clones, gang = seen(CLONES, GANG)
    gone = ClusterDelta(version=2, deletes=(ObjectKey(kind="Workload", key="CloneSet/shop/web"),))
    assert list(all_objects(evolve(from_objects([clones, gang]), gone))) == [gang]


@pytest.mark.parametrize("what", [POOL, GANG, CLONES], ids=lambda what: str(what["kind"]))
def test_nothing_moves_that_an_unknown_object_may_concern(what: dict[str, Any]) -> None:
    """An object outside of namespaces holds all pods, one in a namespace the pods there."""
    pods = (deployed("web", on=("n1", "n2")), deployed("other", on=("n2",), namespace="bank"))
    assert not judged(*pods).held
    held = set(judged(*pods, seen(what)).held)
    assert held == {"shop/web-0", "shop/web-1"} | ({"bank/other-0"} if what is POOL else set())


def test_an_unknown_strategy_is_read() -> None:
    """A plan with a move in a way that is not known stays readable (`test_spoiled_plans`: and is refused)."""
    placement = json.loads((SAMPLES / "plan-proposed.v1.json").read_bytes())["body"]["placements"][0]
    body = written("plan-proposed.v1", placements=[placement | {"strategy": "migrate-live"}])
    assert isinstance(body, Plan)
    assert body.placements[0].strategy == "unknown"


def test_an_unknown_step_is_read() -> None:
    """The log of an execution stays readable; the fields of a step but for its kind are as they were written."""
    step = json.loads((SAMPLES / "step-started.v1.json").read_bytes())["body"]["step"]
    body = written("step-started.v1", step=step | {"kind": "migrate"})
    assert isinstance(body, StepStarted)
    assert (body.step.kind, body.step.id) == ("unknown", step["id"])


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("cluster-snapshot.v1", {"objects": [{"kind": "Node"}]}),
        ("cluster-snapshot.v1", {"objects": [{"kind": "PodGroup"}]}),
        ("cluster-snapshot.v1", {"objects": 5}),
        ("plan-proposed.v1", {"status": "wonderful"}),
        ("step-started.v1", {"step": 5}),
        ("plan-accepted.v1", {"version": "1"}),
    ],
)
def test_what_is_closed_is_damaged(type_: str, body: dict[str, Any]) -> None:
    """Everything else grows by a new version: objects without a name and values of closed unions are refused."""
    with pytest.raises(EventError, match="bad-body"):
        written(type_, **body)

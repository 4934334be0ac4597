"""Events are equal bytes when they are equal, and what is no event is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, fragmented, node, offer, tiny
from tests.support.plans import plan_for
from tests.support.strategies import clusters

from kinema_core.events import (
    AnyBody,
    CatalogPublished,
    ClusterDelta,
    ClusterSnapshot,
    Event,
    EventError,
    ExecutionPaused,
    FrozenMap,
    IterationSkipped,
    Node,
    UsageSampled,
    decode,
    encode,
)
from kinema_core.events.upcast import UPCASTERS
from kinema_core.model.cluster import all_objects


def event(body: AnyBody, *, type_: str | None = None) -> Event:
    """An event around a body."""
    return Event(
        id="e1",
        type=type_ or body.TYPE,
        cluster="demo",
        time=NOW,
        cause="",
        iteration="i1",
        traceparent="00-0-0-01",
        state=1,
        body=body,
    )


def skipped(**figures: float | str) -> IterationSkipped:
    """A body with figures."""
    return IterationSkipped(version=1, reason="not-stable", figures=FrozenMap(figures))


def raw(body: AnyBody, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The bytes of an event after a change to its JSON."""
    data: dict[str, Any] = json.loads(encode(event(body)))
    change(data)
    return json.dumps(data).encode()


def refusal(data: bytes) -> EventError:
    """The error with which bytes are refused."""
    with pytest.raises(EventError) as caught:
        decode(data)
    return caught.value


def test_equal_events_are_equal_bytes() -> None:
    """The order in which a map was filled does not show."""
    one, two = skipped(a=1, b=2.5), skipped(b=2.5, a=1)
    assert encode(event(one)) == encode(event(two))


@given(st.data())
def test_any_state_survives_the_wire(data: st.DataObject) -> None:
    """Decoding what was encoded gives the same event."""
    state = data.draw(clusters())
    sent = event(ClusterSnapshot(version=1, objects=tuple(all_objects(state))))
    assert decode(encode(sent)) == sent


def test_plans_and_snapshots_survive_the_wire() -> None:
    """Whole clusters and plans come back as they were sent."""
    for body in (ClusterSnapshot(version=1, objects=tuple(all_objects(fragmented()))), plan_for(tiny(), [offer()])):
        assert decode(encode(event(body))).body == body


def test_an_unknown_field_is_tolerated_everywhere() -> None:
    """A newer minor version may say more: in the envelope, the body and below."""

    def newer(data: dict[str, Any]) -> None:
        data["new"] = 1
        data["body"]["new"] = {"a": [1]}
        data["body"]["upserts"][0]["new"] = "x"

    body = ClusterDelta(version=2, upserts=(node("n1"),))
    assert decode(raw(body, newer)).body == body


@pytest.mark.parametrize("type_", ["execution-paused.v2", "execution-paused", "unheard-of.v1", ""])
def test_an_unknown_type_or_version_is_refused(type_: str) -> None:
    """Nobody guesses at a body of a version that is not known."""
    error = refusal(raw(ExecutionPaused(by="ada"), lambda data: data.update(type=type_)))
    assert error.reason == "unknown-type"
    assert repr(type_) in error.detail


def test_an_older_version_is_lifted_through_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upcasters lead from version to version until the current one."""
    monkeypatch.setitem(UPCASTERS, "paused.v-1", lambda body: ("paused.v0", body.replace(b"who", b"whom")))
    monkeypatch.setitem(UPCASTERS, "paused.v0", lambda body: ("execution-paused.v1", body.replace(b"whom", b"by")))
    data = raw(ExecutionPaused(by="ada"), lambda found: found.update(type="paused.v-1", body={"who": "ada"}))
    lifted = decode(data)
    assert lifted.type == "execution-paused.v1"
    assert lifted.body == ExecutionPaused(by="ada")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"nonsense", b'{"id": NaN}', b"\xff\xfe", encode(event(ExecutionPaused(by="ada"))) + b" more"]
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    """Truncated, foreign and broken bytes are bad JSON."""
    assert refusal(data).reason == "bad-json"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda data: data.pop("id"), "id"),
        (lambda data: data.pop("body"), "body"),
        (lambda data: data.update(time="yesterday"), "time"),
        (lambda data: data.update(state="one"), "state"),
        (lambda data: data.update(cluster=None), "cluster"),
    ],
)
def test_a_bad_envelope_is_refused_with_its_path(change: Callable[[dict[str, Any]], None], path: str) -> None:
    """Every field of the envelope is checked, and the error says which one it was."""
    error = refusal(raw(ExecutionPaused(by="ada"), change))
    assert error.reason == "bad-envelope"
    assert path in error.detail


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda body: body.pop("version"), "version"),
        (lambda body: body.update(version=None), "$.version"),
        (lambda body: body.update(version="2"), "$.version"),
        (lambda body: body.update(version=1.5), "$.version"),
        (lambda body: body["upserts"][0].update(kind=5), "$.upserts[0]"),
        (lambda body: body["upserts"][0].update(ready="yes"), "$.upserts[0].ready"),
        (lambda body: body["upserts"][0]["allocatable"].update(cpu="4"), "$.upserts[0].allocatable"),
        (lambda body: body["upserts"][0]["allocatable"].update(cpu=1.5), "$.upserts[0].allocatable"),
        (lambda body: body["upserts"][0]["allocatable"].update(cpu=True), "$.upserts[0].allocatable"),
        (lambda body: body["upserts"][0]["labels"].update(a=None), "$.upserts[0].labels"),
        (lambda body: body["upserts"][0].update(labels=["a"]), "$.upserts[0].labels"),
        (lambda body: body["upserts"][0]["taints"][0].update(effect="Never"), "$.upserts[0].taints[0].effect"),
    ],
)
def test_a_bad_body_is_refused_with_its_path(change: Callable[[dict[str, Any]], None], path: str) -> None:
    """A body that does not fit names its type and the place where it does not."""
    body = ClusterDelta(version=2, upserts=(node("n1", taints=["a:NoSchedule"]),))
    error = refusal(raw(body, lambda data: change(data["body"])))
    assert error.reason == "bad-body"
    assert "cluster-delta.v1" in error.detail
    assert path in error.detail


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_never_written(value: float) -> None:
    """JSON has no word for them: encoding names the field instead of writing null."""
    plan = plan_for(tiny(), [offer()], lower_bound=1)
    costly = msgspec.structs.replace(plan.cost, before=value)
    cases: list[tuple[AnyBody, str]] = [
        (skipped(load=value), "figures.load"),
        (UsageSampled(sampled=NOW, window_seconds=value, pods=()), "window_seconds"),
        (CatalogPublished(source="x", priced=None, offers=(offer(watts=value),)), "offers[0].watts"),
        (msgspec.structs.replace(plan, cost=costly), "cost.before"),
    ]
    for body, path in cases:
        with pytest.raises(EventError, match="finite") as caught:
            encode(event(body))
        assert caught.value.reason == "bad-body"
        assert path in caught.value.detail


def test_numbers_beyond_all_bounds_are_refused() -> None:
    """1e400 is no float and no integer of ours."""
    data = encode(event(UsageSampled(sampled=NOW, window_seconds=1.5, pods=())))
    assert refusal(data.replace(b"1.5", b"1e400")).reason in ("bad-body", "bad-json")


def test_maps_in_decoded_events_cannot_be_changed() -> None:
    """Whoever receives an event cannot change it for the others, however deep."""
    body = decode(encode(event(ClusterDelta(version=2, upserts=(node("n1", labels={"a": "b"}),))))).body
    assert isinstance(body, ClusterDelta)
    first = body.upserts[0]
    assert isinstance(first, Node)
    assert isinstance(first.labels, FrozenMap)
    assert isinstance(first.allocatable, FrozenMap)
    with pytest.raises(TypeError, match="cannot be changed"):
        first.labels["a"] = "c"


def test_times_keep_their_zone() -> None:
    """An event's time is an instant, not a wall clock's reading."""
    found = decode(raw(ExecutionPaused(by="ada"), lambda data: data.update(time="2026-03-02T13:00:00+01:00")))
    assert found.time == datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def test_bytes_that_are_no_text_are_refused() -> None:
    """Invalid UTF-8 anywhere in an event is bad JSON, not a crash of its reader."""
    good = encode(event(ExecutionPaused(by="ada", reason="")))
    assert refusal(good.replace(b"ada", b"a\xff")).reason == "bad-json"
    assert refusal(good.replace(b'"e1"', b'"\xff"')).reason == "bad-json"


def test_nesting_without_end_is_refused() -> None:
    """An event that nests deeper than any reader goes is bad JSON."""
    deep = b"[" * 100_000 + b"]" * 100_000
    good = encode(event(ExecutionPaused(by="ada", reason="")))
    assert refusal(good.replace(b'"ada"', deep)).reason == "bad-json"
    assert refusal(good.replace(b'"e1"', b'"e1","more":' + deep)).reason == "bad-json"

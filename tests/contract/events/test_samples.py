"""Every event that was ever released can still be read: one stored sample for each type and version."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from kinema_core.events import BODIES, AnyBody, ClusterObject, ClusterSnapshot, decode, encode
from kinema_core.events.upcast import UPCASTERS

HERE = Path(__file__).parent
SAMPLES = sorted(HERE.glob("*.json"))
CURRENT = {body.TYPE: body for body in BODIES}


def stem(path: Path) -> str:
    """The event's type, by the name of its file."""
    return path.name.removesuffix(".json")


@pytest.mark.parametrize("path", SAMPLES, ids=stem)
def test_a_sample_is_read_and_written_back_byte_by_byte(path: Path) -> None:
    """The sample of a current version decodes to its body, and the same event is the same bytes again."""
    stored = path.read_bytes()
    event = decode(stored)
    assert type(event.body) is CURRENT[event.type]
    if stem(path) in CURRENT:
        assert event.type == stem(path)
        assert msgspec.json.format(encode(event), indent=2) + b"\n" == stored
        assert decode(encode(event)) == event


def test_every_type_and_version_has_its_sample() -> None:
    """A body without a stored sample could change its meaning unseen; a sample without a body is of no use."""
    assert {stem(path) for path in SAMPLES} == CURRENT.keys() | UPCASTERS.keys()


def test_the_union_of_bodies_is_the_catalogue() -> None:
    """What may stand in an event and what is published are the same types, each with a tag of its own."""
    assert set(get_args(AnyBody)) == set(BODIES)
    assert len(CURRENT) == len(BODIES)


def test_types_are_tagged_with_family_and_version() -> None:
    """The tag ends in the version, the family is one of five."""
    for body in BODIES:
        kind, dot, version = body.TYPE.rpartition(".v")
        assert kind
        assert dot
        assert int(version) >= 1
        assert body.FAMILY in {"state", "plan", "exec", "control", "dlq"}


def test_the_snapshots_sample_holds_every_kind_of_object() -> None:
    """A kind of object that no sample shows could change unseen."""
    body = decode((HERE / "cluster-snapshot.v1.json").read_bytes()).body
    assert isinstance(body, ClusterSnapshot)
    assert {type(item) for item in body.objects} == set(get_args(ClusterObject))

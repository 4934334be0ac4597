"""Every event that was ever released can still be read: one stored sample for each type and version.

Samples are frozen: `samples.sha256` holds their digests. A new version of an event gets a new sample and a new line; a
field with a default changes neither. Write the file again with `sha256sum *.json > samples.sha256`, before 0.1.0 only.
"""

from __future__ import annotations

import json
from hashlib import sha256
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
        written = without_new_fields(json.loads(encode(event)), json.loads(stored))
        assert msgspec.json.format(msgspec.json.encode(written), indent=2) + b"\n" == stored
        assert decode(encode(event)) == event


def without_new_fields(written: object, stored: object) -> object:
    """What is written, without fields that have been added since the sample was stored."""
    if isinstance(written, dict) and isinstance(stored, dict):
        return {key: without_new_fields(value, stored[key]) for key, value in written.items() if key in stored}
    if isinstance(written, list) and isinstance(stored, list) and len(written) == len(stored):
        return [without_new_fields(*pair) for pair in zip(written, stored, strict=True)]
    return written


def test_every_type_and_version_has_its_sample() -> None:
    """A body without a stored sample could change its meaning unseen; a sample without a body is of no use."""
    assert {stem(path) for path in SAMPLES} == CURRENT.keys() | UPCASTERS.keys()


def test_the_union_of_bodies_is_the_catalog() -> None:
    """What may stand in an event and what is published are the same types, each with a tag of its own."""
    assert set(get_args(AnyBody)) == set(BODIES)
    assert len(CURRENT) == len(BODIES)


def test_types_are_tagged_with_family_and_version() -> None:
    """The tag ends in the version, the family is one of six."""
    for body in BODIES:
        kind, dot, version = body.TYPE.rpartition(".v")
        assert kind
        assert dot
        assert int(version) >= 1
        assert body.FAMILY in {"state", "usage", "plan", "exec", "control", "dlq"}


def test_the_snapshots_sample_holds_every_kind_of_object() -> None:
    """A kind of object that no sample shows could change unseen."""
    body = decode((HERE / "cluster-snapshot.v1.json").read_bytes()).body
    assert isinstance(body, ClusterSnapshot)
    assert {type(item) for item in body.objects} == set(get_args(ClusterObject))


def test_samples_are_frozen() -> None:
    """Bytes that were once stored are read for ever: a sample never changes, it gets a successor."""
    lines = (HERE / "samples.sha256").read_text().splitlines()
    known = {name: digest for digest, name in map(str.split, lines)}
    assert {path.name: sha256(path.read_bytes()).hexdigest() for path in SAMPLES} == known

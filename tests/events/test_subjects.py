"""Subjects: any name is one token, and every event has its place."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW

from kinema_core.events import BODIES, Event, ExecutionPaused, kind_of_type, subject_of, token, untoken

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


@given(NAMES)
def test_a_token_hides_whatever_a_name_holds(name: str) -> None:
    """A token holds no dot, wildcard or blank, and gives the name back."""
    encoded = token(name)
    assert re.fullmatch(r"[A-Za-z0-9_%-]+", encoded)
    assert untoken(encoded) == name


@given(NAMES, NAMES)
def test_different_names_are_different_tokens(name: str, other: str) -> None:
    """Two clusters never share a subject."""
    assert (token(name) == token(other)) == (name == other)


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("demo", "demo"),
        ("eu-west_3", "eu-west_3"),
        ("a.b", "a%2Eb"),
        ("*", "%2A"),
        (">", "%3E"),
        ("a b", "a%20b"),
        ("50%", "50%25"),
        ("~x", "%7Ex"),
        ("ü", "%C3%BC"),
    ],
)
def test_tokens_are_percent_encoded(name: str, encoded: str) -> None:
    """What NATS gives a meaning to is escaped."""
    assert token(name) == encoded


def test_an_empty_name_is_no_token() -> None:
    """An empty token would break the subject."""
    with pytest.raises(ValueError, match="name"):
        token("")


def test_the_subject_tells_cluster_family_and_kind() -> None:
    """The version is part of the subject, the id is not."""
    event = Event(
        id="e",
        type="execution-paused.v1",
        cluster="prod.eu",
        time=NOW,
        cause="",
        iteration="",
        traceparent="",
        body=ExecutionPaused(by="ada"),
    )
    assert subject_of(event) == "kinema.v1.prod%2Eeu.control.execution-paused.v1"


def test_kinds_are_types_without_their_version() -> None:
    """A kind belongs to one event."""
    kinds = {(body.FAMILY, kind_of_type(body.TYPE)) for body in BODIES}
    assert len(kinds) == len(BODIES)
    assert kind_of_type("plan-proposed.v1") == "plan-proposed"

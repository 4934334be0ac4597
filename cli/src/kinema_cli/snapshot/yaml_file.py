"""YAML snapshots, as `kubectl get … -o yaml` prints them, as the JSON text that the reader of snapshots takes.

The text is followed event by event: neither is it held as a tree of Python objects, which takes ten times the time,
nor are tags resolved, nor aliases, which kubectl writes none of and which could stand for anything of any size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import msgspec
import yaml

_BEGINS: Final = re.compile(rb"(?:---|%YAML|#|- |(?:apiVersion|kind|items|metadata):)")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS: Final = {"": b"null", "~": b"null", "null": b"null", "true": b"true", "false": b"false"}
_TEXT_TAGS: Final = (None, "!", "tag:yaml.org,2002:str")
_PIECE: Final = 2**20
_CLOSING: Final = {True: b"}", False: b"]"}


class YamlError(Exception):
    """The text is no YAML that stands for JSON; says where, and what to do."""


def is_yaml(begin: bytes) -> bool:
    """Return whether a text that begins so is meant as YAML."""
    return _BEGINS.match(begin.lstrip()) is not None


def as_json(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Return a list of all documents as JSON, in pieces; raises YamlError without any, or for one that is damaged."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    writer = _Writer()
    yield b'{"apiVersion":"v1","kind":"List","items":['
    try:
        for event in yaml.parse(_Stream(pieces), Loader=loader):
            writer.take(event)
            if writer.size > _PIECE:
                yield writer.given()
    except yaml.MarkedYAMLError as error:
        raise YamlError(_fault(error.problem_mark, error.problem or "no YAML")) from error
    except yaml.YAMLError as error:  # a character that YAML has not
        raise YamlError(f"no YAML: {' '.join(str(error).split())}: {_REMEDY}") from error
    yield writer.given() + b"]}"


_REMEDY: Final = "take it again, best with `-o json`"


class _Mark(Protocol):
    """A place in the text; lines and columns count from 0."""

    line: int
    column: int


def _fault(mark: _Mark | None, problem: str) -> str:
    place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    return f"{place}{problem}: {_REMEDY}"


class _Stream:
    """Stream for PyYAML: the pieces, in portions of the size that it asks for."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._left = b""

    def read(self, size: int = _PIECE) -> bytes:
        """Return the next bytes; none at the end."""
        if not self._left:
            self._left = next(self._pieces, b"")
        given, self._left = self._left[:size], self._left[size:]
        return given


class _Writer:
    """Turns events into JSON."""

    def __init__(self) -> None:
        self._out: list[bytes] = []
        self._open: list[bool] = []
        """Mappings (True) and sequences that are open, from outside."""
        self._key = False
        """True if a key comes next."""
        self._first = True
        """True while the innermost open mapping or sequence is empty."""
        self.size = 0

    def given(self) -> bytes:
        """Return what was written since the last call."""
        found, self._out, self.size = b"".join(self._out), [], 0
        return found

    def take(self, event: yaml.Event) -> None:
        """Write one event."""
        if isinstance(event, yaml.ScalarEvent):
            text = _scalar(event, key=self._key)
            if self._open or text != _WORDS["null"]:  # a document may be empty, as after a last `---`
                self._value(text)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if self._key:
                raise YamlError(_fault(event.start_mark, "a key that is no text"))
            self._separate()
            mapping = isinstance(event, yaml.MappingStartEvent)
            self._put(b"{" if mapping else b"[")
            self._open.append(mapping)
            self._key, self._first = mapping, True
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._put(_CLOSING[self._open.pop()])
            self._after()
        elif isinstance(event, yaml.AliasEvent):
            raise YamlError(_fault(event.start_mark, "an alias, which kubectl writes none of"))

    def _value(self, text: bytes) -> None:
        if self._key:
            self._put((b"" if self._first else b",") + text + b":")
            self._key, self._first = False, False
            return
        self._separate()
        self._put(text)
        self._after()

    def _separate(self) -> None:
        """Write the comma between items of a sequence, and documents; after a key stands its colon."""
        if not (self._first or (self._open and self._open[-1])):
            self._put(b",")

    def _after(self) -> None:
        """Note that a whole value was written."""
        self._first = False
        self._key = bool(self._open and self._open[-1])

    def _put(self, text: bytes) -> None:
        self._out.append(text)
        self.size += len(text)


def _scalar(event: yaml.ScalarEvent, *, key: bool) -> bytes:
    value = event.value
    if event.tag not in _TEXT_TAGS:
        raise YamlError(_fault(event.start_mark, f"the tag {event.tag}, which kubectl writes none of"))
    plain = event.implicit[0] and not event.style
    if plain and not key:
        if value in _WORDS:
            return _WORDS[value]
        if _NUMBER.fullmatch(value):
            return bytes(value, "ascii")
    return msgspec.json.encode(value)

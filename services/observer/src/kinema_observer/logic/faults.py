"""Faults of a JSON text in words that say what to do, where the decoder speaks of its types."""

from __future__ import annotations

import re
from typing import Final

_EXPECTED: Final = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`")
_MALFORMED: Final = re.compile(r"JSON is malformed: (.*) \(byte (\d+)\)")
_TIME: Final = "is no time: write one such as 2026-03-01T08:00:00Z"
_TYPES: Final = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "datetime": "a time",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_AGAIN: Final = "take it again, and change nothing in it"


def in_words(said: str) -> tuple[str, str]:
    """Return the field that lacks, if that is what the decoder said, and its reason in words."""
    if found := _MISSING.fullmatch(said):
        return found[1], "is missing: write it, or take the object again"
    if found := _EXPECTED.fullmatch(said):
        wanted = [_named(one) for one in found[1].split(" | ") if one != "null"]
        return "", f"is {_named(found[2])}: write {' or '.join(wanted)}"
    if said.startswith(("Invalid RFC3339", "Invalid datetime")):
        return "", _TIME
    if said.startswith("Expected `datetime`"):
        return "", "is a time without its zone: write one such as 2026-03-01T08:00:00Z"
    return "", said


def _named(name: str) -> str:
    return _TYPES.get(name, name)


def no_list(error: Exception) -> str:
    """Return why a text as a whole is no list of objects, and what to do."""
    if isinstance(error, RecursionError):
        return f"it is nested too deeply; {_AGAIN}"
    if isinstance(error, UnicodeDecodeError):
        return f"it is no UTF-8 ({error.reason}); write it again in UTF-8"
    said, _, path = str(error).partition(" - at `$")
    if said == "Input data was truncated":
        return "it ends in the middle, as a file does that was cut off; take it again"
    if found := _MALFORMED.fullmatch(said):
        if found[1] == "trailing characters":
            return f"something follows its end (byte {found[2]}); take all kinds in one call"
        return f"{found[1]} (byte {found[2]}); {_AGAIN}"
    lacking, reason = in_words(said)
    place = ".".join(part for part in (path.rstrip("`").lstrip("."), lacking) if part)
    return f"{f'its `{place}`' if place else 'it'} {reason}"
